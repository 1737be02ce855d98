"""Finds a serial order of atomics on one word that explains every value they returned."""

from collections.abc import Sequence
from dataclasses import dataclass

from stagecoach.sim.model.atomics import cmp_swap, fetch_add

FETCH_ADD, SWAP, CMP_SWAP = range(3)


@dataclass(frozen=True)
class Operation:
    """One atomic: what was asked, from when to when it lasted, and the answer.

    original: the value returned; None if it is not known whether the operation took place.
    """

    operation: int
    data: int
    mask: int
    compare: int
    compare_mask: int
    asked: int
    answered: int
    original: int | None

    def result(self, current: int) -> int:
        if self.operation == FETCH_ADD:
            return fetch_add(current, self.data, self.mask)
        if self.operation == SWAP:
            return self.data
        return cmp_swap(current, self.data, self.mask, self.compare, self.compare_mask)


def serial_order(
    operations: Sequence[Operation], initial: int, final: int
) -> list[Operation] | None:
    """Return the operations in an order that leads from `initial` to `final`, None without one.

    Each returns what the one before it left. One that was answered before another was asked is
    earlier. Operations without a known value may be left out, but not follow one that was asked
    after their answer.
    """
    pending = sorted(operations, key=lambda one: one.asked)
    certain = sum(one.original is not None for one in pending)
    # Depth first; a step is the value, what is left to place, and what was placed.
    steps = [(initial, tuple(range(len(pending))), ())]
    seen = set()
    while steps:
        current, left, placed = steps.pop()
        if (current, left) in seen:
            continue
        seen.add((current, left))
        if current == final and len(placed) >= certain:
            if all(pending[number].original is None for number in left):
                return [pending[number] for number in placed]
        # What must come before an operation that is certain may not be skipped.
        deadline = min(
            (pending[n].answered for n in left if pending[n].original is not None), default=None
        )
        branches = []
        for number in left:
            one = pending[number]
            if deadline is not None and one.asked > deadline:
                break
            if one.original not in (None, current):
                continue
            following = one.result(current)
            rest = tuple(
                n
                for n in left
                if n != number
                and (pending[n].original is not None or pending[n].answered >= one.asked)
            )
            step = (following, rest, (*placed, number))
            if following == current and one.original is not None and len(rest) == len(left) - 1:
                # It changes nothing and rules out nothing, so now is as good as ever.
                branches = [step]
                break
            branches.append(step)
        # Uncertain ones are tried last.
        branches.sort(key=lambda step: pending[step[2][-1]].original is not None)
        steps += branches
    return None
