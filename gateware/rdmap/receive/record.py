"""What the receiver knows of a segment when it was judged by all that needs no STag."""

from amaranth.hdl import Module, Value
from amaranth.lib import data

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ddp.checks import CAUSE_BITS
from stagecoach.gateware.ddp.headers import UNTAGGED_HEADER_OCTETS
from stagecoach.gateware.interfaces import (
    EVENT_HEADER_OCTETS,
    TERMINATED_HEADER_OCTETS,
    SegmentKind,
)
from stagecoach.gateware.rdmap.atomic.unit import ATOMIC_OCTETS
from stagecoach.gateware.rdmap.receive.pieces import BANKS
from stagecoach.hw.interface.queue_entries import SCATTER_GATHER_ELEMENTS


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
            "invalidates": 1,  # the STag of its DDP header, after the lookups of its pieces
            "bank": range(BANKS),  # of its pieces
            "pieces": range(SCATTER_GATHER_ELEMENTS + 1),  # to look up; 0 if it failed
            "position": config.store_address_bits + 3,  # octet of the store with the first piece
            "store_end": config.store_address_bits,
            "delivers": 1,  # its message ends with it; 0 if it failed
            "index": 16,  # of the receive entry, or of the send entry of an atomic
            "length": 32,  # octets of the message
            "ulpdu_length": 16,
            # As it came. If a good Terminate is the `cause`, what it says stands in the octets that
            # an event has; without an FPDU these are 0. The others mean nothing then.
            "header": 8 * TERMINATED_HEADER_OCTETS,
        }
    )


def fill_record(
    m: Module,
    record: data.View,
    segment: data.View,
    kind: data.View,
    outstanding: data.View,
    message_end: Value,
    tells: Value,
) -> None:
    """Drives what the record has of the segment itself and of what it answers.

    `message_end`: octets of a message in a receive entry. `tells`: it is a good Terminate.
    """
    m.d.comb += [
        record.qp.eq(segment.qp),
        record.fpdu.eq(segment.kind == SegmentKind.FPDU),
        record.opcode.eq(kind.opcode),
        record.invalidates.eq(kind.invalidates),
        record.store_end.eq(segment.store_end),
        record.index.eq(outstanding.length[: len(record.index)]),
        record.length.eq(message_end[: len(record.length)]),
    ]
    with m.If(kind.atomic_response):
        m.d.comb += record.length.eq(ATOMIC_OCTETS)
    with m.Elif(kind.response):
        m.d.comb += record.length.eq(outstanding.length)
    told = record.header[: 8 * EVENT_HEADER_OCTETS]
    m.d.comb += record.header[len(told) :].eq(segment.header[len(told) :])
    with m.If(record.fpdu):
        m.d.comb += [
            record.ulpdu_length.eq(segment.ulpdu_length),
            told.eq(segment.header[: len(told)]),
        ]
        with m.If(tells):
            m.d.comb += told.eq(segment.header[8 * UNTAGGED_HEADER_OCTETS :])
