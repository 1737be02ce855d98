"""What an event means for the sending side: what is known then, and what has to be done."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

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
    CHALLENGES,
    SUSPECT_RETRIES,
    TRANSMIT_STATE,
)
from stagecoach.gateware.tcp.transmit_turn import TransmitKind

TO_DO = data.StructLayout(
    {
        "cause": NoticeKind,
        **dict.fromkeys(
            (
                *("stores", "drops", "works", "newer", "duplicates", "samples", "unbacks"),
                *("shrinks", "arms", "resends", "rewinds", "probes", "suspects", "tells"),
                *("resets", "acks", "acks_late", "insists", "ends", "pushes"),
            ),
            1,
        ),
    }
)
"""What an event asks for, in this order.

stores: bytes go to the ring; drops: but they are not taken. works: congestion control, the
timeout, the list or the grant have to say something. newer: SND.UNA moves; duplicates: a duplicate
ACK; samples: a round trip was measured; unbacks: the back-off of the timeout ends. shrinks: cwnd is
that of a restart. arms: the retransmission timer begins anew. resends: the first segment goes
again; rewinds: and SND.NXT to its end. probes: the persist timer sends. suspects: R1 has come.
tells: the LLP has to know EMSS. resets: the peer is told of the end. acks, acks_late: an ACK goes;
or if no segment has gone until then. insists: the ACK goes even if it says nothing new, because it
answers a segment (RFC 5681, 4.2; RFC 9293, 3.10.7.4). ends: the connection does, of that `cause`.
pushes: what waits is sent.
"""


class TransmitPlan(wiring.Component):
    """Decides what is known of a connection after an event, and what else has to be done for it.

    The rules are those of RFC 9293, 3.10.7.4 and 3.8.6, RFC 5681, 2 (duplicate ACKs), RFC 5961, 7
    (challenges). An event of a connection that is not alive changes nothing, nor does one that
    closes what is closed; an FPDU is dropped then.

    It `compares` at least until the inputs are all good, windows for a cycle and all else for two;
    the outputs are good in the next cycle, and `seen` stays. Nothing waits. Numbers and times are
    modulo 2^32.

    Parameters
    ----------
    bits: of a connection. mss: that was announced, of our window's updates.

    Members
    -------
    kind, ack, note, due, fpdu, command: the event, in the payload of that kind. now: microseconds.
    settings: of all connections. state: what is known. state_after, to_do: as said.
    seen: comparisons.
    """

    def __init__(self, bits: int, mss: int):
        self._bits, self._mss = bits, mss
        super().__init__(
            {
                "compares": In(1),
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
                for name in ("compares", "now", "settings", "ack", "note", "due", "state")
            ),
            self.seen.eq(comparison.seen),
        ]

        # What it is that happens, from the second cycle after the flags are known.
        of_fpdu = Signal()
        of_ack, of_reset, of_note, of_failure, of_due, of_command, of_visit = (
            Signal() for _ in range(7)
        )
        kinds = {kind: self.kind == kind for kind in TransmitKind}
        failed = kinds[TransmitKind.FAILED] | (kinds[TransmitKind.NOTE] & self.note.failed)
        m.d.sync += [
            of_ack.eq(kinds[TransmitKind.ACK] & ~ack.reset & numbers.alive),
            of_reset.eq(kinds[TransmitKind.ACK] & ack.reset & numbers.alive),
            of_note.eq(kinds[TransmitKind.NOTE] & ~self.note.failed & numbers.alive),
            of_failure.eq(failed & numbers.alive),
            of_due.eq(kinds[TransmitKind.DUE] & numbers.alive),
            of_fpdu.eq(kinds[TransmitKind.FPDU]),
            of_command.eq(kinds[TransmitKind.COMMAND] & numbers.alive),
            of_visit.eq(kinds[TransmitKind.VISIT]),
        ]

        m.d.comb += self.state_after.eq(self.state)
        with m.If(of_ack):
            self._plan_ack(m)
        with m.If(of_reset):
            m.d.comb += [self.to_do.ends.eq(1), self.to_do.cause.eq(NoticeKind.RESET)]
        with m.If(of_note):
            self._plan_note(m)
        with m.If(of_failure):
            self._fail(m)
        with m.If(of_due):
            self._plan_due(m)
        with m.If(of_fpdu):
            self._plan_fpdu(m)
        with m.If(of_command):
            self._plan_command(m)
        with m.If(of_visit):
            m.d.comb += [
                self.state_after.numbers.visiting.eq(0),
                self.to_do.pushes.eq(numbers.alive),
            ]
        return m

    def _plan_ack(self, m: Module) -> None:
        """The ACK, the window, a challenge, and data that nobody reads."""
        ack, seen, now, numbers = self.ack, self.seen, self.now, self.state.numbers
        path, persists = self.state.path, numbers.persists & self.state.times.deadlines.resend.armed
        to_do, after = self.to_do, self.state_after
        newer = ack.acknowledges & seen.newer
        updates = ack.acknowledges & seen.fresh & (seen.newer | seen.same)
        twice = ack.acknowledges & seen.same & seen.some & ack.empty & seen.unchanged
        reopens = updates & persists & (ack.window != 0)
        m.d.comb += [
            to_do.newer.eq(newer),
            to_do.duplicates.eq(twice),
            to_do.samples.eq(newer & seen.sampled),
            to_do.unbacks.eq(reopens),
            to_do.works.eq(newer | twice | reopens),
            to_do.pushes.eq(1),
        ]
        with m.If(updates):
            m.d.comb += [
                after.windows.window.eq(seen.peer_window),
                after.windows.window_from.eq(ack.sequence),
                after.numbers.persists.eq(0),
            ]
            with m.If(seen.larger):
                m.d.comb += after.windows.max_window.eq(seen.peer_window)
            with m.If(numbers.persists):
                m.d.comb += after.times.deadlines.resend.armed.eq(0)
        # A window of zero: one that answers may keep it so (RFC 9293, MUST-37).
        with m.If(newer | (updates & (ack.window == 0))):
            m.d.comb += after.numbers.since.eq(now)
        with m.If(ack.challenge):
            with m.If(seen.renews | (path.challenges == 0)):
                m.d.comb += [
                    after.path.challenges.eq(1),
                    after.times.challenged_at.eq(now),
                    *(to_do[name].eq(1) for name in ("acks", "insists")),
                ]
            with m.Elif(path.challenges < CHALLENGES):
                m.d.comb += [
                    after.path.challenges.eq(path.challenges + 1),
                    *(to_do[name].eq(1) for name in ("acks", "insists")),
                ]
        with m.If(ack.lost):
            m.d.comb += [
                to_do.resets.eq(1),
                to_do.ends.eq(1),
                to_do.cause.eq(NoticeKind.DATA_LOST),
            ]
        with m.If(newer):
            self._acknowledge(m)

    def _acknowledge(self, m: Module) -> None:
        """SND.UNA moves: what was sent until then is no more outstanding."""
        seen, numbers, acknowledged = self.seen, self.state.numbers, self.ack.acknowledgment
        to_do, after = self.to_do, self.state_after
        m.d.comb += [
            after.numbers.una.eq(acknowledged),
            after.numbers.retries.eq(0),
            after.numbers.probed.eq(0),
        ]
        with m.If(seen.beyond):
            m.d.comb += after.numbers.max.eq(acknowledged)
        with m.If(seen.overtakes):
            m.d.comb += after.numbers.next.eq(acknowledged)
        with m.If(seen.sampled):
            m.d.comb += after.times.timed.eq(0)
        with m.If(seen.all_acked & ~numbers.persists):
            m.d.comb += after.times.deadlines.resend.armed.eq(0)
        with m.If(seen.acks_fin):
            m.d.comb += after.numbers.fin_acknowledged.eq(1)
            with m.If(numbers.peer_fin):
                passive = Value.cast(NoticeKind.CLOSED)
                m.d.comb += [
                    to_do.ends.eq(1),
                    to_do.cause.eq(Mux(numbers.passive, passive, NoticeKind.TIME_WAIT)),
                ]

    def _plan_note(self, m: Module) -> None:
        """An ACK of it, at once or later, or of our window."""
        numbers, seen = self.state.numbers, self.seen
        note, to_do, after = self.note.note, self.to_do, self.state_after
        closes = note.fin & ~numbers.peer_fin
        m.d.comb += after.windows.edge.eq(note.edge)
        with m.Switch(note.due):
            with m.Case(Due.NOW):
                # Not for a FIN: the ACK of it is new, or went with a segment that left meanwhile.
                m.d.comb += [to_do.acks.eq(1), to_do.insists.eq(~closes)]
            with m.Case(Due.LATER):
                m.d.comb += [
                    to_do.acks.eq(numbers.unacknowledged),
                    after.numbers.unacknowledged.eq(1),
                    after.times.deadlines.acknowledge.armed.eq(1),
                    after.times.deadlines.acknowledge.at.eq(seen.delayed),
                ]
            with m.Default():
                least = Mux(seen.shut, self._mss, 2 * self._mss)
                m.d.comb += to_do.acks.eq((seen.grown >= least) & ~numbers.peer_fin)
        with m.If(closes):
            m.d.comb += [
                after.numbers.peer_fin.eq(1),
                to_do.ends.eq(numbers.fin_acknowledged),
                to_do.cause.eq(NoticeKind.TIME_WAIT),
            ]

    def _plan_due(self, m: Module) -> None:
        """The end, a probe, or a retransmission; and an ACK."""
        numbers, seen = self.state.numbers, self.seen
        to_do, retries = self.to_do, numbers.retries
        m.d.comb += to_do.acks_late.eq(seen.ack_due)
        with m.If(seen.resend_due & seen.gives_up):
            m.d.comb += [
                to_do.ends.eq(1),
                to_do.cause.eq(NoticeKind.TIMED_OUT),
                to_do.acks_late.eq(0),
            ]
        with m.Elif(seen.resend_due & numbers.persists):
            m.d.comb += to_do.probes.eq(1)
        with m.Elif(seen.resend_due):
            m.d.comb += [
                *(to_do[name].eq(1) for name in ("works", "arms", "resends", "rewinds")),
                to_do.suspects.eq(retries == SUSPECT_RETRIES - 1),
            ]
            with m.If(retries != SUSPECT_RETRIES):
                m.d.comb += self.state_after.numbers.retries.eq(retries + 1)

    def _plan_fpdu(self, m: Module) -> None:
        """It is queued; or dropped, which changes nothing."""
        numbers = self.state.numbers
        to_do, fpdu = self.to_do, self.fpdu
        kept = numbers.alive & ~numbers.closing
        filled = Signal()
        m.d.sync += filled.eq(fpdu.octets != 0)
        with m.If(filled):
            m.d.comb += [to_do.drops.eq(~kept), to_do.stores.eq(1)]
        m.d.comb += to_do.pushes.eq(kept)
        with m.If(kept & fpdu.close):
            self._close(m)

    def _close(self, m: Module) -> None:
        """Nothing more is queued."""
        numbers, after = self.state.numbers, self.state_after.numbers
        m.d.comb += [
            after.closing.eq(1),
            after.passive.eq(numbers.peer_fin),
            self.to_do.works.eq(1),
        ]

    def _plan_command(self, m: Module) -> None:
        """One of a connection that is alive."""
        numbers, command = self.state.numbers, self.command
        smaller = Signal()
        m.d.sync += smaller.eq(command.emss < numbers.emss)
        to_do, after = self.to_do, self.state_after
        with m.Switch(command.operation):
            with m.Case(TransmitOperation.BEGIN):
                m.d.comb += to_do.stores.eq(1)
            with m.Case(TransmitOperation.SEND):
                m.d.comb += [to_do.stores.eq(1), to_do.pushes.eq(1)]
            with m.Case(TransmitOperation.FINISH):
                with m.If(~numbers.closing):
                    m.d.comb += to_do.pushes.eq(1)
                    self._close(m)
            with m.Case(TransmitOperation.ABORT):
                m.d.comb += [
                    to_do.resets.eq(~(numbers.closing & numbers.peer_fin)),
                    to_do.ends.eq(1),
                    to_do.cause.eq(NoticeKind.ABORTED),
                ]
            with m.Case(TransmitOperation.RESIZE):
                m.d.comb += [
                    after.numbers.emss.eq(command.emss),
                    to_do.tells.eq(numbers.attached),
                    to_do.pushes.eq(1),
                ]
                with m.If(smaller):
                    m.d.comb += [
                        after.path.congestion.recover.eq(numbers.max - 1),
                        to_do.shrinks.eq(1),
                        to_do.resends.eq(self.seen.some),
                        to_do.rewinds.eq(self.seen.some),
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

    def _fail(self, m: Module) -> None:
        """Memory did: what was promised is not there."""
        to_do = self.to_do
        m.d.comb += [to_do.resets.eq(1), to_do.ends.eq(1), to_do.cause.eq(NoticeKind.MEMORY)]
