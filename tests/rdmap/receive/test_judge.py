"""Segments become records and pieces in order, of which nothing is dropped but by a stopped QP."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.rdmap.receive.judge import ReceiveJudge
from stagecoach.gateware.rdmap.receive.pieces import BANKS, PIECE_WRITE
from stagecoach.gateware.rdmap.receive.record import record_layout
from stagecoach.hw.interface.queue_entries import SCATTER_GATHER_ELEMENTS
from stagecoach.sim.cosim.streams import (
    active_cycles,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from tests.rdmap.receive import segments
from tests.rdmap.receive.bench import Before
from tests.rdmap.receive.model import CONFIG, AtomicSink, stag_with
from tests.rdmap.receive.records import REQUESTS, Effects
from tests.rdmap.receive.traffic import random_traffic
from tests.support.runner import parameter, run_cocotb

RECORD = record_layout(CONFIG)


def run(check: str, pattern: str) -> None:
    parameters = {"PATTERN": pattern}
    run_cocotb(ReceiveJudge(CONFIG), __name__, test_filter=check, parameters=parameters, quick=True)


@pytest.mark.parametrize("pattern", ["always", "random"])
def test_records_of_random_traffic(pattern: str) -> None:
    run("check_random", pattern)


def test_one_segment_at_a_time() -> None:
    run("check_(cycles|held)", "always")


def lasting(record: dict[str, Any]) -> dict[str, int]:
    """What must not change while a record waits: all that means something, but that it is good."""
    tells = record["delivers"] and record["opcode"] not in REQUESTS
    but = {"dropped", "pieces"} if tells else {"dropped", "pieces", "index", "length"}
    return {name: value for name, value in record.items() if name not in but}


class Bench(Before):
    """The second step of the receiver, which takes no record while it is `held`.

    It knows in which cycles segments were taken, records offered, and handed over.
    """

    def __init__(self, dut: Any) -> None:
        pattern = parameter("PATTERN")
        rng = seeded_random(pattern)
        super().__init__(dut, rng, pattern)
        self._active = active_cycles(pattern, rng)
        self._effects = Effects()
        self.held = False
        self.busy_cycles = 3
        self.cycle = self.drops = self.to_drop = 0
        self.taken_at: list[int] = []
        self.offered_at: list[int] = []
        self.handed_at: list[int] = []
        dut.record__ready.value = dut.stop__valid.value = 0
        dut.idle.value = 1
        cocotb.start_soon(self._access())

    async def _access(self) -> None:
        dut, rng = self.dut, self.rng
        pieces: list[list[dict[str, int]]] = [[{}] * SCATTER_GATHER_ELEMENTS for _ in range(BANKS)]
        busy, ready, offered = 0, False, None
        while True:
            await RisingEdge(dut.clk)
            self.cycle += 1
            self.drops += int(dut.dropped.value)
            if dut.segment__valid.value and dut.segment__ready.value:
                self.taken_at.append(self.cycle)
            if dut.record__valid.value:
                record = unpack(RECORD, dut.record__payload.value)
                if offered is None:
                    self.offered_at.append(self.cycle)
                assert offered in (None, lasting(record)), "changed while it waited"
                offered = lasting(record)
            assert offered is None or dut.record__valid.value, "not valid any more"
            # The last piece of a record comes with it.
            written = unpack(PIECE_WRITE, dut.piece.value)
            if written["valid"]:
                pieces[written["bank"]][written["number"]] = written["piece"]
            dut.stop__valid.value = 0
            if busy:
                busy -= 1
                self.ended += not busy
            elif ready and dut.record__valid.value:
                offered = None
                events = self._effects.of(record, pieces[record["bank"]])
                self.log += events
                self.handed_at.append(self.cycle)
                self.to_drop += record["dropped"] & record["fpdu"]
                busy = self.busy_cycles if self._quick else rng.randint(3, 30)
                # It is known two cycles before the next record is taken.
                dut.stop__valid.value = int(any(event[0] == "error" for event in events))
                dut.stop__qp.value = record["qp"]
            ready = not busy and not self.held and next(self._active)
            dut.record__ready.value, dut.idle.value = int(ready), int(not busy)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_random_traffic_of_many_qps(dut: Any) -> None:
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    await random_traffic(bench, 40)
    assert bench.drops == bench.to_drop > 0


async def cycles_of(bench: Bench, ulpdu: bytes) -> int:
    """From the segment to its record, of QP 1."""
    await ClockCycles(bench.dut.clk, 8)
    bench.send(1, ulpdu)
    assert not bench.model.qps[1].stopped
    await bench.settle()
    return bench.offered_at[-1] - bench.taken_at[-1]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_cycles_to_the_record(dut: Any) -> None:
    bench = Bench(dut)
    rng = bench.rng
    await start_clock_and_reset(dut)
    await bench.connect(1)
    assert await cycles_of(bench, segments.write(rng, 64)) == 3
    assert await cycles_of(bench, segments.read_request(rng, 1)) == 5
    assert await cycles_of(bench, segments.atomic_request(rng, 2)) == 5
    stag, to = stag_with(rng), rng.getrandbits(64)
    bench.expect_read(1, stag, to, 8)
    assert await cycles_of(bench, segments.response(stag, to, 8, True)) == 7
    request = bench.expect_atomic(1, AtomicSink(stag, to, 5))
    assert await cycles_of(bench, segments.atomic_response(rng, request.identifier)) == 7
    for elements in range(1, SCATTER_GATHER_ELEMENTS + 1):
        bench.post(1, segments.elements(rng, *[4] * elements))
        ulpdu = segments.send(elements, 0, 4 * elements)
        assert await cycles_of(bench, ulpdu) == 9 + 2 * (elements - 1)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_held_record_holds_up_the_next_segment(dut: Any) -> None:
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    await bench.connect(1)
    bench.held = True
    await ClockCycles(dut.clk, 2)
    for _ in range(4):
        bench.send(1, segments.write(bench.rng, 64))
    await ClockCycles(dut.clk, 50)
    assert bench.taken == len(bench.offered_at) == 1 and not bench.log
    bench.held = False
    await bench.settle()
    assert bench.taken_at[1:] == [cycle + 1 for cycle in bench.handed_at[:-1]]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_held_command_waits_for_the_record_before_it(dut: Any) -> None:
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    await bench.connect(1)
    bench.busy_cycles = 60
    bench.send(1, segments.write(bench.rng, 64))
    while dut.idle.value:
        await RisingEdge(dut.clk)
    connected = cocotb.start_soon(bench.connect(2))
    while not dut.idle.value:
        assert not dut.qp_command__ready.value
        await RisingEdge(dut.clk)
    await connected
    await bench.settle()
