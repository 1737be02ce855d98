"""What a board is to this project, and which ones there are."""

import importlib
from dataclasses import dataclass, field
from typing import Any

from stagecoach.gateware.config import RnicConfig
from stagecoach.hw.boards.configs import SMALL

NAMES = ("ecpix5-85", "ecpix5-45", "ulx3s-85", "versa-5g")

CLOCK_HZ = 50_000_000
"""Of the core. A serial bridge brings a fraction of what the device could move at any clock."""

BAUD = 2_000_000
"""The highest rate that FT231X and FT2232H make exactly and that divides the clock."""


class NoSuchBoard(ValueError):
    """A name that no board has; the message lists what is allowed."""


@dataclass(frozen=True)
class Board:
    """A board with a clock and a UART.

    platform: its class in amaranth-boards, as `module:class`. pll: input divider and multiplier
    of the PLL, which make `clock_hz` from the board's clock. programmer: options of openFPGALoader.
    """

    name: str
    platform: str
    pll: tuple[int, int]
    programmer: tuple[str, ...]
    config: RnicConfig = field(default_factory=lambda: SMALL)
    clock_hz: int = CLOCK_HZ
    baud: int = BAUD

    def make_platform(self) -> Any:
        """An object of the platform's class."""
        module, _, name = self.platform.partition(":")
        return getattr(importlib.import_module(module), name)()


def find(name: str) -> Board:
    """A board by its name. Raises `NoSuchBoard`."""
    if name not in NAMES:
        raise NoSuchBoard(f"board {name!r}; allowed: {', '.join(NAMES)}")
    module = importlib.import_module(f"stagecoach.hw.boards.{name.replace('-', '_')}")
    board: Board = module.BOARD
    return board
