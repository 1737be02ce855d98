"""Lets an AXI master be reset in the middle of its bursts, while its slave goes on."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_WIDTH
from stagecoach.gateware.dma.axi import channel_payload
from stagecoach.gateware.dma.ports import AxiSignature
from stagecoach.gateware.stream.prompt_fifo import PromptFifo

BURSTS = 256
"""Reads, and writes, under way."""

ADDRESSES_AHEAD = 4
"""Bursts whose words may come later than their addresses."""


class AxiIsolator(wiring.Component):
    """Passes an AXI port on, and finishes in the master's place what a reset of it leaves.

    While `isolate` is 1 nothing is taken from the master and it is given nothing. What was under
    way is finished here: an address and a word that were offered stay offered, the words that are
    missing come without a strobe, so they change nothing, and all answers are taken. When `isolate`
    has fallen, the master's bursts begin once the last answer of those before has come: it never
    has an answer to a burst of which it does not know.

    The master may be reset in the cycle in which `isolate` is 1, at once; this block is not. If the
    slave never answers, the master's bursts wait for ever, and its reset for nothing.

    AR, AW and W have a register, R and B pass in the same cycle; one item of each per cycle. Words
    wait for their address, a cycle more if they come with it. AW waits while the words of 4 bursts
    have not all come, AR and AW while 256 bursts of their kind are under way. No counter wraps.

    Parameters
    ----------
    data_width, id_width: of both ports.

    Members
    -------
    axi: the master. m_axi: the slave.
    isolate: the master is reset. idle: nothing is under way.
    """

    def __init__(self, data_width: int = WORD_WIDTH, id_width: int = 1):
        port = AxiSignature(data_width, id_width)
        super().__init__({"axi": In(port), "m_axi": Out(port), "isolate": In(1), "idle": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        axi, slave = self.axi, self.m_axi
        m.submodules.lengths = lengths = PromptFifo(len(axi.awlen), ADDRESSES_AHEAD)
        finishing = Signal()  # the master's bursts of before
        apart = Signal()
        m.d.comb += apart.eq(self.isolate | finishing)
        m.d.sync += finishing.eq(self.isolate | (finishing & ~self.idle))

        read = slave.rvalid & slave.rready & slave.rlast
        written = slave.bvalid & slave.bready
        reads = self._addresses(m, "ar", ~apart, read)
        writes = self._addresses(m, "aw", ~apart & lengths.i.ready, written)
        m.d.comb += [
            self.idle.eq((reads == 0) & (writes == 0)),
            lengths.i.payload.eq(axi.awlen),
            lengths.i.valid.eq(axi.awvalid & axi.awready),
        ]
        self._words(m, lengths, apart)
        for channel in ("r", "b"):
            valid, ready = f"{channel}valid", f"{channel}ready"
            m.d.comb += [
                channel_payload(axi, channel).eq(channel_payload(slave, channel)),
                getattr(axi, valid).eq(getattr(slave, valid) & ~apart),
                getattr(slave, ready).eq(getattr(axi, ready) | apart),
            ]
        return m

    def _addresses(self, m: Module, channel: str, may: Value, ends: Value) -> Signal:
        """A register for AR or AW. How many bursts are under way."""
        offered, taken = f"{channel}valid", f"{channel}ready"
        under_way = Signal(range(BURSTS + 1), name=f"{channel}_under_way")
        begins = Signal(name=f"{channel}_begins")
        room = ~getattr(self.m_axi, offered) | getattr(self.m_axi, taken)
        ready = room & may & (under_way != BURSTS)
        m.d.comb += [
            getattr(self.axi, taken).eq(ready),
            begins.eq(getattr(self.axi, offered) & ready),
        ]
        m.d.sync += under_way.eq(under_way + begins - ends)
        with m.If(room):
            m.d.sync += [
                getattr(self.m_axi, offered).eq(begins),
                channel_payload(self.m_axi, channel).eq(channel_payload(self.axi, channel)),
            ]
        return under_way

    def _words(self, m: Module, lengths: PromptFifo, apart: Value) -> None:
        """A register for W; without the master it gets words that write nothing."""
        axi, slave = self.axi, self.m_axi
        beat = Signal.like(axi.awlen)  # of the burst that `lengths` shows
        last = beat == lengths.o.payload
        comes = Signal()
        room = ~slave.wvalid | slave.wready
        m.d.comb += [
            axi.wready.eq(room & lengths.o.valid & ~apart),
            comes.eq(room & lengths.o.valid & (axi.wvalid | apart)),
            lengths.o.ready.eq(comes & last),
        ]
        with m.If(room):
            m.d.sync += [
                slave.wvalid.eq(comes),
                slave.wdata.eq(axi.wdata),
                slave.wstrb.eq(Mux(apart, 0, axi.wstrb)),
                slave.wlast.eq(last),
            ]
        with m.If(comes):
            m.d.sync += beat.eq(Mux(last, 0, beat + 1))
