"""Whoever waits has its turn: commands first, then lanes, then doorbells and QPs by turns."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.queues.fetch.choose import FetchChoose
from stagecoach.gateware.queues.fetch.visit import Visit, visit_layout
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from tests.queues.fetch.bench import MEMORIES, both_sizes, config, memory, random_fields
from tests.support.runner import parameter, run_cocotb

CYCLES = 6000
INPUTS = ("may_fetch", "rescue_due", "rescue_copies", "rescue_copied", "rescue_qp")


@both_sizes
@pytest.mark.parametrize("pattern", ["always", "slow"])
def test_fetch_choose(size, pattern):
    parameters = {"SIZE": size, "PATTERN": pattern}
    run_cocotb(FetchChoose(MEMORIES[size]), __name__, parameters=parameters)


def expected(now: dict, doorbell_last: bool) -> tuple[str, dict] | None:
    """What begins after a cycle in which nothing was under way."""
    if now["qp_command"] is not None:
        return "command", now["qp_command"]
    visit = {"copied": now["rescue_copied"]}
    if now["rescue_due"]:
        kind = Visit.COPY if now["rescue_copies"] else Visit.RESCUE
        return "visit", visit | {"kind": kind.value, "qp": now["rescue_qp"]}
    bell, pick = now["doorbell"], now["pick"]
    if bell is not None and not (doorbell_last and pick is not None):
        fields = {"kind": Visit.DOORBELL.value, "qp": bell["qp"], "claimed": bell["producer"]}
        return "visit", visit | fields
    if pick is not None and now["may_fetch"]:
        return "visit", visit | {"kind": Visit.FETCH.value, "qp": pick["qp"]}
    return None


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_who_is_next(dut):
    rng = seeded_random(parameter("PATTERN"))
    pattern = parameter("PATTERN")
    layouts, qps = Layouts(config()), config().qps
    ports = {
        "qp_command": layouts.qp_command,
        "doorbell": layouts.doorbell,
        "pick": layouts.qp_number,
    }
    sources = {
        name: StreamSource(dut, name, layout, rng=rng, pattern="bursty")
        for name, layout in ports.items()
    }
    outputs = {"command": layouts.qp_command, "visit": visit_layout(memory())}
    for name, layout in outputs.items():
        StreamSink(dut, name, layout, rng=rng, pattern=pattern)
        StreamMonitor(dut, name, keep=False)
    for name in INPUTS:
        getattr(dut, name).value = 0
    await start_clock_and_reset(dut)
    # The reset's own cycles forget, too.
    assert dut.forget.value
    forgotten = []
    while dut.forget.value:
        forgotten.append(int(dut.qp.value))
        assert not dut.visit__valid.value and not dut.command__valid.value
        await RisingEdge(dut.clk)
    assert forgotten[-qps:] == list(range(qps))

    before = None  # the cycle before, if nothing was under way
    doorbell_last = False
    seen, fetches_after_bells = set(), 0
    for cycle in range(CYCLES):
        now = {name: int(getattr(dut, name).value) for name in INPUTS}
        for name, layout in ports.items():
            valid = getattr(dut, f"{name}__valid").value
            bits = int(getattr(dut, f"{name}__payload").value)
            now[name] = unpack(layout, bits) if valid else None
        valid = {name for name in outputs if getattr(dut, f"{name}__valid").value}
        begins = before is not None and bool(valid)
        taken = {"doorbell": bool(dut.doorbell__ready.value), "pick": bool(dut.pick__ready.value)}
        kind = None
        if before is not None:
            wanted = expected(before, doorbell_last)
            assert valid == (set() if wanted is None else {wanted[0]})
            if wanted is not None:
                name, fields = wanted
                found = unpack(outputs[name], int(getattr(dut, f"{name}__payload").value))
                assert {field: found[field] for field in fields} == fields
                assert int(dut.qp.value) == fields["qp"]
                kind = Visit(found["kind"]) if name == "visit" else name
                seen.add(kind)
            # A QP that waits for room has its turn next, too.
            bell, pick = before["doorbell"], before["pick"]
            first = before["qp_command"] is None and not before["rescue_due"]
            if first and (bell is not None or pick is not None):
                fetches_after_bells += bool(doorbell_last and bell and pick)
                doorbell_last = bell is not None and not (doorbell_last and pick is not None)
        # What a visit tells of is taken when it begins, and nothing else is.
        assert taken["doorbell"] == (begins and kind is Visit.DOORBELL)
        assert taken["pick"] == (begins and kind is Visit.FETCH)
        before = None if valid else now
        for name, source in sources.items():
            if source.pending < 2 and rng.random() < (0.05 if name == "qp_command" else 0.5):
                source.put(random_fields(rng, ports[name]))
        dut.rescue_due.value = rng.random() < 0.1
        dut.rescue_copies.value = rng.getrandbits(1)
        dut.rescue_copied.value = rng.randrange(3)
        dut.rescue_qp.value = rng.randrange(qps)
        # It falls only when something was requested: so in a visit.
        if valid or not now["may_fetch"]:
            dut.may_fetch.value = rng.random() < 0.7
        assert not dut.forget.value, cycle
        await RisingEdge(dut.clk)
    assert seen == {"command", *Visit}
    assert fetches_after_bells > 10
    assert pack(visit_layout(memory()), {}) == 0
