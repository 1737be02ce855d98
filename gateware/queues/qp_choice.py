"""One bit of many, by the number of a QP."""

from amaranth import Cat, Module, Signal
from amaranth.hdl import Value
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
