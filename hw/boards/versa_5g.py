"""Lattice ECP5-5G Versa, LFE5UM5G-45F."""

from stagecoach.hw.boards.board import Board

BOARD = Board(
    name="versa-5g",
    platform="amaranth_boards.versa_ecp5_5g:VersaECP55GPlatform",
    pll=(2, 1),
    programmer=("-c", "ft2232"),
)
