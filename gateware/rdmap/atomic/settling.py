"""The end of atomics: their write responses, and their answers."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory

from stagecoach.gateware.rdmap.atomic.operations import AtomicOperations, AtomicStatus

QUEUE_DEPTH = 4
"""Least depth of a queue that takes two items in successive cycles: one is on its way through."""


def settle(m: Module, operations: AtomicOperations, write: Any) -> None:
    """Wait for the write responses, in order, and decide what is answered."""
    outcome = Signal(operations.outcome)
    writer_failed = Signal()
    responded, failed = Signal(), Signal()  # its own write
    m.submodules.write_failures = write_failures = Memory(shape=1, depth=operations.count, init=[])
    look, note = write_failures.read_port(domain="comb"), write_failures.write_port()
    outcomes = operations.outcomes.read_port(domain="comb")
    statuses = operations.statuses.write_port()

    depth = max(operations.count, QUEUE_DEPTH)
    m.submodules.responses = responses = SyncFIFOBuffered(width=1, depth=depth)
    # That of one that starts over overtakes those of later ones, which have all come.
    again_responded, again_failed = Signal(), Signal()
    m.d.sync += [
        responses.w_en.eq(write.done & ~operations.again),
        responses.w_data.eq(write.error),
        again_responded.eq(operations.again & (again_responded | write.done)),
    ]
    with m.If(write.done):
        m.d.sync += again_failed.eq(write.error)
    m.d.comb += [
        operations.responses_wait.eq(responses.w_en | (responses.level != 0)),
        responded.eq(Mux(operations.again, again_responded, responses.r_rdy)),
        failed.eq(Mux(operations.again, again_failed, responses.r_data)),
        outcomes.addr.eq(operations.settled),
        look.addr.eq(outcome.writer),
        note.addr.eq(operations.settled),
        note.data.eq(failed),
        statuses.addr.eq(operations.settled),
        statuses.en.eq(operations.settles),
    ]
    m.d.sync += operations.settled.eq(operations.settled + operations.settles)

    with m.FSM():
        # Waits for one that was computed.
        with m.State("IDLE"):
            m.d.sync += outcome.eq(outcomes.data)
            with m.If(operations.settled != operations.computed):
                m.next = "LOOK"
        # How the write ended whose value it returned is looked up.
        with m.State("LOOK"):
            m.d.sync += writer_failed.eq(look.data)
            m.next = "SETTLE"
        # Waits for its write response, if it wrote.
        with m.State("SETTLE"):
            with m.If(outcome.wrote):
                m.d.comb += [
                    operations.settles.eq(responded),
                    note.en.eq(responded),
                    responses.r_en.eq(responded & ~operations.again),
                    statuses.data.eq(Mux(failed, AtomicStatus.WRITE_ERROR, AtomicStatus.DONE)),
                ]
            with m.Elif(outcome.read_failed):
                m.d.comb += [
                    operations.settles.eq(1),
                    statuses.data.eq(AtomicStatus.READ_ERROR),
                ]
            with m.Elif(outcome.stored & writer_failed):
                m.d.sync += operations.failed_under.eq(1)
                m.next = "AGAIN"
            with m.Else():
                m.d.comb += [
                    operations.settles.eq(1),
                    statuses.data.eq(AtomicStatus.DONE),
                ]
            with m.If(operations.settles):
                m.d.sync += operations.failed_under.eq(0)
                m.next = "IDLE"
        # Waits until it was computed again, with a word that it has read.
        with m.State("AGAIN"):
            with m.If(operations.recomputed):
                m.next = "IDLE"


def answer(m: Module, operations: AtomicOperations, response: Any) -> None:
    """Send what was settled to the stream `response`."""
    qps, originals, statuses = (
        memory.read_port(domain="comb")
        for memory in (operations.qps, operations.originals, operations.statuses)
    )
    for port in (qps, originals, statuses):
        m.d.comb += port.addr.eq(operations.answered)
    with m.If(response.ready):
        m.d.sync += response.valid.eq(0)
    with m.If(~response.valid):
        m.d.sync += [
            response.p.qp.eq(qps.data),
            response.p.original.eq(originals.data),
            response.p.status.eq(statuses.data),
        ]
        with m.If(operations.answered != operations.settled):
            m.d.sync += [
                response.valid.eq(1),
                operations.answered.eq(operations.answered + 1),
            ]
