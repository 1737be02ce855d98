"""Gives an FPDU away once its checks were good, or stops its QP: the last step of a visit."""

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ddp.checks import CAUSE_BITS, first_cause
from stagecoach.gateware.ddp.headers import TAGGED_HEADER, to_wire
from stagecoach.gateware.dma.bursts import WORD_BITS
from stagecoach.gateware.layouts import OPERANDS, Layouts, QpStrobe, StagStatus
from stagecoach.gateware.rdmap.atomic.operations import request_layout
from stagecoach.gateware.rdmap.checks import atomic_status_checks, read_status_checks
from stagecoach.gateware.rdmap.headers import (
    ATOMIC_REQUEST_ULPDU,
    READ_REQUEST_HEADER,
    READ_REQUEST_ULPDU,
    Opcode,
)
from stagecoach.gateware.rdmap.transmit.context import HALT
from stagecoach.gateware.rdmap.transmit.header import packed, request_ddp_header
from stagecoach.hw.interface.causes import Cause


def record_layout(config: RnicConfig) -> data.StructLayout:
    """What `TransmitCheck` hands over."""
    layouts = Layouts(config)
    return data.StructLayout(
        {
            "job": layouts.ulpdu_job,
            # What it consists of, one piece at a time
            "asks": 1,  # the STag table has been asked about this piece
            "places": 1,  # it is a piece for the gatherer, of these `octets`
            "octets": 17,
            "inline": 1,
            "ends": 1,  # it is the last one: the FPDU may go
            "failed": 1,  # there is nothing but an error with this `cause`
            "cause": CAUSE_BITS,
            "begins_atomic": 1,  # there is no FPDU: the atomic unit gets it
            # Of a response that fails: what it answers, as far as it was not answered already
            "responding": 1,
            "about_atomic": 1,
            "msn": 32,
            "remaining": 32,
            "source_stag": 32,
            "source_offset": 64,
        }
    )


