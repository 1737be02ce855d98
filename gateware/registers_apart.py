"""Registers that hold the same and stay apart, each near its own users."""

from amaranth.hdl import Signal, Value, ValueLike

KEEP = {"keep": 1}
"""What synthesis knows them by: `hw.synthesis` and other tools do not merge their cells."""


def keep_apart(*registers: ValueLike) -> None:
    """Have synthesis leave registers apart that hold the same, or parts of the same.

    registers: signals, whole, as they are assigned; all of those that would be made one. Raises
    `TypeError` for what is no signal, and `ValueError` for less than two.
    """
    if len(registers) < 2:
        raise ValueError(f"{len(registers)} registers are kept apart; allowed: 2 or more")
    for register in registers:
        signal = Value.cast(register)
        if not isinstance(signal, Signal):
            raise TypeError(f"{signal!r} is kept apart; allowed: a Signal")
        signal.attrs.update(KEEP)
