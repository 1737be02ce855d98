"""The pieces of a received segment: ranges of tagged buffers that it reads or writes."""

from amaranth.hdl import Module, Mux, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ddp.headers import from_wire
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.rdmap.headers import ULPDU_HEADER
from stagecoach.gateware.rdmap.receive.decode import KIND
from stagecoach.gateware.rdmap.receive.scan import ENTRY_WORDS, PIECE, ReceiveScan
from stagecoach.hw.interface.queue_entries import SCATTER_GATHER_ELEMENTS
from stagecoach.hw.interface.wire import ATOMIC_OCTETS

BANKS = 2
"""Segments whose pieces are kept: one is judged, one is placed."""

PIECE_WRITE = data.StructLayout(
    {
        "valid": 1,
        "bank": unsigned(1),
        "number": range(SCATTER_GATHER_ELEMENTS),
        "piece": PIECE,
    }
)
"""A piece of the segment that is judged; it is kept a cycle later."""


class ReceivePieces(wiring.Component):
    """Gives the pieces of a segment as `PIECE_WRITE`, a cycle after they are known.

    One for a tagged segment, a request or an Atomic Response, which is written in every cycle while
    the segment stands; those of a Send come from its receive entry (`ReceiveScan`).

    Members
    -------
    header: In, the `ULPDU_HEADER`. kind: In, of the segment. payload: In(16), its bytes.
    outstanding: In, the oldest outstanding request.
    bank: In(1), where to keep them.
    restart, word_address, word, count, complete, exhausted, read: as of `ReceiveScan`.
    piece: Out, `PIECE_WRITE`.
    """

    def __init__(self, config: RnicConfig) -> None:
        super().__init__(
            {
                "header": In(ULPDU_HEADER),
                "kind": In(KIND),
                "payload": In(16),
                "outstanding": In(Layouts(config).outstanding_request),
                "bank": In(1),
                "restart": In(1),
                "word_address": Out(range(ENTRY_WORDS)),
                "word": In(64),
                "count": Out(range(SCATTER_GATHER_ELEMENTS + 1)),
                "complete": Out(1),
                "exhausted": Out(1),
                "read": Out(1),
                "piece": Out(PIECE_WRITE),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        header, kind = self.header, self.kind
        m.submodules.scan = scan = ReceiveScan()
        m.d.comb += [
            scan.restart.eq(self.restart),
            scan.mo.eq(from_wire(header.untagged.mo)),
            scan.payload.eq(self.payload),
            scan.word.eq(self.word),
            self.word_address.eq(scan.word_address),
            self.count.eq(scan.count),
            self.complete.eq(scan.complete),
            self.exhausted.eq(scan.exhausted),
            self.read.eq(scan.read),
        ]
        piece = self.piece.piece
        m.d.sync += [
            self.piece.bank.eq(self.bank),
            self.piece.valid.eq(~kind.takes_entry | scan.piece_valid),
            self.piece.number.eq(Mux(kind.takes_entry, scan.count, 0)),
        ]
        read, atomic = header.read_request.rdmap, header.atomic_request.rdmap
        with m.If(kind.takes_entry):
            m.d.sync += piece.eq(scan.piece)
        with m.Elif(kind.tagged):
            m.d.sync += [
                piece.stag.eq(from_wire(header.tagged.stag)),
                piece.tagged_offset.eq(from_wire(header.tagged.tagged_offset)),
                piece.octets.eq(self.payload),
            ]
        with m.Elif(kind.response):
            m.d.sync += [
                piece.stag.eq(self.outstanding.sink_stag),
                piece.tagged_offset.eq(self.outstanding.sink_tagged_offset),
                piece.octets.eq(ATOMIC_OCTETS),
            ]
        with m.Elif(kind.atomic_request):
            m.d.sync += [
                piece.stag.eq(from_wire(atomic.stag)),
                piece.tagged_offset.eq(from_wire(atomic.tagged_offset)),
                piece.octets.eq(ATOMIC_OCTETS),
            ]
        with m.Else():
            m.d.sync += [
                piece.stag.eq(from_wire(read.source_stag)),
                piece.tagged_offset.eq(from_wire(read.source_tagged_offset)),
                piece.octets.eq(from_wire(read.length)),
            ]
        return m
