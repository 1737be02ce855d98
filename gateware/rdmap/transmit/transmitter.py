"""The transmitter: cuts the messages of a QP into ULPDUs, one at each visit (RFC 5041, 5.2).

The package's page says which step does what. Here they are joined.
"""

from typing import Any

from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpStrobe
from stagecoach.gateware.queues.ports import EntryPort, QpFifoReader, QpFifoWriter
from stagecoach.gateware.rdmap.atomic.operations import request_layout, response_layout
from stagecoach.gateware.rdmap.transmit.atomic import AtomicAnswers
from stagecoach.gateware.rdmap.transmit.check import TransmitCheck
from stagecoach.gateware.rdmap.transmit.choose import TransmitChoose
from stagecoach.gateware.rdmap.transmit.command import TransmitCommand
from stagecoach.gateware.rdmap.transmit.complete import TransmitComplete
from stagecoach.gateware.rdmap.transmit.context import RetiredSends, TransmitContexts
from stagecoach.gateware.rdmap.transmit.cut import TransmitCut
from stagecoach.gateware.rdmap.transmit.entry import SEND_ENTRY_WORDS
from stagecoach.gateware.rdmap.transmit.header import TransmitSegment
from stagecoach.gateware.rdmap.transmit.inline import TransmitInline, TransmitRdmapHeader
from stagecoach.gateware.rdmap.transmit.issue import TransmitIssue
from stagecoach.gateware.rdmap.transmit.kick import TransmitKick
from stagecoach.gateware.rdmap.transmit.leaving import LeavingResponses
from stagecoach.gateware.rdmap.transmit.lengths import TransmitLengths
from stagecoach.gateware.rdmap.transmit.limits import TransmitLimits
from stagecoach.gateware.rdmap.transmit.message import lookup_layout
from stagecoach.gateware.rdmap.transmit.pieces import HeldFifo
from stagecoach.gateware.rdmap.transmit.terminate import TransmitTerminate
from stagecoach.gateware.stag.ports import StagClient
from stagecoach.gateware.stream.slot import StreamSlot
from stagecoach.hw.interface.queue_entries import SCATTER_GATHER_ELEMENTS

PIECES_HELD = 16


