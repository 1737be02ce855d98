"""Joins the MPA blocks, whose words have 64 bits, to an LLP port of 32 or 128 bits."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from stagecoach.gateware.config import WORD_OCTETS, WORD_WIDTH, RnicConfig
from stagecoach.gateware.mpa.layouts import MpaLayouts
from stagecoach.gateware.stream.fifo import StreamFifo

REQUESTS_AHEAD = 16
"""Requests that may be unanswered; the MPA receiver makes fewer."""


class LlpTransmitWidth(wiring.Component):
    """FPDUs of the framer in beats of the LLP port.

    `config.data_width` 32: each word is one beat or two, of 4 bytes. 128: two words are one beat
    of 16 bytes; the last beat of an FPDU has one word or two, and 4, 8, 12 or 16 bytes. An FPDU
    without bytes, which says `close`, stays one beat of none. The last word is taken with the last
    beat, so who sees it go knows that the LLP has the FPDU.

    No latency but that of the second word of a beat; `o.valid` does not wait for `o.ready`. 32: a
    beat per cycle, so a word of 8 bytes every two. 128: a word per cycle, so a beat every two; the
    first word of a beat is always taken.

    Parameters
    ----------
    config: sizes of the device; `data_width` 32 or 128.

    Members
    -------
    i: from the framer. o: to the LLP.
    """

    def __init__(self, config: RnicConfig):
        mpa = MpaLayouts(config)
        self._narrow = config.data_width < WORD_WIDTH
        super().__init__(
            {"i": In(stream.Signature(mpa.tx)), "o": Out(stream.Signature(mpa.port_tx))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.o.p.connection.eq(self.i.p.connection)
        if self._narrow:
            self._elaborate_narrow(m)
        else:
            self._elaborate_wide(m)
        return m

    def _elaborate_narrow(self, m: Module) -> None:
        word, beat = self.i.p, self.o.p
        upper = Signal()  # the beat is the second one of a word
        ends_word = Signal()
        m.d.comb += [
            ends_word.eq(upper | (word.octets != WORD_OCTETS)),
            beat.data.eq(word.data.word_select(upper, len(beat.data))),
            beat.octets.eq(Mux(word.octets == 0, 0, len(beat.data) // 8)),
            beat.first.eq(word.first & ~upper),
            beat.last.eq(word.last & ends_word),
            beat.close.eq(word.close & ends_word),
            self.o.valid.eq(self.i.valid),
            self.i.ready.eq(self.o.ready & ends_word),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += upper.eq(~ends_word)

    def _elaborate_wide(self, m: Module) -> None:
        word, beat = self.i.p, self.o.p
        upper = Signal()  # the word is the second one of a beat
        ends_beat = Signal()
        lower = Signal.like(word.data)
        lower_first = Signal()
        m.d.comb += [
            ends_beat.eq(upper | word.last),
            beat.data.eq(Cat(Mux(upper, lower, word.data), word.data)),
            beat.octets.eq(word.octets + Mux(upper, WORD_OCTETS, 0)),
            beat.first.eq(Mux(upper, lower_first, word.first)),
            beat.last.eq(word.last),
            beat.close.eq(word.close),
            self.o.valid.eq(self.i.valid & ends_beat),
            self.i.ready.eq(self.o.ready | ~ends_beat),
        ]
        with m.If(~upper):
            m.d.sync += [lower.eq(word.data), lower_first.eq(word.first)]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += upper.eq(~ends_beat)


class LlpReceiveWidth(wiring.Component):
    """Answers of the LLP as the words that the MPA receiver expects.

    A request goes on as it is, in the same cycle. The answer has ceil(bytes / 4) beats with
    `config.data_width` 32 and ceil(bytes / 16) with 128, and becomes ceil(bytes / 8) words: of
    two beats, the last one maybe of one; of one beat two, of the last one maybe one. What is in a
    word after the bytes of the request is meaningless.

    No latency but that of the second beat of a word, and three cycles from a request to its answer
    at least. 32: a beat per cycle, so a word of 8 bytes every two; the first beat of a word is
    always taken. 128: a word per cycle, so a beat every two. No cycle is lost between answers.

    Parameters
    ----------
    config: sizes of the device; `data_width` 32 or 128.

    Members
    -------
    request: from the MPA receiver, of 1 byte at least. port_request: the same to the LLP; it waits
        while 16 are unanswered.
    i: from the LLP. o: to the MPA receiver.
    """

    def __init__(self, config: RnicConfig):
        self._request = MpaLayouts(config).rx_request
        self._narrow = config.data_width < WORD_WIDTH
        super().__init__(
            {
                "request": In(stream.Signature(self._request)),
                "port_request": Out(stream.Signature(self._request)),
                "i": In(stream.Signature(config.data_width)),
                "o": Out(stream.Signature(WORD_WIDTH)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        unit_octets = min(WORD_OCTETS, len(self.i.payload) // 8)
        bits = self._request["octets"].width - exact_log2(unit_octets)
        # What an answer is counted in, beats or words, whichever is smaller: two make the other.
        answer = data.StructLayout({"behind": bits, "single": 1})  # after the first one
        m.submodules.answers = answers = StreamFifo(answer, REQUESTS_AHEAD)
        behind = (self.request.p.octets - 1)[exact_log2(unit_octets) :][:bits]
        m.d.comb += [
            self.port_request.payload.eq(self.request.payload),
            self.port_request.valid.eq(self.request.valid & answers.i.ready),
            self.request.ready.eq(self.port_request.ready & answers.i.ready),
            answers.i.valid.eq(self.request.valid & self.port_request.ready),
            answers.i.p.behind.eq(behind),
            answers.i.p.single.eq(behind == 0),
        ]

        active = Signal()  # an answer is under way
        left = Signal(bits)  # of it, after the one that is here
        last = Signal()  # there is none after it
        step = Signal()
        with m.If(~active | (step & last)):
            m.d.comb += answers.o.ready.eq(1)
            m.d.sync += [
                active.eq(answers.o.valid),
                left.eq(answers.o.p.behind),
                last.eq(answers.o.p.single),
            ]
        with m.Elif(step):
            m.d.sync += [left.eq(left - 1), last.eq(left == 1)]

        upper = Signal()  # the second one of two
        ends = Signal()
        m.d.comb += ends.eq(upper | last)
        with m.If(step):
            m.d.sync += upper.eq(~ends)
        if self._narrow:
            lower = Signal.like(self.i.payload)
            with m.If(~upper):
                m.d.sync += lower.eq(self.i.payload)
            m.d.comb += [
                step.eq(self.i.valid & self.i.ready),
                self.o.payload.eq(Cat(Mux(upper, lower, self.i.payload), self.i.payload)),
                self.o.valid.eq(self.i.valid & active & ends),
                self.i.ready.eq(active & (self.o.ready | ~ends)),
            ]
        else:
            m.d.comb += [
                step.eq(self.o.valid & self.o.ready),
                self.o.payload.eq(self.i.payload.word_select(upper, WORD_WIDTH)),
                self.o.valid.eq(self.i.valid & active),
                self.i.ready.eq(active & self.o.ready & ends),
            ]
        return m
