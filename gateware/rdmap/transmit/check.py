"""Lets an FPDU go on when the window takes it, and has the STag table asked about its pieces."""

from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ddp.checks import CAUSE_BITS
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.rdmap.headers import TERMINATE_HEADER_OCTETS
from stagecoach.gateware.rdmap.transmit.issue import record_layout
from stagecoach.gateware.rdmap.transmit.message import lookup_layout, piece_layout
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import Rights, SendFlags
from stagecoach.hw.interface.wire import UNTAGGED_HEADER_OCTETS

RIGHTS_BITS = max(Rights).bit_length()


class TransmitCheck(wiring.Component):
    """Waits until a piece may go, asks the STag table about it and hands it to `TransmitIssue`.

    A piece waits until the one before is `free` of its check, for room for all pieces and inline
    words of its FPDU, and, unless any FPDU fits the window, for its lengths. An FPDU that the
    window does not take ends the visit, as does an error of the FPDU before. A Terminate goes
    whatever the window.

    A LOCAL_INVALIDATE or FAST_REGISTER changes the STag table before it goes on as a job without an
    FPDU, so that it completes in its turn and what the QP sends next may use the STag. An atomic
    that begins is a piece without bytes to send: its target is checked.

    Latency: `hand` 1 cycle after `piece` if nothing has to be waited for, 2 or more after `change`
    for an STag operation. A piece is taken with `hand`; if it is inline, its words are written in
    the cycles after, out of what the steps before hold for so long. A Terminate, an Atomic Request
    and an error are taken when the FPDU was given away: what they are made of changes too early.
    While the table does not take `change`, or `free` does not come, nothing else is checked.

    Members
    -------
    piece: In(stream piece_layout). over: Out(1), a pulse when it is taken: no more of the FPDU.
    lookup: In(lookup_layout), of the QP of the piece.
    settled, window_open, ulpdu_length, until_marker: In, of `TransmitLengths`.
    header, last: In, of `TransmitSegment`. speak: In, of `TransmitTerminate`.
    room: In(1), for the pieces of an FPDU. inline_room: In(1), for its inline words, `inline_start`
        Out(1), with `hand`, has them written, of `inline_length` bytes.
    ask: Out(1), a pulse: the STag table is asked for `request`, Out(stag_request); it takes it.
    change: Out(stream stag_change), with `refused` beside its ready.
    hand: Out(1), a pulse, only if `free`: a piece is handed over; `record`, Out(record_layout), is
        right in the next cycle. free: In(1), of `TransmitIssue`.
    handed: Out(1), with `hand`: the FPDU is on its way, unless it fails. begun: Out(1), the same of
        an atomic that begins, which has no FPDU.
    failing: In(1), an error is being reported. fresh: In(1), a visit begins: it does not matter.
    doomed: Out(1), an FPDU before this one failed: it has to end without a trace.
    atomic_begun: Out(1), with `hand`: the check of the target of an atomic begins.
    kick: Out(1), a pulse: there will be something to do after this FPDU. kick_again: Out(1), a
        pulse: there is, whether that was said before or not.
    end: Out(1), a pulse: the visit is over, and nothing was handed over.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        layouts = Layouts(config)
        job = layouts.ulpdu_job
        super().__init__(
            {
                "piece": In(stream.Signature(piece_layout(config))),
                "over": Out(1),
                "lookup": In(lookup_layout(config)),
                "settled": In(1),
                "window_open": In(1),
                "ulpdu_length": In(job["ulpdu_length"].shape),
                "until_marker": In(job["until_marker"].shape),
                "header": In(8 * UNTAGGED_HEADER_OCTETS),
                "last": In(1),
                "speak": In(1),
                "room": In(1),
                "inline_room": In(1),
                "inline_start": Out(1),
                "inline_length": In(range(TERMINATE_HEADER_OCTETS + 1)),
                "ask": Out(1),
                "request": Out(layouts.stag_request),
                "change": Out(stream.Signature(layouts.stag_change)),
                "refused": In(1),
                "hand": Out(1),
                "record": Out(record_layout(config)),
                "free": In(1),
                "handed": Out(1),
                "failing": In(1),
                "fresh": In(1),
                "doomed": Out(1),
                "begun": Out(1),
                "atomic_begun": Out(1),
                "kick": Out(1),
                "kick_again": Out(1),
                "end": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        piece, message = self.piece.payload, self.piece.payload.message
        failed, cause = Signal(), Signal(CAUSE_BITS)  # nothing but the error goes on
        begun = Signal()  # a piece of the FPDU was handed over
        sure = Signal()  # the window needs no look at the FPDU, nor does its position
        no_rights = Signal()  # there is no such right
        asks = Signal()
        ends = Signal()  # the piece is the last one of its FPDU
        m.d.comb += [
            asks.eq(piece.asks & ~failed),
            ends.eq(piece.covers | ~asks),
        ]
        m.d.sync += [
            sure.eq(message.roomy & ~self.lookup.settings.transmit_markers),
            no_rights.eq(message.registers & piece.element_stag[RIGHTS_BITS:].any()),
        ]
        # Whatever began before an error was out of the way must not send.
        with m.If(self.failing):
            m.d.sync += self.doomed.eq(1)
        with m.Elif(self.fresh):
            m.d.sync += self.doomed.eq(0)
        self._connect_request(m)
        self._connect_change(m)
        self._connect_record(m, asks, ends, failed, cause)

        def fail(cause_of_it: object) -> None:
            m.d.sync += [failed.eq(1), cause.eq(cause_of_it)]  # type: ignore[arg-type]
            m.next = "READY"

        def finish() -> None:
            """Nothing more of the message in this visit."""
            m.d.comb += [self.piece.ready.eq(1), self.over.eq(1)]
            m.d.sync += [failed.eq(0), begun.eq(0)]
            m.next = "READY"

        with m.FSM():
            # Wait for a piece, and until nothing else is under way. An FPDU goes only if the window
            # takes it, which does not need its length as long as `sure`; its pieces need room, and
            # all of them have it.
            with m.State("READY"), m.If(self.piece.valid & self.free):
                with m.If(self.doomed):
                    # The error of its own piece has ended it already.
                    m.d.comb += [self.kick_again.eq(~begun), self.end.eq(~begun)]
                    finish()
                with m.Elif(piece.failed | failed):
                    with m.If(~failed):
                        m.d.sync += [failed.eq(1), cause.eq(piece.cause)]
                    m.next = "HAND"
                with m.Elif(message.is_local):
                    m.next = "CHANGE"
                with m.Elif(message.terminating):
                    room = self.room & self.inline_room
                    with m.If(self.settled & (room | ~message.inline)):
                        m.next = "HAND"
                with m.Elif(self.room & (self.inline_room | ~message.inline)):
                    with m.If(sure | message.begins_atomic | (self.settled & self.window_open)):
                        # The answer to the request before is there, so this one is taken.
                        m.d.comb += self.ask.eq(piece.asks)
                        m.next = "HAND"
                    with m.Elif(self.settled):
                        m.d.comb += self.end.eq(1)
                        finish()

            # Wait until the table has changed, or refuses to. The window does not matter.
            with m.State("CHANGE"):
                with m.If(no_rights):
                    fail(Cause.LOCAL_BAD_ENTRY)
                with m.Else():
                    m.d.comb += self.change.valid.eq(1)
                    with m.If(self.change.ready):
                        m.next = "HAND"
                        with m.If(self.refused):
                            fail(Cause.LOCAL_STAG_OPERATION)

            # The table is asked for the check of the piece. Hand it over.
            with m.State("HAND"):
                goes = ends & ~failed & ~message.terminating
                m.d.comb += [
                    self.hand.eq(1),
                    self.handed.eq(goes & ~message.begins_atomic),
                    self.begun.eq(goes & message.begins_atomic),
                    self.atomic_begun.eq(message.begins_atomic & asks),
                    # What comes later asks for a visit itself.
                    self.kick.eq((self.handed & ~self.last) | (goes & message.more)),
                    self.inline_start.eq(message.inline & ~failed),
                ]
                m.d.sync += begun.eq(1)
                with m.If(failed | message.terminating | message.is_atomic):
                    m.next = "HOLD"
                with m.Elif(piece.covers | ~piece.asks):
                    finish()
                with m.Else():
                    m.d.comb += self.piece.ready.eq(1)
                    m.next = "READY"

            # Wait until the Terminate or Atomic Request is given away, or the error is told.
            with m.State("HOLD"), m.If(self.free):
                finish()
        return m

    def _connect_request(self, m: Module) -> None:
        """The request to the STag table, which waits there in registers of its own."""
        piece, message, request = self.piece.payload, self.piece.payload.message, self.request
        m.d.comb += [
            request.stag.eq(piece.element_stag),
            request.tagged_offset.eq(piece.address),
            request.octets.eq(piece.octets),
            request.pd.eq(self.lookup.pd),
            request.qp.eq(message.qp),
        ]
        with m.If(message.begins_atomic):
            m.d.comb += request.rights.eq(Rights.REMOTE_READ | Rights.REMOTE_WRITE)
        with m.Elif(message.responding):
            m.d.comb += request.rights.eq(Rights.REMOTE_READ)
        with m.Elif(message.is_read | message.is_atomic):
            m.d.comb += request.rights.eq(Rights.LOCAL_WRITE)
        with m.Else():
            m.d.comb += request.rights.eq(Rights.LOCAL_READ)

    def _connect_change(self, m: Module) -> None:
        """What the STag table is to change."""
        piece, change = self.piece.payload, self.change.payload
        m.d.comb += [
            change.register.eq(piece.message.registers),
            change.entry.stag.eq(piece.remote_stag),
            change.entry.pd.eq(self.lookup.pd),
            change.entry.qp.eq(piece.message.qp),
            change.entry.rights.eq(piece.element_stag[:RIGHTS_BITS]),
            change.entry.base.eq(piece.remote_offset),
            change.entry.length.eq(piece.element_length),
            change.entry.address.eq(piece.element_offset),
        ]

    def _connect_record(
        self, m: Module, asks: Signal, ends: Signal, failed: Signal, cause: Signal
    ) -> None:
        """The piece and its FPDU, out of registers that hold for a cycle more."""
        piece, message = self.piece.payload, self.piece.payload.message
        record, job, entry = self.record, self.record.job, message.entry
        terminating, settings = message.terminating, self.lookup.settings
        m.d.comb += [
            job.qp.eq(message.qp),
            job.ulpdu_length.eq(self.ulpdu_length),
            job.tagged.eq(message.tagged),
            job.header.eq(self.header),
            job.crc.eq(settings.crc),
            job.markers.eq(settings.transmit_markers),
            job.until_marker.eq(self.until_marker),
            job.empty.eq(message.is_local | (terminating & ~self.speak)),
            job.close.eq(terminating),
            job.report.eq(self.last & ~message.responding & ~terminating),
            job.sent.qp.eq(message.qp),
            job.sent.index.eq(message.index),
            job.sent.opcode.eq(entry.opcode),
            job.sent.signaled.eq((entry.flags & SendFlags.SIGNALED).any()),
            job.sent.length.eq(entry.length),
            record.asks.eq(asks),
            # The sink of a request is only checked; the payload is inline. So is a target.
            record.places.eq((asks & ~message.begins_atomic) | message.inline),
            record.octets.eq(Mux(message.inline, self.inline_length, piece.octets)),
            record.inline.eq(message.inline),
            record.ends.eq(ends),
            record.failed.eq(failed),
            record.cause.eq(cause),
            record.responding.eq(message.responding),
            record.begins_atomic.eq(message.begins_atomic),
            record.about_atomic.eq(message.begins_atomic | message.answers_atomic),
            record.msn.eq(message.progress.response_msn),
            record.remaining.eq(message.remaining),
            record.source_stag.eq(piece.element_stag),
            record.source_offset.eq(piece.address),
        ]