class TransmitIssue(wiring.Component):
    """Takes one piece at a time, with the FPDU that it belongs to, or an atomic that begins.

    It waits for the answer of the STag table, and until the words of an inline piece are `written`.
    Then it hands the piece to the FIFO of pieces and, if it is the last one, gives the job away and
    lets pieces and words go. A failed check discards them, halts the QP and reports the error.
    Only then it is `free` for another piece. Of an atomic that
    begins the piece is the target: if that is allowed and aligned, the atomic unit gets the atomic
    instead of a job, else its QP is halted and the unit hears nothing of it.

    A last piece takes 7 cycles and those of the STag table beyond 5, or 4 without a check, from
    `begin` until it is `free` in the next one, but 2 more than its words take from `begin` until
    they are `written`; waits only for `job`, `error`, the table, the words and `atomic`. The atomic
    unit takes one in bounded time, whatever the LLP does.

    Members
    -------
    begin: In(1), only if it is `free`: a piece is handed over, and the STag table was asked.
    record: In(record_layout), the piece, in the cycle after `begin`. operands: In, of the oldest
        inbound request, in the same cycle.
    free: Out(1), nothing is under way.
    written: In(1), all inline words are in the next cycle, from two cycles after the `begin` of
        their piece on.
    failing: Out(1), an error is being reported; until it is `free`.
    response_valid, response: In, of the STag table, at any time from the cycle after `begin` on.
    address: Out(64), that of the last response, from the cycle after it on.
    offer, write, item, commit, discard: Out, to the FIFO of pieces, the last two also to that of
        words; the first two and `commit` out of registers, a cycle after what they are about.
    halt, halting: Out, the QP of `job_begin` is to be halted like this.
    job: Out(stream ulpdu_job). error: Out(stream qp_error). atomic: Out(stream), to the unit.
    refused: Out(QpStrobe), an atomic whose target was asked about does not go to the unit.
    job_begin: Out(QpStrobe), the job is taken.
    is_response: Out(1), it is of a Read Response.
    end: Out(1), pulse: the visit is over.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        layouts = Layouts(config)
        self._record = record_layout(config)
        super().__init__(
            {
                "begin": In(1),
                "record": In(self._record),
                "operands": In(OPERANDS),
                "free": Out(1, init=1),
                "written": In(1),
                "failing": Out(1),
                "response_valid": In(1),
                "response": In(layouts.stag_response),
                "address": Out(64),
                "offer": Out(1),
                "write": Out(1),
                "item": Out(layouts.gather_piece),
                "commit": Out(1),
                "discard": Out(1),
                "halt": Out(1),
                "halting": Out(HALT),
                "job": Out(stream.Signature(layouts.ulpdu_job)),
                "error": Out(stream.Signature(layouts.qp_error)),
                "atomic": Out(stream.Signature(request_layout(config))),
                "refused": Out(QpStrobe(config)),
                "job_begin": Out(QpStrobe(config)),
                "is_response": Out(1),
                "end": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        record = Signal(self._record)
        operands = Signal(OPERANDS)
        status = Signal(StagStatus)
        answered = Signal()
        cause = Signal(CAUSE_BITS)
        misaligned = Signal()  # the target of an atomic

        # The answer comes late in its cycle.
        with m.If(self.response_valid):
            m.d.sync += [
                status.eq(self.response.status),
                self.address.eq(self.response.address),
                answered.eq(1),
            ]
        with m.If(self.begin):
            m.d.sync += [self.free.eq(0), answered.eq(0)]

        m.d.sync += [self.write.eq(0), self.commit.eq(0)]
        m.d.comb += [
            self.item.address.eq(Mux(record.inline, 0, self.address)),
            self.item.octets.eq(record.octets),
            self.item.last.eq(record.ends),
            self.item.inline.eq(record.inline),
            self.job.payload.eq(record.job),
            self.atomic.p.qp.eq(record.job.qp),
            self.atomic.p.address.eq(self.address),
            self.atomic.p.operands.eq(operands),
            self.refused.qp.eq(record.job.qp),
            misaligned.eq(record.begins_atomic & self.address[:WORD_BITS].any()),
            self.job_begin.qp.eq(record.job.qp),
            self.is_response.eq(record.responding & ~record.about_atomic),
            self.halting.halted.eq(1),
            self.halting.units.eq(-record.job.until_marker),
        ]
        self._connect_error(m, record, cause)

        def finish() -> None:
            m.d.sync += self.free.eq(1)
            m.next = "IDLE"

        with m.FSM():
            # Wait for a piece.
            with m.State("IDLE"), m.If(self.begin):
                m.next = "TAKE"

            # Its record is there.
            with m.State("TAKE"):
                m.d.sync += [
                    record.eq(self.record),
                    operands.eq(self.operands),
                    self.offer.eq(self.record.places),
                ]
                m.next = "ANSWER"

            # Wait for the answer of the STag table, and until inline words are written. The piece
            # is offered all the time.
            with m.State("ANSWER"), m.If(self.written):
                refused = (status != StagStatus.OK) | misaligned
                with m.If(record.failed | (record.asks & answered & refused)):
                    m.d.sync += self.offer.eq(0)
                    m.next = "STOP"
                with m.Elif(~record.asks | answered):
                    m.d.sync += [self.offer.eq(0), self.write.eq(record.places)]
                    with m.If(record.begins_atomic):
                        m.next = "ATOMIC"
                    with m.Elif(record.ends):
                        m.next = "ISSUE"
                    with m.Else():
                        finish()

            # Give the FPDU away.
            with m.State("ISSUE"):
                m.d.comb += self.job.valid.eq(1)
                with m.If(self.job.ready):
                    m.d.sync += self.commit.eq(1)
                    m.d.comb += [self.job_begin.valid.eq(1), self.end.eq(1)]
                    finish()

            # Wait until the unit takes the atomic.
            with m.State("ATOMIC"):
                m.d.comb += self.atomic.valid.eq(1)
                with m.If(self.atomic.ready):
                    m.d.comb += self.end.eq(1)
                    finish()

            # The QP sends nothing any more.
            with m.State("STOP"):
                m.d.comb += [
                    self.failing.eq(1),
                    self.discard.eq(1),
                    self.halt.eq(1),
                    self.refused.valid.eq(record.begins_atomic & record.asks),
                ]
                m.d.sync += cause.eq(Cause.LOCAL_SEND_PROTECTION)
                with m.If(record.failed):
                    m.d.sync += cause.eq(record.cause)
                with m.Elif(record.about_atomic):
                    checks = [*atomic_status_checks(status), (misaligned, Cause.ATOMIC_MISALIGNED)]
                    m.d.sync += cause.eq(first_cause(checks))
                with m.Elif(record.responding):
                    m.d.sync += cause.eq(first_cause(read_status_checks(status)))
                m.next = "REPORT"

            # Wait until the error is taken.
            with m.State("REPORT"):
                m.d.comb += [self.failing.eq(1), self.error.valid.eq(1)]
                with m.If(self.error.ready):
                    m.d.comb += self.end.eq(1)
                    finish()
        return m

    def _connect_error(self, m: Module, record: Signal, cause: Signal) -> None:
        """What is reported of an error.

        The Read Request that cannot be answered, as it came (its Rsv bits apart), but for what was
        answered already (RFC 5040, 4.8). Of an Atomic Request only the DDP header is told.
        """
        error = self.error.payload
        about_atomic = record.about_atomic
        opcode = Mux(about_atomic, Opcode.ATOMIC_REQUEST, Opcode.RDMA_READ_REQUEST)
        # The DDP header of the response says where it would have gone.
        sink = data.View(TAGGED_HEADER, record.job.header[: TAGGED_HEADER.size])
        read_request = Cat(
            request_ddp_header(opcode, record.msn),
            packed(
                READ_REQUEST_HEADER,
                sink_stag=sink.stag,
                sink_tagged_offset=sink.tagged_offset,
                length=to_wire(record.remaining, 4),
                source_stag=to_wire(record.source_stag, 4),
                source_tagged_offset=to_wire(record.source_offset, 8),
            ),
        )
        m.d.comb += [error.qp.eq(record.job.qp), error.cause.eq(cause)]
        with m.If(record.responding):
            m.d.comb += [
                error.ulpdu_length.eq(
                    Mux(about_atomic, ATOMIC_REQUEST_ULPDU.size // 8, READ_REQUEST_ULPDU.size // 8)
                ),
                error.header.eq(read_request),
            ]
        with m.Else():
            m.d.comb += error.index.eq(record.job.sent.index)
