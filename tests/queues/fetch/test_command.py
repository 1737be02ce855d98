"""A ring is made or forgotten when nothing is read for it, and not half."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.layouts import Layouts, QpCommandKind
from stagecoach.gateware.queues.fetch.command import FetchCommand
from stagecoach.gateware.queues.fetch.visit import RING
from stagecoach.sim.cosim.streams import StreamSource, seeded_random, start_clock_and_reset, unpack
from tests.queues.fetch.bench import both_sizes, config, random_fields, run
from tests.support.runner import parameter

COMMANDS = 300
OWN = {QpCommandKind.CREATE: True, QpCommandKind.DESTROY: False}
SHARED = {QpCommandKind.RING_CREATE: True, QpCommandKind.RING_DESTROY: False}
"""Whether there is a ring after the commands that change rings."""


@both_sizes
@pytest.mark.parametrize("send", [True, False])
def test_fetch_command(size, send):
    run(FetchCommand, __name__, size, send=send)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_command_is_stored_when_all_is_quiet(dut):
    rng = seeded_random()
    side = "send" if parameter("SEND") == "True" else "receive"
    layout = Layouts(config()).qp_command
    source = StreamSource(dut, "command", layout, rng=rng)
    dut.quiet.value = dut.may_settle.value = 0
    await start_clock_and_reset(dut)
    waited, kinds = set(), set()
    for _ in range(COMMANDS):
        kind = rng.choice(list(QpCommandKind))
        command = random_fields(rng, layout, kind=kind.value)
        changes = OWN
        if side == "receive":
            # The ring of a QP that takes from another one may be that of others.
            changes = SHARED if command["shared"] else OWN | SHARED
        kinds.add((kind, kind in changes))
        done = cocotb.start_soon(source.send(command))
        quiet_from, settles_from = rng.choice([0, 0, 5]), rng.choice([0, 0, 9])
        seen = []
        for cycle in range(40):
            dut.quiet.value = cycle >= quiet_from
            dut.may_settle.value = cycle >= settles_from
            await RisingEdge(dut.clk)
            if done.done():
                break
            if not dut.command__valid.value:
                continue
            what = "ready" if dut.command__ready.value else "waits"
            if dut.restart.value:
                what = "restart"
                # All numbers are 0 in the next cycle at the latest.
                assert not dut.forget.value
            if dut.forget.value:
                what = "forget"
                ring = unpack(RING, dut.ring.value)
                assert ring["exists"] == changes[kind]
                assert ring["base"] == command[f"{side}_base"]
                assert ring["log2"] == command[f"{side}_log2"]
            seen.append((what, bool(dut.quiet.value), bool(dut.may_settle.value)))
        whats = [what for what, _, _ in seen]
        if kind not in changes:
            assert whats == ["restart", "ready"]
            continue
        restarts, forgets = whats.count("restart"), whats.count("forget")
        assert whats == ["restart"] * restarts + ["forget"] * forgets + ["ready"]
        # As soon as it may, and no sooner
        assert [quiet for _, quiet, _ in seen[:restarts]] == [False] * (restarts - 1) + [True]
        settled = [settles for _, _, settles in seen[restarts:-1]]
        assert settled == [False] * (forgets - 1) + [True]
        waited |= {("quiet", restarts > 1), ("settle", forgets > 1)}
    assert len(waited) == 4
    assert len(kinds) == len(QpCommandKind) + (2 if side == "receive" else 0)
