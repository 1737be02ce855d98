"""What becomes of records is what their pieces, the STag table and the RFCs say, in order."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.layouts import StagStatus
from stagecoach.gateware.rdmap.receive.access import ReceiveAccess
from stagecoach.gateware.rdmap.receive.pieces import BANKS, PIECE_WRITE
from stagecoach.gateware.rdmap.receive.record import record_layout
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import SCATTER_GATHER_ELEMENTS
from stagecoach.sim.cosim.streams import (
    active_cycles,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
    width_of,
)
from stagecoach.sim.model.rdmap import INVALIDATE_OPCODES, Opcode
from tests.rdmap.receive.bench import After
from tests.rdmap.receive.model import ADDRESS_MASK, CONFIG, stag_with
from tests.rdmap.receive.records import RECEIVES, REQUESTS, Effects
from tests.support.runner import parameter, run_cocotb

RECORD = record_layout(CONFIG)
RECORDS = 500
TABLE_CYCLES = 5
"""Of the stand-in for the STag table, from a request to what it says, if it is quick."""

OPCODES = [opcode for opcode in Opcode if opcode != Opcode.TERMINATE]


def run(check: str, pattern: str) -> None:
    parameters = {"PATTERN": pattern}
    run_cocotb(
        ReceiveAccess(CONFIG), __name__, test_filter=check, parameters=parameters, quick=True
    )


@pytest.mark.parametrize("pattern", ["always", "random", "slow"])
def test_effects_of_records(pattern: str) -> None:
    run("check_records", pattern)


def test_cycles_of_records() -> None:
    run("check_cycles", "always")


class Bench(After):
    """The judge: it gives records, and their pieces before them."""

    def __init__(self, dut: Any) -> None:
        pattern = parameter("PATTERN")
        rng = seeded_random(pattern)
        super().__init__(dut, rng, pattern)
        self._active = active_cycles(pattern, rng)
        self.effects = Effects()
        self.expected: list[tuple[Any, ...]] = []
        self.bank = 0
        dut.record__valid.value = dut.piece.value = 0

    def draw(self) -> tuple[dict[str, Any], list[dict[str, int]]]:
        """A record and its pieces, of which few are refused."""
        rng = self.rng
        record = unpack(RECORD, rng.getrandbits(width_of(RECORD)))
        opcode = rng.choice(OPCODES)
        good = rng.random() < 0.9
        most = SCATTER_GATHER_ELEMENTS if opcode in RECEIVES else 1
        count = rng.randint(0, most) if good else 0
        record |= {
            "dropped": int(rng.random() < 0.1),
            "fpdu": int(good or rng.random() < 0.8),
            "cause": (Cause.NONE if good else rng.choice(list(Cause)[1:])).value,
            "opcode": opcode.value,
            "invalidates": int(good and opcode in INVALIDATE_OPCODES and rng.random() < 0.8),
            "bank": self.bank,
            "pieces": count,
            "delivers": int(good and opcode != Opcode.RDMA_WRITE and rng.random() < 0.7),
        }
        record["first"] &= record["fpdu"] & ~record["dropped"]
        if record["dropped"]:
            record["pieces"] = 0
        # The STag to invalidate is of any status; that of a piece is good but for a few.
        pieces = []
        for _ in range(record["pieces"]):
            status = rng.choice(list(StagStatus)) if rng.random() < 0.1 else StagStatus.OK
            aligned = rng.random() < 0.8
            offset = rng.getrandbits(64)
            pieces.append(
                {
                    "stag": stag_with(rng, status),
                    "tagged_offset": (offset >> 3 << 3) ^ (ADDRESS_MASK % 8) if aligned else offset,
                    "octets": rng.choice([1, rng.randint(1, 64768)]),
                }
            )
        return record, pieces

    async def give(self, record: dict[str, Any], pieces: list[dict[str, int]]) -> None:
        """The last piece comes with the record, which may wait for those before it."""
        dut = self.dut
        self.expected += self.effects.of(record, pieces)
        if record["opcode"] in REQUESTS:
            self.undelivered[record["qp"]] += 1
        for number, piece in enumerate(pieces):
            fields = {"valid": 1, "bank": self.bank, "number": number, "piece": piece}
            dut.piece.value = pack(PIECE_WRITE, fields)
            if number < len(pieces) - 1:
                await RisingEdge(dut.clk)
        while not next(self._active):
            await RisingEdge(dut.clk)
            dut.piece.value = self.rng.getrandbits(width_of(PIECE_WRITE) - 1) << 1
        dut.record__valid.value, dut.record__payload.value = 1, pack(RECORD, record)
        await RisingEdge(dut.clk)
        while not dut.record__ready.value:
            assert not dut.idle.value
            dut.piece.value = self.rng.getrandbits(width_of(PIECE_WRITE) - 1) << 1
            await RisingEdge(dut.clk)
        assert dut.idle.value
        dut.record__valid.value = 0
        dut.record__payload.value = self.rng.getrandbits(width_of(RECORD))
        dut.piece.value = self.rng.getrandbits(width_of(PIECE_WRITE) - 1) << 1
        self.bank = (self.bank + 1) % BANKS


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_records(dut: Any) -> None:
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    stops: list[int] = []
    cocotb.start_soon(watch_stops(bench, stops))
    for _ in range(RECORDS):
        await bench.give(*bench.draw())
    while bench.ended < RECORDS:
        await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    for number, (got, wanted) in enumerate(zip(bench.log, bench.expected, strict=False)):
        assert got == wanted, f"event {number}: {got}, expected {wanted}"
    assert len(bench.log) == len(bench.expected)
    errors = [event[1]["qp"] for event in bench.expected if event[0] == "error"]
    assert stops == errors and len(errors) > RECORDS // 20


async def watch_stops(bench: Bench, stops: list[int]) -> None:
    """A QP is stopped two cycles before the next record is taken, at the latest."""
    dut, since, stopping = bench.dut, 0, False
    while True:
        await RisingEdge(dut.clk)
        since += 1
        if dut.stop__valid.value and not stopping:
            stops.append(int(dut.stop__qp.value))
            since = 0
        stopping = bool(dut.stop__valid.value)
        assert not (dut.record__ready.value and stops and since < 2)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_cycles(dut: Any) -> None:
    """Of good records, from one to the next."""
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    seen = set()
    for _ in range(RECORDS):
        record, pieces = bench.draw()
        record |= {"cause": 0, "invalidates": 0}
        good = {"stag": stag_with(bench.rng), "tagged_offset": ADDRESS_MASK}
        await bench.give(record, [piece | good for piece in pieces])
        cycles = 1
        await RisingEdge(dut.clk)
        while not dut.record__ready.value:
            cycles += 1
            await RisingEdge(dut.clk)
        count = record["pieces"]
        reads = int(count and record["opcode"] in REQUESTS)
        delivers = int(record["delivers"] and not record["dropped"])
        expected = max(3, count * (3 + TABLE_CYCLES)) + reads + delivers
        assert cycles == expected, (count, reads, delivers)
        seen.add((count, reads, delivers))
    assert len(seen) >= 2 * (SCATTER_GATHER_ELEMENTS + 1)
