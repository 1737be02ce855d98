"""Doorbells that go backwards: units are not taken back, and full rings are not written over."""

from typing import Any

import cocotb
import pytest

from stagecoach.gateware.queues.ring_writer import RingWriter
from stagecoach.hw.interface.causes import Cause
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.queues import test_ring_fetcher, test_ring_writer
from tests.support.runner import run_cocotb

pytestmark = pytest.mark.slow

LARGEST_LOG2 = 15


@pytest.mark.parametrize(("units", "own_units", "send"), [(2, 4, True), (1, 8, False)])
def test_fetcher(units: int, own_units: int, send: bool) -> None:
    sizes = test_ring_fetcher.fetcher(
        test_ring_fetcher.CONFIG, units, own_units, send=send, tick_cycles=16
    )
    run_cocotb(**sizes, test_module=__name__, test_filter="check_units")


def test_writer() -> None:
    run_cocotb(
        RingWriter(test_ring_writer.CONFIG),
        __name__,
        test_filter="check_ring",
        parameters={"PATTERN": "always"},
    )


@cocotb.test(timeout_time=8, timeout_unit="ms")
async def check_units_are_not_taken_back(dut: Any) -> None:
    rng = seeded_random()
    bench = test_ring_fetcher.Bench(dut, rng)
    await start_clock_and_reset(dut)

    async def refused(qp: int, producer: int) -> None:
        await bench.doorbells.send({"qp": qp, "producer": producer % 65536})
        error = await bench.errors.get()
        assert (error["qp"], error["cause"]) == (qp, Cause.LOCAL_BAD_ENTRY)
        assert error["index"] == producer % 65536

    for qp, log2 in enumerate((0, 1, 4, LARGEST_LOG2)):
        await bench.create(qp, log2)
        await bench.command("CONNECT", qp)
        size = 1 << log2
        await bench.doorbells.send({"qp": qp, "producer": bench.post(qp, size)})
        # Backwards by one, to the unit that is popped next, before the first one.
        for producer in {size - 1, 0, -1}:
            await refused(qp, producer)
        while not (await bench.look(qp))[0]:
            pass
        await bench.pop(qp)
        for producer in {size - 1, 1, 0, -1} - {size}:
            await refused(qp, producer)
        # The same number again says nothing new, and is no error.
        await bench.doorbells.send({"qp": qp, "producer": size})
        await cycles(dut, 40)
        assert not len(bench.errors)
        # Nothing has changed: all that was posted is there, and one more fits.
        await bench.doorbells.send({"qp": qp, "producer": bench.post(qp, 1)})
        for _ in range(min(size, 40)):
            while not (await bench.look(qp))[0]:
                pass
            await bench.pop(qp)
        assert not len(bench.errors)
        posted = (await bench.look(qp))[1]
        assert posted <= bench.posted[qp] - bench.popped[qp]


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_ring_is_full_as_the_newest_doorbell_says(dut: Any) -> None:
    rng = seeded_random()
    bench = test_ring_writer.Bench(dut, rng)
    await start_clock_and_reset(dut)
    log2 = 2
    await bench.create_ring(0, log2)
    bench.create_qp(1, 0, 0)

    async def complete(index: int) -> dict[str, int]:
        item = bench.completion(1, 1, index)
        finished = bench.finished.count
        await bench.receive.send(item)
        while bench.finished.count == finished:
            await cycles(dut, 1)
        return item

    for index in range(3):
        item = await complete(index)
        entry = bench.poll(0)
        assert entry is not None and test_ring_writer.same(entry, item)
    await bench.ring_doorbell(0)
    await cycles(dut, 20)
    # The host says that it has taken none after all: one of four entries is free.
    consumer, bench.consumer[0] = bench.consumer[0], 0
    await bench.ring_doorbell(0)
    await cycles(dut, 20)
    before = dict(bench.memory.words)
    last = await complete(3)
    at = bench.base[0] + 3 * test_ring_writer.ENTRY
    changed = {
        address for address, word in bench.memory.words.items() if before.get(address) != word
    }
    assert changed and changed <= set(range(at, at + test_ring_writer.ENTRY))
    assert not len(bench.overflow)
    # The next ones are lost, and nothing is written over.
    before = dict(bench.memory.words)
    for index in (4, 5):
        await complete(index)
    assert bench.memory.words == before
    error = await bench.overflow.get()
    assert (error["qp"], error["cause"]) == (1, Cause.CQ_OVERFLOW)
    # With the right number it goes on where it was.
    bench.consumer[0] = consumer
    entry = bench.poll(0)
    assert entry is not None and test_ring_writer.same(entry, last)
    await bench.ring_doorbell(0)
    await cycles(dut, 20)
    item = await complete(6)
    entry = bench.poll(0)
    assert entry is not None and test_ring_writer.same(entry, item)
