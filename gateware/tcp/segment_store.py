"""The store of what is sent: FPDUs of the LLP port are whole, and summed, before they are read."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_OCTETS, RnicConfig
from stagecoach.gateware.dma.lanes import lanes_below
from stagecoach.gateware.ethernet.layouts import FRAME_WORD, OCTETS_BITS
from stagecoach.gateware.ip.checksum import Checksum
from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.mpa.layouts import MpaLayouts
from stagecoach.gateware.stream.prompt_fifo import PromptFifo
from stagecoach.gateware.stream.read_ahead import ReadAhead
from stagecoach.gateware.tcp.layouts import (
    FATE,
    HEADERS_OCTETS,
    attachment_layout,
    fpdu_layout,
)

FPDUS = 2
"""Of the longest that are kept: one comes while the other one leaves."""

FPDU_RECORDS = 16
"""FPDUs that wait for the sending side, and for their fate to be carried out."""

RECORDS_MARGIN = Checksum.LATENCY + 1
"""Of them, those whose sum is not there yet."""


class SegmentStore(wiring.Component):
    """Keeps FPDUs, whole, until both readers have had them.

    What the device sends on a lane becomes FPDUs of the connection that is attached to it; an FPDU
    of a lane that was not attached all the while is taken and forgotten. `fpdu` says each that is
    kept, and each end of a connection without one. Then its words are in the store: all FPDUs leave
    by `ring`, in order; by `segment`, in order as well, those whose `fate` is to be sent. The
    caller gives the fate of each FPDU that has bytes, once.

    One word per cycle, in and at each reader; at `segment` an FPDU costs a cycle more, one that is
    not sent costs one alone. The record is at `fpdu` 5 cycles after the last beat, the first word
    at `ring` 4, at `segment` 5 after its fate. A reader that takes nothing, a fate that is not
    given, or 11 records that are not taken, fill the store: then the device waits. An FPDU that is
    longer than the MTU allows, on a lane that is attached, would wait for ever: the device's EMSS
    excludes it. Addresses wrap with the memory.

    Parameters
    ----------
    config: sizes of the device: a lane for each of its QPs, and as many connections.
    mtu: bytes of the longest IP packet.

    Members
    -------
    tx: of the LLP port, in words. attach, attachment: a pulse, a lane is attached or detached.
    fpdu, fate, ring, segment: as said; lanes after the last byte mean nothing.
    queued: a pulse, a record begins to wait for `fpdu`: 4 cycles after the last beat.
    """

    def __init__(self, config: RnicConfig, mtu: int = 1500):
        if not 576 <= mtu < 1 << OCTETS_BITS:
            raise ValueError(f"SegmentStore mtu is {mtu!r}; allowed: 576 to 16383")
        self._config = config
        self._bits = bits = config.qp_bits
        words = -(-(mtu - HEADERS_OCTETS) // WORD_OCTETS)
        self._place_bits = (FPDUS * words - 1).bit_length()
        super().__init__(
            {
                "tx": In(stream.Signature(MpaLayouts(config).tx)),
                "attach": In(1),
                "attachment": In(attachment_layout(bits)),
                "fpdu": Out(stream.Signature(fpdu_layout(bits))),
                "fate": In(stream.Signature(FATE)),
                "ring": Out(stream.Signature(FRAME_WORD)),
                "segment": Out(stream.Signature(FRAME_WORD)),
                "queued": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = 1 << self._place_bits
        # A word is fetched when its FPDU is whole, after it was written.
        m.submodules.words = words = memory.Memory(
            shape=FRAME_WORD, depth=depth, init=[], attrs=NO_COLLISION
        )
        lane_layout = data.StructLayout({"attached": 1, "connection": self._bits})
        m.submodules.lanes = lanes = memory.Memory(
            shape=lane_layout, depth=self._config.qps, init=[]
        )
        m.submodules.checksum = checksum = Checksum()
        m.submodules.records = records = PromptFifo(fpdu_layout(self._bits), FPDU_RECORDS)
        m.submodules.fates = fates = PromptFifo(FATE, FPDU_RECORDS)
        wiring.connect(m, wiring.flipped(self.fpdu), records.o)
        wiring.connect(m, wiring.flipped(self.fate), fates.i)
        write, lane = words.write_port(), lanes.read_port(domain="comb")
        lanes_write = lanes.write_port()
        tx = self.tx.p

        # Places, with a bit that tells a full store from an empty one: of the next word, of the
        # one after all whole FPDUs, and of what each reader fetches next.
        coming, whole, to_ring, to_segment = (
            Signal(self._place_bits + 1, name=name)
            for name in ("coming", "whole", "to_ring", "to_segment")
        )
        full = Signal()
        takes = Signal()
        kept, keeps = Signal(), Signal()  # the lane was attached, and is
        stores = Signal()
        octets, length = Signal(OCTETS_BITS), Signal(OCTETS_BITS)
        m.d.comb += [
            lanes_write.addr.eq(self.attachment.lane),
            lanes_write.data.attached.eq(self.attachment.attached),
            lanes_write.data.connection.eq(self.attachment.connection),
            lanes_write.en.eq(self.attach),
            lane.addr.eq(tx.connection),
            full.eq(((coming ^ to_ring) == depth) | ((coming ^ to_segment) == depth)),
            self.tx.ready.eq(~full & (records.level < FPDU_RECORDS - RECORDS_MARGIN)),
            takes.eq(self.tx.valid & self.tx.ready),
            keeps.eq(lane.data.attached & (tx.first | kept)),
            stores.eq(takes & keeps & (tx.octets != 0)),
            length.eq(Mux(tx.first, 0, octets) + tx.octets),
            write.addr.eq(coming),
            write.data.data.eq(tx.data),
            write.data.last.eq(tx.last),
            write.en.eq(stores),
            checksum.valid.eq(takes & keeps),
            checksum.word.eq(tx.data),
            checksum.lanes.eq(lanes_below(tx.octets)),
            checksum.first.eq(tx.first),
            checksum.last.eq(tx.last),
        ]
        with m.If(takes):
            m.d.sync += [
                kept.eq(keeps),
                octets.eq(length),
                coming.eq(Mux(tx.last & ~keeps, whole, coming + stores)),
            ]
            with m.If(tx.last & keeps):
                m.d.sync += whole.eq(coming + stores)

        # What is said of an FPDU waits for its sum.
        record = Signal.like(records.i.p)
        m.d.comb += [
            record.connection.eq(lane.data.connection),
            record.octets.eq(length),
            record.close.eq(tx.close),
        ]
        for _ in range(Checksum.LATENCY):
            late = Signal.like(record)
            m.d.sync += late.eq(record)
            record = late
        m.d.comb += [
            records.i.payload.eq(record),
            records.i.p.sum.eq(checksum.sum),
            records.i.valid.eq(checksum.done),
            self.queued.eq(checksum.done),
        ]

        # Readers: of all whole FPDUs, and of those that are sent.
        left = Signal(OCTETS_BITS - 3)  # words of the one that is sent
        count = Signal.like(left)
        m.d.comb += [
            count.eq((fates.o.p.octets + WORD_OCTETS - 1) >> 3),
            fates.o.ready.eq(left == 0),
        ]
        self._read(m, words, to_ring, to_ring != whole, self.ring)
        fetches = self._read(m, words, to_segment, left != 0, self.segment)
        with m.If(fetches):
            m.d.sync += left.eq(left - 1)
        with m.Elif(fates.o.valid & fates.o.ready):
            with m.If(fates.o.p.sends):
                m.d.sync += left.eq(count)
            with m.Else():
                m.d.sync += to_segment.eq(to_segment + count)
        return m

    def _read(
        self, m: Module, words: memory.Memory, place: Signal, there: object, o: object
    ) -> Signal:
        """Fetch words as long as they are there and their reader takes them."""
        ahead = ReadAhead(FRAME_WORD)
        m.submodules[f"{place.name}_ahead"] = ahead
        wiring.connect(m, wiring.flipped(o), ahead.o)
        port = words.read_port()
        m.d.comb += [
            ahead.there.eq(there),
            port.addr.eq(place),
            ahead.word.eq(port.data),
            port.en.eq(ahead.fetch),
        ]
        with m.If(ahead.fetch):
            m.d.sync += place.eq(place + 1)
        return ahead.fetch
