"""Each QP that failed is named once, with its last cause, unless that is forgotten before."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.queues.qp_errors import QpErrors
from stagecoach.hw.interface.causes import Cause
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from tests.support.runner import parameter, run_cocotb

CAUSES = (Cause.CQ_OVERFLOW, Cause.HOST_WRITE_ERROR)
TO_ERROR = 2
"""Cycles from a failure to its error, if nothing else comes."""


@pytest.mark.parametrize(
    ("qps", "causes", "pattern"),
    [(8, 2, "random"), (2, 2, "always"), (256, 1, "slow"), (8, 1, "always")],
)
def test_qp_errors(qps: int, causes: int, pattern: str) -> None:
    parameters = {"QPS": str(qps), "CAUSES": str(causes), "PATTERN": pattern}
    block = QpErrors(RnicConfig(qps=qps), *CAUSES[:causes])
    run_cocotb(block, __name__, parameters=parameters)


@pytest.mark.parametrize("causes", [(), (Cause.CQ_OVERFLOW,) * 3])
def test_other_numbers_of_causes_are_refused(causes: tuple[Cause, ...]) -> None:
    with pytest.raises(ValueError, match=f"takes {len(causes)} causes; allowed: one or two"):
        QpErrors(RnicConfig(), *causes)


class Bench:
    """Pulses, and the failures that are to be named."""

    def __init__(self, dut: Any, pattern: str) -> None:
        self.dut, self.rng = dut, seeded_random(pattern, parameter("QPS"))
        self.qps, self.causes = int(parameter("QPS")), CAUSES[: int(parameter("CAUSES"))]
        self.layout = Layouts(RnicConfig(qps=self.qps)).qp_error
        self.sink = StreamSink(dut, "error", self.layout, rng=self.rng, pattern=pattern)
        StreamMonitor(dut, "error", self.layout)
        for name in ("fail__valid", "which", "forget__valid"):
            getattr(dut, name).value = 0
        self.unnamed: dict[int, int] = {}  # number of the cause, by QP
        self.pulses: list[tuple[Any, Any]] = [(None, None)] * TO_ERROR
        self.forgets = False  # a `forget` may not have had its effect
        self.free = 0  # cycles in which entries were looked at, one after another
        self.valid = False
        self.named = self.forgotten = 0

    async def start(self) -> None:
        await start_clock_and_reset(self.dut)
        await cycles(self.dut, self.qps)  # no failure may come before

    async def cycle(self, fail: int | None, which: int = 0, forget: int | None = None) -> None:
        """One cycle with the pulses; checks what is said in it."""
        dut = self.dut
        dut.fail__valid.value = int(fail is not None)
        dut.fail__qp.value = self.rng.randrange(self.qps) if fail is None else fail
        dut.which.value = which
        dut.forget__valid.value = int(forget is not None)
        dut.forget__qp.value = self.rng.randrange(self.qps) if forget is None else forget
        self.forgets = forget is not None or (self.forgets and fail is not None)
        self.pulses.append((None if fail is None else (fail, which), forget))
        await RisingEdge(dut.clk)
        failed, forgotten = self.pulses.pop(0)
        if failed is not None:
            self.unnamed[failed[0]] = failed[1] % len(self.causes)
        if forgotten is not None:
            self.forgotten += self.unnamed.pop(forgotten, None) is not None
        valid = bool(dut.error__valid.value)
        if valid and not self.valid:
            error = unpack(self.layout, int(dut.error__payload.value))
            cause = self.causes[self.unnamed.pop(error["qp"])]
            assert {name: value for name, value in error.items() if value} == {
                name: value for name, value in (("qp", error["qp"]), ("cause", cause)) if value
            }
            self.named += 1
        self.valid = valid and not dut.error__ready.value
        # All entries were looked at, and none was written since.
        busy = valid or self.pulses[0] != (None, None) or (failed, forgotten) != (None, None)
        self.free = 0 if busy else self.free + 1
        assert not (self.free > self.qps and self.unnamed), self.unnamed

    async def rest(self) -> None:
        """Nothing comes until all is named, and for a while after it."""
        for _ in range(40 * self.qps + 100):
            await self.cycle(None)
            if self.free > self.qps + 4:
                break
        assert not self.unnamed and not self.valid
        stands = int(self.dut.looked_at.value)
        for _ in range(self.qps + 4):
            await self.cycle(None)
            assert int(self.dut.looked_at.value) == stands, "it moves at rest"


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_failures_are_named_once_with_the_last_cause(dut: Any) -> None:
    bench = Bench(dut, parameter("PATTERN"))
    rng = bench.rng
    await bench.start()
    for turn in range(6):
        chance = (0.02, 0.2, 0.9)[turn % 3]
        for _ in range(200):
            fail = rng.randrange(bench.qps) if rng.random() < chance else None
            forget = None
            # One that waits while failures come has to have its effect before the next one.
            if (fail is None or not bench.forgets) and rng.random() < 0.1:
                forget = rng.choice([*bench.unnamed, rng.randrange(bench.qps)])
            await bench.cycle(fail, rng.randrange(2), forget)
        await bench.rest()
    assert bench.named > 20 and bench.forgotten > 10


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_failures_are_not_held_up_by_an_error_that_waits(dut: Any) -> None:
    bench = Bench(dut, "always")
    await bench.start()
    bench.sink.paused = True
    for qp in (0, *range(bench.qps)):  # the first one waits at `error`, without `ready`
        await bench.cycle(qp, 1)
        await bench.cycle(None)
        await bench.cycle(None)
    assert bench.valid and bench.named == 1
    bench.sink.paused = False
    await bench.rest()
    assert bench.named == bench.qps + 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_error_comes_in_time(dut: Any) -> None:
    """At once; a round later if another QP is forgotten in the cycle of the failure."""
    bench = Bench(dut, "always")
    await bench.start()
    for forget, after in ((None, TO_ERROR), (1, bench.qps + TO_ERROR)):
        for pause in range(4):
            await bench.cycle(0, forget=forget)
            waited = 0
            while not dut.error__valid.value:
                await bench.cycle(None)
                waited += 1
            assert waited == after
            for _ in range(3 + pause):
                await bench.cycle(None)
