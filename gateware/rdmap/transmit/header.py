"""Headers of the ULPDUs that the transmitter sends (RFC 5041, 4; RFC 5040, 4; RFC 7306, 5)."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Shape, Signal, Value, ValueLike
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ddp import headers as ddp
from stagecoach.gateware.layouts import AtomicOperation
from stagecoach.gateware.rdmap import headers as rdmap
from stagecoach.gateware.rdmap.transmit.message import piece_layout
from stagecoach.hw.interface import wire

HEADER_FIELDS = data.StructLayout(
    {
        "opcode": rdmap.Opcode,
        "last": 1,
        "stag": 32,  # tagged; the Invalidate STag of a Send
        "tagged_offset": 64,  # tagged
        "msn": 32,  # untagged
        "mo": 32,  # untagged
    }
)
"""What a DDP header is made of; fields of the other kind do not matter."""


def packed(layout: data.StructLayout, **values: ValueLike) -> Value:
    """The bits of a structure with these fields, all others zero; every field has its own width.

    One expression instead of an assignment for each field: exported Verilog has an `always @*` for
    each part of a signal that is driven alone, and one that only sets a constant never runs.
    """
    unknown = values.keys() - {name for name, _ in layout}
    if unknown:
        raise ValueError(f"no fields {sorted(unknown)}; allowed: {[name for name, _ in layout]}")
    parts = []
    for name, field in layout:
        width = Shape.cast(field.shape).width
        parts.append(Cat(values.get(name, 0), Const(0, width))[:width])
    return Cat(*parts)


def control_octets(*, tagged: ValueLike, last: ValueLike, opcode: ValueLike) -> Value:
    """The DDP and the RDMAP control octet (RFC 5041, 4.1; RFC 5040, 4.1)."""
    return Cat(
        packed(ddp.CONTROL, version=wire.DDP_VERSION, last=last, tagged=tagged),
        packed(rdmap.CONTROL, version=wire.RDMAP_VERSION, opcode=opcode),
    )


def read_request_header(
    *,
    sink_stag: ValueLike,
    sink_tagged_offset: ValueLike,
    length: ValueLike,
    source_stag: ValueLike,
    source_tagged_offset: ValueLike,
) -> Value:
    """The RDMA Read Request header (RFC 5040, 4.4)."""
    return packed(
        rdmap.READ_REQUEST_HEADER,
        sink_stag=ddp.to_wire(sink_stag, 4),
        sink_tagged_offset=ddp.to_wire(sink_tagged_offset, 8),
        length=ddp.to_wire(length, 4),
        source_stag=ddp.to_wire(source_stag, 4),
        source_tagged_offset=ddp.to_wire(source_tagged_offset, 8),
    )


def atomic_request_header(
    *,
    operation: Value,
    identifier: ValueLike,
    stag: ValueLike,
    tagged_offset: ValueLike,
    operands: Sequence[Value],
) -> Value:
    """The Atomic Request header; fields that the operation does not have are as RFC 7306 wants.

    `operands` are those of the send entry in its order. The draft's Swap has no masks, nor has it
    or FetchAdd anything to compare (RFC 7306, 5.2.1).
    """
    data, mask, compare, compare_mask = operands
    compares = operation == AtomicOperation.CMP_SWAP.value
    swaps = operation == AtomicOperation.SWAP.value
    return packed(
        rdmap.ATOMIC_REQUEST_HEADER,
        operation=operation,
        identifier=ddp.to_wire(identifier, 4),
        stag=ddp.to_wire(stag, 4),
        tagged_offset=ddp.to_wire(tagged_offset, 8),
        data=ddp.to_wire(data, 8),
        mask=ddp.to_wire(mask | swaps.replicate(64), 8),
        compare=ddp.to_wire(compare & compares.replicate(64), 8),
        compare_mask=ddp.to_wire(compare_mask | (~compares).replicate(64), 8),
    )


def atomic_response_header(*, identifier: ValueLike, original: ValueLike) -> Value:
    """The Atomic Response header (RFC 7306, 5.2.2)."""
    return packed(
        rdmap.ATOMIC_RESPONSE_HEADER,
        identifier=ddp.to_wire(identifier, 4),
        original=ddp.to_wire(original, 8),
    )


def request_ddp_header(opcode: ValueLike, msn: ValueLike) -> Value:
    """The DDP header of a Read or Atomic Request with this MSN, which is always one segment."""
    control = control_octets(tagged=0, last=1, opcode=opcode)
    return packed(
        ddp.UNTAGGED_HEADER,
        control=control[:8],
        rsvd_ulp=control[8:],
        qn=ddp.to_wire(Const(wire.QN_READ_REQUEST, 32), 4),
        msn=ddp.to_wire(msn, 4),
    )


QUEUES = {
    rdmap.Opcode.RDMA_READ_REQUEST: wire.QN_READ_REQUEST,
    rdmap.Opcode.TERMINATE: wire.QN_TERMINATE,
    rdmap.Opcode.ATOMIC_REQUEST: wire.QN_READ_REQUEST,
    rdmap.Opcode.ATOMIC_RESPONSE: wire.QN_ATOMIC_RESPONSE,
}
"""Queue of the untagged messages that have one of their own (RFC 5040, Figure 5; RFC 7306, 3)."""

INVALIDATING = (rdmap.Opcode.SEND_WITH_INVALIDATE, rdmap.Opcode.SEND_WITH_SE_AND_INVALIDATE)


class TransmitHeader(wiring.Component):
    """Lays `fields` out as a DDP header on the wire, without a register.

    Members
    -------
    fields: In(HEADER_FIELDS).
    header: Out, byte i of the ULPDU in bits [8i+7:8i].
    """

    fields: In(HEADER_FIELDS)
    header: Out(8 * wire.UNTAGGED_HEADER_OCTETS)

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        f = self.fields
        tagged = Signal()
        m.d.comb += tagged.eq(
            (f.opcode == rdmap.Opcode.RDMA_WRITE) | (f.opcode == rdmap.Opcode.RDMA_READ_RESPONSE)
        )
        control = control_octets(tagged=tagged, last=f.last, opcode=f.opcode)
        qn = Signal(range(max(QUEUES.values()) + 1))
        with m.Switch(f.opcode):
            for opcode, queue in QUEUES.items():
                with m.Case(opcode):
                    m.d.comb += qn.eq(queue)
        invalidate_stag = Signal(32)
        with m.If(Cat(f.opcode == opcode for opcode in INVALIDATING).any()):
            m.d.comb += invalidate_stag.eq(f.stag)
        with m.If(tagged):
            m.d.comb += self.header.eq(
                packed(
                    ddp.TAGGED_HEADER,
                    control=control[:8],
                    rsvd_ulp=control[8:],
                    stag=ddp.to_wire(f.stag, 4),
                    tagged_offset=ddp.to_wire(f.tagged_offset, 8),
                )
            )
        with m.Else():
            m.d.comb += self.header.eq(
                packed(
                    ddp.UNTAGGED_HEADER,
                    control=control[:8],
                    rsvd_ulp=control[8:],
                    rsvd_ulp_word=ddp.to_wire(invalidate_stag, 4),
                    qn=ddp.to_wire(qn, 4),
                    msn=ddp.to_wire(f.msn, 4),
                    mo=ddp.to_wire(f.mo, 4),
                )
            )
        return m


class TransmitSegment(wiring.Component):
    """Makes the DDP header of the FPDU that a piece belongs to.

    `last` is right a cycle after what it is made of stands in `piece`; so is `header`.

    Members
    -------
    piece: In(piece_layout).
    last: Out(1), the FPDU ends its message.
    header: Out, byte i of the ULPDU in bits [8i+7:8i].
    """

    def __init__(self, config: RnicConfig):
        super().__init__(
            {
                "piece": In(piece_layout(config)),
                "last": Out(1),
                "header": Out(8 * wire.UNTAGGED_HEADER_OCTETS),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        m.submodules.header = header = TransmitHeader()
        piece, message = self.piece, self.piece.message
        entry, progress = message.entry, message.progress
        opcode = Signal(rdmap.Opcode)
        msn = Signal(32)
        tagged_offset = Signal(64)  # of the peer's buffer, where the payload goes
        m.d.sync += [
            self.last.eq((piece.fits | message.inline | message.is_local) & ~message.begins_atomic),
            tagged_offset.eq(piece.remote_offset + progress.done),
            opcode.eq(
                Mux(
                    message.responding,
                    rdmap.Opcode.RDMA_READ_RESPONSE,
                    entry.opcode[: len(opcode)],
                )
            ),
            msn.eq(Mux(message.is_read | message.is_atomic, progress.read_msn, progress.send_msn)),
        ]
        with m.If(message.answers_atomic):
            m.d.sync += [
                opcode.eq(rdmap.Opcode.ATOMIC_RESPONSE),
                msn.eq(progress.atomic_response_msn),
            ]
        with m.If(message.terminating):
            m.d.sync += [opcode.eq(rdmap.Opcode.TERMINATE), msn.eq(wire.FIRST_MSN)]
        m.d.comb += [
            header.fields.opcode.eq(opcode),
            header.fields.last.eq(self.last),
            header.fields.stag.eq(piece.remote_stag),
            header.fields.tagged_offset.eq(tagged_offset),
            header.fields.msn.eq(msn),
            header.fields.mo.eq(progress.done),
            self.header.eq(header.header),
        ]
        return m
