"""What the receiver knows of a segment when it was judged by all that needs no STag."""

from amaranth.hdl import unsigned
from amaranth.lib import data

from gateware.config import RnicConfig
from gateware.ddp.checks import CAUSE_BITS
from gateware.interfaces import TERMINATED_HEADER_OCTETS
from gateware.rdmap.receive_scan import PIECE
from hw.interface.queue_entries import SCATTER_GATHER_ELEMENTS

BANKS = 2
"""Segments whose pieces are kept: one is judged, one is placed."""


def record_layout(config: RnicConfig) -> data.StructLayout:
    """A judged segment."""
    return data.StructLayout(
        {
            "qp": config.qp_bits,
            "pd": 16,
            "dropped": 1,  # its QP does not run: its FPDU is released, and that is all
            "fpdu": 1,  # there is an FPDU, else only `cause`
            "first": 1,  # the first one of its connection
            "cause": CAUSE_BITS,  # the failure of a check; NONE if all was good
            "opcode": 4,
            "invalidates": 1,  # the STag of its DDP header, behind the lookups of its pieces
            "bank": range(BANKS),  # of its pieces
            "pieces": range(SCATTER_GATHER_ELEMENTS + 1),  # to look up; 0 if it failed
            "position": config.store_address_bits + 3,  # octet of the store with the first piece
            "store_end": config.store_address_bits,
            "delivers": 1,  # its message ends with it; 0 if it failed
            "index": 16,  # of the receive entry, or of the send entry of an atomic
            "length": 32,  # octets of the message
            "ulpdu_length": 16,
            # As it came; of a Terminate what it says, if it is the `cause`.
            "header": 8 * TERMINATED_HEADER_OCTETS,
        }
    )


PIECE_WRITE = data.StructLayout(
    {
        "valid": 1,
        "bank": unsigned(1),
        "number": range(SCATTER_GATHER_ELEMENTS),
        "piece": PIECE,
    }
)
"""A piece of the segment that is judged; it is kept a cycle later."""
