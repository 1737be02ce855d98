"""The state that gives an FPDU away: its job, its pieces, and what the queues hear of it."""

from amaranth.hdl import Module, Mux
from amaranth.lib import wiring

from gateware.rdmap.transmit_context import TransmitContexts
from gateware.rdmap.transmit_header import TransmitHeader
from gateware.rdmap.transmit_inline import TransmitInline
from gateware.rdmap.transmit_lengths import TransmitLengths
from gateware.rdmap.transmit_pieces import TransmitPieces
from gateware.rdmap.transmit_terminate import TransmitTerminate
from gateware.rdmap.transmit_visit import TransmitVisit, end_visit
from hw.interface.queue_entries import SendFlags


def connect_job(
    m: Module,
    ports: wiring.Component,
    visit: TransmitVisit,
    lengths: TransmitLengths,
    header: TransmitHeader,
    terminate: TransmitTerminate,
) -> None:
    """The job, out of registers that hold until it is taken."""
    job = ports.job.payload
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
    ]


def connect_queues(
    m: Module, ports: wiring.Component, visit: TransmitVisit, contexts: TransmitContexts
) -> None:
    """The queues hear of an FPDU a cycle later; the next visit looks at them after that."""
    ends_message = contexts.store & ports.job_begin & visit.last
    asked = ports.outstanding_requests.item
    m.d.sync += [
        ports.send_entries.pop.eq(ends_message & ~visit.responding),
        ports.send_entries.pop_both.eq(visit.takes_two),
        ports.send_entries.pop_qp.eq(visit.qp),
        ports.inbound_requests.pop.eq(ends_message & visit.responding),
        ports.inbound_requests.pop_qp.eq(visit.qp),
        ports.outstanding_requests.push.eq(ports.job_begin & (visit.is_read | visit.is_atomic)),
        ports.outstanding_requests.push_qp.eq(visit.qp),
        asked.atomic.eq(visit.is_atomic),
        asked.sink_stag.eq(visit.element_stag),
        asked.sink_tagged_offset.eq(visit.element_offset),
        asked.length.eq(Mux(visit.is_atomic, visit.index, visit.entry.length)),
    ]


def give_away(m: Module, ports: wiring.Component, pieces: TransmitPieces) -> None:
    """The job is taken: its pieces go, too, and the visit ends."""
    m.d.comb += [pieces.commit.eq(1), ports.job_begin.eq(1)]
    end_visit(m, ports)


def issue_states(
    m: Module,
    ports: wiring.Component,
    visit: TransmitVisit,
    contexts: TransmitContexts,
    lengths: TransmitLengths,
    pieces: TransmitPieces,
    inline: TransmitInline,
) -> None:
    """From an FPDU whose checks were all good to the end of the visit."""

    # Give the FPDU away as soon as its lengths are right, if the window takes it.
    with m.State("ISSUE"):
        m.d.comb += ports.job.valid.eq(
            lengths.settled & lengths.window_open & (inline.room | ~visit.inline)
        )
        with m.If(lengths.settled & ~lengths.window_open):
            m.d.comb += pieces.discard.eq(1)
            end_visit(m, ports)
        with m.Elif(ports.job.valid & ports.job.ready):
            give_away(m, ports, pieces)
            m.d.comb += [
                contexts.store.eq(1),
                visit.kick.eq(~visit.kicked),
                inline.start.eq(visit.inline),
            ]
            with m.If(visit.inline):
                m.next = "INLINE"
