"""Waits until everything that had begun when it was started has ended."""

from collections.abc import Sequence

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.queues.drain import COUNT_BITS, Drain

SETTLE = 9
"""Cycles that it waits before each stage; 6 more for the check."""


class Fence(wiring.Component):
    """Counts what begins and ends at several places and waits for them in stages.

    A pair is a place where items begin and end in the same number: bit p of `begin_<s>` and
    `end_<s>` pulse for pair p of stage s; each has a `Drain`. `start` goes through the stages in
    order: it lets `SETTLE` cycles go by, marks the drains, waits until all have passed, and goes on
    to the next stage. What was on its way and begins in stage 0 up to 11 cycles after `start`
    counts; what stage 0 hands to stage 1 up to 15 cycles after its end there is waited for. Atomics
    are counted elsewhere:
    `mark_<s>` pulses when the stage marks its drains, and `passed_<s>` is low from the next cycle
    on until all that was under way then has ended.
    `busy` is high from the cycle after `start` until the last stage is done, with nothing under way
    for 15 cycles a stage; `start` while busy is ignored.

    Parameters
    ----------
    stages: number of pairs of each stage.
    count_bits: fewer than 2^`count_bits` items of a pair may be between begin and end; one number
        for all pairs, or one for those of each stage.
    """

    def __init__(self, stages: Sequence[int], count_bits: int | Sequence[int] = COUNT_BITS):
        if not stages or any(pairs < 1 for pairs in stages):
            raise ValueError(f"stages is {stages!r}; allowed: one or more numbers from 1")
        self._stages = tuple(stages)
        bits = [count_bits] * len(stages) if isinstance(count_bits, int) else count_bits
        if len(bits) != len(stages):
            raise ValueError(f"count_bits is {count_bits!r}; allowed: one for each stage, or one")
        self._count_bits = tuple(bits)
        members: dict[str, wiring.Member] = {"start": In(1), "busy": Out(1)}
        for number, pairs in enumerate(stages):
            members[f"begin_{number}"] = In(pairs)
            members[f"end_{number}"] = In(pairs)
            members[f"mark_{number}"] = Out(1)
            members[f"passed_{number}"] = In(1, init=1)
        super().__init__(members)

    def elaborate(self, platform) -> Module:
        m = Module()
        stage = Signal(range(len(self._stages) + 1))
        take = Signal()
        reached = Signal(len(self._stages))

        for number, pairs in enumerate(self._stages):
            begin, end = getattr(self, f"begin_{number}"), getattr(self, f"end_{number}")
            mark, passed = getattr(self, f"mark_{number}"), [getattr(self, f"passed_{number}")]
            m.d.comb += mark.eq(take & (stage == number))
            for pair in range(pairs):
                m.submodules[f"drain_{number}_{pair}"] = drain = Drain(self._count_bits[number])
                m.d.comb += [
                    drain.begin.eq(begin[pair]),
                    drain.end.eq(end[pair]),
                    drain.mark.eq(mark),
                ]
                passed.append(drain.passed)
            m.d.sync += reached[number].eq(Cat(passed).all())

        wait = Signal(range(SETTLE + 1))
        all_reached = Signal()
        m.d.comb += all_reached.eq((reached >> stage)[0])

        with m.FSM() as fsm:
            # Waits for `start`.
            with m.State("IDLE"):
                m.d.sync += [stage.eq(0), wait.eq(SETTLE)]
                with m.If(self.start):
                    m.next = "HAND_OVER"
            # Marks the drains of the stage.
            with m.State("MARK"):
                m.d.comb += take.eq(1)
                m.next = "MARKED"
            # None has passed from now on, which is seen a cycle later.
            with m.State("MARKED"):
                m.next = "ENDED"
            # Waits until all of them have ended.
            with m.State("ENDED"):
                with m.If(all_reached):
                    m.d.sync += [stage.eq(stage + 1), wait.eq(SETTLE)]
                    m.next = "HAND_OVER"
            # Gives what was on its way, or ended, time to begin in the next stage.
            with m.State("HAND_OVER"):
                m.d.sync += wait.eq(wait - 1)
                with m.If(stage == len(self._stages)):
                    m.next = "IDLE"
                with m.Elif(wait == 0):
                    m.next = "MARK"
        m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
        return m
