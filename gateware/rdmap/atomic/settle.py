"""Waits for the write responses of atomics, in order, and decides how each ended."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.rdmap.atomic.operations import (
    AtomicStatus,
    TableReader,
    offer,
    outcome_layout,
)

QUEUE_DEPTH = 4
"""Least depth of a queue that takes two items in successive cycles: one is on its way through."""


class AtomicSettle(wiring.Component):
    """Settles operations in order: nothing of them can change memory any more.

    One that wrote is settled when its write response is there, one that did not write at once.
    One that returned a value whose write failed, and wrote nothing itself, is not settled but
    starts over: `failed_under` is high until it is, and with `again` it is computed anew, when the
    responses of all later operations are there. Its own response overtakes theirs.

    Latency to the next `settled`: 3 cycles from `computed`, or 4 from `done` if that is later. Of
    the operation that starts over it is 4 from `recomputed`, or 2 from `done` if that is later.
    Throughput: an operation every 3 cycles. There is no back-pressure: the queue of write responses
    has room for one of each operation. If a response never comes, its operation is never settled,
    and no later one is; the same if one that starts over is never computed anew. Numbers wrap mod
    2 * `count`.

    Parameters
    ----------
    count: operations in flight, a power of two.

    Members
    -------
    computed: In, the number of the next operation to be computed.
    outcomes: Out(TableReader), what each did that was computed.
    write_begins: In(1), a pulse for each write, before its `done`.
    done, error: In(1), of the write client: a response, in the order of the writes.
    again: In(1), the operation that starts over has begun, and all others are computed and have
        their responses; high until it is settled.
    recomputed: In(1), a pulse: from the next cycle on `outcomes` has what it did.
    settled: Out, the number of the next operation to be settled.
    settles: Out(1), a pulse: `settled` goes on.
    failed_under: Out(1), operation `settled` starts over.
    writes_due: Out(1), a write has begun and its response has not come.
    responses_wait: Out(1), write responses came that were not looked at.
    statuses: In(TableReader), how each ended that was settled.
    """

    def __init__(self, count: int):
        self._count = count
        number = range(2 * count)
        super().__init__(
            {
                "computed": In(number),
                "outcomes": Out(TableReader(outcome_layout(count), count)),
                "write_begins": In(1),
                "done": In(1),
                "error": In(1),
                "again": In(1),
                "recomputed": In(1),
                "settled": Out(number),
                "settles": Out(1),
                "failed_under": Out(1),
                "writes_due": Out(1),
                "responses_wait": Out(1),
                "statuses": In(TableReader(AtomicStatus, count)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = self._count
        m.submodules.statuses = statuses = Memory(shape=AtomicStatus, depth=count, init=[])
        m.submodules.write_failures = write_failures = Memory(shape=1, depth=count, init=[])
        offer(m, statuses, self.statuses)
        write_status = statuses.write_port()
        look, note = write_failures.read_port(domain="comb"), write_failures.write_port()
        outcome = Signal(outcome_layout(count))
        writer_failed = Signal()
        responded = Signal()  # its own write
        failed = Signal()
        responses_due = Signal(range(count + 1))

        depth = max(count, QUEUE_DEPTH)
        m.submodules.responses = responses = SyncFIFOBuffered(width=1, depth=depth)
        # That of one that starts over overtakes those of later ones, which have all come.
        again_responded = Signal()
        again_failed = Signal()
        m.d.sync += [
            responses_due.eq(responses_due + self.write_begins - self.done),
            responses.w_en.eq(self.done & ~self.again),
            responses.w_data.eq(self.error),
            again_responded.eq(self.again & (again_responded | self.done)),
        ]
        with m.If(self.done):
            m.d.sync += again_failed.eq(self.error)
        m.d.comb += [
            self.writes_due.eq(responses_due != 0),
            self.responses_wait.eq(responses.w_en | (responses.level != 0)),
            responded.eq(Mux(self.again, again_responded, responses.r_rdy)),
            failed.eq(Mux(self.again, again_failed, responses.r_data)),
            self.outcomes.entry.eq(self.settled),
            look.addr.eq(outcome.writer),
            note.addr.eq(self.settled),
            note.data.eq(failed),
            write_status.addr.eq(self.settled),
            write_status.en.eq(self.settles),
        ]
        m.d.sync += self.settled.eq(self.settled + self.settles)

        with m.FSM():
            # Waits for one that was computed.
            with m.State("IDLE"):
                m.d.sync += outcome.eq(self.outcomes.data)
                with m.If(self.settled != self.computed):
                    m.next = "LOOK"
            # How the write ended whose value it returned is looked up.
            with m.State("LOOK"):
                m.d.sync += writer_failed.eq(look.data)
                m.next = "SETTLE"
            # Waits for its write response, if it wrote.
            with m.State("SETTLE"):
                with m.If(outcome.wrote):
                    m.d.comb += [
                        self.settles.eq(responded),
                        note.en.eq(responded),
                        responses.r_en.eq(responded & ~self.again),
                        write_status.data.eq(
                            Mux(failed, AtomicStatus.WRITE_ERROR, AtomicStatus.DONE)
                        ),
                    ]
                with m.Elif(outcome.read_failed):
                    m.d.comb += [
                        self.settles.eq(1),
                        write_status.data.eq(AtomicStatus.READ_ERROR),
                    ]
                with m.Elif(outcome.stored & writer_failed):
                    m.d.sync += self.failed_under.eq(1)
                    m.next = "AGAIN"
                with m.Else():
                    m.d.comb += [
                        self.settles.eq(1),
                        write_status.data.eq(AtomicStatus.DONE),
                    ]
                with m.If(self.settles):
                    m.d.sync += self.failed_under.eq(0)
                    m.next = "IDLE"
            # Waits until it was computed again, with a word that it has read.
            with m.State("AGAIN"):
                with m.If(self.recomputed):
                    m.next = "IDLE"
        return m
