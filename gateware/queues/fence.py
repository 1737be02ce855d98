"""Waits until everything that had begun when it was started has ended."""

from collections.abc import Sequence

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

SETTLE = 9
"""Cycles that an item may be on its way from the end of one stage to the begin of the next."""

COUNT_BITS = 7

MOST = (1 << COUNT_BITS) - 1
"""Items of a pair that may be under way."""


class Fence(wiring.Component):
    """Counts what begins and ends at several places and waits for them in stages.

    A pair is a place where items begin and end in the same number: bit p of `begin_<s>` and
    `end_<s>` pulse for pair p of stage s. `start` goes through the stages in order: it takes the
    numbers of begun items (those that begin in this very cycle count), waits until as many have
    ended, and `SETTLE` cycles later goes on to the next stage, so what stage 0 hands to stage 1 is
    waited for there. The pulses are registered first. No item ends before it begins, and at most
    `MOST` items of a pair may be between begin and end. Atomics are counted in
    `queues/atomic_drain.py`: `mark_<s>` pulses when the stage takes its numbers, and `passed_<s>`
    is low from the next cycle on until all that was under way then has ended.
    `busy` is high from the cycle after `start` until the last stage is done; `start` while busy
    is ignored.

    Parameters
    ----------
    stages: number of pairs of each stage.
    """

    def __init__(self, stages: Sequence[int]):
        if not stages or any(pairs < 1 for pairs in stages):
            raise ValueError(f"stages is {stages!r}; allowed: one or more numbers from 1")
        self._stages = tuple(stages)
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
            begin = Signal(pairs, name=f"begin_now_{number}")
            end = Signal(pairs, name=f"end_now_{number}")
            m.d.sync += [
                begin.eq(getattr(self, f"begin_{number}")),
                end.eq(getattr(self, f"end_{number}")),
            ]
            ahead = []
            for pair in range(pairs):
                under_way = Signal(COUNT_BITS, name=f"under_way_{number}_{pair}")
                left = Signal(COUNT_BITS, name=f"left_{number}_{pair}")  # of those waited for
                ended = Signal(name=f"ended_{number}_{pair}")
                # One adder: plus 1, minus 1 or plus 0.
                more, less = begin[pair] & ~end[pair], end[pair] & ~begin[pair]
                change = Cat(more | less, less.replicate(COUNT_BITS - 1))
                m.d.sync += [under_way.eq(under_way + change), ended.eq(end[pair])]
                # What ends in the cycle of `take` counts in the next one.
                with m.If(take & (stage == number)):
                    m.d.sync += left.eq(under_way)
                with m.Elif(ended & (left != 0)):
                    m.d.sync += left.eq(left - 1)
                ahead.append(left == 0)
            m.d.sync += reached[number].eq(Cat(ahead).all() & getattr(self, f"passed_{number}"))
            m.d.comb += getattr(self, f"mark_{number}").eq(take & (stage == number))

        wait = Signal(range(SETTLE + 1))
        all_reached = Signal()
        m.d.comb += all_reached.eq((reached >> stage)[0])

        with m.FSM() as fsm:
            # Waits for `start`.
            with m.State("IDLE"):
                m.d.sync += stage.eq(0)
                with m.If(self.start):
                    m.next = "COUNT"
            # What began in the cycle of `start` is being counted.
            with m.State("COUNT"):
                m.next = "TAKE"
            # Takes the numbers of the stage.
            with m.State("TAKE"):
                m.d.comb += take.eq(1)
                m.d.sync += wait.eq(SETTLE)
                m.next = "SETTLE"
            # Waits for the comparison with the new numbers.
            with m.State("SETTLE"):
                m.d.sync += wait.eq(wait - 1)
                with m.If(wait == 0):
                    m.next = "ENDED"
            # Waits until all of them have ended.
            with m.State("ENDED"):
                with m.If(all_reached):
                    m.d.sync += [stage.eq(stage + 1), wait.eq(SETTLE)]
                    m.next = "HAND_OVER"
            # Gives what ended time to begin in the next stage.
            with m.State("HAND_OVER"):
                m.d.sync += wait.eq(wait - 1)
                with m.If(stage == len(self._stages)):
                    m.next = "IDLE"
                with m.Elif(wait == 0):
                    m.next = "TAKE"
        m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
        return m
