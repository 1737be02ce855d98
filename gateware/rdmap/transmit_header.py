"""Headers of the ULPDUs that the transmitter sends (RFC 5041, 4; RFC 5040, 4)."""

from amaranth.hdl import Cat, Const, Elaboratable, Module, Shape, Signal, Value, ValueLike
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gateware.ddp import headers as ddp
from gateware.interfaces import ULPDU_HEADER_OCTETS
from gateware.rdmap import headers as rdmap

HEADER_FIELDS = data.StructLayout(
    {
        "opcode": rdmap.Opcode,
        "last": 1,
        "stag": 32,  # tagged
        "tagged_offset": 64,  # tagged
        "msn": 32,  # untagged
        "mo": 32,  # untagged
        "sink_stag": 32,  # Read Request
        "sink_tagged_offset": 64,  # Read Request
        "length": 32,  # Read Request
        "source_stag": 32,  # Read Request
        "source_tagged_offset": 64,  # Read Request
    }
)
"""What the headers are made of; those of other kinds of message do not matter."""


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
        packed(ddp.CONTROL, version=ddp.DDP_VERSION, last=last, tagged=tagged),
        packed(rdmap.CONTROL, version=rdmap.RDMAP_VERSION, opcode=opcode),
    )


def read_request_ddp_header(msn: ValueLike) -> Value:
    """The DDP header of a Read Request with this MSN, which is always one segment."""
    control = control_octets(tagged=0, last=1, opcode=rdmap.Opcode.RDMA_READ_REQUEST)
    return packed(
        ddp.UNTAGGED_HEADER,
        control=control[:8],
        rsvd_ulp=control[8:],
        qn=ddp.to_wire(Const(rdmap.QN_READ_REQUEST, 32), 4),
        msn=ddp.to_wire(msn, 4),
    )


class TransmitHeader(wiring.Component):
    """Lays `fields` out as on the wire, without a register.

    Members
    -------
    fields: In(HEADER_FIELDS).
    header: Out, octet i of the ULPDU in bits [8i+7:8i].
    """

    fields: In(HEADER_FIELDS)
    header: Out(8 * ULPDU_HEADER_OCTETS)

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        header = Signal(rdmap.ULPDU_HEADER)
        f = self.fields
        tagged = Signal()
        m.d.comb += [
            tagged.eq(
                (f.opcode == rdmap.Opcode.RDMA_WRITE)
                | (f.opcode == rdmap.Opcode.RDMA_READ_RESPONSE)
            ),
            self.header.eq(header),
        ]

        # The Read Request header first: it stands behind all others.
        request = header.read_request.rdmap
        m.d.comb += [
            request.sink_stag.eq(ddp.to_wire(f.sink_stag, 4)),
            request.sink_tagged_offset.eq(ddp.to_wire(f.sink_tagged_offset, 8)),
            request.length.eq(ddp.to_wire(f.length, 4)),
            request.source_stag.eq(ddp.to_wire(f.source_stag, 4)),
            request.source_tagged_offset.eq(ddp.to_wire(f.source_tagged_offset, 8)),
        ]
        # The control octets stand in the same place in all headers.
        control = control_octets(tagged=tagged, last=f.last, opcode=f.opcode)
        m.d.comb += Value.cast(header)[: len(control)].eq(control)
        with m.If(tagged):
            m.d.comb += [
                header.tagged.stag.eq(ddp.to_wire(f.stag, 4)),
                header.tagged.tagged_offset.eq(ddp.to_wire(f.tagged_offset, 8)),
            ]
        with m.Else():
            qn = Signal(range(rdmap.QN_READ_REQUEST + 1))
            m.d.comb += qn.eq(f.opcode == rdmap.Opcode.RDMA_READ_REQUEST)
            m.d.comb += [
                header.untagged.qn.eq(ddp.to_wire(qn, 4)),
                header.untagged.msn.eq(ddp.to_wire(f.msn, 4)),
                header.untagged.mo.eq(ddp.to_wire(f.mo, 4)),
            ]
        return m
