"""What an event means for the sending side: what is known then, and what has to be done."""

from amaranth.hdl import Module, Mux, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.tcp.congestion import CWND_MOST, CongestionOperation
from stagecoach.gateware.tcp.layouts import (
    TRANSMIT_SETTINGS,
    Due,
    NoticeKind,
    TransmitOperation,
    ack_event,
    due_layout,
    fpdu_layout,
    settled_layout,
    transmit_command,
)
from stagecoach.gateware.tcp.transmit_comparison import SEEN, TransmitComparison
from stagecoach.gateware.tcp.transmit_state import (
    CHALLENGE_PERIOD_US,
    CHALLENGES,
    NUMBERS,
    TRANSMIT_STATE,
)
from stagecoach.gateware.tcp.transmit_turn import TransmitKind

TO_DO = data.StructLayout(
    {
        "operation": CongestionOperation,
        "cause": NoticeKind,
        **dict.fromkeys(
            (
                *("stores", "drops", "works", "newer", "duplicates", "unbacks"),
                *("resends", "rewinds", "probes", "tells", "resets", "acks", "acks_late", "ends"),
                *("shrinks", "closes", "pushes"),
            ),
            1,
        ),
    }
)
"""What an event asks for, in this order.

stores: octets go to the ring; drops: but they are not taken. works: congestion control, with
`operation`, the timeout, or the list have to say something. newer: SND.UNA moves; duplicates: a
duplicate ACK; unbacks: the back-off of the timeout ends. closes: nothing more is queued. resends:
the first segment goes again; rewinds: and SND.NXT to its end. probes: the persist timer sends.
tells: the LLP has to know EMSS. resets: the peer is told of the end. acks, acks_late: an ACK goes;
or if no segment has gone until then. ends: the connection does, of that `cause`. shrinks: cwnd is
that of a restart. pushes: what waits is sent.
"""


