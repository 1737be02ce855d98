"""Joins the header and the payload of a DDP segment to one ULPDU."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gateware.config import RnicConfig
from gateware.ddp.headers import TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS
from gateware.interfaces import PAYLOAD_BEAT, ULPDU_HEADER_OCTETS, Layouts
from gateware.mpa.layouts import ULPDU_BEAT, MpaLayouts
from gateware.stream_buffer import StreamBuffer

FIRST_LANE = 2
"""Lane of the first word in which the ULPDU starts: the FPDU has ULPDU_Length before it."""

HEADER_WORDS = (FIRST_LANE + ULPDU_HEADER_OCTETS) // 8

SHORT_HEADER_WORDS = 2
"""Whole words of a DDP header, the FPDU's length before it."""


class Assembler(wiring.Component):
    """Puts the header of each job and its payload together, one word per cycle.

    Payload octets are those of the ULPDU behind the header; a job without any takes no payload
    beat. Behind a header of 14 or 46 octets payload is lane-aligned; behind one of 18 it moves by
    four lanes. An FPDU takes a cycle per word and one more.

    Members
    -------
    job: header, lengths and what the framer must know.
    payload: the payload of the jobs, in their order, packed.
    framer_job, o: the FPDU as the framer takes it.
    """

    def __init__(self, config: RnicConfig):
        layouts = Layouts(config)
        mpa = MpaLayouts(config)
        super().__init__(
            {
                "job": In(stream.Signature(layouts.ulpdu_job)),
                "payload": In(stream.Signature(PAYLOAD_BEAT)),
                "framer_job": Out(stream.Signature(mpa.framer_job)),
                "o": Out(stream.Signature(ULPDU_BEAT)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.output = output = StreamBuffer(ULPDU_BEAT)
        wiring.connect(m, output.o, wiring.flipped(self.o))

        active = Signal()
        header = Signal(data.ArrayLayout(64, HEADER_WORDS))
        header_word = Signal(range(HEADER_WORDS))  # the next one
        header_left = Signal(range(HEADER_WORDS + 1))  # whole words that are left
        in_header = Signal()  # header_left is not 0
        moved = Signal()  # payload moves by four lanes
        carry = Signal(32)  # lower half of the next word, if moved
        words = Signal(14)  # that are left
        drained = Signal()  # no payload beat is left
        error = Signal()

        # A job is taken when the last one is out and its copy for the framer is gone.
        job = self.job.payload
        load = Signal()
        m.d.comb += [
            self.job.ready.eq(~active & ~self.framer_job.valid),
            load.eq(self.job.valid & self.job.ready),
        ]
        with m.If(self.framer_job.ready):
            m.d.sync += self.framer_job.valid.eq(0)
        with m.If(load):
            untagged = job.header_octets == UNTAGGED_HEADER_OCTETS
            short = untagged | (job.header_octets == TAGGED_HEADER_OCTETS)
            m.d.sync += [
                active.eq(1),
                header.eq(Cat(Const(0, 8 * FIRST_LANE), job.header)),
                header_word.eq(0),
                header_left.eq(Mux(short, SHORT_HEADER_WORDS, HEADER_WORDS)),
                in_header.eq(1),
                carry.eq(job.header[64 * SHORT_HEADER_WORDS - 8 * FIRST_LANE :]),
                moved.eq(untagged),
                words.eq((job.ulpdu_length + FIRST_LANE + 7) >> 3),
                drained.eq(job.ulpdu_length == job.header_octets),
                error.eq(0),
                self.framer_job.valid.eq(1),
                self.framer_job.payload.qp.eq(job.qp),
                self.framer_job.payload.ulpdu_length.eq(job.ulpdu_length),
                self.framer_job.payload.crc.eq(job.crc),
                self.framer_job.payload.markers.eq(job.markers),
                self.framer_job.payload.report.eq(job.report),
                self.framer_job.payload.sent.eq(job.sent),
            ]

        emit = Signal()
        beat = output.i.payload
        payload = self.payload.payload
        m.d.comb += [
            output.i.valid.eq(active & (in_header | drained | self.payload.valid)),
            emit.eq(output.i.valid & output.i.ready),
            self.payload.ready.eq(active & ~in_header & ~drained & output.i.ready),
            beat.last.eq(words == 1),
            beat.error.eq(error | (~in_header & ~drained & payload.error)),
        ]
        with m.If(in_header):
            m.d.comb += beat.data.eq(header[header_word])
        with m.Elif(moved):
            m.d.comb += beat.data.eq(Cat(carry, payload.data[:32]))
        with m.Else():
            m.d.comb += beat.data.eq(payload.data)

        with m.If(emit):
            m.d.sync += [words.eq(words - 1), active.eq(~beat.last), error.eq(beat.error)]
            with m.If(in_header):
                m.d.sync += [
                    header_word.eq(header_word + 1),
                    header_left.eq(header_left - 1),
                    in_header.eq(header_left != 1),
                ]
            with m.Else():
                m.d.sync += [
                    carry.eq(payload.data[32:]),
                    drained.eq(drained | payload.last),
                ]
        return m
