"""Headers of the ULPDUs that the transmitter sends (RFC 5041, 4; RFC 5040, 4)."""

from amaranth.hdl import Elaboratable, Module, Signal
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
        control = data.View(rdmap.CONTROL, header.untagged.rsvd_ulp)
        m.d.comb += [
            header.untagged.control.version.eq(ddp.DDP_VERSION),
            header.untagged.control.last.eq(f.last),
            header.untagged.control.tagged.eq(tagged),
            control.version.eq(rdmap.RDMAP_VERSION),
            control.opcode.eq(f.opcode),
        ]
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
