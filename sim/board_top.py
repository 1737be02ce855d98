"""The top of a board (`hw.boards.top`) as a component whose pins a simulation drives."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from amaranth.hdl import Fragment, Module
from amaranth.lib import io, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.hw.boards.board import find
from stagecoach.hw.boards.top import BoardTop

NAME = "ecpix5-85"
"""The board that is simulated. Others differ in their pins and in what their PLL divides by."""


class _Pins:
    """As much of a platform as the top asks for."""

    default_clk = "clk"
    default_rst = "rst"

    def __init__(self) -> None:
        self.clk, self.rst = (io.SimulationPort("i", 1) for _ in range(2))
        self.uart = SimpleNamespace(rx=io.SimulationPort("i", 1), tx=io.SimulationPort("o", 1))

    def request(self, name: str, dir: str) -> Any:
        return getattr(self, name)


class SimulatedTop(wiring.Component):
    """The whole top, with the clock cells of an ECP5, of which `hw/cells/clocks.v` has models.

    Parameters
    ----------
    config, clock_hz, baud: instead of those of the board.

    Members
    -------
    clk: the oscillator. rst: the button. rx, tx: the pins of the UART.
    """

    def __init__(self, config: RnicConfig, clock_hz: int, baud: int):
        self._board = replace(find(NAME), config=config, clock_hz=clock_hz, baud=baud)
        super().__init__({"clk": In(1), "rst": In(1), "rx": In(1), "tx": Out(1)})

    def elaborate(self, platform: object) -> Module:
        pins = _Pins()
        m = Module()
        m.submodules.top = Fragment.get(BoardTop(self._board), pins)
        m.d.comb += [
            pins.clk.i.eq(self.clk),
            pins.rst.i.eq(self.rst),
            pins.uart.rx.i.eq(self.rx),
            self.tx.eq(pins.uart.tx.o),
        ]
        return m
