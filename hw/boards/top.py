"""The top of every board: clock, reset, pins, and the device behind a UART."""

from typing import Any

from amaranth.hdl import ClockDomain, Elaboratable, Instance, Module, Signal
from amaranth.lib import io
from amaranth.lib.cdc import FFSynchronizer

from stagecoach.gateware.hostlink.serial_rnic import SerialRnic
from stagecoach.hw.boards.board import Board

PLL_HZ = 600_000_000
"""Of the PLL's oscillator, which makes 400 to 800 MHz."""

RESET_BITS = 10
"""The device is reset for 2^10 cycles after configuration, and before it is used."""


def _input(port: Any) -> io.Buffer:
    return io.Buffer("i", port)


class BoardTop(Elaboratable):
    """The design of a board: the core clock from a PLL, and a reset that waits for it."""

    def __init__(self, board: Board):
        self._board = board

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        board = self._board
        m.domains.sync = sync = ClockDomain()
        m.domains.power = power = ClockDomain(reset_less=True)
        clock, locked = Signal(), Signal()
        m.submodules.clock_pin = source = _input(platform.request(platform.default_clk, dir="-"))
        m.submodules.pll = self._pll(source.i, clock, locked)
        m.d.comb += [sync.clk.eq(clock), power.clk.eq(clock)]

        wanted = Signal()
        if platform.default_rst is not None:
            m.submodules.button = button = _input(platform.request(platform.default_rst, dir="-"))
            m.d.comb += wanted.eq(button.i)
        hold = Signal()
        m.submodules.hold = FFSynchronizer(wanted | ~locked, hold, o_domain="power")
        left = Signal(RESET_BITS, init=-1)
        reset = Signal(init=1)
        m.d.power += reset.eq(left != 0)
        with m.If(hold):
            m.d.power += left.eq(-1)
        with m.Elif(left != 0):
            m.d.power += left.eq(left - 1)
        m.d.comb += sync.rst.eq(reset)

        uart = platform.request("uart", dir="-")
        m.submodules.rx = rx = _input(uart.rx)
        m.submodules.tx = tx = io.Buffer("o", uart.tx)
        m.submodules.device = device = SerialRnic(board.config, board.clock_hz, board.baud)
        m.d.comb += [device.rx.eq(rx.i), tx.o.eq(device.tx)]
        return m

    def _pll(self, source: Signal, clock: Signal, locked: Signal) -> Instance:
        divider, multiplier = self._board.pll
        output = PLL_HZ // self._board.clock_hz
        return Instance(
            "EHXPLLL",
            p_PLLRST_ENA="DISABLED",
            p_INTFB_WAKE="DISABLED",
            p_STDBY_ENABLE="DISABLED",
            p_DPHASE_SOURCE="DISABLED",
            p_OUTDIVIDER_MUXA="DIVA",
            p_OUTDIVIDER_MUXB="DIVB",
            p_OUTDIVIDER_MUXC="DIVC",
            p_OUTDIVIDER_MUXD="DIVD",
            p_CLKI_DIV=divider,
            p_CLKFB_DIV=multiplier,
            p_CLKOP_DIV=output,
            p_CLKOP_CPHASE=output - 1,
            p_CLKOP_FPHASE=0,
            p_CLKOP_ENABLE="ENABLED",
            p_FEEDBK_PATH="CLKOP",
            i_CLKI=source,
            i_CLKFB=clock,
            i_RST=0,
            i_STDBY=0,
            i_PHASESEL0=0,
            i_PHASESEL1=0,
            i_PHASEDIR=1,
            i_PHASESTEP=1,
            i_PHASELOADREG=1,
            i_PLLWAKESYNC=0,
            i_ENCLKOP=0,
            o_CLKOP=clock,
            o_LOCK=locked,
        )
