"""Commands reach the blocks in order, with their arguments, and only if these are valid."""

import random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpCommandKind
from stagecoach.gateware.registers.commands import (
    CommandOpcode,
    CommandProcessor,
    staging_registers,
)
from stagecoach.host_driver.device import CommandOpcode as DriverOpcode
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    pack,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig(qps=8, cqs=4, stags=16, read_queue_depth=4)
LAYOUTS = Layouts(CONFIG)
STREAMS = {
    "qp_command": LAYOUTS.qp_command,
    "state_command": LAYOUTS.qp_command,
    "stag_write": LAYOUTS.stag_entry,
    "stag_invalidate": LAYOUTS.stag,
    "cq_command": LAYOUTS.cq_command,
}


@pytest.mark.requirement("RDMAP-3.2-04", "RDMAP-8.1.1-06", "DDP-8.3-03", "DDP-8.3.1-07")
@pytest.mark.requirement("SEC-6.2.2-01")
@pytest.mark.parametrize("pattern", ["always", "random"])
def test_command_processor(pattern):
    run_cocotb(CommandProcessor(CONFIG), __name__, parameters={"PATTERN": pattern})


def test_driver_and_gateware_number_commands_alike():
    for opcode in CommandOpcode:
        if opcode is not CommandOpcode.NONE:
            assert getattr(DriverOpcode, opcode.name) == opcode.value


class Bench:
    """The processor, with listeners that log what happens, a fence and a table sweep."""

    def __init__(self, dut: Any):
        self.dut = dut
        self.rng = seeded_random()
        pattern = parameter("PATTERN")
        self.log: list[tuple[str, Any]] = []
        self.opcode = StreamSource(dut, "opcode", None, rng=self.rng, pattern="always")
        for name, layout in STREAMS.items():
            sink = StreamSink(dut, name, layout, rng=self.rng, pattern=pattern)
            StreamMonitor(dut, name, layout)
            cocotb.start_soon(self._listen(name, sink))
        for name in staging_registers():
            getattr(dut, name).value = 0
        dut.fence_busy.value = 0
        dut.stag_clearing.value = 0
        cocotb.start_soon(self._stand_in("fence", dut.fence_start, dut.fence_busy))
        cocotb.start_soon(self._stand_in("sweep", dut.stag_clear, dut.stag_clearing))

    async def _listen(self, name: str, sink: StreamSink) -> None:
        while True:
            self.log.append((name, await sink.get()))

    async def _stand_in(self, name: str, start: Any, busy: Any) -> None:
        """Is busy for some cycles after a start pulse, from the next cycle on."""
        while True:
            await RisingEdge(self.dut.clk)
            if start.value:
                busy.value = 1
                self.log.append((name, "begun"))
                await ClockCycles(self.dut.clk, self.rng.randrange(1, 30))
                self.log.append((name, "ended"))
                busy.value = 0

    def stage(self, name: str, **fields: int) -> None:
        """Writes a staging register."""
        getattr(self.dut, name).value = pack(staging_registers()[name], fields)

    async def run(self, opcode: int) -> tuple[list[tuple[str, Any]], bool]:
        """Runs a command; returns what happened, and whether it was invalid."""
        self.log.clear()
        self.opcode.put(opcode)
        while self.opcode.pending:
            await RisingEdge(self.dut.clk)
        await RisingEdge(self.dut.clk)
        while self.dut.busy.value:
            await RisingEdge(self.dut.clk)
        await ClockCycles(self.dut.clk, 3)
        return list(self.log), bool(self.dut.invalid.value)

    def names(self, log: list[tuple[str, Any]]) -> list[str]:
        """Who heard of a command, in order."""
        return [name if isinstance(found, dict) else f"{name} {found}" for name, found in log]


FENCE = ["fence begun", "fence ended"]


async def begin(dut: Any) -> Bench:
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    return bench


def random_qp_arguments(rng: random.Random) -> dict[str, int]:
    return {
        "qp": rng.randrange(CONFIG.qps),
        "pd": rng.getrandbits(16),
        "send_cq": rng.randrange(CONFIG.cqs),
        "receive_cq": rng.randrange(CONFIG.cqs),
        "send_base": rng.getrandbits(64),
        "send_log2": rng.getrandbits(4),
        "receive_base": rng.getrandbits(64),
        "receive_log2": rng.getrandbits(4),
        "shared": rng.getrandbits(1),
        "ring": rng.randrange(CONFIG.qps),
        "limit": rng.getrandbits(16),
        "producer": rng.getrandbits(16),
        "ord": rng.randrange(CONFIG.read_queue_depth + 1),
        "ird": rng.randrange(CONFIG.read_queue_depth + 1),
        "emss": rng.getrandbits(16),
        "crc": rng.getrandbits(1),
        "transmit_markers": rng.getrandbits(1),
        "receive_markers": rng.getrandbits(1),
        "initiator": rng.getrandbits(1),
        "rfc7306": rng.getrandbits(1),
    }


