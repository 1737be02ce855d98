"""Computes atomics one by one, from the word that was read or a value that is being written."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_OCTETS
from stagecoach.gateware.dma.bursts import WORD_BITS
from stagecoach.gateware.host_memory import MEMORY_COMMAND, READ_WORD, WORD
from stagecoach.gateware.layouts import OPERANDS
from stagecoach.gateware.rdmap.atomic.addresses import ADDRESS_BITS
from stagecoach.gateware.rdmap.atomic.arithmetic import LATENCY, AtomicArithmetic
from stagecoach.gateware.rdmap.atomic.operations import (
    TableReader,
    earlier_layout,
    offer,
    outcome_layout,
)


class AtomicCompute(wiring.Component):
    """Takes the word of each operation, and computes and writes what the operation makes of it.

    Here an operation is one step: one is computed at a time, in the order of the numbers. Its
    original value is the word, or what the latest write before it on that word left, if that
    might not have been in memory when the operation came. One that writes nothing passes on whose
    value that is.

    With `again`, operation `settled` is computed anew, from the word alone; `computed` stays.

    Latency: 9 cycles from `read` to `command` and `data`. Throughput: an operation every 11 cycles,
    10 if it writes nothing, when writes are taken at once. While a write is not taken, nothing else
    is computed and `read` is not ready; if it never is, or no word comes, no later operation is
    computed. `read` is only taken for an operation that was accepted. Numbers wrap mod 2 * `count`.

    Parameters
    ----------
    count: operations in flight, a power of two.

    Members
    -------
    read: In(stream READ_WORD), a word for each operation, in their order, and no other.
    command, data: Out(stream), a write of one word, for those that write.
    accepted: In, the number of the next operation that comes; those before it are in the tables.
    settled: In, the number of the oldest operation that is not settled.
    again: In(1), all that were accepted are computed, no more are accepted, and the oldest one that
        is not settled has its word read once more.
    operands, earlier: Out(TableReader), of `accept`. An operation is not settled, and its operands
        stay, until its write was taken.
    select, selects, selected: of `AtomicAddresses`: the word addresses of the operations.
    computed: Out, the number of the next operation to be computed: those before it are in the
        tables.
    recomputed: Out(1), a pulse: from the next cycle on the tables have what was computed anew.
    write_begins: Out(1), a pulse in the cycle before `command` and `data` are valid.
    outcomes, originals: In(TableReader), what each operation did, and its original value.
    """

    def __init__(self, count: int):
        self._count = count
        entry, number = range(count), range(2 * count)
        super().__init__(
            {
                "read": In(stream.Signature(READ_WORD)),
                "command": Out(stream.Signature(MEMORY_COMMAND)),
                "data": Out(stream.Signature(WORD)),
                "accepted": In(number),
                "settled": In(number),
                "again": In(1),
                "operands": Out(TableReader(OPERANDS, count)),
                "earlier": Out(TableReader(earlier_layout(count), count)),
                "select": Out(entry),
                "selects": Out(1),
                "selected": In(ADDRESS_BITS),
                "computed": Out(number),
                "recomputed": Out(1),
                "write_begins": Out(1),
                "outcomes": In(TableReader(outcome_layout(count), count)),
                "originals": In(TableReader(64, count)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        read, command, word, begins = self.read, self.command, self.data, self.write_begins
        count, outcome_shape = self._count, outcome_layout(self._count)
        m.submodules.arithmetic = arithmetic = AtomicArithmetic()
        m.submodules.outcomes = outcomes = Memory(shape=outcome_shape, depth=count, init=[])
        m.submodules.originals = originals = Memory(shape=64, depth=count, init=[])
        m.submodules.results = results = Memory(shape=64, depth=count, init=[])
        offer(m, outcomes, self.outcomes)
        offer(m, originals, self.originals)

        number = Signal.like(self.computed)
        value = Signal(64)
        read_failed = Signal()
        address = Signal(ADDRESS_BITS)
        earlier = Signal(earlier_layout(count))
        before = Signal(outcome_shape)  # of that one
        age = Signal.like(number)  # operations between its writer and this one
        uses = Signal()  # the value of that writer
        steps = Signal(range(LATENCY))
        computes = Signal()
        outcome = Signal(outcome_shape)
        given = Signal(OPERANDS)

        read_before, read_result = (
            outcomes.read_port(domain="comb"),
            results.read_port(domain="comb"),
        )
        write_outcome, write_original, write_result = (
            table.write_port() for table in (outcomes, originals, results)
        )
        for port in (write_outcome, write_original, write_result):
            m.d.comb += port.addr.eq(number)
        m.d.comb += [
            self.operands.entry.eq(number),
            self.earlier.entry.eq(number),
            self.select.eq(number),
            read_before.addr.eq(earlier.latest),
            read_result.addr.eq(before.writer),
            arithmetic.operands.eq(given),
            arithmetic.original.eq(value),
            outcome.wrote.eq(begins),
            outcome.read_failed.eq(read_failed),
            outcome.stored.eq(outcome.wrote | uses),
            outcome.writer.eq(Mux(outcome.wrote, number, before.writer)),
            write_outcome.data.eq(outcome),
            write_original.data.eq(value),
            write_result.data.eq(arithmetic.result),
            age.eq(number - before.writer - 1),
            command.p.address.eq(Cat(Const(0, WORD_BITS), address)),
            command.p.octets.eq(WORD_OCTETS),
            word.p.data.eq(arithmetic.result),
            word.p.last.eq(1),
        ]
        m.d.sync += [
            given.eq(self.operands.data),
            begins.eq(computes & (steps == LATENCY - 1) & arithmetic.will_write & ~read_failed),
        ]
        expects = Signal()  # a word; as it was a cycle ago, in which `computed` did not change
        m.d.sync += expects.eq(self.again | (self.computed != self.accepted))
        for port in (command, word):
            with m.If(port.ready):
                m.d.sync += port.valid.eq(0)
            with m.If(begins):
                m.d.sync += port.valid.eq(1)

        with m.FSM():
            # Waits for the word of the next one.
            with m.State("IDLE"):
                m.d.sync += [
                    value.eq(read.p.data),
                    read_failed.eq(read.p.error),
                    number.eq(Mux(self.again, self.settled, self.computed)),
                    steps.eq(0),
                ]
                m.d.comb += read.ready.eq(expects)
                with m.If(expects & read.valid):
                    m.next = "LOOK"
            # Its address and the latest one before it are looked up, ...
            with m.State("LOOK"):
                m.d.comb += self.selects.eq(1)
                m.d.sync += earlier.eq(self.earlier.data)
                m.next = "BEFORE"
            # ... what that one did, ...
            with m.State("BEFORE"):
                m.d.sync += before.eq(read_before.data)
                m.next = "AGE"
            # ... whether the word that was read may be older than that, ...
            with m.State("AGE"):
                m.d.sync += [
                    uses.eq(before.stored & (age < earlier.within) & ~self.again),
                    address.eq(self.selected),
                ]
                m.next = "VALUE"
            # ... and the value that it has then.
            with m.State("VALUE"):
                with m.If(uses):
                    m.d.sync += value.eq(read_result.data)
                m.next = "COMPUTE"
            # The result is computed.
            with m.State("COMPUTE"):
                m.d.comb += computes.eq(1)
                m.d.sync += steps.eq(steps + 1)
                with m.If(steps == LATENCY - 1):
                    m.next = "COMPUTED"
            # It takes place.
            with m.State("COMPUTED"):
                m.d.comb += [
                    write_outcome.en.eq(1),
                    write_original.en.eq(1),
                    write_result.en.eq(1),
                    self.recomputed.eq(self.again),
                ]
                m.d.sync += self.computed.eq(self.computed + ~self.again)
                m.next = "WRITE"
            # Waits until its write was taken.
            with m.State("WRITE"):
                with m.If(~command.valid & ~word.valid):
                    m.next = "IDLE"
        return m
