"""The registers by which the host reaches a Wishbone slave: those of `hw/interface/memory.rdl`."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.registers.block import ADDRESS_BITS, RegisterBlock
from stagecoach.gateware.registers.ports import AxiLiteSignature
from stagecoach.gateware.stream.fifo import StreamFifo
from stagecoach.gateware.wishbone.master import LIMIT_CYCLES, WishboneMaster
from stagecoach.gateware.wishbone.ports import ACCESS, WishboneSignature
from stagecoach.hw.interface.registers import MEMORY
from stagecoach.hw.interface.sizes import MEMORY_ACCESSES


class WishboneWindow(wiring.Component):
    """Makes the accesses that the host queues, in their order, and tells what was read last.

    Accesses of registers, their cycles and back-pressure are those of `RegisterBlock`. A write to
    MEMORY_WRITE or MEMORY_READ queues an access to the word that MEMORY_ADDRESS names at that time,
    of up to `MEMORY_ACCESSES`; `WishboneMaster` makes them, one every 13 cycles with both clocks
    the same and a slave that answers at once. While MEMORY_HOLD is set none begins: accesses that
    must follow each other sooner than the host can give them are queued first and let go then.

    Nothing here waits for ever. A write that finds the queue full waits for a place, at most the
    `limit_cycles` that an access may take; with MEMORY_HOLD there would be none, which is an
    overrun. An overrun, and an access that fails, set their bits of MEMORY_ERRORS; while one is
    set, accesses are dropped unmade, those in the queue and new ones, so that of a sequence nothing
    is made after what failed. MEMORY_STATUS is busy until nothing is queued or under way.

    A reset empties the queue, as each session of a host link does; for what is under way see
    `WishboneMaster`.

    Parameters
    ----------
    limit_cycles: of `WishboneMaster`.

    Members
    -------
    bus: the register port, with addresses from those of the description on.
    slave: to the slave, in the domain `wishbone`.
    """

    def __init__(self, limit_cycles: int = LIMIT_CYCLES):
        self._limit_cycles = limit_cycles
        super().__init__(
            {"bus": In(AxiLiteSignature(ADDRESS_BITS)), "slave": Out(WishboneSignature())}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.registers = registers = RegisterBlock(MEMORY)
        m.submodules.queue = queue = StreamFifo(ACCESS, MEMORY_ACCESSES)
        m.submodules.master = master = WishboneMaster(self._limit_cycles)
        wiring.connect(m, wiring.flipped(self.bus), registers.bus)
        wiring.connect(m, master.bus, wiring.flipped(self.slave))
        write, read = registers.memory_write, registers.memory_read
        hold, errors = registers.memory_hold.hold, registers.memory_errors
        pulses, outcome = registers.memory_errors_set, master.outcome

        unfinished = Signal(range(MEMORY_ACCESSES + 1))
        full, queued, dropped, reading = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            full.eq(unfinished == MEMORY_ACCESSES),
            queue.i.valid.eq((write.valid | read.valid) & ~full),
            queue.i.p.word.eq(registers.memory_address.word),
            queue.i.p.value.eq(write.p.value),
            queue.i.p.write.eq(write.valid),
            write.ready.eq(~full),
            read.ready.eq(~full),
            queued.eq(queue.i.valid & queue.i.ready),
            registers.memory_status.busy.eq((unfinished != 0) | write.valid | read.valid),
        ]
        m.d.sync += unfinished.eq(unfinished + queued - master.done - dropped)

        # What fails is in `errors` when the master takes the next access
        failed = errors.as_value().any()
        m.d.comb += [
            master.access.valid.eq(queue.o.valid & ~hold & ~failed),
            master.access.payload.eq(queue.o.payload),
            queue.o.ready.eq((master.access.ready & ~hold) | failed),
            dropped.eq(queue.o.valid & failed),
            pulses.error.eq(master.done & outcome.error & ~outcome.late),
            pulses.late.eq(master.done & outcome.late),
            pulses.overrun.eq((write.valid | read.valid) & full & hold),
        ]
        value = registers.memory_value.value
        kept = Signal.like(value)
        m.d.comb += value.eq(kept)
        with m.If(master.access.valid & master.access.ready):
            m.d.sync += reading.eq(~queue.o.p.write)
        with m.If(master.done & ~outcome.late & reading):
            m.d.sync += kept.eq(outcome.value)
        return m
