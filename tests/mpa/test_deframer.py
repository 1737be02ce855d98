"""The deframer at positions that wrap, with wrong CRCs, and what the scheduler reads of it."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import ULPDU_HEADER_OCTETS, Layouts, SegmentKind
from stagecoach.gateware.mpa.deframer import Deframer
from stagecoach.gateware.mpa.layouts import ANSWER, MpaLayouts
from stagecoach.sim.cosim.streams import (
    StreamSink,
    StreamSource,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from stagecoach.sim.model.mpa import Framer
from tests.support.runner import run_cocotb

CONFIG = RnicConfig(qps=4)
MPA = MpaLayouts(CONFIG)
WRAP = 1 << 32
END_GAP = 4
"""Cycles from one end of a visit to the next one at the least."""


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
        self.answers = StreamSource(dut, "visit__answer", ANSWER)
        self.rx = StreamSource(dut, "rx")
        self.segments = StreamSink(dut, "segment", Layouts(CONFIG).segment)
        self.releases = StreamSink(dut, "release", MPA.rx_release)
        for name in (
            "visit__visit__valid",
            "visit__held",
            "visit__drop",
            "closed__valid",
            "closed__inside",
            "store__address",
            "store__full",
            "numbers__full",
            "numbers__number",
        ):
            getattr(dut, name).value = 0
        self.views: list[tuple[int, int]] = []  # `inside` and `fpdu_end`, each change of them
        self.commits = self.cycle = 0
        self.ended = -END_GAP  # the cycle in which a visit ended last
        self.ends: list[dict[str, int]] = []  # what visits came to

    async def start(self, position: int, *, markers: int, crc: int = 1, qp: int = 2) -> None:
        await start_clock_and_reset(self.dut)
        cocotb.start_soon(self._watch())
        cocotb.start_soon(self._count())
        await self.visit(position, markers=markers, crc=crc, qp=qp)

    async def visit(
        self, position: int, *, markers: int = 0, crc: int = 1, qp: int = 2, held: int = 1
    ) -> None:
        """Offer a visit, and wait until it is taken."""
        dut = self.dut
        dut.visit__visit__payload.value = pack(
            MPA.visit, {"position": position, "markers": markers, "crc": crc, "qp": qp}
        )
        dut.visit__held.value, dut.visit__visit__valid.value = held, 1
        await RisingEdge(dut.clk)
        while not dut.visit__visit__ready.value:
            await RisingEdge(dut.clk)
        dut.visit__visit__valid.value = 0
        dut.visit__visit__payload.value = self.rng.getrandbits(32)
        dut.visit__held.value = self.rng.getrandbits(1)

    async def _watch(self) -> None:
        while True:
            view = int(self.dut.visit__inside.value), int(self.dut.visit__fpdu_end.value)
            if self.views[-1:] != [view]:
                self.views.append(view)
            await RisingEdge(self.dut.clk)

    async def _count(self) -> None:
        """Counts what is committed and what fails, and keeps what visits came to."""
        while True:
            await RisingEdge(self.dut.clk)
            self.cycle += 1
            assert self.dut.numbers__commit.value == self.dut.store__commit.value
            self.commits += int(self.dut.store__commit.value)
            if self.dut.visit__ended.value:
                assert self.cycle - self.ended >= END_GAP
                self.ended = self.cycle
                self.ends.append(unpack(MPA.visit_end, self.dut.visit__end.value))

    def give(self, octets: bytes, end: int = 0) -> None:
        """Answer a request for these octets."""
        beats = -(-len(octets) // 8)
        half = int(len(octets) % 8 == 4)
        self.answers.put({"last_beat": beats - 1, "half": half, "end": end})
        for start in range(0, len(octets), 8):
            word = octets[start : start + 8]
            word += self.rng.randbytes(8 - len(word))
            self.rx.put(int.from_bytes(word, "little"))

    async def settle(self) -> None:
        """Wait until nothing moves; the values are then those of all octets given."""
        for _ in range(4):
            await RisingEdge(self.dut.clk)
        await self.rx.wait_idle()
        for _ in range(10):
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
        assert int(dut.visit__fpdu_end.value) == framer.position % WRAP
    assert framer.position > WRAP


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_inside_and_fpdu_end_belong_together(dut: Any) -> None:
    bench = Bench(dut)
    rng = bench.rng
    for markers in (0, 1):
        framer = Framer(markers=bool(markers), position=512 * rng.randrange(1000))
        await bench.start(framer.position, markers=markers)
        await bench.settle()
        bench.views.clear()
        expected = [(0, framer.position)]
        for _ in range(40):
            fpdu = framer.frame(rng.randbytes(rng.choice([1, 14, 500, 1500])))
            cut = 4 * rng.randint(3, max(3, len(fpdu) // 4 - 1))
            bench.give(fpdu[:cut])
            if cut < len(fpdu):
                await bench.settle()
                assert dut.visit__inside.value
                assert int(dut.visit__fpdu_octets.value) == len(fpdu)
                expected.append((1, framer.position))
                bench.give(fpdu[cut:])
            await bench.settle()
            assert not dut.visit__inside.value
            # An FPDU of one word begins and ends at once.
            if len(fpdu) > 8:
                expected += [(1, framer.position)] * (expected[-1] != (1, framer.position))
            expected.append((0, framer.position))
        assert bench.views == expected


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_visits_come_to_their_ends_in_order(dut: Any) -> None:
    bench = Bench(dut)
    rng = bench.rng
    await start_clock_and_reset(dut)
    cocotb.start_soon(bench._count())
    expected, told, released = [], [], []
    for number in range(160):
        # The answers of a visit are there before those of the one before have left.
        position, qp = 4 * rng.getrandbits(30), number % 4
        markers, crc = rng.getrandbits(1), rng.getrandbits(1)
        framer = Framer(markers=bool(markers), position=position)
        fpdus = [framer.frame(rng.randbytes(rng.randint(3, 100))) for _ in range(4)]
        if not crc:
            fpdus = [fpdu[:-4] + rng.randbytes(4) for fpdu in fpdus]
        whole = rng.randint(0, 3)
        octets = b"".join(fpdus[:whole])
        rest = fpdus[whole][: 4 * rng.choice([0, 0, 1, 2])]
        together = bool(octets + rest) and rng.getrandbits(1)
        if octets + rest:
            bench.give(octets + rest, end=int(together))
        if not together:
            bench.answers.put({"end": 1, "empty": 1})
        await bench.visit(position, qp=qp, markers=markers, crc=crc)
        for _ in range(rng.choice([0, 0, 5, 40])):
            await RisingEdge(dut.clk)
        # 4 octets make no word yet.
        needed = len(fpdus[whole]) if len(rest) == 8 else 8
        consumed = (position + len(octets)) % WRAP
        expected.append({"qp": qp, "dead": 0, "consumed": consumed, "needed": needed})
        told += [qp] * whole
        if whole:
            released.append({"connection": qp, "position": consumed})
    segments = await bench.segments.get_many(len(told))
    assert [segment["qp"] for segment in segments] == told
    assert all(SegmentKind(segment["kind"]) == SegmentKind.FPDU for segment in segments)
    for _ in range(40):
        await RisingEdge(dut.clk)
    assert bench.ends == expected
    # Besides the last position of each visit, some before it may be released.
    releases = iter(bench.releases.take_all())
    assert all(item in releases for item in released)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_cost_of_a_turn(dut: Any) -> None:
    """A cycle besides the beats at the end of an FPDU, but four cycles for a visit at least."""
    bench = Bench(dut)
    rng = bench.rng
    await start_clock_and_reset(dut)
    cocotb.start_soon(bench._count())
    for beats in (1, 2, 3, 4, 11, 64):
        fpdu = Framer().frame(rng.randbytes(8 * beats - 6))
        assert len(fpdu) == 8 * beats
        for _ in range(12):
            bench.give(fpdu, end=1)
        times = []
        for number in range(12):
            await bench.visit(1000 * number, qp=number % 4)
            times.append(bench.cycle)
        assert (times[-1] - times[4]) / 7 == max(beats + 1, 4), beats
        segments = await bench.segments.get_many(12)
        assert [segment["qp"] for segment in segments] == [number % 4 for number in range(12)]
        await bench.settle()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_cost_of_a_turn_inside_an_fpdu(dut: Any) -> None:
    """What was not whole has to leave the pipeline first."""
    bench = Bench(dut)
    rng = bench.rng
    await start_clock_and_reset(dut)
    cocotb.start_soon(bench._count())
    for beats in (1, 2, 3, 4, 11, 64):
        fpdu = Framer().frame(rng.randbytes(1000))
        for _ in range(12):
            bench.give(fpdu[: 8 * beats], end=1)
        times = []
        for number in range(12):
            await bench.visit(1000 * number, qp=number % 4)
            times.append(bench.cycle)
        assert beats + 7 <= (times[-1] - times[4]) / 7 <= beats + 8, beats
        await bench.settle()
        assert not len(bench.segments)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_visit_after_a_wrong_fpdu_comes_to_nothing(dut: Any) -> None:
    """If it began before that was known; the one after it is not concerned."""
    bench = Bench(dut)
    rng = bench.rng
    await start_clock_and_reset(dut)
    cocotb.start_soon(bench._count())
    for wait in (*range(12), 30):
        bench.ends.clear()
        fpdus = [Framer().frame(rng.randbytes(40)) for _ in range(3)]
        wrong = bytes([*fpdus[0][:20], fpdus[0][20] ^ 4, *fpdus[0][21:]])
        bench.give(wrong, end=1)
        await bench.visit(100, qp=0)
        while bench.rx.pending > 0:
            await RisingEdge(dut.clk)
        for _ in range(wait):
            await RisingEdge(dut.clk)
        for number in (1, 2):
            bench.give(fpdus[number], end=1)
            await bench.visit(100 + 100 * number, qp=number)
        await bench.settle()
        ends = {end["qp"]: (end["dead"], end["consumed"]) for end in bench.ends}
        assert [end["qp"] for end in bench.ends] == [0, 1, 2]
        assert ends[0] == (1, 100)
        assert ends[2] == (0, 300 + len(fpdus[2]))
        kinds = {item["qp"]: SegmentKind(item["kind"]) for item in bench.segments.take_all()}
        assert kinds[0] == SegmentKind.CRC_ERROR
        assert kinds[2] == SegmentKind.FPDU
        assert ends[1] == (0, 200 + len(fpdus[1]) * (1 in kinds))
        assert all(end["needed"] == 8 for end in bench.ends)
        assert (1 in kinds) == (wait > 4), wait


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_visit_that_is_not_held_is_dropped(dut: Any) -> None:
    """From its beginning, or from a command on; the next one is not.

    Nor is the one before, if the visit was held when it began. If not, its last FPDU is dropped,
    too, while it is not verified: then it is not consumed, and requested again.
    """
    bench = Bench(dut)
    rng = bench.rng
    await start_clock_and_reset(dut)
    cocotb.start_soon(bench._count())
    for number in range(120):
        bench.ends.clear()
        fpdus = [Framer().frame(rng.randbytes(rng.randint(1, 60))) for _ in range(3)]
        bench.give(fpdus[0], end=1)
        await bench.visit(100, qp=0)
        wait = rng.randrange(-1, 12)  # cycles after the octets; or the next visit is offered before
        if wait >= 0:
            while bench.rx.pending > 0:
                await RisingEdge(dut.clk)
        for _ in range(wait):
            await RisingEdge(dut.clk)
        held = rng.getrandbits(1)
        for fpdu in fpdus[1:]:
            bench.give(fpdu, end=1)
        await bench.visit(200, qp=1, held=held)
        if held:
            for _ in range(rng.randrange(12)):
                await RisingEdge(dut.clk)
            dut.visit__drop.value = 1
            await RisingEdge(dut.clk)
            dut.visit__drop.value = 0
        await bench.visit(300, qp=2)
        await bench.settle()
        kinds = {item["qp"]: SegmentKind(item["kind"]) for item in bench.segments.take_all()}
        assert set(kinds.values()) == {SegmentKind.FPDU}
        assert 2 in kinds
        assert (0 in kinds) == bool(held or wait > 1), wait
        assert 1 not in kinds or held
        assert [end["qp"] for end in bench.ends] == [0, 1, 2]
        # What was not told is not consumed.
        for qp, end in enumerate(bench.ends):
            consumed = 100 + 100 * qp + len(fpdus[qp]) * (qp in kinds)
            assert (end["dead"], end["consumed"]) == (0, consumed), number
        releases = [item["position"] for item in bench.releases.take_all()]
        for qp in (0, 2):
            assert (100 + 100 * qp + len(fpdus[qp]) in releases) == (qp in kinds)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_llp_that_takes_no_release_holds_visits_up_and_loses_none(dut: Any) -> None:
    bench = Bench(dut)
    rng = bench.rng
    await start_clock_and_reset(dut)
    cocotb.start_soon(bench._count())
    bench.releases.paused = True
    for _ in range(8):
        bench.give(Framer().frame(rng.randbytes(40)), end=1)

    async def visits() -> None:
        for number in range(8):
            await bench.visit(1000 * number, qp=number % 4)

    running = cocotb.start_soon(visits())
    for _ in range(400):
        await RisingEdge(dut.clk)
    # The second visit after the one whose release waits does not begin.
    assert bench.commits == 3
    bench.releases.paused = False
    await running
    await bench.settle()
    releases = await bench.releases.get_many(8)
    assert [item["position"] for item in releases] == [1000 * number + 48 for number in range(8)]
    assert [item["connection"] for item in releases] == [number % 4 for number in range(8)]


async def end_visit(bench: Bench) -> None:
    """Wait until the visit has come to its end."""
    ends = len(bench.ends)
    bench.answers.put({"end": 1, "empty": 1})
    while len(bench.ends) == ends:
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
    # Of every length in words and halves of words; after the length each octet, pad and CRC too.
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
            commits = bench.commits
            await bench.visit(position, markers=markers, qp=3)
            bench.give(fpdus[0][1] + bytes(wrong) + fpdus[2][1])
            await end_visit(bench)
            segments = await bench.segments.get_many(2)
            assert [SegmentKind(segment["kind"]) for segment in segments] == [
                SegmentKind.FPDU,
                SegmentKind.CRC_ERROR,
            ], (length, markers, at)
            assert [segment["qp"] for segment in segments] == [3, 3]
            assert not len(bench.segments), "something followed the error"
            assert bench.commits == commits + 1
            assert bench.ends[-1] == {"qp": 3, "dead": 1, "consumed": start % WRAP, "needed": 8}


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
        assert bench.commits == number + 1
