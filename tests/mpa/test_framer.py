"""The framer sends FPDUs as RFC 5044, 4.1 to 4.4 lay them out, at full rate."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge
from cocotb.utils import get_sim_time

from stagecoach.gateware.config import MAX_ULPDU_LENGTH, RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.mpa.framer import Framer
from stagecoach.gateware.mpa.layouts import ULPDU_BEAT, MpaLayouts
from stagecoach.sim.cosim.signals import every_cycle, reader
from stagecoach.sim.cosim.streams import (
    CLOCK_PERIOD_NS,
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from stagecoach.sim.model.markers import MARKER_INTERVAL, MARKER_OCTETS
from stagecoach.sim.model.mpa import Framer as ModelFramer
from stagecoach.sim.model.mpa import frame_fpdu
from tests.mpa.vectors import all_vectors
from tests.support.runner import parameter
from tests.support.verdicts import PATTERNS, Verdicts, each_check, shows, simulate

CONFIG = RnicConfig(qps=8)
MPA = MpaLayouts(CONFIG)
SENT = Layouts(CONFIG).sent_item


POSITIONS = MARKER_INTERVAL // MARKER_OCTETS


def until_marker(position: int) -> int:
    """What the job of an FPDU at a stream position says."""
    return -position % MARKER_INTERVAL // MARKER_OCTETS


class Bench:
    """A framer with a source of ULPDUs and an LLP."""

    def __init__(self, dut: Any, pattern: str, sent_pattern: str = "always") -> None:
        self.dut = dut
        self.rng = rng = seeded_random(pattern)
        self.jobs = StreamSource(dut, "job", MPA.framer_job, rng=rng, pattern=pattern)
        self.beats = StreamSource(dut, "i", ULPDU_BEAT, rng=rng, pattern=pattern)
        self.tx = StreamSink(dut, "tx", MPA.tx, rng=rng, pattern=pattern)
        self.sent = StreamSink(dut, "sent", SENT, rng=rng, pattern=sent_pattern)
        self.monitor = StreamMonitor(dut, "tx", MPA.tx)
        StreamMonitor(dut, "sent", SENT)
        self.finished: list[int] = []
        self.spoiled: list[tuple[int, int]] = []  # QP, and reports that were valid before
        self.reports = 0
        names = ("spoiled__valid", "finished__valid", "sent__valid", "sent__ready")
        self._read = {name: reader(getattr(dut, name)) for name in names}
        every_cycle(dut, self._watch)

    def _watch(self, in_reset: bool) -> None:
        if in_reset:
            return
        read = self._read
        if read["spoiled__valid"]():
            self.spoiled.append((int(self.dut.spoiled__qp.value), self.reports))
        if read["finished__valid"]():
            self.finished.append(int(self.dut.finished__qp.value))
        self.reports += read["sent__valid"]() and read["sent__ready"]()

    def put(self, ulpdu: bytes, qp: int = 0, *, error: bool = False, **fields: Any) -> None:
        """Queue a ULPDU with noise in all lanes that mean nothing."""
        job = {"qp": qp, "ulpdu_length": len(ulpdu), "crc": 1}
        # Without Markers their position means nothing.
        job["until_marker"] = self.rng.randrange(POSITIONS)
        self.jobs.put({**job, **fields})
        octets = self.rng.randbytes(2) + ulpdu
        octets += self.rng.randbytes(-len(octets) % 8)
        for start in range(0, len(octets), 8):
            last = start + 8 >= len(octets)
            word = int.from_bytes(octets[start : start + 8], "little")
            self.beats.put({"data": word, "last": last, "error": last and error})

    def put_next(self, framer: ModelFramer, ulpdu: bytes, qp: int = 0) -> bytes:
        """Queue the next ULPDU of a connection; return the FPDU that must come."""
        self.put(
            ulpdu,
            qp,
            crc=framer.crc,
            markers=framer.markers,
            until_marker=until_marker(framer.position),
        )
        return framer.frame(ulpdu)

    async def fpdu(self) -> tuple[int, bytes]:
        """Return the connection and the octets of the next FPDU."""
        beats = await self.tx.get_until("last")
        assert [beat["first"] for beat in beats] == [1] + [0] * (len(beats) - 1)
        assert {beat["connection"] for beat in beats} == {beats[0]["connection"]}
        assert all(beat["octets"] == 8 for beat in beats[:-1])
        assert beats[-1]["octets"] in (4, 8)
        octets = b"".join(b["data"].to_bytes(8, "little")[: b["octets"]] for b in beats)
        return beats[0]["connection"], octets


@shows("DDP-3-08", "MPA-4.1-01", "MPA-4.1-02", "MPA-4.1-03", "MPA-4.1-05", "MPA-4.4-01")
@shows("MPA-4.4-10", "MPA-4.4-11", "MPA-7.1.1-06", "MPA-7.1.1-09")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_known_fpdus_without_markers(dut: Any) -> None:
    bench = Bench(dut, parameter("PATTERN"))
    await start_clock_and_reset(dut)
    known = [v for v in all_vectors("fpdu") if not v["markers"] and v["ulpdus_hex"]]
    assert known
    for vector in known:
        ulpdus = [bytes.fromhex(text) for text in vector["ulpdus_hex"]]
        for ulpdu in ulpdus:
            bench.put(ulpdu, crc=int(vector["crc_on"]))
        stream = b"".join([(await bench.fpdu())[1] for _ in ulpdus])
        assert stream.hex() == vector["stream_hex"], vector["name"]


@shows("MPA-3-01")
@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_random_ulpdus_become_their_fpdus(dut: Any) -> None:
    bench = Bench(dut, parameter("PATTERN"))
    rng = bench.rng
    await start_clock_and_reset(dut)
    lengths = [*range(1, 30), 46, 1452, 1453, 1454, 1455, MAX_ULPDU_LENGTH]
    lengths += [rng.randint(1, 2000) for _ in range(30)]
    expected = []
    for length in lengths:
        ulpdu, qp, crc = rng.randbytes(length), rng.randrange(CONFIG.qps), rng.random() < 0.8
        bench.put(ulpdu, qp, crc=crc)
        expected.append((qp, frame_fpdu(ulpdu, crc=crc)))
    for fpdu in expected:
        assert await bench.fpdu() == fpdu
    for _ in range(4):
        await RisingEdge(dut.clk)
    assert bench.finished == [qp for qp, _ in expected]
    assert not len(bench.sent)


@shows("MPA-4.3-01", "MPA-4.3-02", "MPA-4.3-07", "MPA-7.1.1-07")
@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_markers_stand_every_512_octets_of_their_connection(dut: Any) -> None:
    bench = Bench(dut, parameter("PATTERN"))
    rng = bench.rng
    await start_clock_and_reset(dut)
    framers = [
        ModelFramer(markers=qp % 3 != 0, crc=rng.random() < 0.8, position=4 * rng.getrandbits(30))
        for qp in range(CONFIG.qps)
    ]
    framers[1].position = 0
    lengths = [rng.choice([rng.randint(1, 60), rng.randint(1, 3000)]) for _ in range(150)]
    expected = []
    for length in [*lengths, MAX_ULPDU_LENGTH]:
        qp = rng.randrange(CONFIG.qps) if length != MAX_ULPDU_LENGTH else 1
        expected.append((qp, bench.put_next(framers[qp], rng.randbytes(length), qp)))
    for fpdu in expected:
        assert await bench.fpdu() == fpdu


@shows("MPA-4.3-05", "MPA-4.3-08", "MPA-4.3-09", "MPA-4.4-12")
@cocotb.test(timeout_time=10, timeout_unit="ms")
async def check_every_position_of_the_first_marker(dut: Any) -> None:
    bench = Bench(dut, parameter("PATTERN"))
    rng = bench.rng
    await start_clock_and_reset(dut)
    # All ends of the ULPDU in a word; with the last ones, a second Marker in or after the last
    # word, which may have been moved by the first one.
    for length in (*range(1, 9), *range(14, 30), 503, *range(505, 512), 517):
        expected = []
        units = length // 4
        for until in range(POSITIONS):
            # At or near an end of the FPDU, and some others
            near = until <= min(units, 8) + 3 or abs(until - units) <= 3 or until >= POSITIONS - 2
            if not near and rng.random() < 0.95:
                continue
            framer = ModelFramer(markers=True, position=-until * MARKER_OCTETS % MARKER_INTERVAL)
            expected.append(bench.put_next(framer, rng.randbytes(length)))
        for fpdu in expected:
            assert (await bench.fpdu())[1] == fpdu


@shows("MPA-4.2-01", "MPA-4.2-02", "MPA-4.2-04", "MPA-4.3-03", "MPA-7.1.2-18")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_known_fpdus_with_markers(dut: Any) -> None:
    bench = Bench(dut, parameter("PATTERN"))
    await start_clock_and_reset(dut)
    known = [v for v in all_vectors("fpdu") if v["markers"] and v["ulpdus_hex"]]
    assert "RFC 5044 Figure 5" in {v["name"] for v in known}
    figure_6 = [v for v in all_vectors("fpdu") if v["name"] == "RFC 5044 Figure 6"]
    ulpdu = "41430000000000000000000000020000000000000000" + 20 * "00"
    known += [{**v, "ulpdus_hex": [ulpdu], "start": 0x1EC} for v in figure_6]
    for vector in known:
        position = vector.get("start", 0)
        stream = b""
        for text in vector["ulpdus_hex"]:
            ulpdu = bytes.fromhex(text)
            bench.put(
                ulpdu,
                crc=int(vector["crc_on"]),
                markers=1,
                until_marker=until_marker(position + len(stream)),
            )
            stream += (await bench.fpdu())[1]
        assert stream.hex() == vector["stream_hex"], vector["name"]


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_nothing_is_lost_when_the_llp_stalls(dut: Any) -> None:
    if parameter("PATTERN") != "always":
        return
    bench = Bench(dut, "always")
    rng = bench.rng
    # At a rate of one beat per cycle, until the LLP stops for long enough to fill the queue
    bench.tx.set_pattern("bursty", rng)
    await start_clock_and_reset(dut)
    expected = []
    for _ in range(200):
        # Most end with three beats for the last word: a unit kept, a Marker, the CRC.
        framer = ModelFramer(markers=True, position=-rng.choice((0, 4, 12)) % MARKER_INTERVAL)
        expected.append(bench.put_next(framer, rng.randbytes(rng.randint(505, 518))))
    for fpdu in expected:
        assert (await bench.fpdu())[1] == fpdu


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_spoiled_crc_of_an_fpdu_with_markers(dut: Any) -> None:
    bench = Bench(dut, parameter("PATTERN"))
    await start_clock_and_reset(dut)
    for until in range(14):
        position = -until * MARKER_OCTETS % MARKER_INTERVAL
        ulpdu = bench.rng.randbytes(bench.rng.randint(33, 42))
        for error in (True, False):
            bench.put(ulpdu, until % CONFIG.qps, error=error, markers=1, until_marker=until)
            good = frame_fpdu(ulpdu, markers=True, position=position)
            spoiled = good[:-4] + bytes(octet ^ 0xFF for octet in good[-4:])
            assert (await bench.fpdu())[1] == (spoiled if error else good)
    assert [qp for qp, _ in bench.spoiled] == [until % CONFIG.qps for until in range(14)]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_spoiled_names_its_qp_before_its_report(dut: Any) -> None:
    bench = Bench(dut, parameter("PATTERN"))
    rng = bench.rng
    await start_clock_and_reset(dut)
    expected = []
    for number in range(60):
        qp, error = rng.randrange(CONFIG.qps), rng.random() < 0.5
        # Also of one word, and with the error in a beat that is not the first.
        bench.put(
            rng.randbytes(rng.choice([4, 14, 60])), qp, error=error, report=1, sent={"qp": qp}
        )
        if error:
            expected.append((qp, number))
        # An `empty` job has no beats that could have an error.
        if rng.random() < 0.2:
            bench.jobs.put({"qp": rng.randrange(CONFIG.qps), "empty": 1})
    for _ in range(60):
        await bench.fpdu()
        await bench.sent.get()
    assert len(bench.spoiled) == len(expected)
    for (qp, reports), (expected_qp, number) in zip(bench.spoiled, expected, strict=True):
        assert qp == expected_qp
        assert reports <= number, "its report came before"


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_unreadable_payload_spoils_the_crc_of_its_fpdu_only(dut: Any) -> None:
    bench = Bench(dut, parameter("PATTERN"))
    await start_clock_and_reset(dut)
    ulpdus = [bench.rng.randbytes(length) for length in (40, 43, 20, 22, 30)]
    for index, ulpdu in enumerate(ulpdus):
        bench.put(ulpdu, error=index in (1, 2))
    for index, ulpdu in enumerate(ulpdus):
        good = frame_fpdu(ulpdu)
        spoiled = good[:-4] + bytes(octet ^ 0xFF for octet in good[-4:])
        assert (await bench.fpdu())[1] == (spoiled if index in (1, 2) else good)
    assert len(bench.spoiled) == 2


@shows("RDMAP-5.5-11")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_sent_is_reported_when_the_last_beat_left(dut: Any) -> None:
    bench = Bench(dut, parameter("PATTERN"), sent_pattern="slow")
    rng = bench.rng
    await start_clock_and_reset(dut)
    expected = []
    bench.tx.paused = True
    for _ in range(60):
        item = {"qp": 3, "index": rng.getrandbits(16), "opcode": 2, "signaled": 1, "length": 77}
        report = rng.random() < 0.7
        bench.put(rng.randbytes(rng.randint(14, 60)), 3, report=report, sent=item)
        if report:
            expected.append(item)
    for _ in range(100):
        await RisingEdge(dut.clk)
    assert not len(bench.sent)
    bench.tx.paused = False
    for item in expected:
        assert await bench.sent.get() == item
        assert len(bench.finished) > 0
    for _ in range(50):
        await RisingEdge(dut.clk)
    assert not len(bench.sent)
    assert len(bench.finished) == 60


@shows("MPA-7.2-01")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_close_comes_with_the_last_beat_or_alone_and_a_report_in_its_turn(dut: Any) -> None:
    bench = Bench(dut, parameter("PATTERN"))
    rng = bench.rng
    await start_clock_and_reset(dut)
    expected: list[tuple[int, bytes | None, int]] = []
    for _ in range(100):
        qp, report = rng.randrange(CONFIG.qps), rng.getrandbits(1)
        sent = {"qp": qp, "index": len(expected)}
        kind = rng.random()
        if kind < 0.6:
            noise = {"ulpdu_length": rng.getrandbits(16), "until_marker": rng.randrange(3)}
            noise |= {"crc": rng.getrandbits(1), "markers": rng.getrandbits(1)}
            close = int(kind < 0.3)
            job = {"qp": qp, "empty": 1, "close": close, "report": report, "sent": sent}
            bench.jobs.put(job | noise)
            expected.append((qp, None if close else b"", report))
        else:
            ulpdu, close = rng.randbytes(rng.randint(14, 60)), rng.getrandbits(1)
            bench.put(ulpdu, qp, close=close, report=report, sent=sent)
            expected.append((qp, frame_fpdu(ulpdu) + bytes([close]), report))
    for index, (qp, fpdu, report) in enumerate(expected):
        if fpdu == b"":  # nothing but a report
            if report:
                assert (await bench.sent.get())["index"] == index
            continue
        beats = await bench.tx.get_until("last")
        assert {beat["connection"] for beat in beats} == {qp}
        assert not any(beat["close"] for beat in beats[:-1])
        assert [beat["first"] for beat in beats] == [1] + [0] * (len(beats) - 1)
        octets = b"".join(b["data"].to_bytes(8, "little")[: b["octets"]] for b in beats)
        if fpdu is None:
            assert [(beat["octets"], beat["close"]) for beat in beats] == [(0, 1)]
        else:
            assert octets + bytes([beats[-1]["close"]]) == fpdu
        if report:
            assert (await bench.sent.get())["index"] == index
    for _ in range(4):
        await RisingEdge(dut.clk)
    assert bench.finished == [qp for qp, _, _ in expected]


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_no_cycle_is_lost_between_fpdus(dut: Any) -> None:
    if parameter("PATTERN") != "always":
        return
    bench = Bench(dut, "always")
    await start_clock_and_reset(dut)
    for markers in (False, True):
        for length in (1454, 20, 1450, 18):
            framer = ModelFramer(markers=markers)
            ulpdus = [bench.rng.randbytes(length) for _ in range(40)]
            beats = sum(-(-len(bench.put_next(framer, ulpdu)) // 8) for ulpdu in ulpdus)
            await RisingEdge(dut.tx__valid)
            start = get_sim_time("ns")
            for _ in ulpdus:
                await bench.fpdu()
            # Back-to-back from the first beat to the last.
            assert (get_sim_time("ns") - start) / CLOCK_PERIOD_NS - beats <= 1, (markers, length)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_first_word_leaves_six_cycles_after_it_came(dut: Any) -> None:
    if parameter("PATTERN") != "always":
        return
    bench = Bench(dut, "always")
    await start_clock_and_reset(dut)
    bench.put(bytes(100), markers=1, until_marker=0)
    while not (dut.i__valid.value and dut.i__ready.value):
        await RisingEdge(dut.clk)
    for _ in range(6):
        assert not dut.tx__valid.value
        await RisingEdge(dut.clk)
    assert dut.tx__valid.value


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    return simulate(tmp_path_factory, Framer(CONFIG), __name__, request.param)


@each_check(globals())
def test_framer(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)
