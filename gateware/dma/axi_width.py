"""Joins the engines, whose words have 64 bits, to an AXI port of 32 or 128 bits."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from stagecoach.gateware.config import DATA_WIDTHS, WORD_WIDTH
from stagecoach.gateware.dma.axi import AxiReadSignature, AxiWriteSignature, connect_axi
from stagecoach.gateware.dma.bursts import WORD_BITS
from stagecoach.gateware.dma.ports import RESPONSE_OKAY
from stagecoach.gateware.dma.read import MAX_OUTSTANDING_BURSTS as READ_BURSTS
from stagecoach.gateware.stream.fifo import StreamFifo
from stagecoach.gateware.stream.prompt_fifo import PromptFifo

WRITE_BURSTS = 8
"""Bursts whose words may come later than their addresses; the write engine has fewer of them."""


class AxiReadWidth(wiring.Component):
    """AR and R between the read engine and a port that is not as wide as its words.

    Each burst of the engine, of n words, is one of the port, at once and in the same order: INCR,
    ARSIZE of the port's width. `data_width` 32: 2n beats, of which the second one makes the word;
    RRESP is that of the first beat of the two that is not OKAY. 128: the beats that contain the
    words, from an address that is a multiple of 16; words that were not requested are
    discarded, and RRESP of a beat is that of both of its words.

    Nothing is added to the latency: ARVALID and RVALID go through in the same cycle, as READY goes
    back. 32: a word every two cycles, and the first beat of a word is always taken. 128: a word per
    cycle, so a beat every two cycles. Which beat is the last one is counted: RREADY looks at no
    input of the port.

    Parameters
    ----------
    data_width: of the port, 32 or 128. id_width: of both ports.

    Members
    -------
    words: the read engine; with `data_width` 32 bursts of at most 128 words.
    m_axi: the port. At 128 bits at most 128 bursts are outstanding.
    """

    def __init__(self, data_width: int, id_width: int = 1):
        self._width = _checked("AxiReadWidth", data_width)
        super().__init__(
            {
                "words": In(AxiReadSignature(id_width=id_width)),
                "m_axi": Out(AxiReadSignature(data_width, id_width)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self._width < WORD_WIDTH:
            self._elaborate_narrow(m)
        else:
            self._elaborate_wide(m)
        m.d.comb += self.m_axi.arsize.eq(_size(self._width))
        return m

    def _elaborate_narrow(self, m: Module) -> None:
        words, axi = self.words, self.m_axi
        changed = ("arlen", "arsize", "rdata", "rresp", "rvalid", "rready")
        connect_axi(m, axi, wiring.flipped(words), except_for=changed)
        upper = Signal()  # the beat is the second one of a word
        lower_data = Signal(WORD_WIDTH // 2)
        lower_resp = Signal(2)
        with m.If(~upper):
            m.d.sync += [lower_data.eq(axi.rdata), lower_resp.eq(axi.rresp)]
        with m.If(axi.rvalid & axi.rready):
            m.d.sync += upper.eq(~upper)
        m.d.comb += [
            axi.arlen.eq(Cat(1, words.arlen)),
            words.rdata.eq(Cat(lower_data, axi.rdata)),
            words.rresp.eq(Mux(lower_resp != RESPONSE_OKAY, lower_resp, axi.rresp)),
            words.rvalid.eq(axi.rvalid & upper),
            axi.rready.eq(words.rready | ~upper),
        ]

    def _elaborate_wide(self, m: Module) -> None:
        words, axi = self.words, self.m_axi
        changed = ("araddr", "arlen", "arsize", "arvalid", "arready")
        connect_axi(
            m,
            axi,
            wiring.flipped(words),
            except_for=(*changed, "rdata", "rlast", "rvalid", "rready"),
        )

        # In which half of a beat the first word and the last word of a burst are, and its ARLEN.
        burst = data.StructLayout({"start": 1, "end": 1, "length": 8})
        m.submodules.bursts = bursts = StreamFifo(burst, READ_BURSTS)
        begins_upper = _begins_upper(words.araddr)
        beats = words.arlen + begins_upper
        m.d.comb += [
            axi.araddr.eq(_beat_address(words.araddr)),
            axi.arlen.eq(beats[1:]),
            bursts.i.p.start.eq(begins_upper),
            bursts.i.p.end.eq(beats[0]),
            bursts.i.p.length.eq(axi.arlen),
            axi.arvalid.eq(words.arvalid & bursts.i.ready),
            words.arready.eq(axi.arready & bursts.i.ready),
            bursts.i.valid.eq(words.arvalid & axi.arready),
        ]

        first = Signal(init=1)  # the word is the first one of its burst
        follows = Signal()  # the half that it is in, else
        upper = Signal()
        ends_beat = Signal()
        beat = Signal(8)  # of the burst
        last_beat = Signal()
        m.d.comb += [
            upper.eq(Mux(first, bursts.o.p.start, follows)),
            last_beat.eq(beat == bursts.o.p.length),
            ends_beat.eq(upper | (last_beat & ~bursts.o.p.end)),
            words.rdata.eq(axi.rdata.word_select(upper, WORD_WIDTH)),
            words.rlast.eq(last_beat & ends_beat),
            words.rvalid.eq(axi.rvalid & bursts.o.valid),
            axi.rready.eq(words.rready & bursts.o.valid & ends_beat),
        ]
        with m.If(words.rvalid & words.rready):
            m.d.sync += [first.eq(words.rlast), follows.eq(~upper)]
            m.d.comb += bursts.o.ready.eq(words.rlast)
        with m.If(axi.rvalid & axi.rready):
            m.d.sync += beat.eq(Mux(last_beat, 0, beat + 1))


class AxiWriteWidth(wiring.Component):
    """AW, W and B between the write engine and a port that is not as wide as its words.

    Each burst of the engine, of n words, is one of the port, in the same order: INCR, AWSIZE of the
    port's width. `data_width` 32: 2n beats, the lower half of a word first, each with its strobes.
    128: the beats that contain the words, from an address that is a multiple of 16; two words that
    are in one beat go together, and where there is none nothing has a strobe. Responses are passed
    on as they are.

    AWVALID does not wait for WVALID or WREADY, nor WVALID for AWREADY: a port may take words of a
    burst before its address. Nothing is added to the latency but, at 128 bits, one cycle to the
    first word if it comes in the cycle of its address. 32: a word every two cycles. 128: a word per
    cycle, so a beat every two cycles; the first word of a beat is always taken.

    Parameters
    ----------
    data_width: of the port, 32 or 128. id_width: of both ports.

    Members
    -------
    words: the write engine; with `data_width` 32 bursts of at most 128 words. At 128 bits words
        wait for their address.
    m_axi: the port. At 128 bits an address waits while the words of 8 others are not all there.
    """

    def __init__(self, data_width: int, id_width: int = 1):
        self._width = _checked("AxiWriteWidth", data_width)
        super().__init__(
            {
                "words": In(AxiWriteSignature(id_width=id_width)),
                "m_axi": Out(AxiWriteSignature(data_width, id_width)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self._width < WORD_WIDTH:
            self._elaborate_narrow(m)
        else:
            self._elaborate_wide(m)
        m.d.comb += self.m_axi.awsize.eq(_size(self._width))
        return m

    def _elaborate_narrow(self, m: Module) -> None:
        words, axi = self.words, self.m_axi
        changed = ("awlen", "awsize", "wdata", "wstrb", "wlast", "wready")
        connect_axi(m, axi, wiring.flipped(words), except_for=changed)
        upper = Signal()  # the beat is the second one of a word
        with m.If(axi.wvalid & axi.wready):
            m.d.sync += upper.eq(~upper)
        m.d.comb += [
            axi.awlen.eq(Cat(1, words.awlen)),
            axi.wdata.eq(words.wdata.word_select(upper, len(axi.wdata))),
            axi.wstrb.eq(words.wstrb.word_select(upper, len(axi.wstrb))),
            axi.wlast.eq(words.wlast & upper),
            words.wready.eq(axi.wready & upper),
        ]

    def _elaborate_wide(self, m: Module) -> None:
        words, axi = self.words, self.m_axi
        changed = ("awaddr", "awlen", "awsize", "awvalid", "awready")
        connect_axi(
            m,
            axi,
            wiring.flipped(words),
            except_for=(*changed, "wdata", "wstrb", "wvalid", "wready"),
        )

        # In which half of a beat the first word of a burst is: noted as soon as its address is
        # offered, since its words may be taken first.
        m.submodules.bursts = bursts = PromptFifo(1, WRITE_BURSTS)
        noted = Signal()
        begins_upper = _begins_upper(words.awaddr)
        m.d.comb += [
            axi.awaddr.eq(_beat_address(words.awaddr)),
            axi.awlen.eq((words.awlen + begins_upper) >> 1),
            bursts.i.payload.eq(begins_upper),
            bursts.i.valid.eq(words.awvalid & ~noted),
            axi.awvalid.eq(words.awvalid & (noted | bursts.i.ready)),
            words.awready.eq(axi.awready & (noted | bursts.i.ready)),
        ]
        with m.If(axi.awvalid):
            m.d.sync += noted.eq(~axi.awready)

        first = Signal(init=1)  # the word is the first one of its burst
        follows = Signal()  # the half that it is in, else
        upper = Signal()
        ends_beat = Signal()
        lower_data = Signal.like(words.wdata)
        lower_strobe = Signal.like(words.wstrb)
        m.d.comb += [
            upper.eq(Mux(first, bursts.o.payload, follows)),
            ends_beat.eq(upper | words.wlast),
            axi.wdata.eq(Cat(Mux(upper, lower_data, words.wdata), words.wdata)),
            axi.wstrb.eq(Cat(Mux(upper, lower_strobe, words.wstrb), Mux(upper, words.wstrb, 0))),
            axi.wvalid.eq(words.wvalid & bursts.o.valid & ends_beat),
            words.wready.eq(bursts.o.valid & (axi.wready | ~ends_beat)),
        ]
        with m.If(words.wvalid & words.wready):
            m.d.sync += [
                first.eq(words.wlast),
                follows.eq(~upper),
                lower_data.eq(words.wdata),
                lower_strobe.eq(Mux(ends_beat, 0, words.wstrb)),
            ]
            m.d.comb += bursts.o.ready.eq(words.wlast)


def _checked(name: str, data_width: int) -> int:
    """Return the width of a port that needs a converter."""
    allowed = [width for width in DATA_WIDTHS if width != WORD_WIDTH]
    if data_width not in allowed:
        raise ValueError(
            f"{name} data_width is {data_width!r}; allowed: {', '.join(map(str, allowed))}"
        )
    return data_width


def _size(data_width: int) -> int:
    """AxSIZE of beats as wide as the port (AMBA AXI, A3.4.1)."""
    return exact_log2(data_width // 8)


def _begins_upper(address: Any) -> Any:
    """Whether the word at an address is in the upper half of a 128-bit beat."""
    return address[WORD_BITS]


def _beat_address(address: Any) -> Any:
    """The address of the 128-bit beat that contains the one given."""
    return Cat(Const(0, WORD_BITS + 1), address[WORD_BITS + 1 :])
