"""Atomics of all QPs take place one after the other, whatever host memory does."""

from itertools import pairwise

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.rdmap.atomic.unit import OPERATIONS as IN_FLIGHT
from stagecoach.gateware.rdmap.atomic.unit import AtomicUnit
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.rdmap.atomic.bench import (
    CONFIG,
    DONE,
    READ_ERROR,
    WRITE_ERROR,
    HostMemory,
    Queues,
    Traffic,
)
from tests.rdmap.atomic.serial_order import CMP_SWAP, FETCH_ADD, SWAP, Operation, serial_order
from tests.support.runner import parameter, run_cocotb

ONES = 2**64 - 1
ATOMICITY = ("EXT-5-02", "EXT-5.3-01", "EXT7306-5-01", "EXT7306-5.3-01")
OPERATIONS = 600
LATENCIES = (2, 9, 5)
"""To the read command, from the word to the write command, from the response to the answer."""


def run(check, **parameters):
    run_cocotb(
        AtomicUnit(CONFIG),
        __name__,
        test_filter=check,
        parameters={name: str(value) for name, value in parameters.items()},
    )


@pytest.mark.requirement(*ATOMICITY)
@pytest.mark.parametrize("pattern", ["always", "random", "slow"])
@pytest.mark.parametrize("errors", [0.0, 0.1])
def test_serial_order_explains_all_values(pattern, errors):
    run("check_serial_order", PATTERN=pattern, ERRORS=errors)


def test_two_operations_in_flight_suffice():
    run_cocotb(
        AtomicUnit(CONFIG, 2),
        __name__,
        test_filter="check_serial_order",
        parameters={"PATTERN": "random", "ERRORS": "0.1"},
    )


def test_value_is_not_older_than_its_request():
    run("check_values_are_current")


def test_mismatch_leaves_memory_to_others():
    run("check_mismatch")


def test_failed_read_ends_one_operation():
    run("check_failed_read")


def test_what_a_failed_write_left_is_not_returned():
    run("check_failed_write")


@pytest.mark.parametrize("same", [0, 1], ids=["different words", "one word"])
@pytest.mark.parametrize("reads, writes, limit", [(20, 20, 11), (250, 50, 11), (250, 250, 17)])
def test_operations_overlap(same, reads, writes, limit):
    run("check_throughput", SAME=same, READS=reads, WRITES=writes, LIMIT=limit)


def test_latency_is_as_documented():
    run("check_latency")


def test_response_that_is_not_taken_holds_up_no_write():
    run("check_held_response")


@pytest.mark.parametrize("operations", [1, 3, 64])
def test_number_of_operations_is_checked(operations):
    with pytest.raises(ValueError, match=f"operations is {operations}; allowed: a power of two"):
        AtomicUnit(CONFIG, operations)


def operation_on(qp, original):
    return Operation(FETCH_ADD, 1, 0, 0, 0, qp, qp + 10, original)


def test_serial_order_is_found_only_if_there_is_one():
    both = [operation_on(0, 5), operation_on(1, 6)]
    assert serial_order(both, 5, 7) == both
    assert serial_order(both[::-1], 5, 7) == both
    assert serial_order(both, 5, 6) is None  # the end does not fit
    assert serial_order([operation_on(0, 5), operation_on(1, 5)], 5, 6) is None  # lost update
    late = [operation_on(0, 6), operation_on(20, 5)]
    assert serial_order(late, 5, 7) is None  # the first was answered before the second was asked
    assert serial_order([operation_on(0, None)], 5, 5) == []
    assert serial_order([operation_on(0, None)], 5, 6) == [operation_on(0, None)]
    # One that changes nothing is not placed before one that it would rule out.
    swaps = [
        Operation(SWAP, data, 0, 0, 0, *rest) for data, *rest in ((6, 0, 10, None), (5, 5, 30, 6))
    ]
    nothing = Operation(FETCH_ADD, 0, 0, 0, 0, 20, 30, 5)
    assert serial_order([*swaps, nothing], 5, 5) == [*swaps, nothing]
    failed_before = [operation_on(0, None), operation_on(20, 5)]
    assert serial_order(failed_before, 5, 6) == failed_before[1:]
    assert serial_order(failed_before, 5, 7) is None  # what failed did not come back


def test_serial_order_of_many_uncertain_operations_is_found():
    rng = seeded_random()
    current, record = 7, []
    for number in range(600):
        asked = number - rng.randrange(16)
        answered = max(number + rng.randrange(8), asked + 1)
        uncertain = rng.random() < 0.1
        original = None if uncertain else current
        kind, data = rng.choice([(FETCH_ADD, 1), (SWAP, rng.randrange(3)), (CMP_SWAP, 9)])
        one = Operation(
            kind, data, ONES if kind == CMP_SWAP else 0, 2, ONES, asked, answered, original
        )
        if not uncertain or rng.random() < 0.5:
            current = one.result(current)
        record.append(one)
    found = serial_order(record, 7, current)
    assert found is not None
    value = 7
    for one in found:
        assert one.original in (None, value)
        value = one.result(value)
    assert value == current


