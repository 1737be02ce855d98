"""Radiona ULX3S, LFE5U-85F."""

from stagecoach.hw.boards.board import Board

BOARD = Board(
    name="ulx3s-85",
    platform="amaranth_boards.ulx3s:ULX3S_85F_Platform",
    pll=(1, 2),
    programmer=("-b", "ulx3s"),
)
