"""The NIC as its host and its wire see it: registers, frames of the driver, a TCP connection."""

from typing import Any

import cocotb
import pytest

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.nic import FIRST_ADDRESS, RnicNic
from stagecoach.gateware.tcp.commands import NetworkOpcode
from stagecoach.host_driver import network_registers as network
from stagecoach.host_driver import registers as rnic
from stagecoach.hw.interface.network_entries import FrameFate, InfoFlags, NetworkKind
from stagecoach.hw.interface.registers import NETWORK, registers
from stagecoach.hw.interface.shared import digest, network_digest
from stagecoach.sim.cosim.axi import SLVERR
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.model.tcp.congestion import initial_window
from stagecoach.sim.model.tcp.segment import Flags
from tests.support.runner import parameter, run_cocotb
from tests.tcp.frames import ARP, MAC, PEER
from tests.tcp.nic_host import RTO_US, WINDOW, Host
from tests.tcp.receive_reference import SPACE

FAST = False  # a whole NIC

QPS, MTU = 4, 1500
OCTETS = 1000
DELAYED_ACK_US = 500


@pytest.mark.slow
@pytest.mark.timeout(1800)  # the first run builds the simulator
def test_nic() -> None:
    config = RnicConfig(qps=QPS, cqs=QPS, stags=16)
    run_cocotb(RnicNic(config, MTU), __name__, parameters={"QPS": str(QPS)}, quick=True)


