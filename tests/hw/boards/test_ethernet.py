"""Frames pass LiteEth's MAC and RGMII PHY whole, or are told to be bad, whatever the link does."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge, Timer
from cocotbext.eth import GmiiFrame

from stagecoach.hw.boards.ethernet import EthernetPort
from stagecoach.hw.boards.litex.mac import verilog
from stagecoach.hw.gates import CELLS
from stagecoach.sim.cosim.streams import seeded_random
from tests.hw.boards.rgmii import DOWN, PERIOD_NS, UP, start, until_up
from tests.support.runner import parameter, run_cocotb

LEAST, LONGEST = 60, 1514
SILENT_CYCLES = 64

GAP = 13
"""Octets between two frames that the MAC sends: one more than there have to be."""

LEAST_GAP = 8
"""Octets between two frames that it receives."""

COUNTERS = ("crc_errors", "preamble_errors", "discarded")


@pytest.mark.parametrize("period_ns", [60, 20, 16, 6.4])
def test_ethernet_port(period_ns: float) -> None:
    port = EthernetPort(SILENT_CYCLES)
    port.verilog = f"{verilog()}\n{(CELLS / 'ddr.v').read_text()}"  # type: ignore[attr-defined]
    run_cocotb(port, __name__, parameters={"PERIOD_NS": str(period_ns)})


async def begin(dut: Any) -> tuple[Any, Any, Any]:
    phy, source, sink = await start(dut, float(parameter("PERIOD_NS")))
    phy.run_clock()
    phy.say(UP)
    await until_up(dut)
    assert int(dut.link.value) == UP
    return phy, source, sink


def counters(dut: Any) -> dict[str, int]:
    return {name: value for name in COUNTERS if (value := int(getattr(dut, name).value))}


async def exchange(rng: Any, phy: Any, source: Any, sink: Any) -> None:
    """A frame each way arrives, and it is the next one that does."""
    there, back = rng.randbytes(rng.randint(LEAST, 200)), rng.randbytes(rng.randint(LEAST, 200))
    source.put(there)
    phy.source.send_nowait(GmiiFrame.from_payload(back))
    sent = await phy.sink.recv()
    assert sent.get_payload() == there and sent.check_fcs()
    assert await sink.take() == (back, False)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_frames_of_all_sizes_both_ways_back_to_back(dut: Any) -> None:
    rng = seeded_random()
    phy, source, sink = await begin(dut)
    sizes = [LEAST, LONGEST, *range(LEAST, LEAST + 17), LONGEST - 3, LEAST, LONGEST]
    frames = [rng.randbytes(size) for size in sizes]
    others = [rng.randbytes(size) for size in reversed(sizes)]
    for frame, other in zip(frames, others, strict=True):
        source.put(frame)
        phy.source.send_nowait(GmiiFrame.from_payload(other))
    # What arrives may have lost a part of its gap on its way (IEEE 802.3, 4.4.2).
    phy.source.ifg = LEAST_GAP
    ended = None
    for frame in frames:
        sent = await phy.sink.recv()
        assert sent.check_fcs() and sent.get_payload() == frame and not sent.error
        if ended is not None:
            assert round((sent.sim_time_start - ended) / 1000 / PERIOD_NS) == GAP
        ended = sent.sim_time_end
    for other in others:
        assert await sink.take() == (other, False)
    assert not counters(dut)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_bad_frames_are_told_or_do_not_come(dut: Any) -> None:
    rng = seeded_random()
    phy, source, sink = await begin(dut)
    expected = dict.fromkeys(COUNTERS, 0)
    for size in (*range(1, 20), LEAST, LEAST + 1, 200, 3000):
        good, bad = (GmiiFrame.from_payload(rng.randbytes(size), min_len=0) for _ in range(2))
        bad.data[-rng.randint(1, size + 4)] ^= 1 << rng.randrange(8)
        for frame in (bad, good, bad):
            phy.source.send_nowait(GmiiFrame(frame))
        assert await sink.take() == (bad.get_payload(), True)
        assert await sink.take() == (good.get_payload(), False)
        assert await sink.take() == (bad.get_payload(), True)
        expected["crc_errors"] += 2
    # Without its first octets, up to the one that begins the frame
    frame = GmiiFrame(bytes(LEAST))
    phy.source.send_nowait(frame)
    await exchange(rng, phy, source, sink)
    expected["preamble_errors"] += 1
    # Less than an FCS
    for size in (2, 3, 4):
        phy.source.send_nowait(GmiiFrame.from_raw_payload(b"1" * size))
        await exchange(rng, phy, source, sink)
        expected["crc_errors"] += 1
    # A single octet is taken for the first one of the next frame.
    phy.source.send_nowait(GmiiFrame.from_raw_payload(b"1"))
    phy.source.send_nowait(GmiiFrame.from_payload(bytes(LEAST)))
    assert await sink.take() == (b"1" + bytes(LEAST), True)
    await exchange(rng, phy, source, sink)
    expected["crc_errors"] += 1
    assert counters(dut) == {name: count for name, count in expected.items() if count}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_the_error_signal_of_the_phy_is_not_looked_at(dut: Any) -> None:
    phy, _, sink = await begin(dut)
    frame = GmiiFrame.from_payload(bytes(LEAST))
    frame.error = [int(20 <= number < 24) for number in range(len(frame))]
    phy.source.send_nowait(frame)
    assert await sink.take() == (bytes(LEAST), False)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_other_links_are_told_and_carry_nothing(dut: Any) -> None:
    rng = seeded_random()
    phy, source, sink = await start(dut, float(parameter("PERIOD_NS")))
    phy.run_clock(40)
    lost = 0
    for status in (DOWN, 0b1011, 0b1001, 0b0101, 0b0100):
        phy.say(status)
        await ClockCycles(dut.clk, 600)
        assert int(dut.link.value) == status and not dut.up.value
        # Nothing waits for a link.
        source.put(rng.randbytes(LONGEST))
        phy.source.send_nowait(GmiiFrame.from_payload(rng.randbytes(LEAST)))
        await ClockCycles(dut.clk, 600)
        lost += 1
        assert source.is_empty and not sink.frames and not sink.part
        assert int(dut.discarded.value) == lost
    phy.run_clock()
    phy.say(UP)
    await until_up(dut)
    assert phy.sink.empty()
    await exchange(rng, phy, source, sink)
    assert int(dut.discarded.value) == lost


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_a_link_that_is_lost_in_the_middle_of_frames(dut: Any) -> None:
    """In all its ways, and after it every frame arrives whole, or is told to be bad."""
    rng = seeded_random()
    phy, source, sink = await begin(dut)
    for number in range(24):
        down, stops, at_once = number & 1, number & 2 or not number & 1, number & 4
        there = [rng.randbytes(rng.choice((LEAST, LONGEST))) for _ in range(3)]
        back = [rng.randbytes(rng.choice((LEAST, LONGEST))) for _ in range(3)]
        for frame in there:
            source.put(frame)
        for frame in back:
            phy.source.send_nowait(GmiiFrame.from_payload(frame))
        await Timer(rng.randint(1, 30_000), unit="ns")
        # The link is lost: the PHY says so, or stops its clock, or both.
        if down:
            phy.say(DOWN)
        if down or at_once:
            phy.cut_off()
        if down and not at_once:
            await Timer(rng.randint(1, 500), unit="ns")
        if stops:
            phy.stop_clock()
        await until_up(dut, 0)
        await ClockCycles(dut.clk, rng.randint(1, 2000))
        # The device gets rid of everything.
        while not source.is_empty:
            await RisingEdge(dut.clk)
        assert not sink.part
        # What arrived is what was sent, in order, and at most one frame was broken off.
        arrived = [frame for frame, bad in sink.frames if not bad]
        assert arrived == back[: len(arrived)] and len(sink.frames) <= len(arrived) + 1
        sink.frames.clear()
        phy.cut_off()
        phy.run_clock()
        # What the PHY received while the MAC was in reset is in the middle.
        phy.source.send_nowait(GmiiFrame.from_payload(rng.randbytes(LONGEST)))
        await Timer(rng.randint(1, 13_000), unit="ns")
        phy.say(UP)
        await until_up(dut)
        sent = [phy.sink.recv_nowait() for _ in range(phy.sink.count())]
        whole = [frame.get_payload() for frame in sent if 0xD5 in frame.data and frame.check_fcs()]
        assert whole == there[: len(whole)] and len(sent) <= len(whole) + 1
        # There may be one that began before the link was up; of it nothing comes.
        await exchange(rng, phy, source, sink)
        assert not sink.frames and phy.sink.empty()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_clock_that_stands_still_for_a_moment_loses_nothing(dut: Any) -> None:
    rng = seeded_random()
    phy, source, sink = await begin(dut)
    there, back = rng.randbytes(LONGEST), rng.randbytes(LONGEST)
    source.put(there)
    phy.source.send_nowait(GmiiFrame.from_payload(back))
    for _ in range(5):
        await Timer(rng.randint(500, 2000), unit="ns")
        phy.stop_clock()
        await ClockCycles(dut.clk, rng.randint(1, SILENT_CYCLES - 20))
        phy.run_clock()
    sent = await phy.sink.recv()
    assert sent.get_payload() == there and sent.check_fcs()
    assert await sink.take() == (back, False)
    assert dut.up.value and not counters(dut)
    await RisingEdge(dut.clk)
