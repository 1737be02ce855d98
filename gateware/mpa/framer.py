"""Makes FPDUs of ULPDUs: length, pad, CRC (RFC 5044, 4.1 and 4.4)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from gateware.config import RnicConfig
from gateware.interfaces import Layouts, QpStrobe
from gateware.mpa.crc32c import INITIAL_STATE, next_state
from gateware.mpa.layouts import ULPDU_BEAT, MpaLayouts
from gateware.stream_buffer import StreamBuffer

LENGTH_OCTETS = 2  # RFC 5044, 4.1

SENT_DEPTH = 8
"""Reports that may wait for their reader before the datapath waits for them."""


class Framer(wiring.Component):
    """Turns each job and the beats of its ULPDU into one FPDU on the LLP, in order.

    One word per cycle: an FPDU of n octets takes ceil(n / 8) cycles and none between FPDUs; the
    first word leaves four cycles after the first beat. With `crc` off the CRC field is zero. If
    the last beat has `error`, the CRC field is sent complemented, so that the peer rejects the
    FPDU (a peer that does not check CRCs cannot).

    Members
    -------
    job: one FPDU.
    i: its ULPDU from lane 2 of the first word, ceil((2 + ulpdu_length) / 8) beats.
    tx: the FPDU as beats for the LLP port.
    sent: the `sent` of each job with `report`, once the LLP has taken its last beat.
    finished: one cycle for every FPDU whose last beat the LLP has taken.
    reported: one cycle for every `sent` that is going to come, with or before its `finished`.
    spoiled: one cycle for every FPDU with `error`, before its `sent`.

    Markers are not inserted: `markers` of the job is reserved for them.
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
        qp_bits = config.qp_bits
        self._beat = data.StructLayout(
            {
                "data": 64,
                "first": 1,
                "last": 1,  # last one of the ULPDU
                "half": 1,  # of the last one: it ends in the lower 4 octets, pad included
                "error": 1,
                "qp": qp_bits,
                "crc": 1,
                "report": 1,
            }
        )
        self._outgoing = data.StructLayout({"tx": self._layouts.tx, "report": 1})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.reports = reports = _Reports(self._sent_item)
        m.submodules.outgoing = outgoing = StreamBuffer(self._outgoing)
        wiring.connect(m, reports.o, wiring.flipped(self.sent))

        # Stage 1: length and pad are put in.
        job = Signal(self._layouts.framer_job)
        busy = Signal()
        next_job = Signal(self._layouts.framer_job)
        next_valid = Signal()
        tail = Signal(3)  # octets of length and ULPDU in the last word, 0 for all 8
        first = Signal(init=1)
        padded = Signal(self._beat)
        padded_valid = Signal()
        # Stage 2: the CRC over this beat, and over all before it, is known.
        checked = Signal(self._beat)
        checked_valid = Signal()
        crc = Signal(32, init=INITIAL_STATE)
        result = Signal(32)
        crc_follows = Signal()  # the CRC is in a beat of its own, and the ULPDU's last one is out

        alone = checked.last & ~checked.half
        checked_done = Signal()
        padded_done = Signal()
        accept = Signal()
        job_loaded = Signal()
        m.d.comb += [
            checked_done.eq(checked_valid & outgoing.i.ready & (~alone | crc_follows)),
            padded_done.eq(padded_valid & (~checked_valid | checked_done)),
            self.i.ready.eq(busy & (~padded_valid | padded_done)),
            accept.eq(self.i.valid & self.i.ready),
            self.job.ready.eq(~next_valid & reports.room),
            job_loaded.eq(self.job.valid & self.job.ready),
            reports.add.eq(job_loaded & self.job.payload.report),
            reports.item.eq(self.job.payload.sent),
        ]

        # The next job waits beside the one at work, so that no cycle is lost between them.
        with m.If(~next_valid):
            m.d.sync += [next_job.eq(self.job.payload), next_valid.eq(job_loaded)]
        with m.If(~busy | (accept & self.i.payload.last)):
            m.d.sync += [
                job.eq(next_job),
                busy.eq(next_valid),
                tail.eq(next_job.ulpdu_length[:3] + LENGTH_OCTETS),
            ]
            with m.If(next_valid):
                m.d.sync += next_valid.eq(0)

        lanes = []
        length = Cat(job.ulpdu_length[8:], job.ulpdu_length[:8])  # big endian
        for lane in range(8):
            octet = self.i.payload.data.word_select(lane, 8)
            if lane < LENGTH_OCTETS:
                octet = Mux(first, length.word_select(lane, 8), octet)
            keep = ~self.i.payload.last | (tail == 0) | (tail > lane)
            lanes.append(Mux(keep, octet, 0))
        with m.If(accept):
            m.d.sync += [
                first.eq(self.i.payload.last),
                padded.data.eq(Cat(lanes)),
                padded.first.eq(first),
                padded.last.eq(self.i.payload.last),
                padded.half.eq((tail != 0) & (tail <= 4)),
                padded.error.eq(self.i.payload.error),
                padded.qp.eq(job.qp),
                padded.crc.eq(job.crc),
                padded.report.eq(job.report),
            ]
        with m.If(accept):
            m.d.sync += padded_valid.eq(1)
        with m.Elif(padded_done):
            m.d.sync += padded_valid.eq(0)

        after = Mux(
            padded.last & padded.half,
            next_state(crc, padded.data[:32]),
            next_state(crc, padded.data),
        )
        with m.If(padded_done):
            m.d.sync += [
                checked.eq(padded),
                checked_valid.eq(1),
                crc.eq(Mux(padded.last, INITIAL_STATE, after)),
                result.eq(after),
            ]
        with m.Elif(checked_done):
            m.d.sync += checked_valid.eq(0)

        field = Signal(32)
        m.d.comb += field.eq((Mux(checked.crc, ~result, 0)) ^ checked.error.replicate(32))
        beat = outgoing.i.payload.tx
        m.d.comb += [
            outgoing.i.valid.eq(checked_valid),
            outgoing.i.payload.report.eq(checked.report),
            beat.connection.eq(checked.qp),
            beat.data.eq(checked.data),
            beat.octets.eq(8),
            beat.first.eq(checked.first & ~crc_follows),
            beat.last.eq(checked.last & (checked.half | crc_follows)),
        ]
        with m.If(crc_follows):
            m.d.comb += [beat.data.eq(field), beat.octets.eq(4)]
        with m.Elif(checked.last & checked.half):
            m.d.comb += beat.data[32:].eq(field)
        with m.If(checked_valid & outgoing.i.ready):
            m.d.sync += crc_follows.eq(alone & ~crc_follows)

        m.d.sync += [
            self.spoiled.valid.eq(padded_done & padded.last & padded.error),
            self.spoiled.qp.eq(padded.qp),
        ]
        left = Signal()
        m.d.comb += [
            self.tx.payload.eq(outgoing.o.payload.tx),
            self.tx.valid.eq(outgoing.o.valid),
            outgoing.o.ready.eq(self.tx.ready),
            left.eq(self.tx.valid & self.tx.ready & self.tx.payload.last),
            reports.release.eq(left & outgoing.o.payload.report),
            self.reported.eq(reports.release),
        ]
        m.d.sync += [
            self.finished.valid.eq(left),
            self.finished.qp.eq(self.tx.payload.connection),
        ]
        return m


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
