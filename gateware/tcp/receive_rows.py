"""What the receiving side knows of a connection, in the rows of its table."""

from amaranth.lib import data, enum

from stagecoach.gateware.tcp.layouts import PLACE
from stagecoach.gateware.tcp.ranges import RANGES, ranges_layout

_RANGES = ranges_layout()

CLEARED = ("fin_known", "fin_taken", "discards", "dead")
"""Fields of the place that are 0 after a BEGIN."""

HEAD = ("next", "edge", "fin", "size", "shift", *CLEARED)
"""Fields of the place that a segment wants first; the order of the ranges is beside them."""

REST = ("released", "base", "ring")
"""The others: a segment changes none of them."""

HALF = RANGES // 2

LIST = data.ArrayLayout(_RANGES["list"].shape.elem_shape, HALF)
"""The ranges of half of the places."""

HEAD_ROW = data.StructLayout(
    {name: PLACE[name].shape for name in HEAD}
    | {name: _RANGES[name].shape for name in ("order", "used")}
)
REST_ROW = data.StructLayout({name: PLACE[name].shape for name in REST})
ROW_BITS = max(each.size for each in (HEAD_ROW, REST_ROW, LIST))


class Row(enum.Enum, shape=2):
    """Of the table, for each connection."""

    HEAD = 0
    REST = 1
    FIRST_LIST = 2
    SECOND_LIST = 3
