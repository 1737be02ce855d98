"""A port of `AtomicUnit` that its generic proof leaves out."""

from amaranth.hdl import Signal

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.rdmap.atomic_unit import AtomicUnit
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness

CYCLES = 12


def _holds(h: Harness) -> None:
    dut = AtomicUnit(RnicConfig(qps=2), operations=2)
    h.block(dut)
    read, write = dut.read, dut.write
    # Words come for reads, ends for writes: `ReadEngine`, `WriteEngine`.
    reads, writes = Signal(4, name="reads"), Signal(4, name="writes")
    asked = read.command.valid & read.command.ready
    h.m.d.sync += [
        reads.eq(reads + asked - (read.data.valid & read.data.ready)),
        writes.eq(writes + (write.command.valid & write.command.ready) - write.done),
    ]
    h.assume(~read.data.valid | (reads != 0))
    h.assume(~write.done | (writes != 0))
    h.check("read command", h.held(read.command))
    h.cover("waits to read", h.past(read.command.valid & ~read.command.ready) & h.started)


PROPERTIES = (
    Property(
        "rdmap.atomic_unit.AtomicUnit",
        "streams hold until taken: read.command",
        in_harness(_holds),
        mutations=(
            Mutation(
                "stagecoach.gateware.rdmap.atomic_unit",
                "with m.If(~command.valid):\n                    m.d.sync += [request",
                "with m.If(1):\n                    m.d.sync += [request",
            ),
        ),
        depth=CYCLES,
        bounded="the address that is read stands in memories of operations under way; which of "
        "them are free is told by four counters. 12 cycles make two reads",
        covered=CYCLES,
    ),
)
