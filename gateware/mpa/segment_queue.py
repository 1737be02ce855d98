"""Received segments on their way from the deframer to the RDMAP receiver."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import ULPDU_HEADER_OCTETS, Layouts
from stagecoach.hw.interface.wire import ULPDU_LENGTH_OCTETS

HEADER_WORDS = (ULPDU_LENGTH_OCTETS + ULPDU_HEADER_OCTETS) // 8
HEADER_PAIRS = -(-HEADER_WORDS // 2)

PAIRS = 16
"""Pairs of words that may wait; one place stays free."""

PAIRS_MARGIN = 5
"""No FPDU goes on with fewer places free: four words more may come."""

OUTCOMES = 16
"""Segments that may wait to be taken."""

OUTCOMES_MARGIN = 8
"""No FPDU goes on with fewer places free: the pipeline, which never stops, may end as many."""


def outcome_layout(config: RnicConfig) -> data.StructLayout:
    """What is said of an FPDU beside its header."""
    segment = Layouts(config).segment.members
    return data.StructLayout(
        {name: segment[name] for name in ("qp", "kind", "store_address", "stored")}
    )


def _is_of_fpdu(outcome: data.View) -> Value:
    """Whether it belongs to an FPDU, of which there is a header."""
    return ~outcome.kind.as_value()[2]


class SegmentQueue(wiring.Component):
    """Keeps the headers of FPDUs, two words at a time, and hands them out with what became of them.

    A header is put together while its FPDU comes, so that its segment is valid two cycles after
    `done`, if the one before was taken by then: an FPDU of 2n words takes n + 1 cycles, at most 6.

    Members
    -------
    valid, word, last: the words of FPDUs. Those past `HEADER_WORDS` are not kept.
    clear: what came of the FPDU that is not `done` is forgotten. Not in the cycle of a `done`.
    done: a pulse, `outcome` is that of the FPDU of which the last word came a cycle ago; or, if its
        kind says so, of none.
    room: words may come; up to four more when it falls, and the outcomes of what came.
    segment: what happened, in order.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        self._outcome = outcome_layout(config)
        super().__init__(
            {
                "valid": In(1),
                "word": In(64),
                "last": In(1),
                "clear": In(1),
                "done": In(1),
                "outcome": In(self._outcome),
                "room": Out(1),
                "segment": Out(stream.Signature(Layouts(config).segment)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # A pair is complete when its upper word was written, which also says if it is the last one.
        upper_layout = data.StructLayout({"word": 64, "final": 1})
        m.submodules.lower = lower = memory.Memory(shape=64, depth=PAIRS, init=[])
        m.submodules.upper = upper = memory.Memory(shape=upper_layout, depth=PAIRS, init=[])
        lower_write, upper_write = lower.write_port(), upper.write_port()
        lower_read, upper_read = lower.read_port(domain="comb"), upper.read_port(domain="comb")
        m.submodules.outcomes = outcomes = SyncFIFO(width=self._outcome.size, depth=OUTCOMES)
        outcome = data.View(self._outcome, outcomes.r_data)

        tail = Signal(range(PAIRS))  # of the next pair to come
        committed = Signal(range(PAIRS))  # after the pairs of what is done
        head = Signal(range(PAIRS))  # of the next pair to go
        used = Signal(range(PAIRS))
        m.d.comb += [
            used.eq(tail - head),
            self.room.eq(
                (used < PAIRS - PAIRS_MARGIN) & (outcomes.level <= OUTCOMES - OUTCOMES_MARGIN)
            ),
        ]

        # Words come
        count = Signal(range(2 * HEADER_PAIRS + 1))  # words of the FPDU before this one
        keeps = Signal()
        pairs = Signal()  # this one completes a pair
        m.d.comb += [
            keeps.eq(self.valid & (count != 2 * HEADER_PAIRS)),
            lower_write.addr.eq(tail),
            lower_write.data.eq(self.word),
            # What stands after the last pair means nothing until it is complete.
            lower_write.en.eq(~count[0]),
            upper_write.addr.eq(tail),
            upper_write.data.word.eq(self.word),
            upper_write.data.final.eq(self.last | (count == 2 * HEADER_PAIRS - 1)),
            upper_write.en.eq(1),
            pairs.eq(keeps & (count[0] | self.last)),
        ]
        with m.If(keeps):
            m.d.sync += count.eq(count + 1)
        with m.If(self.clear | (self.valid & self.last)):
            m.d.sync += count.eq(0)
        with m.If(self.clear):
            m.d.sync += tail.eq(committed)
        with m.Elif(pairs):
            m.d.sync += tail.eq(tail + 1)

        # What became of them
        ends = Signal()
        m.d.comb += [
            outcomes.w_data.eq(self.outcome),
            outcomes.w_en.eq(self.done),
            ends.eq(self.done & _is_of_fpdu(self.outcome)),
        ]
        with m.If(ends):
            m.d.sync += committed.eq(tail)

        # One segment is put together, and given away.
        header = Signal(data.ArrayLayout(64, 2 * HEADER_PAIRS))
        pair = Signal(range(HEADER_PAIRS))
        whole = Signal()  # the header
        loads, completes, gives, taken = Signal(), Signal(), Signal(), Signal()
        given = Signal(self._outcome)  # if of no FPDU, `header` belongs to the next one
        segment = self.segment
        m.d.comb += [
            lower_read.addr.eq(head),
            upper_read.addr.eq(head),
            loads.eq(~whole & ~segment.valid & (head != tail)),
            completes.eq(loads & upper_read.data.final),
            gives.eq(~segment.valid & outcomes.r_rdy & (whole | completes | ~_is_of_fpdu(outcome))),
            outcomes.r_en.eq(gives),
            taken.eq(segment.valid & segment.ready & _is_of_fpdu(given)),
            *(segment.payload[name].eq(given[name]) for name in self._outcome.members),
            segment.payload.ulpdu_length.eq(Cat(header[0][8:16], header[0][:8])),
            segment.payload.header.eq(Cat(*header)[8 * ULPDU_LENGTH_OCTETS :]),
        ]
        with m.If(loads):
            m.d.sync += [head.eq(head + 1), pair.eq(pair + 1), whole.eq(completes)]
        for number in range(HEADER_PAIRS):
            with m.If(~whole & ~segment.valid & (pair == number)):
                m.d.sync += [
                    header[2 * number].eq(lower_read.data),
                    header[2 * number + 1].eq(upper_read.data.word),
                ]
        with m.If(segment.ready):
            m.d.sync += segment.valid.eq(0)
        with m.If(gives):
            m.d.sync += [segment.valid.eq(1), given.eq(outcome)]
        with m.If(taken):
            m.d.sync += [whole.eq(0), pair.eq(0)]

        # FPDUs that are done and not taken: the header is of one of them, if there are any.
        owed = Signal(range(OUTCOMES + 2))
        cleared = Signal()  # late enough, and nothing far hangs on it
        m.d.sync += [owed.eq(owed + ends - taken), cleared.eq(self.clear)]
        with m.If(cleared & (owed == 0)):
            m.d.sync += [head.eq(committed), pair.eq(0), whole.eq(0)]
        return m
