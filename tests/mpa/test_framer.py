"""The framer sends FPDUs as RFC 5044, 4.1 and 4.4 lay them out, at full rate."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from gateware.config import MAX_ULPDU_LENGTH, RnicConfig
from gateware.interfaces import Layouts
from gateware.mpa.framer import Framer
from gateware.mpa.layouts import ULPDU_BEAT, MpaLayouts
from sim.model.mpa import frame_fpdu
from tests.mpa.vectors import all_vectors
from tests.support.runner import parameter, run_cocotb
from tests.support.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)

CONFIG = RnicConfig(qps=8)
MPA = MpaLayouts(CONFIG)
SENT = Layouts(CONFIG).sent_item


@pytest.mark.parametrize("pattern", ["always", "random", "bursty"])
def test_framer(pattern: str) -> None:
    run_cocotb(Framer(CONFIG), __name__, parameters={"PATTERN": pattern}, name=pattern)


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
        cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            if self.dut.finished__valid.value and not self.dut.rst.value:
                self.finished.append(int(self.dut.finished__qp.value))

    def put(self, ulpdu: bytes, qp: int = 0, *, error: bool = False, **fields: Any) -> None:
        """Queue a ULPDU with noise in all lanes that mean nothing."""
        job = {"qp": qp, "ulpdu_length": len(ulpdu), "crc": 1, "markers": 0, "report": 0}
        self.jobs.put({**job, **fields})
        octets = self.rng.randbytes(2) + ulpdu
        octets += self.rng.randbytes(-len(octets) % 8)
        for start in range(0, len(octets), 8):
            last = start + 8 >= len(octets)
            word = int.from_bytes(octets[start : start + 8], "little")
            self.beats.put({"data": word, "last": last, "error": last and error})

    async def fpdu(self) -> tuple[int, bytes]:
        """Return the connection and the octets of the next FPDU."""
        beats = await self.tx.get_until("last")
        assert [beat["first"] for beat in beats] == [1] + [0] * (len(beats) - 1)
        assert {beat["connection"] for beat in beats} == {beats[0]["connection"]}
        assert all(beat["octets"] == 8 for beat in beats[:-1])
        assert beats[-1]["octets"] in (4, 8)
        octets = b"".join(b["data"].to_bytes(8, "little")[: b["octets"]] for b in beats)
        return beats[0]["connection"], octets


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


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_no_cycle_is_lost_between_fpdus(dut: Any) -> None:
    if parameter("PATTERN") != "always":
        return
    bench = Bench(dut, "always")
    await start_clock_and_reset(dut)
    for length in (1454, 20, 1450, 18):
        for _ in range(20):
            bench.put(bench.rng.randbytes(length))
        for _ in range(20):
            beats = await bench.fpdu()
        assert beats
    transfers = bench.monitor.transfers
    # Counted from the first beat on: the source needs a few cycles to begin each group.
    idle = bench.monitor.cycles - transfers
    dut._log.info(f"{transfers} beats, {idle} other cycles in 80 FPDUs")
    assert idle <= 40
