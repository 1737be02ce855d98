"""The deframer at positions that wrap, with wrong CRCs, and what the scheduler reads of it."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.interfaces import ULPDU_HEADER_OCTETS, Layouts, SegmentKind
from stagecoach.gateware.mpa.deframer import Deframer
from stagecoach.gateware.mpa.layouts import ANSWER, MpaLayouts
from stagecoach.sim.cosim.streams import (
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from stagecoach.sim.model.mpa import Framer
from tests.support.runner import run_cocotb

CONFIG = RnicConfig(qps=4)
WRAP = 1 << 32


@pytest.mark.requirement("MPA-4.3-04")
def test_deframer() -> None:
    run_cocotb(Deframer(CONFIG), __name__, test_filter="check_(?!wrong_crc)")


@pytest.mark.requirement("MPA-6-01", "MPA-4.4-08")
def test_wrong_crc() -> None:
    run_cocotb(Deframer(CONFIG), __name__, test_filter="check_wrong_crc")


class Bench:
    """A deframer with an endless store, in one visit."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.rng = seeded_random()
        self.answers = StreamSource(dut, "answer", ANSWER)
        self.rx = StreamSource(dut, "rx")
        self.segments = StreamSink(dut, "segment", Layouts(CONFIG).segment)
        self.releases = StreamSink(dut, "release", MpaLayouts(CONFIG).rx_release)
        for name in (
            "start",
            "kill",
            "leave",
            "closed",
            "closed_inside",
            "store_address",
            "store_full",
        ):
            getattr(dut, name).value = 0
        self.views: list[tuple[int, int]] = []  # `inside` and `fpdu_end`, each change of them
        self.failures = self.commits = 0

    async def start(self, position: int, *, markers: int, crc: int = 1, qp: int = 2) -> None:
        await start_clock_and_reset(self.dut)
        await self.visit(position, markers=markers, crc=crc, qp=qp)
        cocotb.start_soon(self._watch())
        cocotb.start_soon(self._kill())

    async def visit(
        self, position: int, *, markers: int = 0, crc: int = 1, qp: int = 2, leave: int = 0
    ) -> None:
        """Begin a visit, in the cycle in which the one before is left."""
        dut = self.dut
        dut.leave.value, dut.kill.value = leave, 0
        dut.position.value, dut.markers.value = position, markers
        dut.crc.value, dut.qp.value, dut.start.value = crc, qp, 1
        await RisingEdge(dut.clk)
        dut.start.value, dut.leave.value = 0, 0
        dut.position.value = self.rng.getrandbits(32)
        await RisingEdge(dut.clk)

    async def _watch(self) -> None:
        while True:
            view = int(self.dut.inside.value), int(self.dut.fpdu_end.value)
            if self.views[-1:] != [view]:
                self.views.append(view)
            await RisingEdge(self.dut.clk)

    async def _kill(self) -> None:
        """Counts what is committed and what fails; kills a visit that failed, as the scheduler."""
        while True:
            await RisingEdge(self.dut.clk)
            self.commits += int(self.dut.store_commit.value)
            if self.dut.failed.value:
                self.failures += 1
                self.dut.kill.value = 1

    def give(self, octets: bytes) -> None:
        """Answer a request for these octets."""
        beats = -(-len(octets) // 8)
        self.answers.put({"last_beat": beats - 1, "half": int(len(octets) % 8 == 4)})
        for start in range(0, len(octets), 8):
            word = octets[start : start + 8]
            word += self.rng.randbytes(8 - len(word))
            self.rx.put(int.from_bytes(word, "little"))

    async def settle(self) -> None:
        """Wait until nothing moves; the values are then those of all octets given."""
        for _ in range(4):
            await RisingEdge(self.dut.clk)
        await self.rx.wait_idle()
        for _ in range(2):
            await RisingEdge(self.dut.clk)
        while not self.dut.idle.value:
            await RisingEdge(self.dut.clk)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_positions_and_markers_pass_the_wrap(dut: Any) -> None:
    bench = Bench(dut)
    rng = bench.rng
    framer = Framer(markers=True, position=WRAP - 1536)
    await bench.start(framer.position, markers=1)
    for _ in range(8):
        ulpdu = rng.randbytes(rng.randint(300, 600))
        bench.give(framer.frame(ulpdu))
        segment = await bench.segments.get()
        assert SegmentKind(segment["kind"]) == SegmentKind.FPDU
        assert (
            segment["header"].to_bytes(ULPDU_HEADER_OCTETS, "little") == ulpdu[:ULPDU_HEADER_OCTETS]
        )
        assert (await bench.releases.get())["position"] == framer.position % WRAP
        await bench.settle()
        assert int(dut.consumed.value) == int(dut.fpdu_end.value) == framer.position % WRAP
    assert framer.position > WRAP


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_inside_and_fpdu_end_belong_together(dut: Any) -> None:
    bench = Bench(dut)
    rng = bench.rng
    for markers in (0, 1):
        framer = Framer(markers=bool(markers), position=512 * rng.randrange(1000))
        await bench.start(framer.position, markers=markers)
        bench.views.clear()
        expected = [(0, framer.position)]
        for _ in range(40):
            fpdu = framer.frame(rng.randbytes(rng.choice([1, 14, 500, 1500])))
            cut = 4 * rng.randint(3, max(3, len(fpdu) // 4 - 1))
            bench.give(fpdu[:cut])
            if cut < len(fpdu):
                await bench.settle()
                assert dut.inside.value
                assert int(dut.fpdu_octets.value) == len(fpdu)
                expected.append((1, framer.position))
                bench.give(fpdu[cut:])
            await bench.settle()
            assert not dut.inside.value
            # An FPDU of one word begins and ends at once.
            if len(fpdu) > 8:
                expected += [(1, framer.position)] * (expected[-1] != (1, framer.position))
            expected.append((0, framer.position))
        assert bench.views == expected


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_next_visit_waits_until_the_one_before_has_left(dut: Any) -> None:
    bench = Bench(dut)
    rng = bench.rng
    position = 0
    await bench.start(position, markers=0)
    for number in range(40):
        # The answers of the next visit are there before this one has left.
        fpdus = [Framer().frame(rng.randbytes(rng.randint(3, 100))) for _ in range(4)]
        whole = rng.randint(1, 3)
        octets = b"".join(fpdus[:whole])
        rest = fpdus[whole][: 4 * rng.randint(0, 2)]
        bench.give(octets + rest)
        bench.answers.put({"end": 1})
        next_visit = Framer().frame(rng.randbytes(14))
        bench.give(next_visit)
        beats = -(-len(next_visit) // 8)
        await RisingEdge(dut.clk)
        while bench.rx.pending > beats:
            assert not dut.left.value
            await RisingEdge(dut.clk)
        waited = 0
        while not dut.left.value:
            waited += 1
            await RisingEdge(dut.clk)
        assert waited <= 8
        assert int(dut.consumed.value) == position + len(octets)
        # 4 octets make no word yet.
        assert int(dut.inside.value) == (len(rest) == 8)
        if dut.inside.value:
            assert int(dut.fpdu_octets.value) == len(fpdus[whole])
        for _ in range(rng.randrange(4)):
            await RisingEdge(dut.clk)
        assert bench.rx.pending == beats
        position = 4 * rng.getrandbits(28)
        await bench.visit(position, qp=number % 4, leave=1)
        segments = await bench.segments.get_many(whole + 1)
        assert segments[-1]["qp"] == number % 4
        assert all(SegmentKind(segment["kind"]) == SegmentKind.FPDU for segment in segments)
        await bench.settle()
        assert int(dut.consumed.value) == position + len(next_visit)
        position += len(next_visit)


async def end_visit(bench: Bench) -> None:
    """Wait until the visit has come to its end."""
    bench.answers.put({"end": 1})
    while not bench.dut.left.value:
        await RisingEdge(bench.dut.clk)
    for _ in range(12):  # the segment that says so may come later
        await RisingEdge(bench.dut.clk)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_wrong_crc_stops_the_visit_and_commits_nothing_of_it(dut: Any) -> None:
    bench = Bench(dut)
    rng = bench.rng
    await bench.start(0, markers=0)
    bench.give(Framer().frame(b"abc"))
    await bench.segments.get()
    await end_visit(bench)
    # Of every length in words and halves of words; behind the length each octet, pad and CRC too.
    for length in (*range(1, 15), 40, 41, 300, 1460):
        for markers in (0, 1):
            position = 4 * rng.getrandbits(28)
            fpdus = []
            framer = Framer(markers=bool(markers), position=position)
            for octets in (rng.randrange(1, 60), length, rng.randrange(1, 60)):
                fpdus.append((framer.position, framer.frame(rng.randbytes(octets))))
            start, fpdu = fpdus[1]
            # An octet of a Marker is the Marker's matter.
            marked = {start + i for i in range(len(fpdu)) if markers and (start + i) % 512 < 4}
            free = [i for i in range(len(fpdu)) if start + i not in marked]
            at = rng.choice([*free[2:], free[-1], free[2]])
            wrong = bytearray(fpdu)
            wrong[at] ^= 1 << rng.randrange(8)
            commits, failures = bench.commits, bench.failures
            await bench.visit(position, markers=markers, qp=3, leave=1)
            bench.give(fpdus[0][1] + bytes(wrong) + fpdus[2][1])
            await end_visit(bench)
            segments = await bench.segments.get_many(2)
            assert [SegmentKind(segment["kind"]) for segment in segments] == [
                SegmentKind.FPDU,
                SegmentKind.CRC_ERROR,
            ], (length, markers, at)
            assert [segment["qp"] for segment in segments] == [3, 3]
            assert not len(bench.segments), "something followed the error"
            assert (bench.commits, bench.failures) == (commits + 1, failures + 1)
            assert int(dut.consumed.value) == start % WRAP


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_wrong_crc_means_nothing_while_crcs_are_off(dut: Any) -> None:
    bench = Bench(dut)
    rng = bench.rng
    await bench.start(0, markers=0, crc=0)
    for number in range(40):
        ulpdu = rng.randbytes(rng.randrange(1, 90))
        fpdu = Framer().frame(ulpdu)
        bench.give(fpdu[:-4] + rng.randbytes(4))
        segment = await bench.segments.get()
        assert SegmentKind(segment["kind"]) == SegmentKind.FPDU
        header = segment["header"].to_bytes(ULPDU_HEADER_OCTETS, "little")
        whole = min(len(ulpdu), ULPDU_HEADER_OCTETS)
        assert header[:whole] == ulpdu[:whole]
        assert (bench.commits, bench.failures) == (number + 1, 0)
