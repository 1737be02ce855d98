"""The end of the first half of a visit: a piece is checked and handed over with its FPDU."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring

from stagecoach.gateware.rdmap.transmit.back import TransmitBack
from stagecoach.gateware.rdmap.transmit.context import TransmitContexts
from stagecoach.gateware.rdmap.transmit.entry import element_range_address
from stagecoach.gateware.rdmap.transmit.header import TransmitHeader
from stagecoach.gateware.rdmap.transmit.inline import TransmitInline
from stagecoach.gateware.rdmap.transmit.lengths import TransmitLengths
from stagecoach.gateware.rdmap.transmit.pieces import TransmitPieces
from stagecoach.gateware.rdmap.transmit.terminate import TransmitTerminate
from stagecoach.gateware.rdmap.transmit.visit import TransmitVisit, end_visit, go_idle
from stagecoach.gateware.stream.slot import StreamSlot
from stagecoach.hw.interface.queue_entries import Rights, SendFlags


def connect_request(m: Module, lookup: StreamSlot, visit: TransmitVisit) -> None:
    """The request to the STag table, which waits there in registers of its own."""
    request = lookup.i.payload
    m.d.comb += [
        request.stag.eq(visit.element_stag),
        request.tagged_offset.eq(visit.address),
        request.octets.eq(visit.piece_octets),
        request.pd.eq(visit.pd),
        request.qp.eq(visit.qp),
    ]
    with m.If(visit.begins_atomic):
        m.d.comb += request.rights.eq(Rights.REMOTE_READ | Rights.REMOTE_WRITE)
    with m.Elif(visit.responding):
        m.d.comb += request.rights.eq(Rights.REMOTE_READ)
    with m.Elif(visit.is_read | visit.is_atomic):
        m.d.comb += request.rights.eq(Rights.LOCAL_WRITE)
    with m.Else():
        m.d.comb += request.rights.eq(Rights.LOCAL_READ)


def connect_record(
    m: Module,
    visit: TransmitVisit,
    back: TransmitBack,
    lengths: TransmitLengths,
    header: TransmitHeader,
    inline: TransmitInline,
    terminate: TransmitTerminate,
) -> None:
    """The piece and its FPDU, out of registers that hold for a cycle more."""
    record, job = back.record, back.record.job
    terminating, entry = visit.terminating, visit.entry
    m.d.comb += [
        job.qp.eq(visit.qp),
        job.ulpdu_length.eq(lengths.ulpdu_length),
        job.tagged.eq(visit.tagged),
        job.header.eq(header.header),
        job.crc.eq(visit.settings.crc),
        job.markers.eq(visit.settings.transmit_markers),
        job.until_marker.eq(lengths.until_marker),
        job.empty.eq(visit.is_local | (terminating & ~terminate.speak)),
        job.close.eq(terminating),
        job.report.eq(visit.last & ~visit.responding & ~terminating),
        job.sent.qp.eq(visit.qp),
        job.sent.index.eq(visit.index),
        job.sent.opcode.eq(entry.opcode),
        job.sent.signaled.eq((entry.flags & SendFlags.SIGNALED).any()),
        job.sent.length.eq(entry.length),
        record.asks.eq(visit.asks),
        # The sink of a request is only checked; the payload is inline. So is a target.
        record.places.eq((visit.asks & ~visit.begins_atomic) | visit.inline),
        record.octets.eq(Mux(visit.inline, inline.length, visit.piece_octets)),
        record.inline.eq(visit.inline),
        record.ends.eq((visit.covers | ~visit.asks) & ~visit.begins_atomic),
        record.failed.eq(visit.failed),
        record.cause.eq(visit.cause),
        record.request.eq(visit.is_read | visit.is_atomic),
        record.responding.eq(visit.responding),
        record.about_atomic.eq(visit.begins_atomic | visit.answers_atomic),
        record.msn.eq(visit.progress.response_msn),
        record.remaining.eq(visit.remaining),
        record.source_stag.eq(visit.element_stag),
        record.source_offset.eq(visit.address),
    ]


def connect_queues(
    m: Module,
    ports: wiring.Component,
    visit: TransmitVisit,
    contexts: TransmitContexts,
    back: TransmitBack,
) -> None:
    """The queues drop what was handed over a cycle later, when the progress is stored.

    Whether its checks are good does not matter: if they are not, the QP sends nothing any more.
    What was asked of the peer is pushed only when it is on its way; the visit waits for that.
    """
    drops = back.begin & back.record.ends & ~visit.failed & ~visit.terminating
    asked = ports.outstanding_requests.item
    popping = Signal(reset_less=True)  # a register of its own
    m.d.comb += ports.send_entries.popping.eq(popping)
    m.d.sync += [
        visit.storing.eq(drops),
        ports.send_entries.pop.eq(drops & visit.last & ~visit.responding),
        popping.eq(drops & visit.last & ~visit.responding),
        ports.send_entries.pop_both.eq(visit.takes_two),
        ports.inbound_requests.pop.eq(drops & visit.last & visit.responding),
        ports.inbound_requests.pop_qp.eq(visit.asked),
        ports.outstanding_requests.push.eq(back.job_begin.valid & back.is_request),
        ports.outstanding_requests.push_qp.eq(visit.asked),
        asked.atomic.eq(visit.is_atomic),
        asked.sink_stag.eq(visit.element_stag),
        asked.sink_tagged_offset.eq(visit.element_offset),
        asked.length.eq(Mux(visit.is_atomic, visit.index, visit.entry.length)),
    ]
    with m.If(visit.storing):
        m.d.comb += contexts.store.eq(1)


def hand_states(
    m: Module,
    ports: wiring.Component,
    lookup: StreamSlot,
    visit: TransmitVisit,
    back: TransmitBack,
    lengths: TransmitLengths,
    pieces: TransmitPieces,
    inline: TransmitInline,
) -> None:
    """From a piece to the next element or visit.

    From the target of an atomic to `TARGET_CHECK`, from a local operation to `CHANGE`.
    """

    # Wait until nothing else is under way. An FPDU goes only if the window takes it, which does
    # not need its length as long as `sure`; its pieces need room, and all of them have it.
    with m.State("READY"), m.If(back.free):
        with m.If(visit.doomed):
            # The error of its own piece has ended it already.
            m.d.comb += [visit.kick.eq(~visit.handed), visit.end.eq(~visit.handed)]
            go_idle(m, visit)
        with m.Elif(visit.failed):
            m.next = "HAND"
        with m.Elif(visit.is_local):
            m.next = "CHANGE"
        with m.Elif(pieces.room & (inline.room | ~visit.inline)):
            with m.If(visit.sure | visit.begins_atomic | (lengths.settled & lengths.window_open)):
                # The answer to the request before is there, so this one is taken.
                m.d.comb += lookup.i.valid.eq(visit.asks)
                m.next = "HAND"
            with m.Elif(lengths.settled):
                end_visit(m, visit)

    # The table is asked for the check of the piece. Hand it over.
    with m.State("HAND"):
        m.d.comb += [
            back.begin.eq(1),
            ports.atomic_begun.valid.eq(visit.begins_atomic & visit.asks),
        ]
        m.d.sync += ports.send_entries.word_address.eq(element_range_address(visit.element + 1))
        m.d.sync += visit.handed.eq(1)
        # An inline piece needs the registers until its words are written.
        with m.If(visit.failed | visit.inline | visit.terminating):
            m.next = "HOLD"
        with m.Elif(visit.begins_atomic):
            m.next = "TARGET_CHECK"
        with m.Elif(visit.covers | ~visit.asks):
            go_idle(m, visit)
        with m.Else():
            m.next = "NEXT_ELEMENT"
        # The next visit is asked for if that was not done already and it has something to do;
        # whatever comes later asks for one itself.
        with m.If(back.record.ends & ~visit.failed):
            m.d.comb += visit.kick.eq(~visit.kicked & (~visit.last | visit.more))

    # Wait until the FPDU is given away; its inline words follow.
    with m.State("HOLD"), m.If(back.free):
        with m.If(visit.inline & back.issued):
            m.d.comb += inline.start.eq(1)
            m.next = "INLINE"
        with m.Else():
            m.d.comb += ports.termination.ready.eq(visit.terminating)
            go_idle(m, visit)
