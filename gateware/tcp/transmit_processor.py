"""The sending side of established connections: what is sent, when, and what it waits for."""

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import OCTETS_BITS
from stagecoach.gateware.layouts import LlpEventKind
from stagecoach.gateware.stream.prompt_fifo import PromptFifo
from stagecoach.gateware.tcp.congestion import Congestion, CongestionOperation
from stagecoach.gateware.tcp.layouts import (
    DEADLINES,
    FATE,
    FLAGS,
    HEADERS_OCTETS,
    LIMITS,
    TRANSMIT_SETTINGS,
    NoticeKind,
    SendKind,
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
from stagecoach.gateware.tcp.segment_list import SegmentList, SegmentOperation
from stagecoach.gateware.tcp.send_window import SendMode, SendWindow
from stagecoach.gateware.tcp.sequence import distance
from stagecoach.gateware.tcp.transmit_grant import TransmitGrant
from stagecoach.gateware.tcp.transmit_plan import TO_DO, TransmitPlan
from stagecoach.gateware.tcp.transmit_state import SUSPECT_RETRIES, TRANSMIT_STATE
from stagecoach.gateware.tcp.transmit_table import TransmitTable
from stagecoach.gateware.tcp.transmit_turn import TransmitKind, TransmitTurn

SEND_JOBS = 8
"""That wait to be built."""

SEND_JOBS_SOME = 4
"""While so many wait, besides the next one, what may be sent later is: others go first."""

_OPERATION_CYCLES = 4
"""Cycles of congestion control, of the timeout, and of the list."""


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

    An event takes 10 cycles, and 4 more if congestion control, the timeout or the list has a say;
    an FPDU that is sent takes 24. Each two segments that an ACK frees after the first two cost 5,
    a segment after the first one 6. Nothing overlaps but the write of the last event's rows. What
    is worked on waits at its port. If one of `job`, `fate`, `said` and `notice` is not taken, or 8
    jobs of `send` wait already, everything waits, for ever if need be, and nothing is lost.

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
        m.submodules.list = segments = SegmentList(self._connections)
        m.submodules.plan = plan = TransmitPlan(self._bits, self._mss)
        m.submodules.window = window = SendWindow()
        m.submodules.grant = grant = TransmitGrant()
        m.submodules.sends = sends = PromptFifo(send_job(self._bits), SEND_JOBS)
        # Each connection once; and the one that is visited, and has more, twice.
        m.submodules.visits = visits = PromptFifo(self._bits, self._connections + 1)
        wiring.connect(m, wiring.flipped(self.send), sends.o)
        ack, note, due, fpdu = self.ack.p, self.note.p, self.due.p, self.fpdu.p
        command, settings = self.command.p, self.settings

        event, connection = turn.o.p.kind, turn.o.p.connection
        now = Signal(32)
        step = Signal(range(_OPERATION_CYCLES))
        resend, acknowledge = times.deadlines.resend, times.deadlines.acknowledge

        # What is left to do in this event; besides what the plan says:
        frees = Signal()  # more segments of the list
        bare = Signal()  # the persist timer sends one octet
        arms = Signal()  # the retransmission timer begins anew
        suspects = Signal()  # R1 has come
        stored = Signal()  # the segment is sent out of the store
        fated = Signal(init=1)  # the fate of the FPDU was said
        tell_kind, tell_value = Signal(LlpEventKind), Signal(32)
        to_do = Signal(TO_DO)
        seen = plan.seen
        idle = Signal(32)  # how long nothing with data was sent

        m.d.comb += [
            plan.kind.eq(event),
            plan.now.eq(now),
            plan.settings.eq(settings),
            plan.ack.eq(ack),
            plan.note.eq(note),
            plan.due.eq(due),
            plan.fpdu.eq(fpdu),
            plan.command.eq(command),
            plan.state.eq(state),
        ]
        samples = to_do.newer & seen.sampled
        m.d.sync += idle.eq(distance(now, numbers.sent_at))

        is_ack = event == TransmitKind.ACK
        is_fpdu = event == TransmitKind.FPDU
        is_command = event == TransmitKind.COMMAND
        begins = is_command & (command.operation == TransmitOperation.BEGIN)
        sends_octets = is_command & (command.operation == TransmitOperation.SEND)
        outstanding = numbers.una != numbers.max
        waiting = distance(numbers.end, numbers.next)
        waits = Mux(numbers.closing, ~waiting.all(), waiting.any())
        persists = resend.armed & numbers.persists
        expiry = (now + times.rto.timeout)[:32]
        queued = Mux(is_fpdu, fpdu.octets, command.octets)

        works, acts = Signal(), Signal()
        m.d.comb += [
            congestion.operation.eq(
                Mux(works, Value.cast(to_do.operation), CongestionOperation.SENT)
            ),
            congestion.smss.eq(path.emss),
            congestion.una.eq(numbers.una),
            congestion.next.eq(numbers.next),
            congestion.highest.eq(numbers.max),
            congestion.acknowledgment.eq(ack.acknowledgment),
            congestion.octets.eq(window.octets),
            congestion.state.eq(path.congestion),
            timeout.operation.eq(
                Mux(
                    is_ack,
                    Mux(samples, Value.cast(RtoOperation.SAMPLE), RtoOperation.RESET),
                    RtoOperation.EXPIRE,
                )
            ),
            timeout.measured.eq(seen.measured),
            timeout.minimum.eq(settings.rto_minimum),
            timeout.maximum.eq(settings.rto_maximum),
            timeout.rto.eq(times.rto),
            segments.connection.eq(connection),
            segments.end.eq(numbers.end),
            segments.octets.eq(queued),
            segments.whole.eq(is_fpdu),
            segments.segments.eq(path.segments),
            window.mode.eq(
                Mux(
                    to_do.resends,
                    Value.cast(SendMode.AGAIN),
                    Mux(to_do.probes, Value.cast(SendMode.PROBE), SendMode.NEW),
                )
            ),
            window.una.eq(numbers.una),
            window.number.eq(Mux(to_do.resends, numbers.una, numbers.next)),
            window.highest.eq(numbers.max),
            window.end.eq(numbers.end),
            window.closing.eq(numbers.closing),
            window.limit.eq(congestion.limit),
            window.window.eq(windows.window),
            window.max_window.eq(windows.max_window),
            window.full.eq(segments.sent),
            # It is known early, for the grant that follows.
            grant.una.eq(Mux(is_ack & to_do.newer, ack.acknowledgment, numbers.una)),
            grant.end.eq(numbers.end),
            grant.granted.eq(numbers.granted),
            grant.emss.eq(path.emss),
            grant.size.eq(windows.size),
            grant.segments.eq(path.segments),
        ]
        with m.If(acts):
            m.d.comb += congestion.operation.eq(CongestionOperation.IDLE)

        # The list: what is appended or freed, else the segment that is looked at.
        most = Signal(OCTETS_BITS)  # of a segment that goes again: what was sent
        sent = Signal(32)
        m.d.sync += [
            sent.eq(distance(numbers.max, numbers.una)),
            most.eq(Mux(sent < path.emss, sent, path.emss)),
        ]
        m.d.comb += [
            segments.operation.eq(
                Mux(to_do.resends, Value.cast(SegmentOperation.RESEND), SegmentOperation.SEND)
            ),
            segments.number.eq(window.number),
            segments.most.eq(Mux(to_do.resends, most, path.emss)),
        ]
        with m.If(works):
            m.d.comb += [
                segments.operation.eq(
                    Mux(is_ack, Value.cast(SegmentOperation.FREE), SegmentOperation.APPEND)
                ),
                segments.number.eq(Mux(is_ack, ack.acknowledgment, numbers.max)),
                segments.most.eq(path.emss),
            ]

        # What goes out.
        job = sends.i.p
        answers = Signal()  # a segment without data
        takes = Signal()  # the job is
        octets, fin = Signal(OCTETS_BITS), Signal()
        held = grant.crowded & window.last & outstanding & ~numbers.closing
        goes = Signal()
        whole = Signal()  # the segment is the FPDU of this event
        m.d.comb += [
            goes.eq(window.sends & ~(to_do.pushes & ~to_do.resends & held)),
            octets.eq(Mux(bare, waiting.any(), window.octets)),
            fin.eq(Mux(bare, ~waiting.any(), window.fin)),
            whole.eq(is_fpdu & window.last & (window.octets == fpdu.octets)),
            takes.eq(sends.i.valid & sends.i.ready),
        ]
        some_octets = ~answers & (octets != 0)
        last = Mux(bare, waiting == 1, window.last)
        flags = {
            "ack": C(1),
            "rst": answers & to_do.resets,
            "psh": some_octets & last,
            "fin": ~answers & fin,
        }
        m.d.comb += [
            job.connection.eq(connection),
            job.kind.eq(
                Mux(
                    some_octets,
                    Mux(stored, Value.cast(SendKind.STORE), SendKind.RING),
                    SendKind.NOTHING,
                )
            ),
            job.sequence.eq(Mux(answers, numbers.max, window.number)),
            job.octets.eq(Mux(answers, 0, octets)),
            job.sum.eq(fpdu.sum),
            job.flags.eq(Cat(*(flags.get(name, C(0)) for name in FLAGS.members))),
            job.blocks.eq(answers & ~to_do.resets),
            self.job.p.connection.eq(connection),
            self.job.p.fpdu.eq(is_fpdu),
            self.job.p.octets.eq(Mux(to_do.drops | begins, 0, queued)),
            self.job.p.number.eq(numbers.end),
            self.job.p.ring.eq(windows.ring),
            self.job.p.size.eq(windows.size),
            self.job.p.begin.eq(begins),
            self.fate.p.octets.eq(fpdu.octets),
            self.fate.p.sends.eq(stored),
            self.said.p.connection.eq(connection),
            self.said.p.kind.eq(tell_kind),
            self.said.p.value.eq(tell_value),
            self.notice.p.connection.eq(connection),
            self.notice.p.kind.eq(Mux(suspects, Value.cast(NoticeKind.SUSPECT), to_do.cause)),
            self.notice.p.number.eq(numbers.max),
            visits.i.payload.eq(connection),
        ]

        some_jobs = sends.level >= SEND_JOBS_SOME
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
            waits_there = port.valid
            if kind is TransmitKind.VISIT:
                waits_there = waits_there & ~some_jobs
            m.d.comb += [
                turn.events[kind.value].valid.eq(waits_there),
                turn.events[kind.value].payload.eq(whose),
                port.ready.eq(turn.events[kind.value].ready),
            ]

        finishes, loaded = Signal(), Signal()
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
            with m.State("FETCH"):  # an event, and what is known of its connection
                with m.If(turn.o.valid & table.ready):
                    m.d.comb += table.fetches.eq(1)
                    m.d.sync += [
                        now.eq(self.time),
                        *(flag.eq(0) for flag in (frees, bare, arms, suspects, stored)),
                        to_do.eq(0),
                        fated.eq(1),
                    ]
                    for place, part in enumerate((numbers, path, times, windows)):
                        with m.If(table.loads[place]):
                            m.d.sync += part.eq(table.word[: len(Value.cast(part))])
                    with m.If(table.fetched):
                        m.d.sync += loaded.eq(1)
                        m.next = "COMPARE"
            with m.State("COMPARE"):  # what it says with what is known
                m.d.comb += plan.start.eq(1)
                m.next = "PLAN"
            with m.State("PLAN"):  # what has to be done
                m.d.sync += [state.eq(plan.state_after), to_do.eq(plan.to_do)]
                m.next = "ACT"
                with m.If(plan.to_do.stores):
                    m.next = "STORE"
                with m.Elif(plan.to_do.works):
                    m.next = "WORK"
            with m.State("STORE"):  # until the ring's job is taken
                m.d.comb += self.job.valid.eq(1)
                with m.If(self.job.ready):
                    m.d.sync += fated.eq(~is_fpdu)
                    m.next = "WORK"
                    with m.If(begins):
                        m.next = "ACT"
                    with m.Elif(to_do.drops):
                        m.next = "FATE"
            with m.State("FATE"):  # until that of the FPDU is taken
                m.d.comb += self.fate.valid.eq(1)
                with m.If(self.fate.ready):
                    m.d.sync += fated.eq(1)
                    m.next = "SEND"
                    with m.If(to_do.drops):
                        m.next = "ACT"
            with m.State("WORK"):  # four cycles of congestion control, the timeout, and the list
                m.d.comb += works.eq(1)
                m.d.sync += step.eq(step + 1)
                with m.If(step == _OPERATION_CYCLES - 1):
                    m.d.sync += step.eq(0)
                    m.next = "ACT"
                    with m.If(is_ack):
                        with m.If(to_do.newer):
                            m.d.sync += [
                                path.segments.eq(segments.segments_after),
                                frees.eq(segments.more),
                            ]
                        with m.If(~frees & (to_do.newer | to_do.duplicates)):
                            m.d.sync += [
                                path.congestion.eq(congestion.state_after),
                                to_do.resends.eq(congestion.retransmit),
                            ]
                        with m.If(~frees & (samples | to_do.unbacks)):
                            m.d.sync += times.rto.eq(timeout.rto_after)
                        with m.If(~frees & to_do.newer):
                            m.d.sync += [
                                numbers.una.eq(ack.acknowledgment),
                                numbers.since.eq(now),
                                numbers.retries.eq(0),
                                numbers.probed.eq(0),
                                resend.armed.eq(
                                    resend.armed & (~seen.all_acked | numbers.persists)
                                ),
                                arms.eq(congestion.restart & ~seen.all_acked),
                            ]
                            with m.If(seen.overtakes):
                                m.d.sync += numbers.next.eq(ack.acknowledgment)
                            with m.If(samples):
                                m.d.sync += times.timed.eq(0)
                            with m.If(seen.acks_fin):
                                m.d.sync += numbers.fin_acknowledged.eq(1)
                                with m.If(numbers.peer_fin):
                                    m.d.sync += to_do.ends.eq(1)
                                    m.d.sync += to_do.cause.eq(
                                        Mux(
                                            numbers.passive,
                                            Value.cast(NoticeKind.CLOSED),
                                            NoticeKind.TIME_WAIT,
                                        )
                                    )
                    with m.Elif(is_fpdu | sends_octets):
                        m.d.comb += segments.take.eq(1)
                        m.d.sync += [
                            path.segments.eq(segments.segments_after),
                            numbers.end.eq(numbers.end + queued),
                        ]
                    with m.Elif(event == TransmitKind.DUE):
                        m.d.sync += times.rto.eq(timeout.rto_after)
                        with m.If(to_do.probes):
                            m.next = "SEND"
                        with m.Else():
                            m.d.sync += [
                                path.congestion.eq(congestion.state_after),
                                to_do.resends.eq(1),
                                to_do.rewinds.eq(1),
                                arms.eq(1),
                            ]
                            with m.If(numbers.retries != SUSPECT_RETRIES):
                                m.d.sync += numbers.retries.eq(numbers.retries + 1)
                            with m.If(numbers.retries == SUSPECT_RETRIES - 1):
                                m.d.sync += suspects.eq(1)
            with m.State("ACT"):  # the next of the things to do
                m.d.comb += acts.eq(1)
                m.d.sync += [
                    *(to_do[name].eq(0) for name in ("closes", "shrinks")),
                    arms.eq(0),
                    tell_kind.eq(
                        Mux(to_do.tells, Value.cast(LlpEventKind.EMSS), LlpEventKind.TX_WINDOW)
                    ),
                    tell_value.eq(Mux(to_do.tells, path.emss, grant.number - numbers.base)),
                ]
                with m.If(to_do.closes):
                    m.d.sync += [numbers.closing.eq(1), numbers.passive.eq(numbers.peer_fin)]
                with m.If(to_do.shrinks):
                    m.d.sync += path.congestion.eq(congestion.state_after)
                with m.If(arms):
                    m.d.sync += [resend.armed.eq(1), resend.at.eq(expiry), numbers.persists.eq(0)]
                with m.If(to_do.closes):
                    pass
                with m.Elif(frees):
                    m.next = "WORK"
                with m.Elif(to_do.resends | to_do.probes):
                    m.next = "SEGMENT"
                with m.Elif(suspects):
                    m.next = "NOTICE"
                with m.Elif(to_do.tells):
                    m.next = "TELL"
                with m.Elif(to_do.resets | to_do.acks | (to_do.acks_late & acknowledge.armed)):
                    m.next = "ANSWER"
                with m.Elif(to_do.ends):
                    m.next = "NOTICE"
                with m.Elif(to_do.pushes & waits):
                    with m.If(~outstanding & (idle > times.rto.timeout)):
                        m.d.sync += path.congestion.eq(congestion.state_after)
                    m.next = "SEGMENT"
                with m.Elif(numbers.alive & numbers.attached & grant.due):
                    m.d.sync += numbers.granted.eq(grant.number)
                    m.next = "TELL"
                with m.Else():
                    m.next = "FINISH"
            with m.State("SEGMENT"):  # four cycles of the list, and of the windows
                m.d.sync += step.eq(step + 1)
                with m.If(step == _OPERATION_CYCLES - 1):
                    m.d.sync += step.eq(0)
                    m.next = "SEND"
            with m.State("SEND"):  # until the job is taken, if there is one
                m.d.comb += sends.i.valid.eq(fated & goes & (~to_do.probes | bare | (octets != 0)))
                with m.If(~fated):
                    m.d.sync += stored.eq(goes & whole)
                    m.next = "FATE"
                with m.Elif(to_do.probes & ~bare & (window.octets == 0)):
                    m.d.sync += bare.eq(1)
                    m.next = "WORK"
                with m.Elif(~goes):
                    m.d.sync += to_do.pushes.eq(0)
                    m.next = "ACT"
                    with m.If(~outstanding & ~persists):
                        m.d.sync += [
                            resend.armed.eq(1),
                            resend.at.eq(expiry),
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
                        m.d.sync += [
                            numbers.probed.eq(1),
                            resend.armed.eq(1),
                            resend.at.eq(expiry),
                        ]
                    with m.Else():
                        new = (
                            (numbers.next == numbers.max)
                            & ~to_do.resends
                            & ~(numbers.probed & ~outstanding)
                        )
                        m.d.sync += times.timed.eq(new)
                        with m.If(new):
                            m.d.sync += path.congestion.eq(congestion.state_after)
                            with m.If(~times.timed):
                                m.d.sync += [
                                    times.timed_number.eq(window.following),
                                    times.timed_at.eq(now),
                                ]
                        with m.If(~outstanding):
                            m.d.sync += [numbers.since.eq(now), numbers.retries.eq(0)]
                        with m.If(~resend.armed | numbers.persists):
                            m.d.sync += [resend.armed.eq(1), resend.at.eq(expiry)]
                        m.d.sync += numbers.persists.eq(0)
                        with m.If(window.advances):
                            m.d.sync += numbers.max.eq(window.following)
                        with m.If(~to_do.resends | to_do.rewinds):
                            m.d.sync += numbers.next.eq(window.following)
                            with m.If(window.whole):
                                m.d.sync += path.segments.eq(segments.segments_after)
                        with m.If(to_do.pushes & ~to_do.resends & some_jobs):
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
                    m.d.sync += [to_do.resets.eq(0), to_do.acks.eq(0), to_do.acks_late.eq(0)]
                    m.next = "ACT"
            with m.State("NOTICE"):  # until the driver's notice is taken
                m.d.comb += self.notice.valid.eq(1)
                with m.If(self.notice.ready):
                    m.d.sync += suspects.eq(0)
                    m.next = "ACT"
                    with m.If(~suspects):
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
