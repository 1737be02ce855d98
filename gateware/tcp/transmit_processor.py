"""The sending side of established connections: what is sent, when, and what it waits for."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import OCTETS_BITS
from stagecoach.gateware.layouts import LlpEventKind
from stagecoach.gateware.stream.fifo import StreamFifo
from stagecoach.gateware.stream.prompt_fifo import PromptFifo
from stagecoach.gateware.tcp.congestion import Congestion, CongestionOperation
from stagecoach.gateware.tcp.layouts import (
    DEADLINES,
    FATE,
    HEADERS_OCTETS,
    LIMITS,
    TRANSMIT_SETTINGS,
    NoticeKind,
    TransmitOperation,
    ack_event,
    due_layout,
    fpdu_layout,
    notice_layout,
    send_job,
    sender_event,
    settled_layout,
    transmit_command,
    transmit_job,
)
from stagecoach.gateware.tcp.rto import RetransmissionTimeout, RtoOperation
from stagecoach.gateware.tcp.segment_list import SegmentOperation
from stagecoach.gateware.tcp.transmit_grant import TransmitGrant
from stagecoach.gateware.tcp.transmit_info import INFO_PLACE_BITS, TransmitInfo
from stagecoach.gateware.tcp.transmit_plan import TO_DO, TransmitPlan
from stagecoach.gateware.tcp.transmit_segment import TransmitSegment
from stagecoach.gateware.tcp.transmit_state import NUMBERS, TRANSMIT_STATE, begun
from stagecoach.gateware.tcp.transmit_status import TransmitStatus
from stagecoach.gateware.tcp.transmit_table import TransmitTable
from stagecoach.gateware.tcp.transmit_turn import TransmitKind, TransmitTurn

SEND_JOBS = 8
"""That wait to be built."""

SEND_JOBS_SOME = 4
"""While so many wait, besides the next one, what may be sent later is: others go first. The next
one is at `send` 2 cycles after it was decided."""

_SEGMENT_CYCLES = 6
"""From a segment's number to what is sent of it, of the list and the windows; and one to see it."""

_REST_CYCLES = 4
"""Of congestion control."""

_FREE_CYCLES = 3
"""Of the list, for two segments more: beside one in which others have a say."""

_COMMAND_CYCLES = 5
"""Until the grant is known, if the command has a new EMSS; congestion control takes fewer."""


