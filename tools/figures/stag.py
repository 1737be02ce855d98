"""What an STag names: its own bits, and the entry of the table that they find."""

from amaranth.hdl import Shape

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.stag.table import STAG_KEY_BITS
from stagecoach.hw.interface.queue_entries import Rights
from tools.figures.svg import HOST, MEMORY, MUTED, QUEUES, TRANSMIT, Drawing

_MEANING = {
    "stag": "all 32 bits: a guess must match every one",
    "pd": "Protection Domain: a QP of another one is refused",
    "rights": ", ".join(right.name.lower().replace("_", " ") for right in Rights if right.name),
    "scoped": "only for the stream of one QP ...",
    "qp": "... of this one",
    "base": "Tagged Offset of the first byte",
    "length": "in bytes",
    "address": "host address of the first byte",
    "fast": "a work request may register it again",
}
_BIT = 24


def stag() -> str:
    """The 32 bits, the entry, and the memory."""
    config = RnicConfig()
    index = (config.stags - 1).bit_length()
    d = Drawing(940, 530, "What an STag names")
    x, y = 86, 50
    d.text(x, 26, f"An STag, in a device with {config.stags} of them", 15, anchor="start")
    rest = 32 - index - STAG_KEY_BITS
    for high, bits, fill, words in (
        (31, rest, TRANSMIT, "random"),
        (31 - rest, index, QUEUES, "place in the table"),
        (STAG_KEY_BITS - 1, STAG_KEY_BITS, MEMORY, "key"),
    ):
        left = x + (31 - high) * _BIT
        d.cell(left, y, bits * _BIT, 34, fill, words)
        d.text(left + bits * _BIT / 2, y + 50, f"{high} to {high - bits + 1}", 11, MUTED)
    middle = x + (rest + index / 2) * _BIT
    d.arrow((middle, y + 58), (middle, 150), (300, 150), (300, 176))
    d.label(x + (rest + index) * _BIT + 4, 128, "a new registration by a work")
    d.label(x + (rest + index) * _BIT + 4, 144, "request may change the key")
    d.text(86, 166, "Entry of the STag table", 14, anchor="start", bold=True)
    top = 178
    for name, shape in Layouts(config).stag_entry.members.items():
        bits = Shape.cast(shape).width
        d.cell(86, top, 110, 28, QUEUES, name)
        d.cell(196, top, 66, 28, HOST, "1 bit" if bits == 1 else f"{bits} bits")
        d.label(276, top + 19, _MEANING[name])
        top += 28
    d.rectangle(660, 200, 200, 250, HOST)
    d.text(760, 190, "host memory", 13, bold=True)
    d.cell(660, 280, 200, 90, MEMORY, "the region")
    d.arrow((560, 389), (600, 389), (600, 280), (658, 280))
    d.label(606, 274, "address")
    d.line((872, 280), (872, 370), color=MUTED)
    d.label(880, 330, "length")
    line = "A range is inside if base <= Tagged Offset, and Tagged Offset + bytes <= base + length."
    d.text(86, 490, line, 13, anchor="start")
    line = (
        "Its host address is address + Tagged Offset - base. All checks come before the first byte."
    )
    d.text(86, 510, line, 13, anchor="start")
    return d.svg()
