"""Joins AXI masters to one slave, in turns burst by burst."""

from collections.abc import Callable
from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from stagecoach.gateware.config import WORD_WIDTH
from stagecoach.gateware.dma.axi import (
    AxiReadSignature,
    AxiWriteSignature,
    channel_names,
    channel_payload,
)
from stagecoach.gateware.stream.fifo import StreamFifo
from stagecoach.gateware.stream.merge import Merge
from stagecoach.gateware.stream.prompt_fifo import PromptFifo

MASTERS = range(2, 17)
"""How many there may be."""

GRANTED_BURSTS = 4
"""Bursts whose addresses the slave has been offered while the words of one are on their way."""

LONGEST_BURST = 256
"""Beats of a burst (AMBA AXI4, A3.4.1)."""


class AxiReadArbiter(wiring.Component):
    """AR and R of several masters at one slave.

    Masters take turns burst by burst: while one waits, each other one gets one burst at most. The
    slave has the bursts of each master in their order, unchanged but for ARID, which is
    the master's number; RID says whose an answer is, so a slave may answer one master sooner than
    another, or in between.

    One burst per cycle; one cycle is added to AR and none to R. ARVALID is a register. A master has
    to take its answers without waiting for another one, or for what that waits for: RREADY of
    the slave is that of the master whose answer is there. `dma/read` reserves their room.

    Parameters
    ----------
    data_width: of all ports. masters: their number, 2 to 16.

    Members
    -------
    axi: the masters, whose IDs are 0. m_axi: the slave, whose IDs have as many bits as it takes.
    """

    def __init__(self, data_width: int = WORD_WIDTH, masters: int = 2):
        super().__init__(_ports("AxiReadArbiter", AxiReadSignature, data_width, masters))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        merge = _merge(m, "ar", self.axi, self.m_axi)
        for number, axi in enumerate(self.axi):
            m.d.comb += [
                merge.i[number].valid.eq(axi.arvalid),
                axi.arready.eq(merge.i[number].ready),
            ]
        m.d.comb += [
            channel_payload(self.m_axi, "ar").eq(merge.o.payload),
            self.m_axi.arvalid.eq(merge.o.valid),
            merge.o.ready.eq(self.m_axi.arready),
        ]
        _answers(m, "r", self.axi, self.m_axi)
        return m


