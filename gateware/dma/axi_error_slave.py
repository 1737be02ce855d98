"""Answers the bursts for addresses at which there is nothing."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from stagecoach.gateware.config import WORD_WIDTH
from stagecoach.gateware.dma.ports import RESPONSE_DECERR, AxiSignature


class AxiErrorSlave(wiring.Component):
    """Takes every burst, and answers each with DECERR; words that are read are 0.

    A read and a write at a time, each on its own. RVALID is 1 from the cycle after the address was
    taken on, for a word per cycle. Words that are written are taken from the cycle after their
    address on; BVALID is 1 in the cycle after the last one. It waits for the master alone.

    Parameters
    ----------
    data_width, id_width: of the port.

    Members
    -------
    axi: the master.
    """

    def __init__(self, data_width: int = WORD_WIDTH, id_width: int = 1):
        super().__init__({"axi": In(AxiSignature(data_width, id_width))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        axi = self.axi
        left = Signal.like(axi.arlen)  # words of the read after this one
        reads = Signal()  # a read is under way
        writes = Signal()  # words are to come
        answers = Signal()  # they have come
        m.d.comb += [
            axi.arready.eq(~reads),
            axi.rvalid.eq(reads),
            axi.rdata.eq(0),
            axi.rresp.eq(RESPONSE_DECERR),
            axi.rlast.eq(left == 0),
            axi.awready.eq(~writes & ~answers),
            axi.wready.eq(writes),
            axi.bvalid.eq(answers),
            axi.bresp.eq(RESPONSE_DECERR),
        ]
        with m.If(~reads):
            m.d.sync += [reads.eq(axi.arvalid), axi.rid.eq(axi.arid), left.eq(axi.arlen)]
        with m.Elif(axi.rready):
            m.d.sync += [reads.eq(left != 0), left.eq(left - 1)]
        with m.If(~writes & ~answers):
            m.d.sync += [writes.eq(axi.awvalid), axi.bid.eq(axi.awid)]
        with m.Elif(writes & axi.wvalid & axi.wlast):
            m.d.sync += [writes.eq(0), answers.eq(1)]
        with m.Elif(axi.bready):
            m.d.sync += answers.eq(0)
        return m
