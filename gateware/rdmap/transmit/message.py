"""What the steps of the transmitter tell each other."""

from amaranth.lib import data

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ddp.checks import CAUSE_BITS
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.rdmap.atomic.operations import AtomicStatus
from stagecoach.gateware.rdmap.transmit.context import (
    progress_layout,
    sends_bits,
    settings_layout,
)
from stagecoach.gateware.rdmap.transmit.entry import OPERANDS, OPERATION
from stagecoach.hw.interface.queue_entries import SCATTER_GATHER_ELEMENTS


def lookup_layout(config: RnicConfig) -> data.StructLayout:
    """What tables say of the QP whose turn it is, right three cycles after it is known."""
    return data.StructLayout(
        {
            "settings": settings_layout(config),
            "pd": 16,
            "window": 32,  # position up to which the LLP takes bytes
            "mulpdu": 16,
            "retired": sends_bits(config),  # sends that left the completer
            "leaving": 1,  # Read Responses are on their way: no atomic begins
            "answered": 1,  # the atomic that was begun has ended
            "original": 64,  # what it found
            "atomic_status": AtomicStatus,
        }
    )


def message_layout(config: RnicConfig) -> data.StructLayout:
    """The message that a QP begins or goes on with, or its Terminate."""
    return data.StructLayout(
        {
            "qp": config.qp_bits,
            "progress": progress_layout(config),  # where the QP stood before this FPDU
            "terminating": 1,  # it is the Terminate, and the request to close
            "responding": 1,  # it is a response; if not, the send entry counts
            "begins_atomic": 1,  # not yet: an inbound atomic begins
            "answers_atomic": 1,  # it is an Atomic Response
            "is_read": 1,  # it is an RDMA Read
            "is_atomic": 1,  # it is an Atomic Request
            "is_immediate": 1,  # it is Immediate Data
            "inline": 1,  # its payload is an inline piece: an RDMAP header or Immediate Data
            "is_local": 1,  # it is an operation on a local STag: nothing is sent
            "registers": 1,  # that is a FAST_REGISTER, else a LOCAL_INVALIDATE
            "tagged": 1,
            "bare": 1,  # no element is looked at: a Terminate or an Atomic Response
            "failed": 1,  # there is nothing to send but an error with this `cause`
            "cause": CAUSE_BITS,
            "entry": OPERATION,  # the oldest send entry
            "bad_entry": 1,  # which is not allowed
            "takes_two": 1,  # it has a second unit
            "index": 16,  # its running number
            "inbound": Layouts(config).inbound_read,  # the oldest request; of an atomic its target
            "remaining": 32,  # bytes of the message that were not sent
            "room": 32,  # bytes from the position to the end of the window
            "roomy": 1,  # any FPDU fits the window
            "tagged_capacity": 16,  # bytes of payload that a tagged FPDU can have
            "untagged_capacity": 16,  # and an untagged one
            "more": 1,  # there is something to do when this message has ended
        }
    )


def piece_layout(config: RnicConfig) -> data.StructLayout:
    """A piece of host memory that an FPDU of the message needs, or an FPDU without one."""
    return data.StructLayout(
        {
            "message": message_layout(config),
            # The FPDU
            "payload": 32,  # bytes after its DDP header
            "fits": 1,  # what remains of the message fits it
            "remote_stag": 32,  # of the peer's buffer, or to be invalidated there
            "remote_offset": 64,  # Tagged Offset of the peer's buffer; Immediate Data
            "operands": data.ArrayLayout(64, OPERANDS),  # of an Atomic Request, as in its entry
            # The element
            "element": range(SCATTER_GATHER_ELEMENTS + 1),  # its number
            "element_stag": 32,
            "element_offset": 64,  # Tagged Offset
            "element_length": 32,
            "exhausted": 1,  # all that it has is needed
            # The piece
            "asks": 1,  # there is one, which the STag table has to allow
            "address": 64,  # Tagged Offset
            "octets": 32,
            "covers": 1,  # it is the last one of the FPDU
            "failed": 1,  # there is nothing to send but an error with this `cause`
            "cause": CAUSE_BITS,
        }
    )
