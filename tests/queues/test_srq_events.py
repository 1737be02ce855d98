"""Events of QPs, rings and limits come all, each kind in order; a ring is gone when none waits."""

from collections import deque
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpCommandKind
from stagecoach.gateware.queues.srq_events import SrqEvents
from stagecoach.hw.interface.causes import Cause
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.queues.fetch.bench import random_fields
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig(qps=8)
LAYOUTS = Layouts(CONFIG)
CYCLES = 6000


@pytest.mark.parametrize("pattern", ["always", "random", "slow"])
def test_srq_events(pattern: str) -> None:
    run_cocotb(SrqEvents(CONFIG), __name__, parameters={"PATTERN": pattern})


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_events(dut: Any) -> None:
    pattern = parameter("PATTERN")
    rng = seeded_random(pattern)
    sources = {
        name: StreamSource(dut, name, LAYOUTS.qp_error) for name in ("qp_event", "ring_error")
    }
    commands = StreamSource(dut, "qp_command", LAYOUTS.qp_command)
    sinks = {
        "event": StreamSink(dut, "event", LAYOUTS.event, rng=rng, pattern=pattern),
        "error": StreamSink(dut, "error", LAYOUTS.qp_error, rng=rng, pattern=pattern),
    }
    for name, layout in (("event", LAYOUTS.event), ("error", LAYOUTS.qp_error)):
        StreamMonitor(dut, name, layout)
    dut.reached__valid.value = 0
    await start_clock_and_reset(dut)
    for _ in range(CONFIG.qps):
        await RisingEdge(dut.clk)
    shared: dict[int, bool] = dict.fromkeys(range(CONFIG.qps), False)
    for number in shared:
        await commands.send(random_fields(rng, LAYOUTS.qp_command, kind=1, qp=number, shared=0))
    expected: dict[str, deque[Any]] = {name: deque() for name in ("qp", "ring", "error")}
    limits: set[int] = set()  # that no event told of yet
    given: dict[str, Any] | None = None
    counts = dict.fromkeys(("qp", "ring", "error", "limit", "destroyed"), 0)

    def told() -> None:
        """Compares what came."""
        for event in sinks["event"].take_all():
            if not event.pop("srq"):
                assert event == expected["qp"].popleft()
                counts["qp"] += 1
            elif event["cause"] == Cause.SRQ_LIMIT_REACHED:
                limits.remove(event["qp"])
                counts["limit"] += 1
            else:
                assert event == expected["ring"].popleft()
                counts["ring"] += 1
        for error in sinks["error"].take_all():
            assert error == expected["error"].popleft()
            counts["error"] += 1

    for _ in range(CYCLES):
        await RisingEdge(dut.clk)
        taken = dut.qp_command__valid.value and dut.qp_command__ready.value
        told()
        if taken:
            assert given is not None
            if given["kind"] == QpCommandKind.RING_DESTROY.value:
                assert not limits and not expected["ring"]
                counts["destroyed"] += 1
            given = None
        if given is None and rng.random() < 0.01:
            # No QP takes from a ring that ends: nothing comes of it any more.
            kind = rng.choice([QpCommandKind.STOP, QpCommandKind.RING_DESTROY])
            given = random_fields(rng, LAYOUTS.qp_command, kind=kind.value)
            commands.put(given)
        ends = given is not None and given["kind"] == QpCommandKind.RING_DESTROY.value
        if given is None and rng.random() < 0.01:
            number = rng.randrange(CONFIG.qps)
            shared[number] = rng.random() < 0.6
            kind = QpCommandKind.RING_CREATE if shared[number] else QpCommandKind.CREATE
            given = random_fields(rng, LAYOUTS.qp_command, kind=kind.value, qp=number, shared=0)
            commands.put(given)
        if rng.random() < 0.02:
            event = random_fields(rng, LAYOUTS.qp_error)
            expected["qp"].append(event)
            sources["qp_event"].put(event)
        number = rng.randrange(CONFIG.qps)
        error = random_fields(rng, LAYOUTS.qp_error, qp=number, cause=Cause.HOST_READ_ERROR.value)
        if given is None and rng.random() < 0.02:
            expected["ring" if shared[number] else "error"].append(error)
            sources["ring_error"].put(error)
        reaches = not ends and rng.random() < 0.02 and number not in limits
        dut.reached__valid.value, dut.reached__qp.value = int(reaches), number
        if reaches:
            limits.add(number)
    dut.reached__valid.value = 0
    for _ in range(400):
        await RisingEdge(dut.clk)
        told()
    assert not limits and not any(expected.values())
    assert min(counts.values()) > 5, counts