@pytest.mark.parametrize(
    ("config", "mtu", "message"),
    [
        (RnicConfig(data_width=128), 1500, "data_width of a NIC is 128; allowed: 64"),
        (RnicConfig(), 575, "mtu of a NIC is 575; allowed: 576 to 9000"),
        (RnicConfig(), 9001, "mtu of a NIC is 9001; allowed: 576 to 9000"),
    ],
)
def test_a_nic_that_cannot_be_is_refused(config: RnicConfig, mtu: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RnicNic(config, mtu)


def test_no_address_is_of_both_descriptions() -> None:
    assert max(register.address for register in registers()) < FIRST_ADDRESS
    assert min(register.address for register in registers(NETWORK)) == FIRST_ADDRESS


async def begin(dut: Any) -> Host:
    host = Host(dut, seeded_random(parameter("QPS")), MTU)
    await host.start()
    return host


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_registers_of_both_sides_are_at_one_port(dut: Any) -> None:
    host = await begin(dut)
    assert (await host.read(rnic.INTERFACE))["digest"] == digest()
    assert (await host.read(rnic.QUEUES))["qps"] == QPS
    assert (await host.read(network.NETWORK_INTERFACE))["digest"] == network_digest()
    assert await host.read(network.NETWORK_SIZES) == {"connections": QPS, "mtu": MTU}
    before = host.now
    assert before <= (await host.read(network.NETWORK_TIME))["value"] <= host.now
    for hole in (FIRST_ADDRESS - 4, FIRST_ADDRESS + 0xA8, 0xFFC):
        assert (await host.master.read(hole))[1] == SLVERR
        assert await host.master.write(hole, 0) == SLVERR
    assert not dut.irq.value and not dut.network_irq.value and not dut.armed.value


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_frames_of_the_driver_come_and_go(dut: Any) -> None:
    host = await begin(dut)
    await host.open_rings()
    status = {"receive_idle": 1, "transmit_idle": 1, "answers": 0}
    assert await host.read(network.NETWORK_STATUS) == status
    for octets in (46, 47, MTU):
        frame = MAC + PEER + ARP + host.rng.randbytes(octets)
        host.wire.frames.append(frame)
        entry = await host.entry()
        assert (entry["kind"], entry["octets"]) == (NetworkKind.FRAME, len(frame))
        assert host.received == frame
        await host.send_frame(PEER + MAC + frame[12:])
        assert await host.frame() == PEER + MAC + frame[12:]
    await host.cycles(20)
    assert not dut.network_irq.value
    assert (await host.read(network.NETWORK_SENT))["consumer"] == 3
    await host.write(network.NETWORK_FRAME_FATE, fate=FrameFate.RAW)
    assert (await host.read(network.NETWORK_FRAMES_SEEN))["value"] == 3
    # One that is too long is refused, and that is counted.
    await host.send_frame(bytes(MTU + 15))
    await host.cycles(400)
    assert (await host.read(network.NETWORK_FAULTS)) == {"refused": 1, "failed": 0}
    assert (await host.read(network.NETWORK_FRAMES_DROPPED))["value"] == 0
    assert not host.left


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_a_connection_lives_from_its_headers_to_its_end(dut: Any) -> None:
    host = await begin(dut)
    await host.open_rings()
    await host.write(network.NETWORK_DELAYED_ACK, value=DELAYED_ACK_US)
    flow = await host.establish(QPS - 1)
    peer, theirs = flow.peer, flow.ends.number
    octets = host.rng.randbytes(OCTETS)

    # The peer says something: it comes to the ring, the driver hears of it, an ACK leaves in time.
    peer.send(host.now, octets)
    host.answers(flow)
    entry = await host.entry()
    assert (entry["kind"], entry["connection"]) == (NetworkKind.READABLE, flow.number)
    assert entry["acknowledgment"] == (theirs + OCTETS) % SPACE
    assert host.octets(flow, 0, OCTETS) == octets
    assert not host.left and dut.armed.value
    left = (int(dut.deadline.value) - host.now) % SPACE
    assert left <= DELAYED_ACK_US
    host.advance(left)
    ack = await host.segment()
    assert (ack.acknowledgment, ack.payload) == ((theirs + OCTETS) % SPACE, b"")
    host.arrives(flow, ack)
    assert await host.about(flow, NetworkOpcode.RELEASE, OCTETS)

    # The host answers, and the peer hears it; a retransmission would be due until the ACK comes.
    await host.send(flow, 0, octets[::-1])
    segment = await host.segment()
    assert (segment.sequence, segment.payload) == (flow.first, octets[::-1])
    assert dut.armed.value
    info = await host.info(flow)
    assert info["una"] == flow.first
    assert info["next"] == info["max"] == info["end"] == (flow.first + OCTETS) % SPACE
    host.arrives(flow, segment)
    host.advance(peer.next_deadline() - host.now)
    peer.timer(host.now)
    host.answers(flow)
    while (info := await host.info(flow))["una"] == flow.first:
        pass
    assert peer.receive(host.now) == octets[::-1]
    mss = MTU - 40
    assert info["una"] == info["next"] == (flow.first + OCTETS) % SPACE
    assert (info["received"], info["emss"]) == ((theirs + OCTETS) % SPACE, mss)
    assert (info["edge"] - theirs) % SPACE >= WINDOW
    assert info["cwnd"] > initial_window(mss) and info["rto"] <= RTO_US
    assert info["flags"] == InfoFlags.ALIVE | InfoFlags.SAMPLED

    # It is ended by a reset, of which the driver hears; then its frames are for the driver.
    assert await host.about(flow, NetworkOpcode.ABORT)
    reset = await host.segment()
    assert Flags.RST in reset.flags
    entry = await host.entry()
    assert (entry["kind"], entry["connection"]) == (NetworkKind.ABORTED, flow.number)
    assert entry["sequence"] == (flow.first + OCTETS) % SPACE
    peer.send(host.now, b"late")
    host.answers(flow)
    assert (await host.entry())["kind"] == NetworkKind.FRAME
    assert await host.about(flow, NetworkOpcode.FORGET)
    assert not (await host.info(flow))["flags"] & InfoFlags.ALIVE


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_wrong_argument_is_refused_and_nothing_leaves(dut: Any) -> None:
    host = await begin(dut)
    await host.write(network.TCP_CONNECTION, connection=QPS)
    for opcode in NetworkOpcode:
        assert not await host.command(opcode), opcode
    assert not host.left


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_command_that_waits_holds_up_no_frame_that_comes(dut: Any) -> None:
    """FORGET waits for a segment that the MAC does not take; frames come to the driver."""
    host = await begin(dut)
    await host.open_rings()
    host.takes = False  # the MAC takes nothing: what is begun is not over
    flow = await host.establish(0)
    await host.send(flow, 0, bytes(10))
    await host.cycles(200)
    await host.write(network.NETWORK_COMMAND, opcode=NetworkOpcode.FORGET.value)
    await host.cycles(500)
    assert (await host.read(network.NETWORK_COMMAND_STATUS))["busy"]
    frame = MAC + PEER + ARP + bytes(range(46))
    host.wire.frames.append(frame)
    assert (await host.entry())["kind"] == NetworkKind.FRAME and host.received == frame
    host.takes = True
    assert (await host.segment()).payload == bytes(10)
    while (await host.read(network.NETWORK_COMMAND_STATUS))["busy"]:
        pass
