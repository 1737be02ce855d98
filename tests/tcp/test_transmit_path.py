"""What the LLP sends leaves as the peer allows, again if need be, and nobody waits for ever."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.tcp.layouts import Due, TransmitOperation
from stagecoach.gateware.tcp.transmit_path import TransmitPath
from stagecoach.sim.model.tcp.segment import Flags
from tests.support.runner import run_cocotb
from tests.support.verdicts import Verdicts, each_check, simulate
from tests.tcp.path_bench import DELAYED_ACK_US, LARGEST, RING, SMALLEST, Bench, start
from tests.tcp.receive_reference import SPACE
from tests.tcp.sent_frames import read_by_scapy

FAST = False  # much of the engine, whose blocks have tests of their own

PATTERNS = ("always", "random")


def segment(position: int, octets: int, flags: Flags = Flags.ACK) -> tuple[int, int, Flags]:
    return position, octets, flags


def sent(bench: Bench, connection: int) -> list[tuple[int, int, Flags]]:
    """Segments since this was asked last: where, how long, and their flags."""
    flow = bench.flows[connection]
    found = [
        (flow.position(each.sequence), len(each.payload), each.flags) for each in flow.segments
    ]
    flow.segments.clear()
    return found


RTO_US = 3000
"""Of a round trip of 1 ms: SRTT + 4 RTTVAR, 1 + 4 * 0.5 ms (RFC 6298, 2.2)."""

PUSH = Flags.ACK | Flags.PSH


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_fpdu_leaves_as_one_frame(dut: Any) -> None:
    """And stands in the ring; it costs no read."""
    bench = await start(dut)
    last = bench.connections - 1
    for connection, number in ((0, RING - 100), (last, SPACE - 3)):
        flow = await bench.begin(connection, number)
        assert flow.said == ["EMSS", "TX_WINDOW"]
        for octets in (4, 200, flow.emss):
            begin = len(flow.stream)
            bench.fpdu(connection, octets)
            await bench.rest()
            assert sent(bench, connection) == [segment(begin, octets, PUSH)]
            frame = flow.frames.pop()
            sequence = (number + begin) % SPACE
            payload = bytes(flow.stream[begin:])
            assert frame == flow.ends_of.frame(sequence, PUSH, payload, False)
            read_by_scapy(frame)
        assert flow.written == len(flow.stream)
    assert not bench.read.commands


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_segment_goes_again_after_its_timeout(dut: Any) -> None:
    """Out of the ring, with the octets that it had; over the end of the ring, too."""
    bench = await start(dut, SPACE - 1500)
    flow = await bench.begin(1, RING - 100)
    bench.fpdu(1, 200)
    await bench.rest()
    assert sent(bench, 1) == [segment(0, 200, PUSH)]
    for timeout in (RTO_US, 2 * RTO_US):
        bench.read.commands.clear()
        assert await bench.jump() == timeout
        assert sent(bench, 1) == [segment(0, 200, PUSH)]
        ring = bench.ring(1)
        assert bench.read.commands == [(ring + RING - 100, 100), (ring, 100)]
        assert flow.frames[-1] == flow.frames[0]
    bench.acknowledge(1, 200, 0xFFFF)
    await bench.rest()
    assert not sent(bench, 1)
    bench.read.commands.clear()
    bench.fpdu(1, 20)
    await bench.rest()
    assert sent(bench, 1) == [segment(200, 20, PUSH)]
    assert not bench.read.commands


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_segment_goes_again_after_three_duplicates(dut: Any) -> None:
    bench = await start(dut)
    await bench.begin(0, 5)
    for _ in range(5):
        bench.fpdu(0, 100)
    await bench.rest()
    # Those that waited while another one was worked on may share segments.
    segments = sent(bench, 0)
    lost = segments[1]
    bench.acknowledge(0, lost[0], 0xFFFF)
    for duplicates in (1, 2):
        bench.acknowledge(0, lost[0], 0xFFFF)
        await bench.rest()
        assert not sent(bench, 0), duplicates
    bench.acknowledge(0, lost[0], 0xFFFF)
    await bench.rest()
    assert [each[:2] for each in sent(bench, 0)] == [lost[:2]]
    assert len(bench.read.commands) == 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_shut_window_is_probed(dut: Any) -> None:
    """And what waited leaves when it opens; of what waited, the ring has all."""
    bench = await start(dut)
    flow = await bench.begin(1, SPACE - 30)
    bench.fpdu(1, 100)
    await bench.rest()
    bench.acknowledge(1, 100, 0)
    bench.fpdu(1, 60)
    await bench.rest()
    assert sent(bench, 1) == [segment(0, 100, PUSH)]
    flow.cut = True
    timeouts = []
    for _ in range(2):
        timeouts.append(await bench.jump())
        assert sent(bench, 1) == [segment(100, 1)]
        bench.acknowledge(1, 100, 0)
        await bench.rest()
    assert timeouts[1] == 2 * timeouts[0]
    bench.acknowledge(1, 101, 5000)
    await bench.rest()
    assert sent(bench, 1) == [segment(101, 59, PUSH)]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_ack_waits_for_its_delay(dut: Any) -> None:
    """The second one does not; data that leaves has it."""
    bench = await start(dut)
    await bench.begin(1, 77, attach=False)
    await bench.rest()
    bench.put_data(1)
    await bench.rest()
    assert not sent(bench, 1)
    assert await bench.jump() == DELAYED_ACK_US
    assert sent(bench, 1) == [segment(0, 0)]
    for _ in range(2):
        bench.put_data(1)
    await bench.rest()
    assert sent(bench, 1) == [segment(0, 0)]
    # Behind data, which tells of all: no ACK says that again. To what it answers it is said.
    bench.frames.paused = True
    bench.octets(1, 10)
    await bench.rest()
    for _ in range(4):
        bench.put_data(1)
    await bench.rest()
    bench.frames.paused = False
    await bench.rest()
    assert sent(bench, 1) == [segment(0, 10, PUSH), segment(10, 0)]
    bench.put_note(1, Due.NOW)
    await bench.rest()
    assert sent(bench, 1) == [segment(10, 0)]
    bench.put_data(1)
    await bench.rest()
    bench.octets(1, 10)
    await bench.rest()
    assert sent(bench, 1) == [segment(10, 10, PUSH)]
    bench.acknowledge(1, 20, 0xFFFF)
    await bench.silent()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_close_is_a_fin(dut: Any) -> None:
    """With the last octets, or alone, by the LLP or by a command; then both sides know the end."""
    bench = await start(dut)
    for octets, by_command in ((40, False), (0, False), (0, True)):
        flow = await bench.begin(1, SPACE - 20)
        flow.said.clear()
        if by_command:
            bench.command(1, TransmitOperation.FINISH)
        else:
            bench.fpdu(1, octets, close=True)
        await bench.rest()
        fin = Flags.ACK | Flags.FIN | (Flags.PSH if octets else Flags(0))
        assert sent(bench, 1) == [segment(0, octets, fin)]
        bench.acknowledge(1, octets + 1, 0xFFFF)
        await bench.rest()
        assert not flow.notices
        bench.put_fin(1)
        await bench.rest()
        assert sent(bench, 1) == [segment(octets + 1, 0)]
        assert flow.notices == ["TIME_WAIT"]
        assert flow.said[-1] == "CLOSED"
        await bench.silent()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_octets_of_the_driver_are_cut(dut: Any) -> None:
    """They are in the ring; FPDUs follow them, and begin segments of their own."""
    bench = await start(dut)
    flow = await bench.begin(0, RING - 500, smss=300, attach=False)
    bench.octets(0, 650)
    await bench.rest()
    assert sent(bench, 0) == [segment(0, 300), segment(300, 300), segment(600, 50, PUSH)]
    await bench.attach(0)
    bench.fpdu(0, 100)
    await bench.rest()
    assert sent(bench, 0) == [segment(650, 100, PUSH)]
    assert flow.frames


RESET = Flags.ACK | Flags.RST


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_write_that_fails_ends_the_connection(dut: Any) -> None:
    """What was never stored is not sent again; others go on, and so does it when it begins anew."""
    bench = await start(dut)
    last = bench.connections - 1
    for connection in (0, last):
        await bench.begin(connection, 70)
    flow = bench.flows[last]
    bench.write.failing = range(bench.ring(last), bench.ring(last) + RING)
    bench.acknowledge(last, 0, 0)
    await bench.acks.wait_idle()
    for _ in range(4):
        bench.fpdu(last, 200)
    await bench.rest()
    bench.acknowledge(last, 0, 0xFFFF)
    bench.fpdu(0, 300)
    await bench.rest()
    assert sent(bench, last)[-1] == segment(0, 0, RESET)
    assert not flow.segments
    assert (flow.notices, flow.said[-1]) == (["MEMORY"], "CLOSED")
    assert sent(bench, 0) == [segment(0, 300, PUSH)]
    # An FPDU that comes too late is dropped.
    written = flow.written
    bench.fpdu(last, 100)
    await bench.rest()
    assert (flow.written, flow.segments) == (written, [])
    bench.write.failing = range(0)
    await bench.begin(last, 5)
    bench.fpdu(last, 64)
    await bench.rest()
    await bench.jump()
    assert sent(bench, last) == [segment(0, 64, PUSH)] * 2


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_read_that_fails_ends_the_connection(dut: Any) -> None:
    bench = await start(dut)
    flow = await bench.begin(1, 16)
    bench.fpdu(1, 200)
    await bench.rest()
    bench.read.bad = {bench.ring(1) + 64}
    await bench.jump()
    assert sent(bench, 1) == [segment(0, 200, PUSH), segment(200, 0, RESET)]
    assert (flow.notices, flow.said[-1]) == (["MEMORY"], "CLOSED")
    await bench.silent()
    # So does another block that could not read.
    flow = await bench.begin(0, 16)
    bench.failed.put(0)
    await bench.rest()
    assert sent(bench, 0) == [segment(0, 0, RESET)]
    assert (flow.notices, flow.said[-1]) == (["MEMORY"], "CLOSED")


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_what_was_stored_before_a_begin_does_not_count(dut: Any) -> None:
    """Its ring is that of an earlier connection, and memory is slow to answer others."""
    bench = await start(dut)
    await bench.begin(0, 0)
    for write_fails in (False, True):
        await bench.begin(1, 1 << 20)
        ring = bench.ring(1)
        bench.write.failing = range(ring, ring + RING) if write_fails else range(0)
        bench.fpdu(1, 400)
        await bench.rest()
        bench.put_ack(1, 0, 0, 0, acknowledges=0, reset=1)
        await bench.rest()
        bench.write.failing = range(0)
        bench.write.answers = False
        bench.fpdu(0, 100)
        while not bench.write.waiting:
            await RisingEdge(dut.clk)
        await bench.begin(1, 0, window=0)
        # It goes into the ring alone, and is asked for before it is there.
        bench.fpdu(1, 100)
        await bench.tx.wait_idle()
        await ClockCycles(dut.clk, 200)
        bench.acknowledge(1, 0, 0xFFFF)
        await ClockCycles(dut.clk, 1000)
        assert not sent(bench, 1)
        bench.write.answers = True
        await bench.rest()
        assert sent(bench, 1) == [segment(0, 100, PUSH)]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_reads_that_fail_hold_up_nobody(dut: Any) -> None:
    """While no segment has a place any more, some of those before them fail."""
    bench = await start(dut)
    for connection in (0, 1):
        await bench.begin(connection, 8)
    bench.acknowledge(0, 0, 0)
    await bench.acks.wait_idle()
    for _ in range(7):
        bench.fpdu(0, bench.flows[0].emss)
    await bench.rest()
    bench.read.bad = set(range(bench.ring(0) & ~7, bench.ring(0) + RING, 8))
    bench.read.latency = 2000
    bench.acknowledge(0, 0, 0xFFFF)
    await bench.acks.wait_idle()
    await ClockCycles(dut.clk, 200)
    answers = 30
    for _ in range(answers):
        bench.put_note(1, Due.NOW)
    await bench.rest(3000)
    (reset,) = sent(bench, 0)
    assert reset[1:] == (0, RESET)
    assert bench.flows[0].notices == ["MEMORY"]
    assert len(sent(bench, 1)) == answers


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_notices_that_nobody_takes_hold_up_nobody(dut: Any) -> None:
    """Not even if all connections but one have ended; each is told once, of its end."""
    bench = await start(dut)
    bench.notices.paused = True
    last = bench.connections - 1
    for connection in range(bench.connections):
        await bench.begin(connection, 100, attach=connection == last)
    await bench.rest()
    for connection in range(last):
        bench.put_ack(connection, 0, 0, 0, acknowledges=0, reset=1)
    bench.fpdu(last, 64)
    await bench.rest()
    assert sent(bench, last) == [segment(0, 64, PUSH)]
    # One that is suspect, and then has ended.
    for _ in range(4):
        await bench.jump()
    bench.put_ack(last, 0, 0, 0, acknowledges=0, reset=1)
    await bench.rest()
    assert bench.flows[last].said[-1] == "CLOSED"
    bench.notices.paused = False
    await bench.rest()
    for connection, flow in bench.flows.items():
        assert flow.notices == ["RESET"], connection


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_a_ring_that_is_full(dut: Any) -> None:
    """What was granted fits, and goes over what was acknowledged alone."""
    bench = await start(dut)
    flow = await bench.begin(1, RING - 7000, shift=4)
    left = RING + 3 * flow.emss
    fullest = 0
    while left or flow.acked < len(flow.stream):
        count = min(flow.emss, left, flow.allowed)
        while count:
            bench.fpdu(1, count)
            left -= count
            count = min(flow.emss, left, flow.allowed)
        await bench.rest()
        if flow.allowed >= flow.emss and left:
            continue
        fullest = max(fullest, len(flow.stream) - flow.acked)
        ends = [flow.position(each.sequence) + len(each.payload) for each in flow.segments]
        bench.acknowledge(1, max(ends), 0xFFFF)
        await bench.rest()
    if bench.mss > 1000:
        assert fullest > RING - 2 * flow.emss


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    qps, mtu = LARGEST
    block = TransmitPath(RnicConfig(qps=qps), mtu)
    return simulate(tmp_path_factory, block, __name__, request.param, PATTERNS)


@each_check(globals())
def test_transmit_path(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)


def test_transmit_path_of_the_smallest_size() -> None:
    qps, mtu = SMALLEST
    run_cocotb(
        TransmitPath(RnicConfig(qps=qps), mtu),
        __name__,
        parameters={"PATTERN": "random", "SIZES": f"{qps} {mtu}"},
    )
