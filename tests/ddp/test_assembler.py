"""The assembler and the framer together make the FPDU of a header and its payload."""

from typing import Any

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ddp.assembler import Assembler
from stagecoach.gateware.host_memory import PAYLOAD_BEAT
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.mpa.framer import Framer
from stagecoach.gateware.mpa.layouts import MpaLayouts
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from stagecoach.sim.model.mpa import frame_fpdu
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig(qps=8)
LAYOUTS = Layouts(CONFIG)
MPA = MpaLayouts(CONFIG)


class AssemblerAndFramer(wiring.Component):
    """Jobs and payload in, LLP beats out."""

    def __init__(self) -> None:
        super().__init__(
            {
                "job": In(stream.Signature(LAYOUTS.ulpdu_job)),
                "payload": In(stream.Signature(PAYLOAD_BEAT)),
                "tx": Out(stream.Signature(MPA.tx)),
                "sent": Out(stream.Signature(LAYOUTS.sent_item)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.assembler = assembler = Assembler(CONFIG)
        m.submodules.framer = framer = Framer(CONFIG)
        wiring.connect(m, wiring.flipped(self.job), assembler.job)
        wiring.connect(m, wiring.flipped(self.payload), assembler.payload)
        wiring.connect(m, assembler.framer_job, framer.job)
        wiring.connect(m, assembler.o, framer.i)
        wiring.connect(m, framer.tx, wiring.flipped(self.tx))
        wiring.connect(m, framer.sent, wiring.flipped(self.sent))
        return m


@pytest.mark.requirement("DDP-4.2-02", "DDP-4.3-02", "DDP-4.4-01", "DDP-5.2-03", "MPA-3-01")
@pytest.mark.requirement("MPA-4.1-02", "MPA-4.1-03")
@pytest.mark.parametrize("pattern", ["always", "random", "bursty"])
def test_assembler(pattern: str) -> None:
    run_cocotb(AssemblerAndFramer(), __name__, parameters={"PATTERN": pattern}, name=pattern)


class Bench:
    def __init__(self, dut: Any, pattern: str) -> None:
        self.rng = rng = seeded_random(pattern)
        self.jobs = StreamSource(dut, "job", LAYOUTS.ulpdu_job, rng=rng, pattern=pattern)
        self.payload = StreamSource(dut, "payload", PAYLOAD_BEAT, rng=rng, pattern=pattern)
        self.tx = StreamSink(dut, "tx", MPA.tx, rng=rng, pattern=pattern)
        self.sent = StreamSink(dut, "sent", LAYOUTS.sent_item, rng=rng, pattern=pattern)
        self.monitor = StreamMonitor(dut, "tx", MPA.tx)

    def put(self, header_octets: int, octets: int, qp: int = 0, error: bool = False) -> bytes:
        """Queue a job of a random header and payload; return the FPDU that it must become."""
        rng = self.rng
        header, payload = rng.randbytes(header_octets), rng.randbytes(octets)
        noise = rng.randbytes(18 - header_octets)
        self.jobs.put(
            {
                "qp": qp,
                "ulpdu_length": header_octets + octets,
                "tagged": header_octets == 14,
                "header": int.from_bytes(header + noise, "little"),
                "crc": 1,
                "report": 1,
                "sent": {"qp": qp, "length": octets},
            }
        )
        for start in range(0, octets, 8):
            word = payload[start : start + 8]
            last = start + 8 >= octets
            data = int.from_bytes(word + rng.randbytes(8 - len(word)), "little")
            self.payload.put(
                {"data": data, "octets": len(word), "last": last, "error": last and error}
            )
        fpdu = frame_fpdu(header + payload)
        return fpdu[:-4] + bytes(octet ^ 0xFF for octet in fpdu[-4:]) if error else fpdu

    async def fpdu(self) -> tuple[int, bytes]:
        beats = await self.tx.get_until("last")
        octets = b"".join(b["data"].to_bytes(8, "little")[: b["octets"]] for b in beats)
        return beats[0]["connection"], octets


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_every_header_with_every_payload_length(dut: Any) -> None:
    bench = Bench(dut, parameter("PATTERN"))
    rng = bench.rng
    await start_clock_and_reset(dut)
    cases = [(header, octets) for header in (14, 18) for octets in range(20)]
    cases += [(rng.choice((14, 18)), rng.randint(0, 1500)) for _ in range(60)]
    cases += [(18, 64750), (14, 64754)]
    rng.shuffle(cases)
    expected = []
    for header, octets in cases:
        qp = rng.randrange(CONFIG.qps)
        error = octets > 0 and rng.random() < 0.1
        expected.append((qp, octets, bench.put(header, octets, qp, error)))
    for qp, octets, fpdu in expected:
        assert await bench.fpdu() == (qp, fpdu)
        item = await bench.sent.get()
        assert (item["qp"], item["length"]) == (qp, octets)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_at_most_one_cycle_is_lost_per_fpdu(dut: Any) -> None:
    if parameter("PATTERN") != "always":
        return
    bench = Bench(dut, "always")
    await start_clock_and_reset(dut)
    for header, octets in ((14, 1440), (18, 1436), (14, 1434), (18, 8), (14, 0), (18, 28)):
        for _ in range(20):
            bench.put(header, octets)
        before = bench.monitor.transfers
        while not bench.monitor.transfers > before:
            await RisingEdge(dut.clk)
        cycles, beats = bench.monitor.cycles, bench.monitor.transfers
        for _ in range(20):
            await bench.fpdu()
        cycles, beats = bench.monitor.cycles - cycles, bench.monitor.transfers - beats
        dut._log.info(f"header {header}, payload {octets}: {beats} beats in {cycles} cycles")
        assert cycles <= beats + 20 + 2
