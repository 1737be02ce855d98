"""The transmitter: cuts the messages of a QP into ULPDUs, one at each visit (RFC 5041, 5.2).

A visit has two halves, and the second half of one goes on while the first half of the next, of
this QP or another, is under way. The first half goes through the states of `transmit_choose.py`,
`transmit_elements.py` and `transmit_hand.py`;
`transmit_local.py` has those of work requests that send nothing, `transmit_atomic.py` those of the
Responder of atomics, `transmit_close.py` and
`transmit_command.py` those of terminations and commands. They are
one FSM of one module: its registers are in `transmit_visit.py`, what follows from them in
`transmit_follow.py`. In all these files `ports` is the `Transmitter`, `*_states` adds states, and
`connect_*` says what is so in every state. The second half is `transmit_back.py`.
"""

from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.interfaces import (
    EntryPort,
    Layouts,
    QpFifoReader,
    QpFifoWriter,
    QpStrobe,
    StagClient,
)
from stagecoach.gateware.queues.qp_choice import bit_of_qp
from stagecoach.gateware.rdmap.atomic.unit import request_layout, response_layout
from stagecoach.gateware.rdmap.transmit.atomic import AtomicAnswers, atomic_states, connect_atomic
from stagecoach.gateware.rdmap.transmit.back import TransmitBack
from stagecoach.gateware.rdmap.transmit.choose import choose_states
from stagecoach.gateware.rdmap.transmit.close import close_states
from stagecoach.gateware.rdmap.transmit.command import command_states, connect_command
from stagecoach.gateware.rdmap.transmit.context import RetiredSends, TransmitContexts
from stagecoach.gateware.rdmap.transmit.elements import element_states
from stagecoach.gateware.rdmap.transmit.entry import REMOTE_OFFSET_ADDRESS, SEND_ENTRY_WORDS
from stagecoach.gateware.rdmap.transmit.follow import (
    connect_header,
    connect_lengths,
    connect_offset,
    follow,
)
from stagecoach.gateware.rdmap.transmit.hand import (
    connect_queues,
    connect_record,
    connect_request,
    hand_states,
)
from stagecoach.gateware.rdmap.transmit.header import TransmitHeader
from stagecoach.gateware.rdmap.transmit.inline import TransmitInline, connect_inline, inline_states
from stagecoach.gateware.rdmap.transmit.leaving import LeavingResponses
from stagecoach.gateware.rdmap.transmit.lengths import TransmitLengths
from stagecoach.gateware.rdmap.transmit.limits import TransmitLimits
from stagecoach.gateware.rdmap.transmit.local import connect_local, local_states
from stagecoach.gateware.rdmap.transmit.pieces import TransmitPieces
from stagecoach.gateware.rdmap.transmit.terminate import TransmitTerminate
from stagecoach.gateware.rdmap.transmit.visit import TransmitVisit
from stagecoach.gateware.stream.slot import StreamSlot


