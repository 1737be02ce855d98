"""Takes an AXI port from one clock to another."""

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.fifo import AsyncFIFO
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_WIDTH
from stagecoach.gateware.dma.axi import channel_payload
from stagecoach.gateware.dma.ports import AxiSignature

LEAST_DEPTH = 4


class AxiCrossing(wiring.Component):
    """A master in the domain `sync` and a slave in the domain `memory`.

    Each channel has a FIFO of its own, whose positions cross as Gray codes: VALID and READY of one
    channel wait for no other one. Items stay in order, each once. With FIFOs of 16 items one passes
    in every cycle of the slower clock, for as long as both sides go on. An item is offered 2 to 3
    cycles of its receiver after the cycle in which it was taken.

    If one side waits for ever, or its clock stands still, the FIFOs towards it fill, and the
    other side waits.

    Both domains have to be reset together, for 4 cycles of the slower clock, and the slave
    with them: what was under way is lost. A reset of `sync` alone drops addresses and words and
    leaves answers; one of `memory` alone drops answers. So nothing may be under way in either.

    Each of the clocks has a constraint of its own. Paths between them need none in nextpnr, which
    does not limit them; other tools are told that the bits of a position must not arrive
    more than one period of the faster clock apart.

    Parameters
    ----------
    data_width, id_width: of both ports.
    bursts: depth of the FIFOs of AW, AR and B. words: of W and R. Powers of two from 4 on.

    Members
    -------
    axi: the master. m_axi: the slave, in the domain `memory`.
    """

    def __init__(
        self, data_width: int = WORD_WIDTH, bursts: int = 16, words: int = 16, id_width: int = 1
    ):
        for name, depth in (("bursts", bursts), ("words", words)):
            if depth < LEAST_DEPTH or depth & (depth - 1):
                raise ValueError(
                    f"AxiCrossing {name} is {depth!r}; allowed: powers of two from {LEAST_DEPTH}"
                )
        self._bursts, self._words = bursts, words
        port = AxiSignature(data_width, id_width)
        super().__init__({"axi": In(port), "m_axi": Out(port)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for channel, depth in (("aw", self._bursts), ("w", self._words), ("ar", self._bursts)):
            _cross(m, channel, depth, (self.axi, "sync"), (self.m_axi, "memory"))
        for channel, depth in (("b", self._bursts), ("r", self._words)):
            _cross(m, channel, depth, (self.m_axi, "memory"), (self.axi, "sync"))
        return m


def _cross(
    m: Module, channel: str, depth: int, source: tuple[Any, str], target: tuple[Any, str]
) -> None:
    """Join a channel of two ports, each with its domain, by a FIFO."""
    (giver, w_domain), (taker, r_domain) = source, target
    payload = channel_payload(giver, channel)
    m.submodules[channel] = fifo = AsyncFIFO(
        width=len(payload), depth=depth, w_domain=w_domain, r_domain=r_domain, exact_depth=True
    )
    m.d.comb += [
        fifo.w_data.eq(payload),
        fifo.w_en.eq(getattr(giver, f"{channel}valid")),
        getattr(giver, f"{channel}ready").eq(fifo.w_rdy),
        channel_payload(taker, channel).eq(fifo.r_data),
        getattr(taker, f"{channel}valid").eq(fifo.r_rdy),
        fifo.r_en.eq(getattr(taker, f"{channel}ready")),
    ]
