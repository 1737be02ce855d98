"""The Wishbone port, and what is asked of who drives it."""

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.hw.interface.registers import MEMORY, field_width

ADDRESS_BITS = field_width("MEMORY_ADDRESS", "word", MEMORY)
"""Of the number of a word of 32 bits."""

ACCESS = data.StructLayout({"word": ADDRESS_BITS, "value": 32, "write": 1})
"""An access to a word; `value` is written, and means nothing in a read."""

OUTCOME = data.StructLayout({"value": 32, "error": 1, "late": 1})
"""What became of it: what was read; or the slave answered with `err`; or not in time."""


class WishboneSignature(wiring.Signature):
    """Wishbone B4, classic cycles of whole words of 32 bits, seen from the master.

    `sel` of a slave that has it is all ones, `cti` and `bte` are 0.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "adr": Out(ADDRESS_BITS),
                "dat_w": Out(32),
                "dat_r": In(32),
                "we": Out(1),
                "cyc": Out(1),
                "stb": Out(1),
                "ack": In(1),
                "err": In(1),
            }
        )