class TransmitProcessor(wiring.Component):
    """Works on what concerns the sending side, one event at a time, and keeps what it changes.

    Events are: what a segment means for it; what is stored of the peer's data; a deadline that may
    have come; an FPDU; a command; memory that failed; and a visit, of a connection that had more to
    send than its turn allowed. They take turns, so that none holds up another kind. What an event
    makes possible is sent in it, while fewer than five jobs wait; the rest in visits.

    An FPDU is sent out of the store if it is the next one and the windows have room for all of it;
    otherwise out of the ring. While the list of segments is `crowded`, the last one waits for
    others to join it, if anything is outstanding: what the LLP was granted always has a place.

    ACKs are decided here as well: data that leaves carries one. They are at once, or with the
    second segment, or after the delay; and if the window grew by two segments, or by one from zero.

    An event takes 9 cycles, an ACK of new data 10, or 11 if it measures a round trip; an FPDU that
    is sent takes 22. Each two segments that an ACK frees after the first two cost 4, a segment
    after the first one 8; an INFO takes 23. Rows of the last event are written while those of the
    next one are read; congestion control, the timeout and the list begin while its last rows are.
    What is worked on waits at its port. If one of `job`, `fate`, `said` and `notice` is not taken,
    or 8 jobs of `send` wait already, everything waits, for ever if need be, and nothing is lost.

    Numbers are modulo 2^32. Times are, too: a deadline is at most 2^31 microseconds ahead; a round
    trip is below 2^29, so R2 has to be; a pause of a multiple of 2^32 is not seen.

    After a reset all connections are forgotten, for as many cycles as there are connections.

    Parameters
    ----------
    connections: 2 to 256. mtu: octets of the longest IP packet.

    Members
    -------
    time, settings: microseconds, and what is set for all connections.
    ack: of the receive processor. note: of `Settle`. due: of the timers. fpdu, fate: of the segment
        store. command: as said; a BEGIN is of a connection that was not used, or has ended. failed:
        connections whose ring of what is sent could not be written.
    send: segments, in order. job: to `TransmitRing`. said: to the LLP port. notice: to the driver.
    limits_write, limits_connection, limits: to the receive processor: a copy of what it needs; an
        end is in it when its notice was taken.
    deadlines_write, deadlines_connection, deadlines: to the timers, a pulse in 9 cycles at most.
    info_write, info_place, info_word: the words of an INFO, as those of `TransmitInfo`. info_done:
        a pulse, with the last one.
    began, ended: pulses, an event begins, and ends. queued: a pulse, a segment begins to wait for
        `send`.
    """

    def __init__(self, connections: int = 64, mtu: int = 1500):
        if not 2 <= connections <= 256:
            raise ValueError(f"TransmitProcessor connections is {connections!r}; allowed: 2 to 256")
        if not 576 <= mtu < 1 << OCTETS_BITS:
            raise ValueError(f"TransmitProcessor mtu is {mtu!r}; allowed: 576 to 16383")
        self._connections = connections
        self._mss = mtu - HEADERS_OCTETS
        self._bits = bits = (connections - 1).bit_length()
        super().__init__(
            {
                "time": In(32),
                "settings": In(TRANSMIT_SETTINGS),
                "ack": In(stream.Signature(ack_event(bits))),
                "note": In(stream.Signature(settled_layout(bits))),
                "due": In(stream.Signature(due_layout(bits))),
                "fpdu": In(stream.Signature(fpdu_layout(bits))),
                "command": In(stream.Signature(transmit_command(bits))),
                "failed": In(stream.Signature(bits)),
                "send": Out(stream.Signature(send_job(bits))),
                "job": Out(stream.Signature(transmit_job(bits))),
                "fate": Out(stream.Signature(FATE)),
                "said": Out(stream.Signature(sender_event(bits))),
                "notice": Out(stream.Signature(notice_layout(bits))),
                "limits_write": Out(1),
                "limits_connection": Out(bits),
                "limits": Out(LIMITS),
                "deadlines_write": Out(1),
                "deadlines_connection": Out(bits),
                "deadlines": Out(DEADLINES),
                "info_write": Out(1),
                "info_place": Out(INFO_PLACE_BITS),
                "info_word": Out(32),
                "info_done": Out(1),
                "began": Out(1),
                "ended": Out(1),
                "queued": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        state = Signal(TRANSMIT_STATE)
        numbers, path, times, windows = state.numbers, state.path, state.times, state.windows
        m.submodules.table = table = TransmitTable(self._connections)
        m.submodules.turn = turn = TransmitTurn(self._bits)
        m.submodules.congestion = congestion = Congestion()
        m.submodules.timeout = timeout = RetransmissionTimeout()
        m.submodules.status = status = TransmitStatus()
        m.submodules.segment = segment = TransmitSegment(self._connections)
        m.submodules.plan = plan = TransmitPlan(self._bits, self._mss)
        m.submodules.grant = grant = TransmitGrant()
        m.submodules.info = info = TransmitInfo()
        m.submodules.sends = sends = StreamFifo(send_job(self._bits), SEND_JOBS)
        # Each connection once; and the one that is visited, and has more, twice.
        m.submodules.visits = visits = PromptFifo(self._bits, self._connections + 1)
        wiring.connect(m, wiring.flipped(self.send), sends.o)
        ack, note, due, fpdu = self.ack.p, self.note.p, self.due.p, self.fpdu.p
        command, settings = self.command.p, self.settings

        event, connection = turn.o.p.kind, turn.o.p.connection
        loaded, compares = Signal(), Signal()
        now = Signal(32)
        stored_numbers = data.View(NUMBERS, table.word[: NUMBERS.size])
        beginning = begun(m, command, now, stored_numbers.visiting)
        left = Signal(range(_SEGMENT_CYCLES))  # cycles that this state goes on
        resend, acknowledge = times.deadlines.resend, times.deadlines.acknowledge

        # Of the list: what it does, with which number.
        operation, number = Signal(SegmentOperation), Signal(32)

        # What is left to do in this event; besides what the plan says:
        frees = Signal()  # more segments of the list
        goes = Signal()  # the segment does
        bare = Signal()  # the persist timer sends one octet
        sets = Signal()  # the deadline of `resend`
        rested = Signal()  # cwnd was looked at after a pause
        stored = Signal()  # the segment is sent out of the store
        fated = Signal(init=1)  # the fate of the FPDU was said
        tell_kind, tell_value = Signal(LlpEventKind), Signal(32)
        to_do = Signal(TO_DO)
        seen = plan.seen

        m.d.comb += [
            plan.kind.eq(event),
            plan.now.eq(now),
            plan.settings.eq(settings),
            plan.compares.eq(compares),
            plan.ack.eq(ack),
            plan.note.eq(note),
            plan.due.eq(due),
            plan.fpdu.eq(fpdu),
            plan.command.eq(command),
            plan.state.eq(state),
        ]
        # What the event is, from the second cycle on.
        is_fpdu = Signal()
        is_ack, is_due, is_command, begins, appends, informs = (Signal() for _ in range(6))
        queued = Signal(OCTETS_BITS)
        m.d.sync += [
            is_ack.eq(event == TransmitKind.ACK),
            is_due.eq(event == TransmitKind.DUE),
            is_fpdu.eq(event == TransmitKind.FPDU),
            is_command.eq(event == TransmitKind.COMMAND),
            begins.eq(
                (event == TransmitKind.COMMAND) & (command.operation == TransmitOperation.BEGIN)
            ),
            informs.eq(
                (event == TransmitKind.COMMAND) & (command.operation == TransmitOperation.INFO)
            ),
            appends.eq(
                (event == TransmitKind.FPDU)
                | ((event == TransmitKind.COMMAND) & (command.operation == TransmitOperation.SEND))
            ),
            queued.eq(Mux(event == TransmitKind.FPDU, fpdu.octets, command.octets)),
        ]
        frees_some = is_ack & ack.acknowledges & seen.newer
        persists = resend.armed & numbers.persists

        new = Signal()  # data that was never sent follows
        m.d.sync += new.eq(status.newest & ~to_do.resends & ~(numbers.probed & ~status.outstanding))

        path_operation = Signal(CongestionOperation)
        m.d.comb += [
            congestion.operation.eq(path_operation),
            congestion.smss.eq(numbers.emss),
            congestion.una.eq(numbers.una),
            congestion.next.eq(numbers.next),
            congestion.highest.eq(numbers.max),
            congestion.acknowledgment.eq(ack.acknowledgment),
            congestion.octets.eq(segment.sent),
            congestion.state.eq(path.congestion),
            timeout.operation.eq(
                Mux(
                    is_ack,
                    Mux(seen.sampled, Value.cast(RtoOperation.SAMPLE), RtoOperation.RESET),
                    RtoOperation.EXPIRE,
                )
            ),
            timeout.measured.eq(seen.measured),
            timeout.minimum.eq(settings.rto_minimum),
            timeout.maximum.eq(settings.rto_maximum),
            timeout.rto.eq(times.rto),
            # It is known early, for the grant that follows.
            grant.una.eq(Mux(frees_some, ack.acknowledgment, numbers.una)),
            grant.end.eq(numbers.end),
            grant.granted.eq(numbers.granted),
            grant.emss.eq(numbers.emss),
            grant.size.eq(numbers.size),
            grant.free.eq(segment.free),
        ]
        finishes = Signal()
        answers, takes = Signal(), Signal()  # a segment without data is sent; a segment is
        m.d.comb += [
            status.now.eq(now),
            status.state.eq(state),
            segment.connection.eq(connection),
            segment.state.eq(state),
            segment.work.eq(to_do),
            segment.operation.eq(operation),
            segment.number.eq(number),
            segment.octets.eq(queued),
            segment.of_fpdu.eq(is_fpdu),
            segment.fpdu.eq(fpdu),
            segment.limit.eq(congestion.limit),
            segment.crowded.eq(grant.crowded),
            segment.outstanding.eq(status.outstanding),
            segment.bare.eq(bare),
            segment.answers.eq(answers),
            segment.stored.eq(stored),
            sends.i.payload.eq(segment.job),
            sends.i.p.again.eq(~answers & ~new),
            takes.eq(sends.i.valid & sends.i.ready),
            self.job.p.connection.eq(connection),
            self.job.p.fpdu.eq(is_fpdu),
            self.job.p.octets.eq(Mux(to_do.drops | begins, 0, queued)),
            self.job.p.number.eq(numbers.end),
            self.job.p.ring.eq(windows.ring),
            self.job.p.size.eq(numbers.size),
            self.job.p.begin.eq(begins),
            self.fate.p.octets.eq(fpdu.octets),
            self.fate.p.sends.eq(stored),
            self.said.p.connection.eq(connection),
            self.said.p.kind.eq(tell_kind),
            self.said.p.value.eq(tell_value),
            self.notice.p.connection.eq(connection),
            self.notice.p.kind.eq(Mux(to_do.suspects, Value.cast(NoticeKind.SUSPECT), to_do.cause)),
            self.notice.p.number.eq(numbers.max),
            visits.i.payload.eq(connection),
            info.state.eq(state),
            self.info_write.eq(info.write),
            self.info_place.eq(info.place),
            self.info_word.eq(info.word),
            self.info_done.eq(info.done),
            self.began.eq(table.fetches),
            self.ended.eq(finishes),
            self.queued.eq(takes),
        ]

        jobs, some_jobs = Signal(range(SEND_JOBS + 1)), Signal()
        m.d.sync += jobs.eq(jobs + takes - (sends.o.valid & sends.o.ready))
        m.d.comb += some_jobs.eq(jobs > SEND_JOBS_SOME)
        ports = {
            TransmitKind.ACK: (self.ack, ack.connection),
            TransmitKind.NOTE: (self.note, note.note.connection),
            TransmitKind.DUE: (self.due, due.connection),
            TransmitKind.FPDU: (self.fpdu, fpdu.connection),
            TransmitKind.COMMAND: (self.command, command.connection),
            TransmitKind.FAILED: (self.failed, self.failed.payload),
            TransmitKind.VISIT: (visits.o, visits.o.payload),
        }
        for kind, (port, whose) in ports.items():
            m.d.comb += turn.events[kind.value].payload.eq(whose)
            if kind is TransmitKind.VISIT:
                # Taken early: it says no more than whose it is.
                m.d.comb += [
                    turn.events[kind.value].valid.eq(port.valid & ~some_jobs),
                    port.ready.eq(table.fetches & (event == kind)),
                ]
            else:
                m.d.comb += [
                    turn.events[kind.value].valid.eq(port.valid),
                    port.ready.eq(turn.events[kind.value].ready),
                ]

        m.d.comb += [
            turn.o.ready.eq(finishes),
            table.connection.eq(connection),
            table.keeps.eq(finishes),
            table.holds.eq(loaded),
            table.state.eq(state),
            *(
                getattr(self, f"{copy}{which}").eq(getattr(table, f"{copy}{which}"))
                for copy in ("limits", "deadlines")
                for which in ("", "_write", "_connection")
            ),
        ]

        with m.FSM(init="FETCH"):
            with m.State("FETCH"):  # an event
                with m.If(sets):
                    m.d.sync += resend.at.eq(status.expiry)
                m.d.sync += [
                    now.eq(self.time),
                    *(flag.eq(0) for flag in (frees, bare, sets, rested, stored)),
                    to_do.eq(0),
                    fated.eq(1),
                ]
                with m.If(turn.o.valid & table.ready):
                    m.d.comb += table.fetches.eq(1)
                    m.next = "LOAD"
            with m.State("LOAD"):  # what is known of its connection
                m.d.comb += compares.eq(1)
                for place, name in enumerate(TRANSMIT_STATE.members):
                    part = state[name]
                    with m.If(table.loads[place]):
                        m.d.sync += part.eq(table.word[: len(Value.cast(part))])
                        with m.If(begins):
                            m.d.sync += part.eq(beginning[name])
                m.d.sync += [
                    operation.eq(
                        Mux(
                            frees_some,
                            Value.cast(SegmentOperation.FREE),
                            Mux(
                                appends,
                                Value.cast(SegmentOperation.APPEND),
                                SegmentOperation.SEND,
                            ),
                        )
                    ),
                    number.eq(Mux(is_ack, ack.acknowledgment, numbers.max)),
                    path_operation.eq(
                        Mux(
                            is_due,
                            Value.cast(CongestionOperation.EXPIRE),
                            CongestionOperation.IDLE,
                        )
                    ),
                ]
                with m.If(is_ack):
                    m.d.sync += path_operation.eq(
                        Mux(
                            seen.newer,
                            Value.cast(CongestionOperation.ACKNOWLEDGE),
                            CongestionOperation.DUPLICATE,
                        )
                    )
                with m.If(table.loads[-1]):
                    m.d.sync += loaded.eq(1)
                    m.next = "COMPARE"
            with m.State("COMPARE"):  # what it says with what is known
                m.d.comb += compares.eq(1)
                m.next = "PLAN"
            with m.State("PLAN"):  # what has to be done
                m.d.sync += [
                    state.eq(plan.state_after),
                    to_do.eq(plan.to_do),
                    left.eq(plan.to_do.samples),
                ]
                m.next = "ACT"
                with m.If(informs):
                    m.d.comb += info.begin.eq(1)
                    m.next = "INFO"
                with m.If(plan.to_do.stores):
                    m.next = "STORE"
                with m.Elif(plan.to_do.works):
                    m.next = "WORK"
                    with m.If(is_command):
                        m.d.sync += left.eq(_COMMAND_CYCLES - 1)
            with m.State("INFO"):  # until all words were told
                with m.If(info.done):
                    m.next = "ACT"
            with m.State("STORE"):  # until the ring's job is taken
                m.d.comb += self.job.valid.eq(1)
                with m.If(self.job.ready):
                    m.d.sync += fated.eq(~is_fpdu)
                    m.next = "WORK"
                    with m.If(begins):
                        m.next = "ACT"
                    with m.Elif(to_do.drops):
                        m.next = "FATE"
                    with m.Else():
                        m.d.sync += numbers.end.eq(numbers.end + queued)
            with m.State("FATE"):  # until that of the FPDU is taken
                m.d.comb += self.fate.valid.eq(1)
                with m.If(self.fate.ready):
                    m.d.sync += fated.eq(1)
                    m.next = "SEND"
                    with m.If(to_do.drops):
                        m.next = "ACT"
            with m.State("WORK"):  # of congestion control, the timeout, the list, or the grant
                m.d.sync += left.eq(left - 1)
                with m.If(left == 0):
                    m.next = "ACT"
                    with m.If(to_do.newer):
                        m.d.sync += [
                            path.segments.eq(segment.segments_after),
                            frees.eq(segment.more),
                        ]
                    with m.If(to_do.newer & ~frees):
                        m.d.sync += to_do.arms.eq(congestion.restart & ~seen.all_acked)
                    with m.If((to_do.newer & ~frees) | to_do.duplicates):
                        m.d.sync += to_do.resends.eq(congestion.retransmit)
                    with m.If(
                        (to_do.newer & ~frees) | to_do.duplicates | to_do.rewinds | to_do.shrinks
                    ):
                        m.d.sync += path.congestion.eq(congestion.state_after)
                    with m.If((~frees & (to_do.samples | to_do.unbacks)) | is_due):
                        m.d.sync += times.rto.eq(timeout.rto_after)
                    with m.If(to_do.stores):
                        m.d.comb += segment.take.eq(1)
                        m.d.sync += path.segments.eq(segment.segments_after)
                    with m.If(bare):
                        m.next = "SEND"
            with m.State("ACT"):  # the next of the things to do
                m.d.sync += [
                    to_do.arms.eq(0),
                    path_operation.eq(CongestionOperation.SENT),
                    left.eq(_SEGMENT_CYCLES - 1),
                    tell_kind.eq(
                        Mux(to_do.tells, Value.cast(LlpEventKind.EMSS), LlpEventKind.TX_WINDOW)
                    ),
                    tell_value.eq(Mux(to_do.tells, numbers.emss, grant.number - numbers.base)),
                ]
                with m.If(~frees):
                    m.d.sync += [
                        operation.eq(
                            Mux(
                                to_do.resends,
                                Value.cast(SegmentOperation.RESEND),
                                SegmentOperation.SEND,
                            )
                        ),
                        number.eq(Mux(to_do.resends, numbers.una, numbers.next)),
                    ]
                with m.If(to_do.arms):
                    m.d.sync += [resend.armed.eq(1), sets.eq(1), numbers.persists.eq(0)]
                with m.If(frees):
                    m.d.sync += left.eq(_FREE_CYCLES - 1)
                    m.next = "WORK"
                with m.Elif(to_do.resends | to_do.probes):
                    m.next = "SEGMENT"
                with m.Elif(to_do.suspects):
                    m.next = "NOTICE"
                with m.Elif(to_do.tells):
                    m.next = "TELL"
                with m.Elif(to_do.resets | to_do.acks | (to_do.acks_late & acknowledge.armed)):
                    m.next = "ANSWER"
                with m.Elif(to_do.ends):
                    m.next = "NOTICE"
                # SND.NXT that went back is not looked at yet.
                with m.Elif(to_do.pushes & (status.waits | to_do.rewinds)):
                    m.next = "SEGMENT"
                    # Nor is a timeout that changed.
                    with m.If(
                        ~status.outstanding
                        & ~rested
                        & (status.quiet | to_do.samples | to_do.unbacks)
                    ):
                        m.d.sync += [
                            path_operation.eq(CongestionOperation.IDLE),
                            left.eq(_REST_CYCLES - 1),
                        ]
                        m.next = "REST"
                with m.Elif(numbers.alive & numbers.attached & grant.due):
                    m.d.sync += numbers.granted.eq(grant.number)
                    m.next = "TELL"
                with m.Else():
                    m.d.comb += finishes.eq(1)
                    m.d.sync += loaded.eq(0)
                    m.next = "FETCH"
            with m.State("REST"):  # congestion control, if nothing was sent for long
                m.d.sync += [left.eq(left - 1), rested.eq(1)]
                with m.If(left == 0):
                    m.next = "ACT"
                    with m.If(status.quiet):
                        m.d.sync += path.congestion.eq(congestion.state_after)
            with m.State("SEGMENT"):  # of the list, and of the windows
                m.d.sync += [
                    left.eq(left - 1),
                    goes.eq(segment.sends),
                    stored.eq(segment.sends & segment.fpdu_alone & ~fated),
                ]
                with m.If(left == 0):
                    m.next = "SEND"
                    with m.If(~fated):
                        m.next = "FATE"
            with m.State("SEND"):  # until the job is taken, if there is one
                m.d.comb += sends.i.valid.eq(goes)
                m.d.sync += left.eq(0)
                with m.If(~goes & to_do.probes):
                    m.d.sync += [bare.eq(1), goes.eq(1)]
                    m.next = "WORK"
                with m.Elif(~goes):
                    m.d.sync += to_do.pushes.eq(0)
                    m.next = "ACT"
                    with m.If(~status.outstanding & ~persists):
                        m.d.sync += [
                            resend.armed.eq(1),
                            sets.eq(1),
                            numbers.persists.eq(1),
                            numbers.since.eq(now),
                        ]
                with m.Elif(takes):
                    m.next = "ACT"
                    m.d.sync += [
                        to_do.resends.eq(0),
                        to_do.probes.eq(0),
                        stored.eq(0),
                        numbers.sent_at.eq(now),
                    ]
                    with m.If(bare):
                        m.d.sync += [numbers.probed.eq(1), resend.armed.eq(1), sets.eq(1)]
                    with m.Else():
                        m.d.sync += times.timed.eq(new)
                        with m.If(new):
                            m.d.sync += path.congestion.limited.eq(congestion.state_after.limited)
                            with m.If(~times.timed):
                                m.d.sync += [
                                    times.timed_number.eq(segment.following),
                                    times.timed_at.eq(now),
                                ]
                        with m.If(~status.outstanding):
                            m.d.sync += [numbers.since.eq(now), numbers.retries.eq(0)]
                        with m.If(~resend.armed | numbers.persists):
                            m.d.sync += [resend.armed.eq(1), sets.eq(1)]
                        m.d.sync += numbers.persists.eq(0)
                        with m.If(segment.advances):
                            m.d.sync += numbers.max.eq(segment.following)
                        with m.If(~to_do.resends | to_do.rewinds):
                            m.d.sync += numbers.next.eq(segment.following)
                            with m.If(segment.whole):
                                m.d.sync += path.segments.eq(segment.segments_after)
                        with m.If(to_do.pushes & ~to_do.resends):
                            with m.If(segment.ends):
                                m.d.sync += to_do.pushes.eq(0)  # nothing waits
                            with m.Elif(some_jobs):
                                m.d.sync += to_do.pushes.eq(0)
                                with m.If(~numbers.visiting):
                                    m.next = "VISIT"
            with m.State("VISIT"):  # a turn later: there is room for each connection
                m.d.comb += visits.i.valid.eq(1)
                m.d.sync += numbers.visiting.eq(1)
                m.next = "ACT"
            with m.State("ANSWER"):  # until the job is taken: an ACK, or the end
                m.d.comb += [answers.eq(1), sends.i.valid.eq(1)]
                with m.If(takes):
                    done = ("resets", "acks", "acks_late", "insists")
                    m.d.sync += [to_do[name].eq(0) for name in done]
                    m.next = "ACT"
            with m.State("NOTICE"):  # until the driver's notice is taken
                m.d.comb += self.notice.valid.eq(1)
                with m.If(self.notice.ready):
                    m.d.sync += to_do.suspects.eq(0)
                    m.next = "ACT"
                    with m.If(~to_do.suspects):
                        m.d.sync += [
                            numbers.alive.eq(0),
                            resend.armed.eq(0),
                            acknowledge.armed.eq(0),
                            tell_kind.eq(LlpEventKind.CLOSED),
                        ]
                        m.next = "TELL"
            with m.State("TELL"):  # until the LLP's event is taken
                m.d.comb += self.said.valid.eq(1)
                with m.If(self.said.ready):
                    m.d.sync += to_do.tells.eq(0)
                    m.next = "FINISH"
                    with m.If(to_do.tells & ~to_do.ends):
                        m.next = "ACT"
            with m.State("FINISH"):  # the rows are written from now on
                m.d.comb += finishes.eq(1)
                m.d.sync += loaded.eq(0)
                m.next = "FETCH"

        # Whatever has an acknowledgment ends the wait for one.
        with m.If(takes):
            m.d.sync += [
                numbers.unacknowledged.eq(0),
                acknowledge.armed.eq(0),
                windows.announced.eq(windows.edge),
            ]
        return m
