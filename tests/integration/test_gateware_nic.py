"""Two compiled NICs with the TCP engine in gateware, joined by a wire, and their drivers."""

import random
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from stagecoach import CQ, SGE, CycleTime, RecvWR, SendWR, SimulatedNic, StreamClosed, WROpcode
from stagecoach.host_driver.network.errors import (
    ConnectionRefused,
    ConnectionTimedOut,
    NoNeighbour,
)
from stagecoach.host_driver.network.stream import NetworkStream
from stagecoach.host_driver.transport.base import TransportTimeout
from stagecoach.host_driver.transport.network import ConnectionInfo
from stagecoach.sim.network import timeline
from stagecoach.sim.wire.clock import CYCLE_PS
from stagecoach.sim.wire.errors import WireError
from tests.integration.test_simulated_nic import Side, join
from tests.support.compiled_nic import NIC_CONFIG, nic_library

OCTETS = 1 << 16

pytestmark = [pytest.mark.usefixtures("compiled_nic"), pytest.mark.timeout(300)]

Open = Callable[..., tuple[SimulatedNic, SimulatedNic]]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens two cards at one wire."""
    with ExitStack() as stack:
        opened: list[SimulatedNic] = []

        def open_cards(
            time: CycleTime | None, options: str = "", wire: str = ""
        ) -> tuple[SimulatedNic, SimulatedNic]:
            for number in (1, 2):
                address = (
                    f"sim://?wire=pair:{tmp_path.name}{wire}&ip=192.0.2.{number}/24&tcp=engine"
                    f"&rto_min_ms=1&seed={number}{options}"
                )
                nic = SimulatedNic(address, NIC_CONFIG, time=time, library=nic_library())
                opened.append(stack.enter_context(nic))
            return opened[-2], opened[-1]

        yield open_cards
        assert [nic.statistics()["faults"] for nic in opened] == [[] for _ in opened]


@pytest.fixture(params=["cycle", "wall"])
def pair(request: pytest.FixtureRequest, opened: Open) -> tuple[SimulatedNic, SimulatedNic]:
    return opened(CycleTime() if request.param == "cycle" else None)


def streams(here: SimulatedNic, there: SimulatedNic) -> tuple[NetworkStream, NetworkStream]:
    with there.listen("", 0) as listener:
        active = here.connect("192.0.2.2", listener.address[1], 10)
        return active, listener.accept(10)


def test_it_says_what_it_is(pair):
    assert [nic.info["tcp"] for nic in pair] == ["gateware"] * 2
    assert pair[0].network.maximum_connections == NIC_CONFIG.qps


@pytest.mark.requirement("IP-1122-3.2.2.6-01", "ICMP-01")
def test_echo(pair):
    here, there = pair
    assert here.stack.ping("192.0.2.2") > 0
    assert there.stack.ping("192.0.2.1") > 0


def test_octets_of_programs_cross_in_both_directions(pair):
    active, passive = streams(*pair)
    content = random.Random(1).randbytes(OCTETS)
    for source, sink in ((active, passive), (passive, active)):
        sender = threading.Thread(target=source.sendall, args=(content,))
        sender.start()
        assert sink.receive_exactly(len(content)) == content
        sender.join()
    active.close()
    with pytest.raises(StreamClosed):
        passive.receive_exactly(1)
    passive.close()


def test_connections_tell_how_they_do(pair):
    active, passive = streams(*pair)
    active.sendall(b"12345678")
    assert passive.receive_exactly(8) == b"12345678"
    passive.sendall(b"1234")
    assert active.receive_exactly(4) == b"1234"
    for nic in pair:
        (status,) = (each for each in nic.stack.connections() if each.info is not None)
        assert status.state == "ESTABLISHED"
        assert status.info is not None
        assert status.info.maximum_segment_size == 1460
        assert status.info.smoothed_rtt_us is not None
        octets = status.info.octets_sent, status.info.octets_received
        assert octets == ((8, 4) if nic is pair[0] else (4, 8))
        assert status.info.segments_sent > 0 and status.info.segments_received > 0


def established(nic: SimulatedNic) -> ConnectionInfo:
    """How its connection does; those that end are another matter."""
    (found,) = (
        each.info
        for each in nic.stack.connections()
        if each.info is not None and each.state == "ESTABLISHED"
    )
    return found


def test_segments_are_those_that_the_wire_carries(opened):
    """Of connections that have the same number, one after the other; some are sent again."""
    here, there = opened(CycleTime(), "&loss=0.1")
    # Of three requests for an address, or their answers, all are lost one time in a hundred.
    for _ in range(5):
        with suppress(NoNeighbour, TransportTimeout):
            here.stack.ping("192.0.2.2", 10)
            break
    for _ in range(NIC_CONFIG.qps + 2):
        active, passive = streams(here, there)
        active.sendall(bytes(30_000), 60)
        assert passive.receive_exactly(30_000, 60) == bytes(30_000)
        here.run_cycles(300_000)
        mine, theirs = established(here), established(there)
        assert (mine.octets_sent, theirs.octets_received) == (30_000, 30_000)
        assert mine.segments_sent - mine.retransmissions >= 30_000 // 1460
        assert theirs.segments_received <= mine.segments_sent < 200
        assert mine.segments_received <= theirs.segments_sent < 200
        assert theirs.retransmissions == 0
        active.close()
        passive.close()
        here.run_cycles(3_000_000)


@pytest.mark.requirement("TCP-MUST-24", "TCP-MUST-26", "TCP-MUST-29")
def test_keep_alive_finds_a_peer_that_is_gone_and_no_other(opened):
    here, there = opened(CycleTime(), "&keep_alive_s=2")
    active, passive = streams(here, there)
    there.stack.set_keep_alive(passive, None)
    here.run_cycles(round(29e12 / CYCLE_PS))
    # Every 4 seconds: the answer puts the next one off.
    assert here.stack.counters["keep_alive_probes"] == 7
    active.sendall(b"a", 10)
    assert passive.receive_exactly(1, 10) == b"a"
    here.run_cycles(round(1e12 / CYCLE_PS))  # its ACK comes
    there._card.unplugged = WireError("the cable was pulled")
    with pytest.raises(ConnectionTimedOut, match="the connection timed out"):
        active.receive_exactly(1, 60)
    assert "keep_alive_probes" not in there.stack.counters


def test_frames_are_counted_by_what_became_of_them(pair):
    active, passive = streams(*pair)
    active.sendall(b"12345678")
    assert passive.receive_exactly(8) == b"12345678"
    for nic in pair:
        counters = nic.stack.counters
        assert counters["frames_segment"] > 0 and counters["frames_raw"] > 0
        assert "frames_full" not in counters and "frames_tcp_checksum" not in counters


@pytest.mark.requirement("TCP-3.5.2-01", "TCP-3.5.3-01")
def test_nobody_who_listens_refuses(pair):
    with pytest.raises(ConnectionRefused):
        pair[0].connect("192.0.2.2", 99, 10)


def test_the_last_frames_are_seen(pair):
    pair[0].stack.ping("192.0.2.2")
    for nic in pair:
        heads = nic.network.frame_heads()
        assert {head.sent for head in heads} == {False, True}


@dataclass(frozen=True)
class Transfer:
    """Two sides that are joined, and a region of each."""

    here: Side
    there: Side
    octets: int

    def write_and_read(self) -> list[int]:
        """A Write and a Read of the same octets; returns when each was done."""
        here, octets = self.here, self.octets
        content = random.Random(octets).randbytes(octets)
        source, read = here.region(content), here.region(octets)
        target = self.there.region(octets)
        remote = {"remote_addr": target.addr, "rkey": target.rkey}
        times = []
        for opcode, region in ((WROpcode.RDMA_WRITE, source), (WROpcode.RDMA_READ, read)):
            element = SGE(region.addr, octets, region.lkey)
            here.qp.post_send(SendWR(opcode=opcode, sg=[element], **remote))
            here.done()
            times.append(here.nic.cycles)
        assert target.buf == read.buf == content
        return times

    def send(self) -> None:
        """A Send from there."""
        content = random.Random(-self.octets).randbytes(self.octets)
        received, source = self.here.region(self.octets), self.there.region(content)
        sge = SGE(received.addr, self.octets, received.lkey)
        self.here.qp.post_recv(RecvWR(sg=[sge]))
        self.there.qp.post_send(SendWR(sg=[SGE(source.addr, self.octets, source.lkey)]))
        self.here.done()
        self.there.done()
        assert received.buf == content


@contextmanager
def joined(nics: tuple[SimulatedNic, SimulatedNic], octets: int = OCTETS) -> Iterator[Transfer]:
    here, there = map(Side, nics)
    join(here, there)
    yield Transfer(here, there, octets)
    here.context.close()
    there.context.close()


def transfer(nics: tuple[SimulatedNic, SimulatedNic]) -> list[int]:
    """A Write, a Read and a Send; returns when the first two were done."""
    with joined(nics) as both:
        times = both.write_and_read()
        both.send()
    return times


def test_messages_cross(pair):
    transfer(pair)


def test_a_run_with_the_same_numbers_takes_as_long(opened, monkeypatch):
    """But for threads that come to registers at once, some periods earlier or later.

    Where an octet is in a word of a ring depends on the initial sequence numbers.
    """
    monkeypatch.setattr(timeline, "PATIENCE", 4000)  # however busy the machine is
    runs = []
    for number in range(2):
        drawn = random.Random(3)
        monkeypatch.setattr(secrets, "randbits", drawn.getrandbits)
        monkeypatch.setattr(secrets, "token_bytes", drawn.randbytes)
        runs.append(transfer(opened(CycleTime(), "", str(number))))
    for one, other in zip(*runs, strict=True):
        assert abs(one - other) <= 16 * timeline.PERIOD


def test_a_wire_that_does_everything_wrong_costs_only_time(opened):
    options = "&loss=0.01&duplicate=0.02&reorder=0.02&corrupt=0.01&delay_us=5"
    transfer(opened(CycleTime(), options))


def test_small_segments(opened):
    """Packets shorter than those that the device could send."""
    nics = opened(CycleTime(), "&mtu=576")
    transfer(nics)


@pytest.mark.requirement("PMTUD-6.4-02")
def test_a_smaller_path_reaches_the_device(opened):
    with joined(opened(CycleTime()), 20_000) as both:
        nic = both.here.nic
        (connection,) = nic.stack._connections.engine
        nic.network.set_segment_size(connection.handle, 512)
        nic.run_cycles(1000)
        both.write_and_read()
        assert both.here.context.fpdus_sent >= 20_000 // 512


def test_the_end_of_one_stops_the_other_and_another_follows(pair):
    here, there = map(Side, pair)
    for _ in range(NIC_CONFIG.qps + 2):
        join(here, there)
        Transfer(here, there, 5_000).write_and_read()
        here.qp.disconnect()
        there.context.poll_until(lambda: there.qp.state.name != "RTS", 20, "the end of the QP")
        there.qp.close()
        here.qp.close()
        here.qp, there.qp = here.new_qp(), there.new_qp()
    here.context.close()
    there.context.close()


def test_many_connections_at_once(pair):
    here, there = map(Side, pair)
    qps = []
    for number in range(NIC_CONFIG.qps):
        if number:
            for side in (here, there):
                side.cq = CQ(side.context, 64)
                side.qp = side.new_qp()
        join(here, there)
        qps.append((here.qp, here.cq, there.qp, there.cq))
    for here.qp, here.cq, there.qp, there.cq in qps:
        both = Transfer(here, there, 5_000)
        both.write_and_read()
        both.send()
    here.context.close()
    there.context.close()


@pytest.mark.requirement("TCP-MUST-20", "TCP-SHLD-11")
def test_a_peer_that_is_silent_is_given_up(opened):
    """The wire is lost from one moment on; the connection times out after R2 of simulated time."""
    here, there = opened(CycleTime())
    active, _ = streams(here, there)
    there._card.unplugged = WireError("the test has pulled the cable")
    active.sendall(b"12345678")
    with pytest.raises(ConnectionTimedOut):
        active.receive_exactly(1)


def test_there_is_no_llp_port_to_record(tmp_path):
    address = f"sim://?wire=pair:{tmp_path.name}&ip=192.0.2.1/24&tcp=engine"
    with pytest.raises(RuntimeError, match="a NIC has no LLP port to record"):
        SimulatedNic(address, NIC_CONFIG, record=True, library=nic_library())
