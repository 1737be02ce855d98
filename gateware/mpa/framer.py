"""Makes FPDUs of ULPDUs: length, pad, Markers, CRC (RFC 5044, 4.1 to 4.4)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpStrobe
from stagecoach.gateware.mpa.crc32c import INITIAL_STATE, next_state
from stagecoach.gateware.mpa.layouts import ULPDU_BEAT, MpaLayouts
from stagecoach.gateware.mpa.marker_insert import MarkerInserter
from stagecoach.hw.interface.wire import ULPDU_LENGTH_OCTETS

SENT_DEPTH = 8
"""Reports that may wait for their reader before the datapath waits for them."""

BEATS_AHEAD = 16
"""Beats of FPDUs that may wait for the LLP."""

BEATS_MARGIN = 8
"""No beat is taken with fewer places free: what is under way goes there without being stopped."""


class Framer(wiring.Component):
    """Turns each job and the beats of its ULPDU into one FPDU on the LLP, in order.

    One word per cycle: an FPDU of n bytes, Markers included, takes ceil(n / 8) cycles and none
    between FPDUs. The first word leaves six cycles after its beat came. Back-pressure on
    `tx` fills a queue, and the beats stop in time for what is under way to fit there. With `crc`
    off the CRC field is zero. If the last beat has `error`, the CRC field is sent complemented, so
    that the peer rejects the FPDU (a peer that does not check CRCs cannot). An `empty` job takes no
    beats; with `close` it makes one of no bytes, else none: only its report comes in its turn.

    Members
    -------
    job: one FPDU, or none; its fields are described with `Layouts.ulpdu_job`. Jobs are taken one
        every two cycles.
    i: its ULPDU from lane 2 of the first word, ceil((2 + ulpdu_length) / 8) beats.
    tx: the FPDU as beats for the LLP port, its `close` with the last one.
    sent: the `sent` of each job with `report`, once the LLP has taken its last beat.
    finished: one cycle for every job whose last beat the LLP has taken, or which had none.
    reported: one cycle for every `sent` that is going to come, with or before its `finished`.
    spoiled: one cycle for every FPDU with `error`, before its `sent`.
    """

    def __init__(self, config: RnicConfig):
        self._layouts = MpaLayouts(config)
        self._sent_item = Layouts(config).sent_item
        super().__init__(
            {
                "job": In(stream.Signature(self._layouts.framer_job)),
                "i": In(stream.Signature(ULPDU_BEAT)),
                "tx": Out(stream.Signature(self._layouts.tx)),
                "sent": Out(stream.Signature(self._sent_item)),
                "finished": Out(QpStrobe(config)),
                "spoiled": Out(QpStrobe(config)),
                "reported": Out(1),
            }
        )
        self._tag = data.StructLayout(
            {"qp": config.qp_bits, "crc": 1, "empty": 1, "close": 1, "error": 1, "report": 1},
        )
        self._outgoing = data.StructLayout(
            {
                "qp": config.qp_bits,
                "data": 64,
                "octets": 4,
                "first": 1,
                "last": 1,
                "close": 1,
                "silent": 1,  # there is nothing for the LLP
                "report": 1,
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.reports = reports = _Reports(self._sent_item)
        m.submodules.inserter = inserter = MarkerInserter(self._tag)
        m.submodules.outgoing = outgoing = SyncFIFOBuffered(
            width=self._outgoing.size, depth=BEATS_AHEAD
        )
        wiring.connect(m, reports.o, wiring.flipped(self.sent))
        room = Signal()
        m.d.sync += room.eq(outgoing.level <= BEATS_AHEAD - BEATS_MARGIN)

        self._take(m, inserter, reports, room)
        self._put_crc(m, inserter, outgoing)
        self._send(m, outgoing, reports)
        return m

    def _take(self, m: Module, inserter: MarkerInserter, reports: "_Reports", room: Signal) -> None:
        """Take jobs and beats; put length and pad in."""
        job = Signal(self._layouts.framer_job)
        busy = Signal()
        takes_beats = Signal()  # busy, and the job is not empty
        next_job = Signal(self._layouts.framer_job)
        next_valid = Signal()
        first = Signal(init=1)
        half = Signal()  # the ULPDU ends in the lower 4 bytes of its last word, pad included
        octets = Signal(8)  # of the last word: one bit for each that is not pad
        last = Signal()
        accept = Signal()
        error = Signal()
        load = Signal()
        job_taken = Signal()
        m.d.comb += [
            self.i.ready.eq(takes_beats & room & inserter.ready),
            # An empty job makes a word of its own.
            last.eq(self.i.payload.last | ~takes_beats),
            accept.eq((self.i.valid | ~takes_beats) & busy & room & inserter.ready),
            load.eq(~busy | (accept & last)),
            self.job.ready.eq(~next_valid & reports.room),
            job_taken.eq(self.job.valid & self.job.ready),
            reports.add.eq(job_taken & self.job.payload.report),
            reports.item.eq(self.job.payload.sent),
        ]

        # The next job waits beside the one at work, so that no cycle is lost between them.
        coming = Signal.like(job)
        m.d.comb += coming.eq(Mux(next_valid, next_job, self.job.payload))
        with m.If(~next_valid):
            m.d.sync += [next_job.eq(self.job.payload), next_valid.eq(job_taken & ~load)]
        with m.If(load):
            tail = (coming.ulpdu_length + ULPDU_LENGTH_OCTETS)[:3]  # 0: all 8
            m.d.sync += [
                job.eq(coming),
                busy.eq(next_valid | job_taken),
                takes_beats.eq((next_valid | job_taken) & ~coming.empty),
                half.eq(coming.empty | ((tail != 0) & (tail <= 4))),
                octets.eq(Cat((tail == 0) | (tail > lane) for lane in range(8))),
                next_valid.eq(0),
            ]
        with m.If(accept):
            m.d.sync += first.eq(last)

        lanes = []
        length = Cat(job.ulpdu_length[8:], job.ulpdu_length[:8])  # big endian
        for lane in range(8):
            octet = self.i.payload.data.word_select(lane, 8)
            octet = Mux(~self.i.payload.last | octets[lane], octet, 0)
            if lane < ULPDU_LENGTH_OCTETS:
                octet = Mux(first, length.word_select(lane, 8), octet)
            lanes.append(octet)
        m.d.comb += [
            inserter.load.eq(load),
            inserter.markers.eq(coming.markers & ~coming.empty),
            inserter.until_marker.eq(coming.until_marker),
            inserter.valid.eq(accept),
            inserter.word.data.eq(Cat(lanes)),
            inserter.word.last.eq(last),
            inserter.word.half.eq(half),
            inserter.word.tag.qp.eq(job.qp),
            inserter.word.tag.crc.eq(job.crc),
            inserter.word.tag.empty.eq(job.empty),
            inserter.word.tag.close.eq(job.close),
            inserter.word.tag.error.eq(error),
            inserter.word.tag.report.eq(job.report),
        ]
        m.d.comb += error.eq(takes_beats & self.i.payload.last & self.i.payload.error)
        m.d.sync += [
            self.spoiled.valid.eq(accept & error),
            self.spoiled.qp.eq(job.qp),
        ]

    def _put_crc(self, m: Module, inserter: MarkerInserter, outgoing: SyncFIFOBuffered) -> None:
        """Compute the CRC and put it in its place; two cycles."""
        beat = inserter.o
        checked = Signal.like(beat)
        checked_valid = Signal()
        crc = Signal(32, init=INITIAL_STATE)
        # Over all that it covers, in the cycle of the beat that it is for: for either half of that
        upper_crc, lower_crc = Signal(32), Signal(32)
        after = next_state(crc, beat.data)
        m.d.sync += [checked.eq(beat), checked_valid.eq(inserter.o_valid)]
        with m.If(inserter.o_valid & ~beat.flags.lower_crc):
            m.d.sync += [
                crc.eq(after),
                lower_crc.eq(after),
                upper_crc.eq(next_state(crc, beat.data[:32])),
            ]
        with m.If(inserter.o_valid & beat.flags.covered_end):
            m.d.sync += crc.eq(INITIAL_STATE)

        item = Signal(self._outgoing)
        item_valid = Signal()
        flags, tag = checked.flags, checked.tag

        def field(state: Signal) -> Value:
            return Mux(tag.crc, ~state, 0) ^ tag.error.replicate(32)

        m.d.comb += [
            outgoing.w_en.eq(item_valid),
            outgoing.w_data.eq(item),
        ]
        m.d.sync += [
            item_valid.eq(checked_valid),
            item.qp.eq(tag.qp),
            item.data[:32].eq(Mux(flags.lower_crc, field(lower_crc), checked.data[:32])),
            item.data[32:].eq(Mux(flags.upper_crc, field(upper_crc), checked.data[32:])),
            item.octets.eq(Mux(tag.empty, 0, Mux(flags.lower_crc, 4, 8))),
            item.first.eq(flags.first),
            item.last.eq(flags.last),
            item.close.eq(flags.last & tag.close),
            item.silent.eq(tag.empty & ~tag.close),
            item.report.eq(tag.report),
        ]

    def _send(self, m: Module, outgoing: SyncFIFOBuffered, reports: "_Reports") -> None:
        """Send beats and say what has left."""
        item = Signal(self._outgoing)
        tx = self.tx.payload
        left = Signal()
        m.d.comb += [
            item.eq(outgoing.r_data),
            self.tx.valid.eq(outgoing.r_rdy & ~item.silent),
            outgoing.r_en.eq(self.tx.ready | item.silent),
            tx.connection.eq(item.qp),
            tx.data.eq(item.data),
            tx.octets.eq(item.octets),
            tx.first.eq(item.first),
            tx.last.eq(item.last),
            tx.close.eq(item.close),
            left.eq(outgoing.r_rdy & outgoing.r_en & item.last),
            reports.release.eq(left & item.report),
            self.reported.eq(reports.release),
        ]
        m.d.sync += [self.finished.valid.eq(left), self.finished.qp.eq(item.qp)]


class _Reports(wiring.Component):
    """A queue whose items can be read only after `release` was pulsed for them.

    `add` keeps `item`, allowed while `room`; the n-th `release` lets the n-th item out on `o`.
    """

    def __init__(self, shape: data.StructLayout):
        self._shape = shape
        super().__init__(
            {
                "room": Out(1),
                "add": In(1),
                "item": In(shape),
                "release": In(1),
                "o": Out(stream.Signature(shape)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.items = items = memory.Memory(shape=self._shape, depth=SENT_DEPTH, init=[])
        write, read = items.write_port(), items.read_port()
        kept = Signal(range(SENT_DEPTH + 1))
        released = Signal(range(SENT_DEPTH + 1))
        taken = Signal()
        fetch = Signal()
        m.d.comb += [
            self.room.eq(kept != SENT_DEPTH),
            write.en.eq(self.add),
            write.data.eq(self.item),
            taken.eq(self.o.valid & self.o.ready),
            fetch.eq(~self.o.valid & (released != 0)),
            read.en.eq(fetch),
            self.o.payload.eq(read.data),  # held by the memory until the next fetch
        ]
        m.d.sync += [
            kept.eq(kept + self.add - taken),
            released.eq(released + self.release - fetch),
            write.addr.eq(write.addr + self.add),
            read.addr.eq(read.addr + fetch),
            self.o.valid.eq(fetch | (self.o.valid & ~taken)),
        ]
        return m
