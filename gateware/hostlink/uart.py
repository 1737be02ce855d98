"""A UART: bytes over two pins, 8 data bits, no parity, one stop bit."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

MINIMUM_DIVISOR = 4
MAXIMUM_ERROR = 0.02
"""Of the rate: ten bits later it is a fifth of a bit, and the other side has an error, too."""


def divisor_of(clock_hz: float, baud: float) -> int:
    """Cycles of a bit. Raises `ValueError` if the clock cannot make the rate."""
    divisor = round(clock_hz / baud)
    if divisor < MINIMUM_DIVISOR or abs(divisor * baud / clock_hz - 1) > MAXIMUM_ERROR:
        raise ValueError(
            f"{baud:g} baud from a clock of {clock_hz:g} Hz; allowed: rates that are, to "
            f"{MAXIMUM_ERROR:.0%}, the clock by a whole number from {MINIMUM_DIVISOR} on"
        )
    return divisor


class UartReceiver(wiring.Component):
    """Bytes from a pin.

    A bit is sampled in its middle. A byte whose stop bit is wrong is dropped, and one that comes
    while the one before was not taken: the line's protocol has to notice.

    Parameters
    ----------
    divisor: cycles of a bit, 4 or more.

    Members
    -------
    rx: the pin, of any clock; high when idle. o: bytes.
    """

    def __init__(self, divisor: int):
        _check(divisor)
        self._divisor = divisor
        super().__init__({"rx": In(1), "o": Out(stream.Signature(8))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        divisor = self._divisor
        level = Signal(init=1)
        m.submodules.synchronizer = FFSynchronizer(self.rx, level, init=1)
        timer = Signal(range(divisor + divisor // 2))
        bits = Signal(range(10))
        shift = Signal(9)

        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.FSM():
            with m.State("IDLE"):  # waits for a start bit
                m.d.sync += [timer.eq(divisor + divisor // 2 - 2), bits.eq(9)]
                with m.If(~level):
                    m.next = "BITS"
            with m.State("BITS"):  # waits for the middle of the next bit
                m.d.sync += timer.eq(timer - 1)
                with m.If(timer == 0):
                    m.d.sync += [
                        timer.eq(divisor - 1),
                        bits.eq(bits - 1),
                        shift.eq(Cat(shift[1:], level)),
                    ]
                    with m.If(bits == 1):
                        m.next = "OCTET"
            with m.State("OCTET"):  # hands the byte over, waits for the end of a broken one
                with m.If(level):
                    m.next = "IDLE"
                    with m.If(shift[8] & (~self.o.valid | self.o.ready)):
                        m.d.sync += [self.o.payload.eq(shift[:8]), self.o.valid.eq(1)]
        return m


class UartTransmitter(wiring.Component):
    """Bytes to a pin, ten bits each.

    Parameters
    ----------
    divisor: cycles of a bit, 4 or more.
    """

    def __init__(self, divisor: int):
        _check(divisor)
        self._divisor = divisor
        super().__init__({"i": In(stream.Signature(8)), "tx": Out(1, init=1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        timer = Signal(range(self._divisor))
        bits = Signal(range(11))  # still to be sent, this one included
        shift = Signal(9, init=0x1FF)
        m.d.comb += self.i.ready.eq(bits == 0)
        with m.If(bits == 0):
            m.d.sync += timer.eq(self._divisor - 1)
            with m.If(self.i.valid):
                m.d.sync += [self.tx.eq(0), shift.eq(Cat(self.i.payload, 1)), bits.eq(10)]
        with m.Else():
            m.d.sync += timer.eq(timer - 1)
            with m.If(timer == 0):
                m.d.sync += [
                    timer.eq(self._divisor - 1),
                    bits.eq(bits - 1),
                    self.tx.eq(shift[0]),
                    shift.eq(Cat(shift[1:], Const(1, 1))),
                ]
        return m


def _check(divisor: int) -> None:
    if divisor < MINIMUM_DIVISOR:
        raise ValueError(f"divisor is {divisor!r}; allowed: {MINIMUM_DIVISOR} and more")