class AxiWriteArbiter(wiring.Component):
    """AW, W and B of several masters at one slave.

    As `AxiReadArbiter`, with AWID and BID. W has the words of the bursts in the order of AW.

    A burst is granted when all its words are here, in a FIFO of its master: one that never gives
    its words holds up nobody else, and WVALID stays 1 from the first word of a burst to its last.
    The words of a burst do not wait until the slave takes its address, and AWVALID does not wait
    for WREADY but while the words of 4 bursts are not all taken.

    A word per cycle, without a gap between bursts. From the last
    word of a burst, or its address if that is later, to AWVALID 2 cycles, to the first WVALID 3; no
    cycle is added to B. A master has to take its answers without waiting for another one.

    Parameters
    ----------
    data_width: of all ports. masters: their number, 2 to 16.
    longest: beats of a burst at most; a longer one is never granted, and its master waits for ever.
        The FIFOs have room for two, so that one fills while the other one leaves.

    Members
    -------
    axi: the masters, whose IDs are 0. m_axi: the slave, whose IDs have as many bits as it takes.
    """

    def __init__(self, data_width: int = WORD_WIDTH, longest: int = 32, masters: int = 2):
        if not 1 <= longest <= LONGEST_BURST:
            raise ValueError(
                f"AxiWriteArbiter longest is {longest!r}; allowed: 1 to {LONGEST_BURST}"
            )
        self._longest = longest
        super().__init__(_ports("AxiWriteArbiter", AxiWriteSignature, data_width, masters))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        slave = self.m_axi
        merge = _merge(m, "aw", self.axi, slave)
        m.submodules.order = order = PromptFifo(len(slave.awid), GRANTED_BURSTS)
        words = [self._words(m, number, merge.i[number]) for number in range(len(self.axi))]

        # Whose words are next is noted when the address is offered: they may be taken first.
        noted = Signal()
        m.d.comb += [
            channel_payload(slave, "aw").eq(merge.o.payload),
            order.i.payload.eq(slave.awid),
            order.i.valid.eq(merge.o.valid & ~noted),
            slave.awvalid.eq(merge.o.valid & (noted | order.i.ready)),
            merge.o.ready.eq(slave.awready & (noted | order.i.ready)),
        ]
        with m.If(slave.awvalid):
            m.d.sync += noted.eq(~slave.awready)

        m.d.comb += [
            channel_payload(slave, "w").eq(
                Array([each.o.payload for each in words])[order.o.payload]
            ),
            slave.wvalid.eq(
                order.o.valid & Array([each.o.valid for each in words])[order.o.payload]
            ),
            order.o.ready.eq(slave.wvalid & slave.wready & slave.wlast),
        ]
        for number, each in enumerate(words):
            m.d.comb += each.o.ready.eq(slave.wready & order.o.valid & (order.o.payload == number))
        _answers(m, "b", self.axi, slave)
        return m

    def _words(self, m: Module, number: int, address: Any) -> StreamFifo:
        """The FIFO of a master's words; its addresses are offered when their words are there."""
        axi = self.axi[number]
        payload = channel_payload(axi, "w")
        depth = 2 * self._longest
        m.submodules[f"words{number}"] = words = StreamFifo(len(payload), depth)
        whole = Signal(range(depth + 1))  # bursts that are here and not granted
        came, granted = Signal(), Signal()
        m.d.comb += [
            words.i.payload.eq(payload),
            words.i.valid.eq(axi.wvalid),
            axi.wready.eq(words.i.ready),
            came.eq(axi.wvalid & axi.wready & axi.wlast),
            address.valid.eq(axi.awvalid & (whole != 0)),
            axi.awready.eq(address.ready & (whole != 0)),
            granted.eq(axi.awvalid & axi.awready),
        ]
        m.d.sync += whole.eq(whole + came - granted)
        return words


def _ports(
    name: str, signature: Callable[..., wiring.Signature], data_width: int, masters: int
) -> dict[str, wiring.Member]:
    """The ports of an arbiter."""
    if masters not in MASTERS:
        raise ValueError(f"{name} masters is {masters!r}; allowed: {MASTERS[0]} to {MASTERS[-1]}")
    slave = signature(data_width, bits_for(masters - 1))
    return {"axi": In(signature(data_width)).array(masters), "m_axi": Out(slave)}


def _merge(m: Module, channel: str, masters: Any, slave: Any) -> Merge:
    """The addresses of all masters in turns, each with its master's number as the ID."""
    bits = len(getattr(slave, f"{channel}id"))
    m.submodules.merge = merge = Merge(len(channel_payload(slave, channel)), len(masters))
    for number, axi in enumerate(masters):
        fields = [
            Const(number, bits) if name == f"{channel}id" else getattr(axi, name)
            for name in channel_names(axi, channel)
        ]
        m.d.comb += merge.i[number].payload.eq(Cat(fields))
    return merge


def _answers(m: Module, channel: str, masters: Any, slave: Any) -> None:
    """Hand R or B to the master that its ID names."""
    number_of = getattr(slave, f"{channel}id")
    ready = [getattr(axi, f"{channel}ready") for axi in masters]
    m.d.comb += getattr(slave, f"{channel}ready").eq(Array(ready)[number_of])
    for number, axi in enumerate(masters):
        its = number_of == number
        m.d.comb += getattr(axi, f"{channel}valid").eq(getattr(slave, f"{channel}valid") & its)
        for name in channel_names(axi, channel):
            value = 0 if name == f"{channel}id" else getattr(slave, name)
            m.d.comb += getattr(axi, name).eq(value)
