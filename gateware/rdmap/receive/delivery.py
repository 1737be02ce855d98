"""What is told of a message that a received segment ended."""

from amaranth.hdl import Module, Mux, Value
from amaranth.lib import data

from stagecoach.gateware.ddp.headers import UNTAGGED_HEADER, from_wire
from stagecoach.gateware.interfaces import DeliveryKind
from stagecoach.gateware.rdmap.checks import (
    IMMEDIATE_OPCODES,
    INVALIDATING_OPCODES,
    RESPONSE_OPCODES,
    SEND_OPCODES,
    SOLICITING_OPCODES,
    is_any,
)
from stagecoach.gateware.rdmap.headers import IMMEDIATE_ULPDU
from stagecoach.hw.interface.queue_entries import CompletionFlags


def invalidated_stag(record: data.View) -> Value:
    """The STag of its DDP header."""
    header = data.View(UNTAGGED_HEADER, record.header[: UNTAGGED_HEADER.size])
    return from_wire(header.rsvd_ulp_word)


def fill_delivery(m: Module, delivery: data.View, record: data.View, placements: Value) -> None:
    """Drives the `delivery` of a record; `placements` counts those with octets so far."""
    opcode = record.opcode
    is_receive = is_any(opcode, (*SEND_OPCODES, *IMMEDIATE_OPCODES))
    is_immediate = is_any(opcode, IMMEDIATE_OPCODES)
    immediate = data.View(IMMEDIATE_ULPDU, record.header[: IMMEDIATE_ULPDU.size])
    m.d.comb += [
        delivery.kind.eq(
            Mux(
                is_receive,
                DeliveryKind.RECEIVE,
                Mux(is_any(opcode, RESPONSE_OPCODES), DeliveryKind.READ, DeliveryKind.REQUEST),
            )
        ),
        delivery.qp.eq(record.qp),
        delivery.index.eq(Mux(is_receive, record.index, 0)),
        delivery.length.eq(record.length),
        delivery.flags.eq(
            Mux(is_any(opcode, SOLICITING_OPCODES), CompletionFlags.SOLICITED, 0)
            | Mux(is_any(opcode, INVALIDATING_OPCODES), CompletionFlags.INVALIDATED, 0)
            | Mux(is_immediate, CompletionFlags.IMMEDIATE, 0)
        ),
        delivery.detail.eq(Mux(is_immediate, immediate.immediate_data, invalidated_stag(record))),
        delivery.after.eq(placements),
    ]
