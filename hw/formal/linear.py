"""Sums of bits modulo 2 in a netlist: what an XOR tree adds up, whatever its shape.

A solver takes very long to see that two trees of different shapes are the same. Their sums are
compared here instead: each is the set of its inputs, as a number with a bit for each of them.
"""

from typing import Any

from stagecoach.hw.formal.paths import Netlist

_SUMS = {"$xor", "$reduce_xor"}


class NoSumError(Exception):
    """A bit hangs on something else than sums; the message names the cell."""


def sums(netlist: Netlist, name: str, inputs: dict[Any, int]) -> list[int]:
    """What each bit of the net `name` is the sum of.

    inputs: the bits that count as inputs, each with the number that stands for it.
    Raises NoSumError if it is no sum of them.
    """
    known: dict[Any, int] = {"0": 0, **inputs}
    left = [bit for bit in netlist.bits(name) if bit not in known]
    while left:
        bit = left[-1]
        if bit in known:
            left.pop()
            continue
        kind, added = netlist.drivers.get(bit, ("nothing", []))
        if kind not in _SUMS:
            raise NoSumError(f"{name} hangs on {kind}")
        missing = [each for each in added if each not in known]
        left += missing
        if not missing:
            total = 0
            for each in added:
                total ^= known[each]
            known[bit] = total
    return [known[bit] for bit in netlist.bits(name)]
