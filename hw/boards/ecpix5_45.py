"""LambdaConcept ECPIX-5, LFE5UM5G-45F."""

from stagecoach.hw.boards.board import Board

BOARD = Board(
    name="ecpix5-45",
    platform="amaranth_boards.ecpix5:ECPIX545Platform",
    pll=(2, 1),
    programmer=("-c", "ft2232"),
)