class Transmitter(wiring.Component):
    """Sends one FPDU of a QP for each QP number that the scheduler gives.

    A visit reads the context of the QP, goes on with its message or chooses the oldest inbound
    request or the oldest send entry (`choose`), cuts off what fits the MULPDU (`cut`), and asks the
    STag table about each local piece of it (`check`). `issue` waits for the answer while the next
    visit is under way; pieces and job are given away together. Nothing of an FPDU is seen outside
    unless all of its checks were good. But the QP goes on, and its queues drop what was sent, when
    the last piece has been handed over: if its check fails, the QP is halted before its next FPDU
    is handed over, and sends nothing any more.

    A visit that can send nothing ends without a trace. `kick` asks for another one once for every
    FPDU given away (during its visit) after which the QP is known to have something to do, and
    when the LLP widens the limits; the queues ask when they get work or room. Visits end in the
    order in which they began, two at most are under way, and a command or a termination waits for
    the end of all before it. No visit begins while `error` is not ready.

    An inbound atomic has two visits: one has its target checked and hands it to the atomic unit,
    the other, after the unit's answer, sends the Atomic Response; meanwhile nothing else of the
    inbound queue is begun. The first waits until the Read Responses of the QP before it have left:
    they read host memory before the atomic changes it. The first takes 11 cycles and the second 8,
    however the visits of several QPs follow each other. The atomic unit has the atomic 18 cycles
    after `work`; while it does not take it one more visit is under way at most.

    A LOCAL_INVALIDATE or FAST_REGISTER is done in its visit, so before whatever is posted after
    it; a job without an FPDU brings its report.

    Throughput: an FPDU of one element or none every 11 cycles, of the same QP or others, if the
    STag table takes 8 cycles or less, the window takes twice the MULPDU and Markers are off; else
    5 cycles more. An Atomic Response takes 3 less, a Read Request 1 more. An Atomic Request keeps
    the steps before until it is given away. One more inside a message if nothing but its own visits
    asks for the next one. Each further element takes 8 more, or those of the table and 4; the first
    FPDU of a message of more than one element 10 more.
    Of the 11 cycles `choose` has 6 (the QP, its context, its queues, the decision), `cut` 4 (one
    for each word of the entry), and `check` 2, the first of which begins the next visit. The words
    of a Read Request or Immediate Data are written while the table is asked.
    Latency: from `work` to `job` 18 cycles, or 14 without a local piece; with inline words it is 15
    and one for each at least.

    Members
    -------
    qp_command: In(stream qp_command). CREATE stores the PD; CONNECT starts the QP with counters
        anew; all others stop it. `ready` says that it is done.
    llp_event: In(stream llp_event), taken at any time.
    work: In(stream qp_number), QP to visit.
    kick: Out(QpStrobe), visit this QP (again).
    running, may_send: In, one bit a QP.
    retired: In(QpStrobe), a work request left the completer.
    send_entries: Out(EntryPort), the send rings.
    inbound_requests: Out(QpFifoReader), RDMA Reads and atomics to answer.
    outstanding_requests: Out(QpFifoWriter), RDMA Reads and atomics that were sent.
    strict: In(1), the atomics are those of RFC 7306 only.
    atomic_request, atomic_response: Out and In(stream), to and from the atomic unit.
    atomic_begun, atomic_refused: Out(QpStrobe), the table is asked about the target of an atomic
        from this cycle on, and it does not go to the unit after all.
    answered: Out(QpStrobe), the unit has answered: visit this QP again.
    job_finished: In(QpStrobe), the FPDU of a job has left, in the order of the jobs.
    responses_left: Out(QpStrobe), the last Read Response of the QP has: visit it again.
    stag: Out(StagClient).
    stag_change: Out(stream stag_change), with `stag_refused` beside its `ready`.
    piece, job: Out(stream), for gather and assembler; pieces in the order of their jobs.
    inline: Out(stream), the words of the inline pieces, some cycles after them.
    termination: In(stream termination), a QP that stopped: after all that it sent before go a
        Terminate, whatever the window, and the request to close, or only that.
    error: Out(stream qp_error), the first error of a QP; it is stopped here already.
    begin, end: Out(1), pulses at begin and end of each visit; there is one end a cycle at most.
    job_begin: Out(1), pulse when a job is given away, not after the `end` of its visit.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        layouts = Layouts(config)
        self._layouts = layouts
        depth = config.read_queue_depth
        super().__init__(
            {
                "qp_command": In(stream.Signature(layouts.qp_command)),
                "llp_event": In(stream.Signature(layouts.llp_event)),
                "work": In(stream.Signature(layouts.qp_number)),
                "kick": Out(QpStrobe(config)),
                "running": In(config.qps),
                "may_send": In(config.qps),
                "retired": In(QpStrobe(config)),
                "send_entries": Out(EntryPort(config, SEND_ENTRY_WORDS)),
                "inbound_requests": Out(QpFifoReader(config, layouts.inbound_request, depth)),
                "outstanding_requests": Out(
                    QpFifoWriter(config, layouts.outstanding_request, depth)
                ),
                "strict": In(1),
                "atomic_request": Out(stream.Signature(request_layout(config))),
                "atomic_response": In(stream.Signature(response_layout(config))),
                "atomic_begun": Out(QpStrobe(config)),
                "atomic_refused": Out(QpStrobe(config)),
                "answered": Out(QpStrobe(config)),
                "job_finished": In(QpStrobe(config)),
                "responses_left": Out(QpStrobe(config)),
                "stag": Out(StagClient(layouts)),
                "stag_change": Out(stream.Signature(layouts.stag_change)),
                "stag_refused": In(1),
                "piece": Out(stream.Signature(layouts.gather_piece)),
                "job": Out(stream.Signature(layouts.ulpdu_job)),
                "termination": In(stream.Signature(layouts.termination)),
                "inline": Out(stream.Signature(64)),
                "error": Out(stream.Signature(layouts.qp_error)),
                "begin": Out(1),
                "end": Out(1),
                "job_begin": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        config = self._config
        # The steps of a visit
        m.submodules.choose = choose = TransmitChoose(config)
        m.submodules.cut = cut = TransmitCut(config)
        m.submodules.check = check = TransmitCheck(config)
        m.submodules.issue = issue = TransmitIssue(config)
        m.submodules.complete = complete = TransmitComplete(config)
        m.submodules.command = command = TransmitCommand(config)
        m.submodules.kick = kick = TransmitKick(config)
        # What is known of each QP
        m.submodules.contexts = contexts = TransmitContexts(config)
        m.submodules.limits = limits = TransmitLimits(config)
        m.submodules.retired_sends = retired_sends = RetiredSends(config)
        m.submodules.leaving = leaving = LeavingResponses(config)
        m.submodules.answers = answers = AtomicAnswers(config)
        # What an FPDU is made of
        m.submodules.lengths = lengths = TransmitLengths()
        m.submodules.segment = segment = TransmitSegment(config)
        m.submodules.terminate = terminate = TransmitTerminate(config)
        m.submodules.rdmap_header = rdmap_header = TransmitRdmapHeader(config)
        m.submodules.inline = inline = TransmitInline()
        m.submodules.pieces = pieces = HeldFifo(
            self._layouts.gather_piece, PIECES_HELD, SCATTER_GATHER_ELEMENTS
        )
        # The scheduler is far, and the entries of a QP are asked for as soon as it is known.
        m.submodules.chosen = chosen = StreamSlot(self._layouts.qp_number)
        m.submodules.lookup = lookup = StreamSlot(self._layouts.stag_request)

        wiring.connect(m, wiring.flipped(self.work), chosen.i)
        wiring.connect(m, chosen.o, choose.work)
        wiring.connect(m, wiring.flipped(self.termination), choose.termination)
        wiring.connect(m, wiring.flipped(self.qp_command), choose.qp_command)
        wiring.connect(m, choose.command, command.command)
        wiring.connect(m, command.connect, limits.connect)
        wiring.connect(m, choose.message, cut.message)
        wiring.connect(m, cut.piece, check.piece)
        wiring.connect(m, check.change, wiring.flipped(self.stag_change))
        wiring.connect(m, issue.atomic, wiring.flipped(self.atomic_request))
        wiring.connect(m, issue.refused, wiring.flipped(self.atomic_refused))
        wiring.connect(m, issue.job, wiring.flipped(self.job))
        wiring.connect(m, issue.error, wiring.flipped(self.error))
        wiring.connect(m, pieces.o, wiring.flipped(self.piece))
        wiring.connect(m, inline.o, wiring.flipped(self.inline))
        wiring.connect(m, lookup.o, wiring.flipped(self.stag.request))
        wiring.connect(m, kick.kick, wiring.flipped(self.kick))
        wiring.connect(m, wiring.flipped(self.llp_event), limits.llp_event)
        wiring.connect(m, wiring.flipped(self.retired), retired_sends.retired)
        wiring.connect(m, wiring.flipped(self.atomic_response), answers.response)
        wiring.connect(m, answers.kick, wiring.flipped(self.answered))
        wiring.connect(m, wiring.flipped(self.job_finished), leaving.finished)
        wiring.connect(m, leaving.kick, wiring.flipped(self.responses_left))
        piece = cut.piece.payload
        m.d.comb += [
            lookup.i.valid.eq(check.ask),
            lookup.i.payload.eq(check.request),
            self.begin.eq(choose.begin),
            self.job_begin.eq(issue.job_begin.valid),
            self.end.eq(choose.end | check.end | issue.end),
            self.atomic_begun.valid.eq(check.atomic_begun),
            self.atomic_begun.qp.eq(choose.qp),
            # Between the steps
            choose.free.eq(issue.free),
            choose.may_begin.eq(self.error.ready),
            choose.speak.eq(terminate.speak),
            choose.terminate_octets.eq(terminate.octets),
            choose.running.eq(self.running),
            choose.may_send.eq(self.may_send),
            choose.strict.eq(self.strict),
            cut.over.eq(check.over),
            cut.bare_octets.eq(choose.bare_octets),
            check.room.eq(pieces.room),
            check.inline_room.eq(inline.room),
            check.inline_length.eq(rdmap_header.length),
            check.settled.eq(lengths.settled),
            check.window_open.eq(lengths.window_open),
            check.ulpdu_length.eq(lengths.ulpdu_length),
            check.until_marker.eq(lengths.until_marker),
            check.header.eq(segment.header),
            check.last.eq(segment.last),
            check.speak.eq(terminate.speak),
            check.refused.eq(self.stag_refused),
            check.free.eq(issue.free),
            check.failing.eq(issue.failing),
            check.fresh.eq(choose.fresh),
            issue.begin.eq(check.hand),
            issue.record.eq(check.record),
            issue.operands.eq(self.inbound_requests.head.of.atomic.operands),
            issue.response_valid.eq(self.stag.response_valid),
            issue.response.eq(self.stag.response),
            pieces.offer.eq(issue.offer),
            pieces.write.eq(issue.write),
            pieces.item.eq(issue.item),
            pieces.commit.eq(issue.commit),
            pieces.discard.eq(issue.discard),
            kick.qp.eq(choose.qp),
            kick.working.eq(choose.message.valid),
            kick.once.eq(cut.kick | check.kick),
            kick.again.eq(check.kick_again),
            kick.limits.eq(limits.kick),
            kick.limits_qp.eq(limits.kick_qp),
            limits.kick_taken.eq(kick.limits_taken),
            # What the FPDU is made of
            lengths.start.eq(choose.measure | cut.measure),
            lengths.unlimited.eq(choose.unlimited),
            lengths.payload.eq(piece.payload),
            lengths.tagged.eq(piece.message.tagged),
            lengths.position.eq(piece.message.progress.position),
            lengths.room.eq(piece.message.room),
            segment.piece.eq(piece),
            terminate.termination.eq(self.termination.payload),
            rdmap_header.piece.eq(piece),
            rdmap_header.terminate_header.eq(terminate.header),
            rdmap_header.terminate_octets.eq(terminate.octets),
            issue.written.eq(inline.written),
            inline.commit.eq(issue.commit),
            inline.discard.eq(issue.discard),
            inline.start.eq(check.inline_start),
            inline.kind.eq(rdmap_header.kind),
            inline.length.eq(rdmap_header.length),
            *(
                words.eq(octets)
                for words, octets in zip(inline.octets, rdmap_header.octets, strict=True)
            ),
            # What is stored of the QP
            complete.piece.eq(piece),
            complete.offset.eq(cut.offset),
            complete.last.eq(segment.last),
            complete.sent_length.eq(lengths.sent_length),
            complete.handed.eq(check.handed),
            complete.begun.eq(check.begun),
            complete.restart.eq(command.restart),
            complete.store_restarted.eq(command.store),
            contexts.followed.eq(complete.followed),
            contexts.store.eq(complete.store),
            contexts.command.eq(self.qp_command.payload),
            contexts.set_pd.eq(command.set_pd),
            contexts.set_settings.eq(command.set_settings),
            contexts.set_halt.eq(issue.halt | command.store),
            contexts.halting.eq(issue.halting),
            contexts.halting_qp.eq(issue.job_begin.qp),
            answers.clear.valid.eq(check.begun | command.store),
            answers.clear.qp.eq(choose.qp),
            leaving.begun.valid.eq(issue.job_begin.valid),
            leaving.begun.qp.eq(issue.job_begin.qp),
            leaving.is_response.eq(issue.is_response),
        ]
        with m.If(command.store):
            m.d.comb += [
                contexts.halting.halted.eq(command.halted),
                contexts.halting.units.eq(0),
                contexts.halting_qp.eq(choose.qp),
            ]
        self._look_up(m)
        self._connect_queues(m)
        return m

    def _look_up(self, m: Module) -> None:
        """What tables say of the QP; what no visit changes needs no enable after its memory."""
        parts: Any = m.submodules
        choose, contexts, answers = parts.choose, parts.contexts, parts.answers
        known = Signal(lookup_layout(self._config))
        m.d.comb += [
            contexts.qp.eq(choose.qp),
            parts.limits.select.eq(choose.qp),
            parts.retired_sends.select.eq(choose.qp),
            answers.select.eq(choose.asked),
            parts.leaving.select.eq(choose.asked),
            choose.progress.eq(contexts.progress),
            choose.halt.eq(contexts.halt),
            choose.lookup.eq(known),
            parts.check.lookup.eq(known),
            parts.complete.retired.eq(known.retired),
            parts.lengths.markers.eq(known.settings.transmit_markers),
            parts.rdmap_header.original.eq(known.original),
        ]
        m.d.sync += [
            known.settings.eq(contexts.settings),
            known.pd.eq(contexts.pd),
            known.window.eq(parts.limits.window),
            known.mulpdu.eq(parts.limits.mulpdu),
            known.retired.eq(parts.retired_sends.count),
            known.leaving.eq(parts.leaving.leaving),
            known.answered.eq(answers.answered),
            known.original.eq(answers.original),
            known.atomic_status.eq(answers.status),
        ]

    def _connect_queues(self, m: Module) -> None:
        """The queues of the QP: read before its message is chosen, popped when it was handed on."""
        parts: Any = m.submodules
        choose, cut, complete = parts.choose, parts.cut, parts.complete
        entries, inbound = self.send_entries, self.inbound_requests
        outstanding = self.outstanding_requests
        m.d.comb += [
            entries.coming.eq(choose.coming),
            entries.select.eq(choose.qp),
            choose.word.eq(entries.word),
            choose.level.eq(entries.level),
            choose.posted.eq(entries.posted),
            choose.index.eq(entries.index),
            cut.word.eq(entries.word),
            entries.pop.eq(complete.pop),
            entries.popping.eq(complete.popping),
            entries.pop_both.eq(complete.pop_both),
            inbound.select.eq(choose.asked),
            choose.inbound_head.eq(inbound.head),
            choose.inbound_level.eq(inbound.level),
            inbound.pop.eq(complete.pop_inbound),
            outstanding.select.eq(choose.asked),
            choose.outstanding_level.eq(outstanding.level),
            outstanding.push.eq(complete.push),
            outstanding.item.eq(complete.asked),
        ]
        m.d.sync += [
            entries.word_address.eq(
                Mux(choose.message.valid, cut.word_address, choose.word_address)
            ),
            inbound.pop_qp.eq(choose.asked),
            outstanding.push_qp.eq(choose.asked),
        ]
