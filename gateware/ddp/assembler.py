"""Joins the header and the payload of a DDP segment to one ULPDU."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.host_memory import PAYLOAD_BEAT
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.mpa.layouts import ULPDU_BEAT, MpaLayouts
from stagecoach.gateware.stream.buffer import StreamBuffer
from stagecoach.hw.interface.wire import TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS

FIRST_LANE = 2
"""Lane of the first word in which the ULPDU starts: the FPDU has ULPDU_Length before it."""

HEADER_WORDS = (FIRST_LANE + TAGGED_HEADER_OCTETS) // 8
"""Whole words of length and DDP header; an untagged header has 4 bytes more."""


class Assembler(wiring.Component):
    """Puts the DDP header of each job and its payload together, one word per cycle.

    Payload bytes are those of the ULPDU after the header; a job without any takes no payload
    beat. After a tagged header payload is lane-aligned; after an untagged one it moves by four
    lanes. An FPDU takes a cycle per word and one more. An `empty` job has no beats at all.

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
        header = [Signal(64, name=f"header_{number}") for number in range(HEADER_WORDS)]
        in_header = Signal()  # the first of them is next, or
        in_second = Signal()  # the second one is
        moved = Signal()  # payload moves by four lanes
        carry = Signal(32)  # lower half of the next word, if moved
        words = Signal(14)  # that are left
        last_word = Signal()  # words is 1
        drained = Signal()  # no payload beat is left
        error = Signal()

        # A job is taken when the last one is out and its copy for the framer is gone.
        job = self.job.payload
        load = Signal()
        count = Signal(14)
        m.d.comb += [
            self.job.ready.eq(~active & ~self.framer_job.valid),
            load.eq(self.job.valid & self.job.ready),
            count.eq((job.ulpdu_length + FIRST_LANE + 7) >> 3),
        ]
        with m.If(self.framer_job.ready):
            m.d.sync += self.framer_job.valid.eq(0)
        with m.If(load):
            head = Cat(Const(0, 8 * FIRST_LANE), job.header)
            header_octets = Mux(job.tagged, TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS)
            m.d.sync += [
                active.eq(~job.empty),
                *(word.eq(head[64 * number :][:64]) for number, word in enumerate(header)),
                carry.eq(head[64 * HEADER_WORDS :]),
                in_header.eq(1),
                in_second.eq(0),
                moved.eq(~job.tagged),
                words.eq(count),
                last_word.eq(0),  # every header takes two words
                drained.eq(job.ulpdu_length == header_octets),
                error.eq(0),
                self.framer_job.valid.eq(1),
                *(
                    self.framer_job.payload[name].eq(job[name])
                    for name, _ in self.framer_job.payload.shape()
                ),
            ]

        emit = Signal()
        beat = output.i.payload
        payload = self.payload.payload
        m.d.comb += [
            output.i.valid.eq(active & (in_header | drained | self.payload.valid)),
            emit.eq(output.i.valid & output.i.ready),
            self.payload.ready.eq(active & ~in_header & ~drained & output.i.ready),
            beat.last.eq(last_word),
            beat.error.eq(error | (~in_header & ~drained & payload.error)),
        ]
        with m.If(in_header):
            m.d.comb += beat.data.eq(Mux(in_second, header[1], header[0]))
        with m.Elif(moved):
            m.d.comb += beat.data.eq(Cat(carry, payload.data[:32]))
        with m.Else():
            m.d.comb += beat.data.eq(payload.data)

        with m.If(emit):
            m.d.sync += [
                words.eq(words - 1),
                last_word.eq(words == 2),
                active.eq(~last_word),
                error.eq(beat.error),
            ]
            with m.If(in_header):
                m.d.sync += [in_second.eq(1), in_header.eq(~in_second)]
            with m.Else():
                m.d.sync += [
                    carry.eq(payload.data[32:]),
                    drained.eq(drained | payload.last),
                ]
        return m
