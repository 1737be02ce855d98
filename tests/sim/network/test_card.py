"""Two cards with the stub as their device: streams of programs, echo by the device, its end."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stagecoach.host_driver.network.errors import (
    ConnectionRefused,
    ConnectionTimedOut,
    DuplicateAddress,
    NoNeighbour,
)
from stagecoach.host_driver.network.stream import NetworkStream
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.transport.base import (
    DeviceClosed,
    StreamClosed,
    TransportError,
    TransportTimeout,
)
from stagecoach.host_driver.transport.network import NetworkTransport
from stagecoach.sim.network import timeline
from stagecoach.sim.network.nic import SimulatedNic
from stagecoach.sim.network.timeline import CycleTime
from stagecoach.sim.wire.clock import CYCLE_PS
from stagecoach.sim.wire.errors import WireAddressError, WireError, WireInUse
from tests.sim.conftest import STUB_CONFIG

SCRATCH, IRQ, ANEW, CYCLES, FINISH = 0x4, 0x20, 0x24, 0x2C, 0x30

pytestmark = pytest.mark.timeout(120)

Open = Callable[..., SimulatedNic]


@pytest.fixture
def opened(stub_library: Path, tmp_path: Path) -> Iterator[Open]:
    """Opens a card by its last octet; all are on one wire."""
    with ExitStack() as stack:

        def open_card(number: int, time: CycleTime | None, options: str = "") -> SimulatedNic:
            wire = f"pair:{tmp_path.name}"
            return stack.enter_context(
                SimulatedNic(
                    f"sim://?wire={wire}&ip=192.0.2.{number}/24&tcp=reference{options}",
                    STUB_CONFIG,
                    time=time,
                    library=stub_library,
                )
            )

        yield open_card


@pytest.fixture(params=["cycle", "wall"])
def pair(request, opened: Open) -> tuple[SimulatedNic, SimulatedNic]:
    time = CycleTime() if request.param == "cycle" else None
    return opened(1, time), opened(2, time)


def streams(here: SimulatedNic, there: SimulatedNic) -> tuple[NetworkStream, NetworkStream]:
    with there.listen("", 0) as listener:
        active = here.connect("192.0.2.2", listener.address[1], 10)
        return active, listener.accept(10)


def begin_anew(nic: SimulatedNic) -> None:
    for connection in range(STUB_CONFIG.qps):
        nic.write_register(ANEW, connection)


def test_registers_and_memory_are_those_of_the_device(pair):
    for nic in pair:
        assert isinstance(nic, NetworkTransport)
        nic.write_register(SCRATCH, 0x12345678)
        assert nic.read_register(SCRATCH) == 0x12345678
        with pytest.raises(TransportError, match="error response"):
            nic.read_register(0xFFC)
        with pytest.raises(ValueError, match="register address"):
            nic.read_register(2)
        before = nic.cycles
        nic.run_cycles(5000)
        assert nic.cycles >= before + 5000
        buffer = bytearray(64)
        nic.unmap_memory(nic.map_memory(buffer))


def test_it_says_what_it_is(pair):
    info = pair[1].info
    assert info["tcp"] == pair[1].network.engine == "reference"
    assert (info["ip"], info["mtu"], info["mac"]) == ("192.0.2.2/24", 1500, "02:00:c0:00:02:02")
    assert pair[1].network.maximum_connections == STUB_CONFIG.qps
    about = rf"<SimulatedNic of {STUB_CONFIG.qps} QPs: \d+ cycles, 192\.0\.2\.2/24 at pair:.+"
    assert re.fullmatch(f"{about}>", repr(pair[1]))
    pair[1].close()
    assert re.fullmatch(f"{about}, closed>", repr(pair[1]))


def test_interrupts_are_waited_for(pair):
    nic = pair[0]
    assert not nic.wait_interrupt(0.01)
    nic.write_register(IRQ, 1)
    assert nic.wait_interrupt(5)
    nic.write_register(IRQ, 0)
    nic.wait_interrupt(0.0)
    assert not nic.wait_interrupt(0.01)


@pytest.mark.requirement("TCP-MUST-48", "TCP-MUST-49", "TCP-SHLD-21", "TCP-SHLD-22")
def test_dscp_and_ttl_are_those_of_the_program_on_the_wire(opened):
    time = CycleTime()
    here, there = opened(1, time, "&ttl=33"), opened(2, time)
    with there.listen("", 7, dscp=10) as listener:
        active = here.connect("192.0.2.2", 7, 10, dscp=46)
        passive = listener.accept(10)
    active.sendall(b"first", 10)
    assert passive.receive_exactly(5, 10) == b"first"
    here.stack.set_ip(active, dscp=8, ttl=5)
    active.sendall(b"second", 10)
    assert passive.receive_exactly(6, 10) == b"second"
    active.close()
    passive.close()
    here.run_cycles(100_000)
    sent: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    for frame in here.network.frame_heads():
        if frame.head[12:14] == b"\x08\0":  # IPv4
            sent[frame.sent].append((frame.head[15], frame.head[22]))
    assert set(sent[False]) == {(10 << 2, 64)}
    before = sent[True].count((46 << 2, 33))
    # SYN, ACK, data; then data, FIN, ACK of the other FIN.
    assert before >= 3 and len(sent[True]) >= before + 3
    assert sent[True] == [(46 << 2, 33)] * before + [(8 << 2, 5)] * (len(sent[True]) - before)


def test_programs_exchange_octets_and_ends(pair):
    active, passive = streams(*pair)
    active.sendall(b"question" * 10_000, 30)
    assert passive.receive_exactly(80_000, 30) == b"question" * 10_000
    passive.sendall(b"answer", 10)
    passive.close()
    assert active.receive_exactly(6, 10) == b"answer"
    with pytest.raises(StreamClosed):
        active.receive_exactly(1, 10)
    active.close()


def test_a_ping_is_answered(pair):
    assert 0 <= pair[0].stack.ping("192.0.2.2", 10) < 10_000_000


def test_an_answer_takes_as_long_as_the_wire(opened):
    time = CycleTime()
    here, _ = opened(1, time, "&delay_us=7"), opened(2, time)
    here.stack.ping("192.0.2.2", 10)  # now the neighbour is known
    # Both ways through both wires; only that of one has a delay.
    assert 14 <= here.stack.ping("192.0.2.2", 10) <= 16


def test_a_device_echoes_what_a_program_sends(pair):
    here, there = pair
    begin_anew(there)
    active, passive = streams(here, there)
    there.attach(2, passive)
    content = bytes(range(256)) * 200
    active.sendall(content, 30)
    assert active.receive_exactly(len(content), 30) == content
    there.detach(2)
    with pytest.raises(StreamClosed):
        active.receive_exactly(1, 10)
    active.close()
    assert there.statistics()["faults"] == []
    with pytest.raises(TransportError, match="connection 2 has no stream"):
        there.detach(2)


@pytest.mark.parametrize("impairments", ["loss=0.02", "loss=0.01&duplicate=0.05&reorder=0.05"])
def test_whatever_the_wire_does_all_octets_are_echoed_and_the_time_repeats(
    stub_library, tmp_path, impairments, monkeypatch
):
    monkeypatch.setattr(timeline, "PATIENCE", 4000)  # however busy the machine is
    found = [echoed(stub_library, f"{tmp_path.name}-{n}", impairments) for n in range(2)]
    assert found[0] == found[1]
    assert found[0][1] > 0


def echoed(library: Path, wire: str, impairments: str) -> tuple[int, int, list[object]]:
    """Cycles, retransmissions, and figures of both ends."""
    time = CycleTime()
    options = f"&rto_min_ms=1&{impairments}"
    with ExitStack() as stack:
        here, there = (
            stack.enter_context(
                SimulatedNic(
                    f"sim://?wire=pair:{wire}&ip=192.0.2.{number}/24&tcp=reference{options}&seed={number}",
                    STUB_CONFIG,
                    time=time,
                    library=library,
                )
            )
            for number in (1, 2)
        )
        begin_anew(there)
        active, passive = streams(here, there)
        there.attach(0, passive)
        content = bytes(range(256)) * 400
        active.sendall(content, 60)
        assert active.receive_exactly(len(content), 60) == content
        infos = [each.info for nic in (here, there) for each in nic.stack.connections()]
        figures = [
            (info.segments_sent, info.retransmissions, info.octets_sent, info.smoothed_rtt_us)
            for info in infos
            if info is not None
        ]
        return time.cycles, sum(figure[1] for figure in figures), figures


def test_a_device_that_fails_is_named(pair):
    nic = pair[0]
    with pytest.raises(DeviceClosed, match="finish"):
        nic.write_register(FINISH, 1)
        nic.read_register(SCRATCH)
    with pytest.raises(DeviceClosed):
        nic.read_register(SCRATCH)


def test_a_port_without_a_listener_is_refused(pair):
    with pytest.raises(ConnectionRefused, match=r"192\.0\.2\.2:99 refused"):
        pair[0].connect("192.0.2.2", 99, 5)


def test_calls_after_the_end_are_refused(pair):
    nic = pair[0]
    nic.close()
    nic.close()
    for call in (
        lambda: nic.read_register(0),
        lambda: nic.listen("", 0),
        lambda: nic.wait_interrupt(0.1),
        lambda: nic.network.send_frame(bytes(60)),
        lambda: nic.network.receive_frame(),
    ):
        with pytest.raises(DeviceClosed):
            call()
    # The cable of the other one is unplugged; its device goes on.
    pair[1].write_register(SCRATCH, 7)
    assert pair[1].read_register(SCRATCH) == 7
    with pytest.raises(TransportError):
        pair[1].connect("192.0.2.1", 9, 3)
    assert not pair[1].carrier
    assert pair[1].info["carrier"].startswith("lost: pair:")


def test_a_peer_that_went_is_why_nothing_answers(pair):
    pair[0].close()
    lost = r" \(carrier lost: pair:\S+ the peer closed the stream\)$"
    with pytest.raises(NoNeighbour, match="does not answer ARP requests" + lost):
        pair[1].stack.ping("192.0.2.9", 10)
    with pytest.raises(TransportError, match=lost):
        pair[1].connect("192.0.2.1", 9, 3)


def test_frames_that_are_too_long_for_a_device_are_counted_and_do_no_harm(opened):
    time = CycleTime()
    here, there = opened(1, time, "&mtu=9000"), opened(2, time)
    active, passive = streams(here, there)
    with pytest.raises(TransportTimeout, match=r"192\.0\.2\.2 sent no reply in 1 s$"):
        here.stack.ping("192.0.2.2", 1, 8000)
    assert there.stack.counters["wire_too_long"] == 1
    active.sendall(b"ab", 10)
    assert passive.receive_exactly(2, 10) == b"ab"
    assert there.carrier


def test_the_carrier_is_looked_at_while_nobody_serves_the_wire(pair):
    nic = pair[0]
    found: list[str] = []
    asks = threading.Thread(target=lambda: found.append(nic.info["carrier"]))
    with nic._time.lock:
        asks.start()
        asks.join(0.2)
        assert not found
    asks.join(20)
    assert found == ["up"]


def test_a_call_that_waits_ends_with_the_card(pair):
    nic = pair[0]
    listener = nic.listen("", 5)
    error: list[BaseException] = []
    waits = threading.Event()

    def accept() -> None:
        waits.set()
        try:
            listener.accept(None)
        except (DeviceClosed, StreamClosed) as raised:
            error.append(raised)

    thread = threading.Thread(target=accept)
    thread.start()
    assert waits.wait(20)
    thread.join(0.2)
    assert thread.is_alive()
    nic.close()
    thread.join(20)
    assert error


@pytest.mark.requirement("TCP-MUST-24", "TCP-MUST-26", "TCP-MUST-29")
def test_keep_alive_finds_a_peer_that_is_gone_and_no_other(opened):
    time = CycleTime()
    here, there = opened(1, time, "&keep_alive_s=2"), opened(2, time)
    active, passive = streams(here, there)
    here.run_cycles(round(29e12 / CYCLE_PS))
    assert (
        here.stack.counters["keep_alive_probes"] == 7
    )  # every 4 seconds: the answer puts the next one off
    active.sendall(b"a", 10)
    assert passive.receive_exactly(1, 10) == b"a"
    here.run_cycles(round(1e12 / CYCLE_PS))  # its ACK comes
    there._card.unplugged = WireError("the cable was pulled")
    with pytest.raises(ConnectionTimedOut, match="the connection timed out"):
        active.receive_exactly(1, 60)
    assert "keep_alive_probes" not in there.stack.counters


@pytest.mark.parametrize("options", ["", "&mac=02:00:00:00:00:09"])
def test_an_address_that_another_one_has_is_refused(opened, options):
    time = CycleTime()
    opened(1, time)
    with pytest.raises(DuplicateAddress, match=r"192\.0\.2\.1 belongs to the interface 02:00"):
        opened(1, time, options)


def test_a_third_end_of_a_pair_is_refused(opened):
    time = CycleTime()
    opened(1, time)
    opened(2, time)
    with pytest.raises(WireInUse, match="it has two ends already"):
        opened(3, time)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("sim://?wire=pair:x&ip=192.0.2.1/24&mtu=575", "mtu is '575'; allowed: 576 to 9000"),
        ("sim://?wire=pair:x&ip=192.0.2.1", "ip is '192.0.2.1'"),
        ("sim://?wire=pair:x", "no ip in"),
    ],
)
def test_a_wrong_address_is_refused_before_anything_is_built(address, message):
    with pytest.raises(WireAddressError, match=message):
        SimulatedNic(address)


def test_it_says_how_the_stream_of_a_qp_ended(pair):
    here, there = pair
    begin_anew(there)
    for qp in range(2):
        active, passive = streams(here, there)
        there.attach(qp, passive)
        if qp:
            here.network.abort(active.handle)
        else:
            active.close()

    def over() -> bool:
        states = {each.qp: each.state for each in there.stack.connections()}
        return 1 not in states and states.get(0) != "ESTABLISHED"

    while not over():
        there.run_cycles(1000)
    assert [there.stream_end(qp) for qp in range(3)] == [StreamEnd.CLOSED, StreamEnd.RESET, None]


def test_a_detach_that_is_late_says_so(opened):
    time = CycleTime()
    here, there = opened(1, time), opened(2, time)
    begin_anew(there)
    _, passive = streams(here, there)
    there.attach(1, passive)
    with pytest.raises(TransportTimeout, match="detach of connection 1"):
        there.detach(1, 0.0)
    # The connection is free again.
    _, passive = streams(here, there)
    there.attach(1, passive)
    there.detach(1)
