"""What the receiver knows of a segment when it was judged by all that needs no STag."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ddp.checks import CAUSE_BITS
from stagecoach.gateware.layouts import TERMINATED_HEADER_OCTETS, Layouts, QpStrobe, SegmentKind
from stagecoach.gateware.rdmap.headers import ATOMIC_RESPONSE_ULPDU
from stagecoach.gateware.rdmap.receive.decode import KIND
from stagecoach.gateware.rdmap.receive.pieces import BANKS
from stagecoach.gateware.registers_apart import keep_apart
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import EVENT_HEADER_OCTETS, SCATTER_GATHER_ELEMENTS
from stagecoach.hw.interface.wire import ATOMIC_OCTETS, UNTAGGED_HEADER_OCTETS

ORIGINAL_OCTET = ATOMIC_RESPONSE_ULPDU.size // 8 - ATOMIC_OCTETS - UNTAGGED_HEADER_OCTETS
"""Where the original value stands after the DDP header of an Atomic Response."""

VERDICT = data.StructLayout(
    {
        "valid": 1,  # a pulse
        "dropped": 1,  # the QP of the segment does not run
        "cause": CAUSE_BITS,  # the failure of a check; NONE if all was good
        "tells": 1,  # if there is an FPDU: it is a good Terminate, and that is the `cause`
        "pieces": range(SCATTER_GATHER_ELEMENTS + 1),  # to look up; 0 if it failed
        "delivers": 1,  # its message ends with it; 0 if it failed
    }
)
"""What a step finds of a segment, once for each; all of it is 0 while another step judges."""


def record_layout(config: RnicConfig) -> data.StructLayout:
    """A judged segment."""
    return data.StructLayout(
        {
            "qp": config.qp_bits,
            "pd": 16,
            "dropped": 1,  # its QP does not run: its FPDU is released, and that is all
            "fpdu": 1,  # there is an FPDU, else only `cause`
            "first": 1,  # the first one of its connection
            "cause": CAUSE_BITS,  # the failure of a check; NONE if all was good
            "opcode": 4,
            "invalidates": 1,  # the STag of its DDP header, after the lookups of its pieces
            "bank": range(BANKS),  # of its pieces
            "pieces": range(SCATTER_GATHER_ELEMENTS + 1),  # to look up; 0 if it failed
            "position": config.store_address_bits + 3,  # byte of the store with the first piece
            "stored": Layouts(config).stored,
            "delivers": 1,  # its message ends with it; 0 if it failed
            "index": 16,  # of the receive entry, or of the send entry of an atomic
            "length": 32,  # bytes of the message
            "ulpdu_length": 16,
            # As it came. If a good Terminate is the `cause`, what it says stands in the bytes that
            # an event has; without an FPDU these are 0. The others mean nothing then.
            "header": 8 * TERMINATED_HEADER_OCTETS,
        }
    )


class ReceiveRecord(wiring.Component):
    """Hands over what is told of a segment, a cycle after the verdict about it.

    What comes with a record happens when it is taken, if it is not dropped: `leaving`, and a cycle
    later the receive entry or outstanding request that its message ends is popped, or a Read or
    Atomic Request is pushed. While `record` is not ready nothing is judged, since the segment
    stands; all but `dropped` stays as it is, and that only rises.

    Members
    -------
    segment: In, the one at work; it stands from its verdict until a cycle after its record was
        taken.
    kind, position, outstanding, message_end, pd, entry_index: In, of it, as long as there is a
        record of it: its `KIND`, the byte after its DDP header, the oldest outstanding request,
        bytes of its message in a receive entry, the PD of its QP, the index of the receive entry.
        `position` is taken with the verdict.
    started: In(1), with the verdict: its connection had an FPDU before.
    verdict: In, `VERDICT`, not while there is a record.
    drops, stopped: In(1), of `ReceiveRunning`, of the QP.
    record: Out(stream of `record_layout`).
    bank: Out(1), of the pieces of the segment; another one from the cycle after its record on.
    over: Out(1), a pulse: the record is taken. leaving: Out(1), the same, if it is not dropped.
    dropped: Out(1), a pulse for an FPDU that is dropped, a cycle after `over`.
    pop_entry, popping_entry: Out(1), pulses a cycle after `leaving`, the same one in two registers:
        the receive entry was used. keep_entry: Out(1), a pulse then, too: its message goes on. pop,
        push: Out(1), pulses then, too: a request was answered, one of the peer came. read_space:
        Out(QpStrobe), the QP of `pop`, a cycle after it; the next segment may have been taken by
        then.
    """

    def __init__(self, config: RnicConfig) -> None:
        layouts = Layouts(config)
        self._position = config.store_address_bits + 3
        super().__init__(
            {
                "segment": In(layouts.segment),
                "kind": In(KIND),
                "position": In(self._position),
                "outstanding": In(layouts.outstanding_request),
                "message_end": In(33),
                "pd": In(16),
                "started": In(1),
                "entry_index": In(16),
                "verdict": In(VERDICT),
                "drops": In(1),
                "stopped": In(1),
                "record": Out(stream.Signature(record_layout(config))),
                "bank": Out(1),
                "over": Out(1),
                "leaving": Out(1),
                "dropped": Out(1),
                "pop_entry": Out(1),
                "popping_entry": Out(1),
                "keep_entry": Out(1),
                "pop": Out(1),
                "push": Out(1),
                "read_space": Out(QpStrobe(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        segment, kind, record = self.segment, self.kind, self.record.payload
        keep_apart(self.popping_entry, self.pop_entry)
        verdict = Signal(VERDICT)  # as it was given
        halted = Signal()  # `drops` as it was a cycle ago
        first = Signal()
        position = Signal(self._position)
        self._connect_record(m, verdict.tells)
        m.d.sync += halted.eq(self.drops)
        m.d.comb += [
            record.dropped.eq(verdict.dropped | halted | self.stopped),
            record.first.eq(first),
            record.cause.eq(verdict.cause),
            record.pieces.eq(Mux(record.dropped, 0, verdict.pieces)),
            record.position.eq(position),
            record.delivers.eq(verdict.delivers),
        ]

        # The queues hear of it a cycle later; the next segment looks at them after that.
        consumed, goes_on = Signal(), Signal()
        m.d.comb += [
            self.over.eq(self.record.valid & self.record.ready),
            self.leaving.eq(self.over & ~record.dropped),
            consumed.eq(self.leaving & verdict.delivers),
            goes_on.eq(self.leaving & ~verdict.delivers & (verdict.cause == Cause.NONE)),
        ]
        m.d.sync += [
            self.dropped.eq(self.over & record.dropped & record.fpdu),
            self.pop_entry.eq(consumed & kind.takes_entry),
            self.popping_entry.eq(consumed & kind.takes_entry),
            self.keep_entry.eq(goes_on & kind.takes_entry),
            self.pop.eq(consumed & kind.response),
            self.push.eq(consumed & kind.request),
            # Far away: a cycle later
            self.read_space.valid.eq(self.pop),
            self.read_space.qp.eq(segment.qp),
        ]

        with m.FSM():
            # Waits for a verdict. What it says is taken whether there is one or not: the enables of
            # the registers do not wait for it.
            with m.State("IDLE"):
                m.d.sync += [
                    verdict.eq(self.verdict),
                    first.eq(record.fpdu & ~self.started),
                    position.eq(self.position),
                ]
                with m.If(kind.atomic_response):
                    m.d.sync += position.eq(self.position + ORIGINAL_OCTET)
                with m.If(self.verdict.valid):
                    m.next = "HAND_OVER"
            # Waits until the record is taken.
            with m.State("HAND_OVER"):
                m.d.comb += self.record.valid.eq(1)
                with m.If(self.record.ready):
                    m.d.sync += self.bank.eq(~self.bank)
                    m.next = "IDLE"
        return m

    def _connect_record(self, m: Module, tells: Signal) -> None:
        """What the record has of the segment itself and of what it answers."""
        segment, kind, record = self.segment, self.kind, self.record.payload
        m.d.comb += [
            record.qp.eq(segment.qp),
            record.pd.eq(self.pd),
            record.fpdu.eq(segment.kind == SegmentKind.FPDU),
            record.opcode.eq(kind.opcode),
            record.invalidates.eq(kind.invalidates),
            record.bank.eq(self.bank),
            record.stored.eq(segment.stored),
            record.index.eq(self.outstanding.length[: len(record.index)]),
            record.length.eq(self.message_end[: len(record.length)]),
        ]
        with m.If(kind.takes_entry):
            m.d.comb += record.index.eq(self.entry_index)
        with m.If(kind.atomic_response):
            m.d.comb += record.length.eq(ATOMIC_OCTETS)
        with m.Elif(kind.response):
            m.d.comb += record.length.eq(self.outstanding.length)
        told = record.header[: 8 * EVENT_HEADER_OCTETS]
        m.d.comb += record.header[len(told) :].eq(segment.header[len(told) :])
        with m.If(record.fpdu):
            m.d.comb += [
                record.ulpdu_length.eq(segment.ulpdu_length),
                told.eq(segment.header[: len(told)]),
            ]
            with m.If(tells):
                m.d.comb += told.eq(segment.header[8 * UNTAGGED_HEADER_OCTETS :])