class TransmitPlan(wiring.Component):
    """Decides what is known of a connection after an event, and what else has to be done for it.

    The rules are those of RFC 9293, 3.10.7.4 and 3.8.6, RFC 5681, 2 (duplicate ACKs), RFC 5961, 7
    (challenges). An event of a connection that is not alive changes nothing, nor does one that
    closes what is closed; an FPDU is dropped then.

    `start` for a cycle; the inputs stay for two, the outputs are good in the cycle after it; `seen`
    stays until the next `start`. Nothing waits. Numbers and times are modulo 2^32.

    Parameters
    ----------
    bits: of a connection. mss: that was announced, of our window's updates.

    Members
    -------
    kind, ack, note, due, fpdu, command: the event, in the payload of that kind. now: microseconds.
    settings: of all connections. state: what is known. state_after, to_do: as said.
    seen: comparisons of `start`.
    """

    def __init__(self, bits: int, mss: int):
        self._bits, self._mss = bits, mss
        super().__init__(
            {
                "start": In(1),
                "kind": In(TransmitKind),
                "now": In(32),
                "settings": In(TRANSMIT_SETTINGS),
                "ack": In(ack_event(bits)),
                "note": In(settled_layout(bits)),
                "due": In(due_layout(bits)),
                "fpdu": In(fpdu_layout(bits)),
                "command": In(transmit_command(bits)),
                "state": In(TRANSMIT_STATE),
                "state_after": Out(TRANSMIT_STATE),
                "to_do": Out(TO_DO),
                "seen": Out(SEEN),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        numbers, ack = self.state.numbers, self.ack
        m.submodules.comparison = comparison = TransmitComparison(self._bits)
        m.d.comb += [
            *(
                getattr(comparison, name).eq(getattr(self, name))
                for name in ("start", "now", "ack", "note", "due", "state")
            ),
            self.seen.eq(comparison.seen),
        ]

        m.d.comb += self.state_after.eq(self.state)
        with m.Switch(self.kind):
            with m.Case(TransmitKind.ACK):
                with m.If(numbers.alive & ack.reset):
                    m.d.comb += [self.to_do.ends.eq(1), self.to_do.cause.eq(NoticeKind.RESET)]
                with m.Elif(numbers.alive):
                    self._plan_ack(m)
            with m.Case(TransmitKind.NOTE):
                with m.If(numbers.alive & self.note.failed):
                    self._fail(m)
                with m.Elif(numbers.alive):
                    self._plan_note(m)
            with m.Case(TransmitKind.DUE):
                with m.If(numbers.alive):
                    self._plan_due(m)
            with m.Case(TransmitKind.FPDU):
                self._plan_fpdu(m)
            with m.Case(TransmitKind.COMMAND):
                with m.If(self.command.operation == TransmitOperation.BEGIN):
                    self._begin(m)
                with m.Elif(numbers.alive):
                    self._plan_command(m)
            with m.Case(TransmitKind.FAILED):
                with m.If(numbers.alive):
                    self._fail(m)
            with m.Default():
                m.d.comb += [
                    self.state_after.numbers.visiting.eq(0),
                    self.to_do.pushes.eq(numbers.alive),
                ]
        return m

    def _plan_ack(self, m: Module) -> None:
        """The ACK, the window, a challenge, and data that nobody reads."""
        ack, seen, now = self.ack, self.seen, self.now
        numbers, windows = self.state.numbers, self.state.windows
        path, persists = self.state.path, numbers.persists & self.state.times.deadlines.resend.armed
        acknowledged, peer_window = ack.acknowledgment, seen.peer_window
        to_do, after = self.to_do, self.state_after
        updates = ack.acknowledges & seen.fresh & (seen.newer | seen.same)
        twice = seen.same & seen.some & ack.empty & (peer_window == windows.window)
        reopens = updates & persists & (peer_window != 0)
        m.d.comb += [
            to_do.newer.eq(seen.newer & ack.acknowledges),
            to_do.duplicates.eq(twice & ack.acknowledges),
            to_do.unbacks.eq(reopens),
            to_do.pushes.eq(1),
            to_do.operation.eq(
                Mux(
                    seen.newer,
                    Value.cast(CongestionOperation.ACKNOWLEDGE),
                    CongestionOperation.DUPLICATE,
                )
            ),
        ]
        with m.If(ack.acknowledges & (seen.newer | twice) | reopens):
            m.d.comb += to_do.works.eq(1)
        with m.If(ack.acknowledges & seen.newer & seen.beyond):
            m.d.comb += after.numbers.max.eq(acknowledged)
        with m.If(updates):
            m.d.comb += [
                after.windows.window.eq(peer_window),
                after.windows.window_from.eq(ack.sequence),
                after.numbers.persists.eq(0),
            ]
            with m.If(windows.max_window < peer_window):
                m.d.comb += after.windows.max_window.eq(peer_window)
            with m.If(numbers.persists):
                m.d.comb += after.times.deadlines.resend.armed.eq(0)
            with m.If(peer_window == 0):
                # One that answers may keep it so (RFC 9293, MUST-37).
                m.d.comb += after.numbers.since.eq(now)
        with m.If(ack.challenge):
            renews = seen.challenged >= CHALLENGE_PERIOD_US
            renews |= path.challenges == 0
            with m.If(renews):
                m.d.comb += [
                    after.path.challenges.eq(1),
                    after.times.challenged_at.eq(now),
                    to_do.acks.eq(1),
                ]
            with m.Elif(path.challenges < CHALLENGES):
                m.d.comb += [
                    after.path.challenges.eq(path.challenges + 1),
                    to_do.acks.eq(1),
                ]
        with m.If(ack.lost):
            m.d.comb += [
                to_do.resets.eq(1),
                to_do.ends.eq(1),
                to_do.cause.eq(NoticeKind.DATA_LOST),
            ]

    def _plan_note(self, m: Module) -> None:
        """An ACK of it, at once or later, or of our window."""
        numbers, seen = self.state.numbers, self.seen
        note, now, settings = self.note.note, self.now, self.settings
        to_do, after = self.to_do, self.state_after
        m.d.comb += after.windows.edge.eq(note.edge)
        with m.Switch(note.due):
            with m.Case(Due.NOW):
                m.d.comb += to_do.acks.eq(1)
            with m.Case(Due.LATER):
                m.d.comb += [
                    to_do.acks.eq(numbers.unacknowledged),
                    after.numbers.unacknowledged.eq(1),
                    after.times.deadlines.acknowledge.armed.eq(1),
                    after.times.deadlines.acknowledge.at.eq(now + settings.delayed_ack),
                ]
            with m.Default():
                least = Mux(seen.shut, self._mss, 2 * self._mss)
                m.d.comb += to_do.acks.eq((seen.grown >= least) & ~numbers.peer_fin)
        with m.If(note.fin & ~numbers.peer_fin):
            m.d.comb += [
                after.numbers.peer_fin.eq(1),
                to_do.ends.eq(numbers.fin_acknowledged),
                to_do.cause.eq(NoticeKind.TIME_WAIT),
            ]

    def _plan_due(self, m: Module) -> None:
        """The end, a probe, or a retransmission; and an ACK."""
        numbers, seen = self.state.numbers, self.seen
        to_do, settings = self.to_do, self.settings
        m.d.comb += to_do.acks_late.eq(seen.ack_due)
        with m.If(seen.resend_due & (seen.waited >= settings.r2)):
            m.d.comb += [
                to_do.ends.eq(1),
                to_do.cause.eq(NoticeKind.TIMED_OUT),
                to_do.acks_late.eq(0),
            ]
        with m.Elif(seen.resend_due & numbers.persists):
            m.d.comb += to_do.probes.eq(1)
        with m.Elif(seen.resend_due):
            m.d.comb += to_do.operation.eq(CongestionOperation.EXPIRE)
            m.d.comb += to_do.works.eq(1)

    def _plan_fpdu(self, m: Module) -> None:
        """It is queued; or dropped, which changes nothing."""
        numbers = self.state.numbers
        to_do, fpdu = self.to_do, self.fpdu
        kept = numbers.alive & ~numbers.closing
        with m.If(fpdu.octets != 0):
            m.d.comb += [to_do.drops.eq(~kept), to_do.stores.eq(1)]
        m.d.comb += [to_do.pushes.eq(kept), to_do.closes.eq(kept & fpdu.close)]

    def _plan_command(self, m: Module) -> None:
        """One of a connection that is alive."""
        numbers, path = self.state.numbers, self.state.path
        command, outstanding = self.command, numbers.una != numbers.max
        to_do, after = self.to_do, self.state_after
        with m.Switch(command.operation):
            with m.Case(TransmitOperation.SEND):
                m.d.comb += to_do.pushes.eq(1)
                m.d.comb += to_do.stores.eq(1)
            with m.Case(TransmitOperation.FINISH):
                m.d.comb += [
                    to_do.pushes.eq(~numbers.closing),
                    to_do.closes.eq(~numbers.closing),
                ]
            with m.Case(TransmitOperation.ABORT):
                m.d.comb += [
                    to_do.resets.eq(~(numbers.closing & numbers.peer_fin)),
                    to_do.ends.eq(1),
                    to_do.cause.eq(NoticeKind.ABORTED),
                ]
            with m.Case(TransmitOperation.RESIZE):
                m.d.comb += [
                    after.path.emss.eq(command.emss),
                    to_do.tells.eq(numbers.attached),
                    to_do.pushes.eq(1),
                ]
                with m.If(command.emss < path.emss):
                    m.d.comb += [
                        after.path.congestion.recover.eq(numbers.max - 1),
                        to_do.shrinks.eq(1),
                        to_do.resends.eq(outstanding),
                        to_do.rewinds.eq(1),
                    ]
                m.d.comb += to_do.works.eq(1)
            with m.Case(TransmitOperation.ATTACH):
                m.d.comb += [
                    after.numbers.attached.eq(1),
                    after.numbers.base.eq(numbers.end),
                    after.numbers.granted.eq(numbers.end),
                    to_do.tells.eq(1),
                ]
                m.d.comb += to_do.works.eq(1)
            with m.Case(TransmitOperation.DETACH):
                m.d.comb += after.numbers.attached.eq(0)

    def _begin(self, m: Module) -> None:
        """The connection is what the command says."""
        command, now = self.command, self.now
        to_do, after = self.to_do, self.state_after
        number = command.number
        m.d.comb += [
            *(after.numbers[name].eq(0) for name in NUMBERS.members if name != "visiting"),
            *(after.numbers[name].eq(number) for name in ("una", "next", "max", "end")),
            *(after.numbers[name].eq(now) for name in ("sent_at", "since")),
            after.numbers.alive.eq(1),
            after.path.eq(0),
            after.path.congestion.cwnd.eq(command.cwnd),
            after.path.congestion.ssthresh.eq(CWND_MOST),
            after.path.congestion.recover.eq(number - 2),
            after.path.segments.first_start.eq(number),
            after.path.segments.current_start.eq(number),
            after.path.emss.eq(command.emss),
            after.path.shift.eq(command.shift),
            after.times.eq(0),
            after.times.rto.eq(command.rto),
            after.windows.window.eq(command.window),
            after.windows.max_window.eq(command.window),
            after.windows.window_from.eq(command.window_from),
            after.windows.edge.eq(command.edge),
            after.windows.announced.eq(command.edge),
            after.windows.ring.eq(command.ring),
            after.windows.size.eq(command.size),
        ]
        m.d.comb += to_do.stores.eq(1)

    def _fail(self, m: Module) -> None:
        """Memory did: what was promised is not there."""
        to_do = self.to_do
        m.d.comb += [to_do.resets.eq(1), to_do.ends.eq(1), to_do.cause.eq(NoticeKind.MEMORY)]
