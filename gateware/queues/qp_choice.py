"""Of a bit for each QP: that of one of them, the lowest that is set, whether several are."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.utils import exact_log2

GROUP = 8
"""QPs among which one cycle looks one up."""


def bit_of_qp(m: Module, bits: Value, qp: Value, coming: Value | None = None) -> Signal:
    """Return the bit of QP `qp` in `bits`, which has one for each of 2 QPs or more.

    Out of a register: `qp` as it stands for two cycles, its bit as it was two cycles ago. If
    `coming` says what `qp` is in the next cycle, it may be another one in each.
    """
    coming = qp if coming is None else coming
    group = min(GROUP, len(bits))
    group_bits = exact_log2(group)
    in_groups = Signal(len(bits) // group)  # of the QP at this place of each group
    chosen = Signal()
    m.d.sync += [
        in_groups.eq(
            Cat(
                bits[low : low + group].bit_select(coming[:group_bits], 1)
                for low in range(0, len(bits), group)
            )
        ),
        chosen.eq(in_groups.bit_select(qp[group_bits:], 1)),
    ]
    return chosen


def lowest_bit(m: Module, vector, name: str) -> Signal:
    """Return the number of the lowest set bit of `vector` (0 if there is none)."""
    number = Signal(range(max(2, len(vector))), name=name)
    for i in reversed(range(len(vector))):
        with m.If(vector[i]):
            m.d.comb += number.eq(i)
    return number


def several(bits: Value) -> Value:
    """Whether more than one bit is set, in few steps: within four bits, among the fours."""
    fours = [bits[low : low + 4] for low in range(0, len(bits), 4)]
    pairs = (Cat(a & b for i, a in enumerate(four) for b in four[:i]).any() for four in fours)
    some = Cat(pairs).any()
    return some | several(Cat(four.any() for four in fours)) if len(fours) > 1 else some
