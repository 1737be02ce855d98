"""LambdaConcept ECPIX-5, LFE5UM5G-85F."""

from stagecoach.hw.boards.board import Board

BOARD = Board(
    name="ecpix5-85",
    platform="amaranth_boards.ecpix5:ECPIX585Platform",
    pll=(2, 1),
    programmer=("-c", "ft2232"),
)
