"""What the transmitter is told of a Read or Atomic Request."""

from amaranth.hdl import Module, Value
from amaranth.lib import data

from stagecoach.gateware.ddp.headers import from_wire


def fill_inbound_request(m: Module, item: data.View, header: data.View, is_atomic: Value) -> None:
    """Drives `item`, an `inbound_request`, with the fields of the `ULPDU_HEADER` `header`."""
    read, atomic = item.of.read, item.of.atomic
    read_request = header.read_request.rdmap
    atomic_request = header.atomic_request.rdmap
    m.d.comb += [
        item.atomic.eq(is_atomic),
        atomic.stag.eq(from_wire(atomic_request.stag)),
        atomic.tagged_offset.eq(from_wire(atomic_request.tagged_offset)),
        atomic.identifier.eq(from_wire(atomic_request.identifier)),
        atomic.operands.operation.eq(atomic_request.operation),
    ]
    for name in ("data", "mask", "compare", "compare_mask"):
        m.d.comb += getattr(atomic.operands, name).eq(from_wire(getattr(atomic_request, name)))
    # What only an atomic has keeps whatever stands there: no logic for bits that mean nothing.
    with m.If(~is_atomic):
        m.d.comb += [
            read.source_stag.eq(from_wire(read_request.source_stag)),
            read.source_tagged_offset.eq(from_wire(read_request.source_tagged_offset)),
            read.sink_stag.eq(from_wire(read_request.sink_stag)),
            read.sink_tagged_offset.eq(from_wire(read_request.sink_tagged_offset)),
            read.length.eq(from_wire(read_request.length)),
        ]