def some_operation(rng, memory, address):
    """Operands of which many match, with values that come again."""
    operation = rng.choice((FETCH_ADD, SWAP, CMP_SWAP, CMP_SWAP))
    data = rng.choice((rng.getrandbits(64), rng.randrange(4)))
    mask = rng.choice((0, ONES, rng.getrandbits(64), 1 << 31 | 1 << 63))
    if operation != CMP_SWAP:
        return operation, data, mask, rng.getrandbits(64), rng.getrandbits(64)
    compare = rng.choice((memory.words[address], rng.getrandbits(64), rng.randrange(4)))
    return operation, data, mask, compare, rng.choice((0, ONES, 0xFF, 3))


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_serial_order(dut):
    rng = seeded_random(parameter("PATTERN"), parameter("ERRORS"))
    errors = float(parameter("ERRORS"))
    traffic = Traffic(read_errors=errors, write_errors=errors)
    memory = HostMemory(dut, rng, traffic, parameter("PATTERN"))
    queues = Queues(dut, rng, memory, parameter("PATTERN"))
    addresses = [0x1000, 0x1008, 0x8000_0000_0000_1008, rng.getrandbits(61) << 3]
    initial = {address: rng.getrandbits(64) for address in addresses}
    memory.words.update(initial)
    await start_clock_and_reset(dut)
    left = OPERATIONS
    while left or len(queues.idle) < CONFIG.qps:
        for qp in sorted(queues.idle):
            if left and rng.random() < 0.7:
                address = rng.choice(addresses)
                queues.ask(qp, address, *some_operation(rng, memory, address))
                left -= 1
        if rng.random() < 0.1 and len(queues.idle) == CONFIG.qps:
            await ClockCycles(dut.clk, rng.randrange(300))
        elif len(queues.idle) < CONFIG.qps:
            await queues.answer()
    await ClockCycles(dut.clk, 100)
    assert sum(queues.statuses) == OPERATIONS
    if not errors:
        assert queues.statuses == [OPERATIONS, 0, 0]
    else:
        assert queues.statuses[READ_ERROR] > 2
        assert queues.statuses[WRITE_ERROR] == memory.failed_writes > 15
    for address in addresses:
        record = queues.record[address]
        found = serial_order(record, initial[address], memory.words[address])
        assert found is not None, f"no serial order for {address:#x}: {len(record)} operations"
    assert set(memory.words) == set(addresses)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_values_are_current(dut):
    """CmpSwaps that never match only read, while somebody else writes.

    Few are in flight, so that many come between the taking of a value and its arrival.
    """
    rng = seeded_random()
    memory = HostMemory(dut, rng, Traffic(read_latency=(60, 200)))
    queues = Queues(dut, rng, memory)
    addresses = [0x40, 0x48]
    await start_clock_and_reset(dut)
    for address in addresses:
        memory.store(address, rng.getrandbits(63))
    for _ in range(800):
        address = rng.choice(addresses)
        if rng.random() < 0.2:
            memory.store(address, rng.getrandbits(63))
        if queues.idle and rng.random() < 0.7:
            queues.ask(min(queues.idle), address, CMP_SWAP, 0, ONES, ONES, ONES)
        if rng.random() < 0.5:
            await ClockCycles(dut.clk, rng.randrange(1, 30))
        while len(queues.idle) < CONFIG.qps - 8:
            await queues.answer()
    while len(queues.idle) < CONFIG.qps:
        await queues.answer()
    assert memory.writes == 0
    for address, record in queues.record.items():
        history = memory.history[address]
        for one in record:
            before = [value for cycle, value in history if cycle <= one.asked]
            within = [value for cycle, value in history if one.asked < cycle <= one.answered]
            assert one.original in [before[-1], *within], (hex(address), one)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_mismatch(dut):
    """A lock: contenders fail while it is held, and do not undo its release."""
    rng = seeded_random()
    memory = HostMemory(dut, rng, Traffic(read_latency=(40, 60), write_latency=(40, 60)))
    queues = Queues(dut, rng, memory)
    memory.words[0x100] = 1
    await start_clock_and_reset(dut)
    for qp in range(CONFIG.qps):
        queues.ask(qp, 0x100, CMP_SWAP, 7, ONES, 0, ONES)
    await ClockCycles(dut.clk, 500)
    memory.store(0x100, 0)
    for _ in range(CONFIG.qps):
        await queues.answer()
    matched = [qp for qp in range(CONFIG.qps) if queues.latest[qp] == (DONE, 0)]
    assert len(matched) == memory.writes == 1
    assert memory.words[0x100] == 7
    assert {original for _, original in queues.latest.values()} == {0, 1, 7}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_failed_read(dut):
    """The operation whose read failed ends; another one on the same word has a read of its own."""
    rng = seeded_random()
    memory = HostMemory(dut, rng, Traffic(read_latency=(100, 100)))
    queues = Queues(dut, rng, memory)
    memory.words.update({0x100: 10, 0x108: 20})
    memory.bad_reads[0x100] = 1
    await start_clock_and_reset(dut)
    for qp in range(3):
        queues.ask(qp, 0x100, FETCH_ADD, 1)
    queues.ask(3, 0x108, FETCH_ADD, 1)
    while len(queues.idle) < CONFIG.qps:
        await queues.answer()
    assert queues.latest[0][0] == READ_ERROR
    assert sorted(queues.latest[qp] for qp in (1, 2)) == [(DONE, 10), (DONE, 11)]
    assert queues.latest[3] == (DONE, 20)
    assert memory.words == {0x100: 12, 0x108: 21}
    # The word is forgotten with the last operation on it.
    memory.store(0x100, 50)
    queues.ask(0, 0x100, FETCH_ADD, 1)
    await queues.answer()
    assert queues.latest[0] == (DONE, 50)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_failed_write(dut):
    """A value that memory never had is not returned by an operation that did not write."""
    rng = seeded_random()
    memory = HostMemory(dut, rng, Traffic(write_latency=(150, 150), write_errors=1.0))
    queues = Queues(dut, rng, memory)
    await start_clock_and_reset(dut)
    for attempt in range(20):
        memory.store(0x100, 10)
        queues.ask(0, 0x100, SWAP, 99)
        for _ in range(60):
            await RisingEdge(dut.clk)
        queues.ask(1, 0x100, CMP_SWAP, 7, ONES, 1, ONES)
        queues.ask(2, 0x108 if attempt % 2 else 0x100, CMP_SWAP, 7, ONES, 1, ONES)
        memory.words.setdefault(0x108, 33)
        while len(queues.idle) < CONFIG.qps:
            await queues.answer()
        assert queues.latest[0][0] == WRITE_ERROR
        assert queues.latest[1] == (DONE, memory.words[0x100])
        other = 0x108 if attempt % 2 else 0x100
        assert queues.latest[2] == (DONE, memory.words[other])
    assert {value for _, value in memory.history[0x100]} == {10, 99}


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_throughput(dut):
    rng = seeded_random()
    same = parameter("SAME") == "1"
    reads, writes = int(parameter("READS")), int(parameter("WRITES"))
    traffic = Traffic(read_latency=(reads, reads), write_latency=(writes, writes))
    memory = HostMemory(dut, rng, traffic)
    queues = Queues(dut, rng, memory)
    addresses = [0x1000 + 8 * qp * (not same) for qp in range(CONFIG.qps)]
    memory.words.update(dict.fromkeys(addresses, 0))
    await start_clock_and_reset(dut)
    for qp in range(CONFIG.qps):
        queues.ask(qp, addresses[qp], FETCH_ADD, 1)
    for _ in range(100):
        qp = await queues.answer()
        queues.ask(qp, addresses[qp], FETCH_ADD, 1)
    begin, measured = memory.cycle, 320
    for _ in range(measured):
        qp = await queues.answer()
        queues.ask(qp, addresses[qp], FETCH_ADD, 1)
    cycles = (memory.cycle - begin) / measured
    print(f"cycles per operation: {cycles:.1f}", flush=True)
    assert cycles <= int(parameter("LIMIT"))
    # No QP is served less than others.
    counts = [queues.order.count(qp) for qp in range(CONFIG.qps)]
    assert max(counts) - min(counts) <= 2, counts


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_latency(dut):
    rng = seeded_random()
    memory = HostMemory(dut, rng, Traffic())
    queues = Queues(dut, rng, memory)
    memory.words[0x100] = 1
    await start_clock_and_reset(dut)
    queues.ask(0, 0x100, FETCH_ADD, 1)
    events = [
        dut.request__valid,
        dut.read__command__valid,
        dut.read__data__valid,
        dut.write__command__valid,
        dut.write__done,
        dut.response__valid,
    ]
    cycles = []
    for event in events:
        while not event.value:
            await RisingEdge(dut.clk)
        cycles.append(memory.cycle)
    steps = [after - before for before, after in pairwise(cycles)]
    assert (steps[0], steps[2], steps[4]) == LATENCIES


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_held_response(dut):
    """Operations in flight are finished; afterwards every QP gets its answer, in turns."""
    rng = seeded_random()
    memory = HostMemory(dut, rng, Traffic())
    queues = Queues(dut, rng, memory)
    queues._responses.paused = True
    addresses = [0x1000 + 8 * qp for qp in range(CONFIG.qps)]
    memory.words.update(dict.fromkeys(addresses, 0))
    await start_clock_and_reset(dut)
    for qp in range(CONFIG.qps):
        queues.ask(qp, addresses[qp], FETCH_ADD, 1)
    await ClockCycles(dut.clk, 3000)
    # One answer is in the output register, and its place is taken again.
    assert memory.writes == IN_FLIGHT + 1
    queues._responses.paused = False
    for _ in range(CONFIG.qps):
        await queues.answer()
    assert set(memory.words.values()) == {1}