class Transmitter(wiring.Component):
    """Sends one FPDU of a QP for each QP number that the scheduler gives.

    The first half of a visit reads the context of the QP, goes on with its message or chooses the
    oldest inbound request or the oldest send entry, cuts off what fits the MULPDU, asks the STag
    table about each local piece of it and hands it to the second half. There it waits for the
    answer; pieces and job are given away together. Nothing of an FPDU is seen outside unless all
    of its checks were good. But the QP goes on, and its queues drop what was sent, when the last
    piece has been handed over: if its check fails, the QP is halted before its next FPDU is handed
    over, and sends nothing any more.

    A visit that can send nothing ends without a trace. `kick` asks for another one once for every
    FPDU given away (during its visit) behind which the QP is known to have something to do, and
    when the LLP widens the limits; the queues ask when they get work or room. Visits end in the
    order in which they began, two at most are under way, and a command or a termination waits for
    the end of all before it. No visit begins while `error` is not ready.

    An inbound atomic has two visits: one has its target checked and hands it to the atomic unit,
    the other, after the unit's answer, sends the Atomic Response; meanwhile nothing else of the
    inbound queue is begun. The first waits until the Read Responses before it have left: they read
    host memory before the atomic changes it.

    A LOCAL_INVALIDATE or FAST_REGISTER is done in its visit, so before whatever is posted behind
    it; a job without an FPDU brings its report.

    Throughput: an FPDU of one element or none every 11 cycles, of the same QP or others, if the
    STag table takes 8 cycles or less, the window takes twice the MULPDU and Markers are off; else
    5 cycles more. One more inside a message if nothing but its own visits asks for the next one.
    Each further element takes 8 more, or those of the table and 4; the first FPDU of a message of
    more than one element 10 more. The registers of the first half are needed for an FPDU with an
    inline piece (Read Request, atomics, Immediate Data) until it is given away.
    Latency: from `work` to `job` 18 cycles, or 14 without a local piece.

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
    inline: Out(stream), the words of the inline pieces, some cycles behind them.
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
        m.submodules.limits = limits = TransmitLimits(config)
        m.submodules.retired_sends = retired_sends = RetiredSends(config)
        m.submodules.contexts = contexts = TransmitContexts(config)
        m.submodules.lengths = lengths = TransmitLengths()
        m.submodules.pieces = pieces = TransmitPieces(config)
        m.submodules.header = header = TransmitHeader()
        m.submodules.inline = inline = TransmitInline()
        m.submodules.terminate = terminate = TransmitTerminate(config)
        m.submodules.back = back = TransmitBack(config)
        m.submodules.leaving = leaving = LeavingResponses(config)
        m.submodules.answers = answers = AtomicAnswers(config)
        # The scheduler is far, and the entries of a QP are asked for as soon as it is known.
        m.submodules.chosen = chosen = StreamSlot(self._layouts.qp_number)
        m.submodules.lookup = lookup = StreamSlot(self._layouts.stag_request)
        visit = TransmitVisit(config)

        wiring.connect(m, wiring.flipped(self.work), chosen.i)
        wiring.connect(m, lookup.o, wiring.flipped(self.stag.request))
        wiring.connect(m, wiring.flipped(self.llp_event), limits.llp_event)
        wiring.connect(m, pieces.piece, wiring.flipped(self.piece))
        wiring.connect(m, inline.o, wiring.flipped(self.inline))
        wiring.connect(m, wiring.flipped(self.atomic_response), answers.response)
        wiring.connect(m, answers.kick, wiring.flipped(self.answered))
        wiring.connect(m, wiring.flipped(self.job_finished), leaving.finished)
        wiring.connect(m, leaving.kick, wiring.flipped(self.responses_left))
        wiring.connect(m, back.job, wiring.flipped(self.job))
        wiring.connect(m, back.error, wiring.flipped(self.error))
        m.d.comb += [
            contexts.qp.eq(visit.qp),
            contexts.followed.eq(visit.followed),
            limits.select.eq(visit.qp),
            retired_sends.select.eq(visit.qp),
            retired_sends.retired.valid.eq(self.retired.valid),
            retired_sends.retired.qp.eq(self.retired.qp),
            self.send_entries.coming.eq(Mux(visit.idle, chosen.o.p.qp, visit.qp)),
            self.send_entries.select.eq(visit.qp),
            self.inbound_requests.select.eq(visit.asked),
            self.outstanding_requests.select.eq(visit.asked),
            terminate.termination.eq(self.termination.payload),
            answers.select.eq(visit.asked),
            leaving.select.eq(visit.asked),
            leaving.begun.valid.eq(back.job_begin.valid),
            leaving.begun.qp.eq(back.job_begin.qp),
            leaving.is_response.eq(back.is_response),
            back.response_valid.eq(self.stag.response_valid),
            back.response.eq(self.stag.response),
            pieces.offer.eq(back.offer),
            pieces.write.eq(back.write),
            pieces.item.eq(back.item),
            pieces.commit.eq(back.commit),
            pieces.discard.eq(back.discard),
            contexts.set_halt.eq(back.halt),
            contexts.halting.eq(back.halting),
            contexts.halting_qp.eq(back.job_begin.qp),
            self.job_begin.eq(back.job_begin.valid),
            self.end.eq(visit.end | back.end),
        ]
        # What no visit changes needs no enable between memory and register.
        m.d.sync += [
            visit.settings.eq(contexts.settings),
            visit.pd.eq(contexts.pd),
            visit.window.eq(limits.window),
            visit.mulpdu.eq(limits.mulpdu),
            visit.retired_count.eq(retired_sends.count),
            visit.answered.eq(answers.answered),
            visit.leaving.eq(leaving.leaving),
            visit.original.eq(answers.original),
            visit.atomic_status.eq(answers.status),
        ]
        m.d.sync += self.send_entries.word_address.eq(REMOTE_OFFSET_ADDRESS)
        m.d.comb += visit.may_send.eq(
            bit_of_qp(m, self.running, visit.asked) & bit_of_qp(m, self.may_send, visit.asked)
        )
        # Kicks of a visit go before those of the limits.
        kicks, kicked_qp = Signal(), Signal(config.qp_bits)
        m.d.sync += [kicks.eq(visit.kick), kicked_qp.eq(visit.qp)]
        with m.If(kicks):
            m.d.sync += visit.kicked.eq(1)
        m.d.comb += [
            limits.kick_taken.eq(~kicks),
            self.kick.valid.eq(kicks | limits.kick),
            self.kick.qp.eq(Mux(kicks, kicked_qp, limits.kick_qp)),
        ]

        connect_lengths(m, visit, lengths)
        connect_header(m, visit, header)
        connect_offset(m, visit)
        follow(m, visit, lengths)
        connect_request(m, lookup, visit)
        connect_inline(m, visit, inline, terminate)
        connect_record(m, visit, back, lengths, header, inline, terminate)
        connect_queues(m, self, visit, contexts, back)
        connect_local(m, self, visit)
        connect_atomic(m, self, visit, answers)
        connect_command(m, self, contexts, limits)

        with m.FSM():
            choose_states(m, self, chosen.o, visit, contexts, lengths, back)
            element_states(m, self, visit, lengths)
            hand_states(m, self, lookup, visit, back, lengths, pieces, inline)
            atomic_states(m, self, visit, contexts, answers, back)
            local_states(m, self, visit)
            command_states(m, self, visit, contexts, limits, answers)
            close_states(m, self, visit, contexts, lengths, pieces, inline, terminate)
            inline_states(m, self, visit, inline)

        # Whatever began before an error was out of the way must not send.
        with m.If(back.failing):
            m.d.sync += visit.doomed.eq(1)
        return m
