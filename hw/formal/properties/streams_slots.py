"""Buffers and FIFOs of `gateware`: nothing is lost or doubled, the order is kept."""

from gateware.stream_slot import StreamSlot
from hw.formal.harness import Harness
from hw.formal.property import Mutation, Property, in_harness


def _slot(h: Harness) -> None:
    dut = StreamSlot(8)
    h.block(dut)
    comes = dut.i.valid & dut.i.ready
    item = h.past(dut.i.payload)
    h.check("what comes is there", ~h.past(comes) | (dut.o.valid & (dut.o.payload == item)))
    h.cover("item", dut.o.valid)


PROPERTIES = (
    Property(
        "stream_slot.StreamSlot",
        "an item that came is there in the next cycle",
        in_harness(_slot),
        mutations=(
            Mutation("gateware.stream_slot", "self.o.valid.eq(self.i.valid)", "self.o.valid.eq(0)"),
        ),
        covered=3,
    ),
)