def stage_qp(bench: Bench, arguments: dict[str, int]) -> None:
    bench.stage("qp_number", qp=arguments["qp"])
    bench.stage("qp_pd", pd=arguments["pd"])
    bench.stage("qp_cqs", send_cq=arguments["send_cq"], receive_cq=arguments["receive_cq"])
    for queue in ("send", "receive"):
        base = arguments[f"{queue}_base"]
        bench.stage(f"qp_{queue}_base_low", value=base & 0xFFFFFFFF)
        bench.stage(f"qp_{queue}_base_high", value=base >> 32)
    bench.stage(
        "qp_rings", send_log2=arguments["send_log2"], receive_log2=arguments["receive_log2"]
    )
    bench.stage("qp_srq", shared=arguments["shared"], ring=arguments["ring"])
    bench.stage("srq_limit", limit=arguments["limit"], producer=arguments["producer"])
    bench.stage("qp_reads", ord=arguments["ord"], ird=arguments["ird"])
    bench.stage("qp_emss", emss=arguments["emss"])
    modes = ("crc", "transmit_markers", "receive_markers", "initiator", "rfc7306")
    bench.stage("qp_mode", **{name: arguments[name] for name in modes})


@cocotb.test(timeout_time=500, timeout_unit="us")
async def check_life_of_a_qp(dut):
    bench = await begin(dut)
    orders = {
        # The state comes last when a QP comes to life, first when it stops.
        CommandOpcode.QP_CREATE: (["qp_command", "state_command"], ["CREATE"]),
        CommandOpcode.QP_CONNECT: (["qp_command", "state_command"], ["CONNECT"]),
        CommandOpcode.QP_STOP: (["state_command", "qp_command", *FENCE], ["STOP"]),
        CommandOpcode.QP_DESTROY: (
            ["state_command", "qp_command", *FENCE, "qp_command", "state_command"],
            ["STOP", "DESTROY"],
        ),
        CommandOpcode.SRQ_CREATE: (["qp_command"], ["RING_CREATE"]),
        CommandOpcode.SRQ_LIMIT: (["qp_command"], ["RING_LIMIT"]),
        CommandOpcode.SRQ_DESTROY: (["qp_command", *FENCE], ["RING_DESTROY"]),
    }
    for _ in range(5):
        for opcode, (order, kinds) in orders.items():
            arguments = random_qp_arguments(bench.rng)
            stage_qp(bench, arguments)
            log, invalid = await bench.run(opcode.value)
            assert not invalid
            assert bench.names(log) == order
            found = [value for _, value in log if isinstance(value, dict)]
            for number, value in enumerate(found):
                kind = QpCommandKind[kinds[number // 2]]
                assert value == arguments | {"kind": kind.value}


@cocotb.test(timeout_time=200, timeout_unit="us")
async def check_stag_commands(dut):
    bench = await begin(dut)
    for _ in range(10):
        rng = bench.rng
        entry = {
            "stag": rng.getrandbits(32),
            "pd": rng.getrandbits(16),
            "rights": rng.getrandbits(4),
            "scoped": rng.getrandbits(1),
            "qp": rng.randrange(CONFIG.qps),
            "base": rng.getrandbits(64),
            "length": rng.getrandbits(48),
            "address": rng.getrandbits(64),
            "fast": rng.getrandbits(1),
        }
        bench.stage("stag_value", stag=entry["stag"])
        access = {name: entry[name] for name in ("pd", "rights", "scoped", "fast")}
        bench.stage("stag_access", **access)
        bench.stage("stag_qp", qp=entry["qp"])
        for name in ("base", "length", "address"):
            bench.stage(f"stag_{name}_low", value=entry[name] & 0xFFFFFFFF)
            bench.stage(f"stag_{name}_high", value=entry[name] >> 32)
        log, invalid = await bench.run(CommandOpcode.STAG_WRITE.value)
        assert (log, invalid) == ([("stag_write", entry)], False)
        log, invalid = await bench.run(CommandOpcode.STAG_INVALIDATE.value)
        assert not invalid
        assert bench.names(log) == ["stag_invalidate", *FENCE]
        assert log[0][1] == {"stag": entry["stag"]}


@cocotb.test(timeout_time=100, timeout_unit="us")
async def check_reset_of_the_table_sweeps_then_fences(dut):
    bench = await begin(dut)
    log, invalid = await bench.run(CommandOpcode.STAG_RESET.value)
    assert not invalid
    assert bench.names(log) == ["sweep begun", "sweep ended", *FENCE]


@cocotb.test(timeout_time=100, timeout_unit="us")
async def check_cq_commands(dut):
    bench = await begin(dut)
    # The event queue has the number after the last CQ.
    for cq in range(CONFIG.cqs + 1):
        base, log2 = bench.rng.getrandbits(64), bench.rng.getrandbits(4)
        bench.stage("cq_number", cq=cq)
        bench.stage("cq_base_low", value=base & 0xFFFFFFFF)
        bench.stage("cq_base_high", value=base >> 32)
        bench.stage("cq_size", log2=log2)
        for opcode, enable in ((CommandOpcode.CQ_ENABLE, 1), (CommandOpcode.CQ_DISABLE, 0)):
            log, invalid = await bench.run(opcode.value)
            expected = {"cq": cq, "enable": enable, "base": base, "log2": log2}
            assert (log, invalid) == ([("cq_command", expected)], False)


@cocotb.test(timeout_time=500, timeout_unit="us")
async def check_invalid_commands_do_nothing_and_the_next_one_is_judged_anew(dut):
    bench = await begin(dut)
    depth = CONFIG.read_queue_depth
    opcode = CommandOpcode
    cases = [
        ("qp_number", {"qp": CONFIG.qps}, [opcode.QP_CREATE, opcode.QP_CONNECT]),
        ("qp_number", {"qp": 0xFFFF}, [opcode.QP_STOP, opcode.QP_DESTROY]),
        # The low bits alone would be a valid number.
        ("qp_number", {"qp": 0x100}, [opcode.QP_CREATE, opcode.QP_STOP, opcode.QP_DESTROY]),
        ("qp_number", {"qp": CONFIG.qps}, [opcode.SRQ_CREATE, opcode.SRQ_DESTROY]),
        ("qp_number", {"qp": 0x8000}, [opcode.SRQ_LIMIT]),
        ("qp_srq", {"shared": 1, "ring": CONFIG.qps}, [opcode.QP_CREATE]),
        ("qp_cqs", {"send_cq": CONFIG.cqs}, [opcode.QP_CREATE]),
        ("qp_cqs", {"receive_cq": 0x8000}, [opcode.QP_CREATE]),
        ("qp_reads", {"ord": depth + 1}, [opcode.QP_CONNECT]),
        ("qp_reads", {"ird": 0x100}, [opcode.QP_CONNECT]),
        ("cq_number", {"cq": CONFIG.cqs + 1}, [opcode.CQ_ENABLE, opcode.CQ_DISABLE]),
        ("cq_number", {"cq": 0x8000}, [opcode.CQ_ENABLE]),
    ]
    for name, fields, opcodes in cases:
        bench.stage(name, **fields)
        for one in opcodes:
            assert await bench.run(one.value) == ([], True), (name, fields, one)
        bench.stage(name)
        log, invalid = await bench.run(opcodes[0].value)
        assert log and not invalid

    bench.stage("stag_access", scoped=1)
    bench.stage("stag_qp", qp=CONFIG.qps)
    assert await bench.run(opcode.STAG_WRITE.value) == ([], True)
    bench.stage("stag_access", scoped=0)
    log, invalid = await bench.run(opcode.STAG_WRITE.value)
    assert bench.names(log) == ["stag_write"] and not invalid

    # The number of a ring counts only if the QP takes from it.
    bench.stage("qp_srq", ring=0xFFFF)
    log, invalid = await bench.run(opcode.QP_CREATE.value)
    assert log and not invalid

    for unknown in (0, 13, 0x81, 0xFF):
        assert await bench.run(unknown) == ([], True), unknown


@cocotb.test(timeout_time=200, timeout_unit="us")
async def check_one_command_after_the_other(dut):
    bench = await begin(dut)
    bench.stage("stag_value", stag=0xABCD)
    for _ in range(5):
        bench.opcode.put(CommandOpcode.STAG_INVALIDATE.value)
        bench.opcode.put(CommandOpcode.STAG_WRITE.value)
    while bench.opcode.pending or dut.busy.value:
        await RisingEdge(dut.clk)
    await ClockCycles(dut.clk, 3)
    # No write overtakes the fence of the invalidation before it.
    assert bench.names(bench.log) == ["stag_invalidate", *FENCE, "stag_write"] * 5
