"""Events of all kinds pass one at a time, and none waits for another kind twice."""

from collections import Counter
from typing import Any

import pytest
from amaranth.hdl import Value
from amaranth.sim import Simulator

from stagecoach.gateware.tcp.transmit_turn import TransmitKind, TransmitTurn
from stagecoach.sim.cosim.streams import active_cycles, seeded_random

KINDS = list(TransmitKind)
SMALLEST_BITS, LARGEST_BITS = 1, 8
CYCLES = 300


def run(dut: TransmitTurn, bench: Any) -> None:
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("bits", [SMALLEST_BITS, LARGEST_BITS])
@pytest.mark.parametrize("sink", ["always", "random", "slow"])
@pytest.mark.parametrize("source", ["always", "random"])
def test_events_pass_once_and_in_turns(source: str, sink: str, bits: int) -> None:
    """What is offered stays; its input is taken with it, and no other one is."""
    dut, rng = TransmitTurn(bits), seeded_random(source, sink, bits)
    sources = [active_cycles(source, rng) for _ in KINDS]
    ready = active_cycles(sink, rng)
    passed: Counter[TransmitKind] = Counter()
    cycles_taken: list[int] = []

    async def bench(ctx: Any) -> None:
        waiting: dict[TransmitKind, int] = {}
        before: dict[TransmitKind, Counter[TransmitKind]] = {}  # what passed since it waits
        offered = None
        for cycle in range(CYCLES):
            for kind, active in zip(KINDS, sources, strict=True):
                if next(active) and kind not in waiting:
                    waiting[kind] = rng.choice([0, (1 << bits) - 1, rng.getrandbits(bits)])
                    before[kind] = Counter()
                event = dut.events[kind.value]
                ctx.set(event.valid, kind in waiting)
                ctx.set(event.payload, waiting.get(kind, rng.getrandbits(bits)))
            takes = int(next(ready))
            for o_ready in (1 - takes, takes):  # valid does not wait for it
                ctx.set(dut.o.ready, o_ready)
                valid, kind = ctx.get(dut.o.valid), TransmitKind(ctx.get(dut.o.p.kind))
                now = (kind, ctx.get(dut.o.p.connection)) if valid else None
                assert offered is None or now == offered
                if now is not None:
                    assert waiting[kind] == now[1]
                for each in KINDS:
                    is_taken = bool(valid and o_ready and each is kind)
                    assert ctx.get(dut.events[each.value].ready) == is_taken
            offered = now
            if valid and takes:
                del waiting[kind], before[kind]
                for counts in before.values():
                    counts[kind] += 1
                    assert counts[kind] == 1, "it had two turns while another one waited"
                passed[kind] += 1
                cycles_taken.append(cycle)
                offered = None
            await ctx.tick()

    run(dut, bench)
    assert len(passed) == len(KINDS)
    if source == sink == "always":
        # Chosen in a cycle, offered in the next one.
        assert cycles_taken == list(range(1, CYCLES, 2))
        assert max(passed.values()) - min(passed.values()) <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_an_event_alone_is_offered_a_cycle_after_it_came(kind: TransmitKind) -> None:
    """And nothing is when none waits; one that nobody takes waits for ever."""
    dut = TransmitTurn(LARGEST_BITS)

    async def bench(ctx: Any) -> None:
        event = dut.events[kind.value]
        for connection in (0, (1 << LARGEST_BITS) - 1):
            await ctx.tick().repeat(3)
            assert not ctx.get(dut.o.valid)
            ctx.set(event.valid, 1)
            ctx.set(Value.cast(event.payload), connection)
            assert not ctx.get(dut.o.valid)
            for _ in range(20):
                await ctx.tick()
                assert ctx.get(dut.o.valid) and not ctx.get(event.ready)
            ctx.set(dut.o.ready, 1)
            assert ctx.get(event.ready)
            assert TransmitKind(ctx.get(dut.o.p.kind)) is kind
            assert ctx.get(dut.o.p.connection) == connection
            await ctx.tick()
            ctx.set(dut.o.ready, 0)
            ctx.set(event.valid, 0)

    run(dut, bench)
