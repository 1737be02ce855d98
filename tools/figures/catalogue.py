"""Which pictures there are, by the names of their files in docs/figures."""

from collections.abc import Callable
from pathlib import Path

from tools.figures.architecture import architecture
from tools.figures.atomic_unit import atomic_unit
from tools.figures.board import board
from tools.figures.frame import frame
from tools.figures.qp_states import qp_states
from tools.figures.rings import rings
from tools.figures.sequences import atomic, read, send, write
from tools.figures.stag import stag
from tools.figures.waves import (
    axi_read,
    axi_write,
    ethernet_receive,
    ethernet_transmit,
    llp_receive,
    llp_transmit,
)

FOLDER = Path(__file__).parents[2] / "docs" / "figures"

PICTURES: dict[str, Callable[[], str]] = {
    "architecture": architecture,
    "write": write,
    "read": read,
    "send": send,
    "atomic": atomic,
    "atomic_unit": atomic_unit,
    "rings": rings,
    "stag": stag,
    "frame": frame,
    "qp_states": qp_states,
    "board": board,
    "axi_read": axi_read,
    "axi_write": axi_write,
    "llp_transmit": llp_transmit,
    "llp_receive": llp_receive,
    "ethernet_transmit": ethernet_transmit,
    "ethernet_receive": ethernet_receive,
}
