"""Sends the answers to atomics, in the order in which they came."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.rdmap.atomic.operations import (
    AtomicStatus,
    TableReader,
    response_layout,
)


class AtomicRespond(wiring.Component):
    """Answers each operation once it is settled.

    Latency: 1 cycle from `settled` to `response`. Throughput: an answer every 2 cycles. `answered`
    counts an answer from the cycle on in which it is offered. While that is not taken, no later
    operation is answered. Numbers wrap mod 2 * `count`.

    Parameters
    ----------
    count: operations in flight, a power of two.

    Members
    -------
    settled: In, the number of the next operation to be settled: those before it are answered.
    qps, originals, statuses: Out(TableReader), of each operation from when it is settled until it
        is answered.
    response: Out(stream response_layout), out of registers.
    answered: Out, the number of the next operation to be answered.
    """

    def __init__(self, config: RnicConfig, count: int):
        super().__init__(
            {
                "settled": In(range(2 * count)),
                "qps": Out(TableReader(config.qp_bits, count)),
                "originals": Out(TableReader(64, count)),
                "statuses": Out(TableReader(AtomicStatus, count)),
                "response": Out(stream.Signature(response_layout(config))),
                "answered": Out(range(2 * count)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        response = self.response
        for table in (self.qps, self.originals, self.statuses):
            m.d.comb += table.entry.eq(self.answered)
        with m.If(response.ready):
            m.d.sync += response.valid.eq(0)
        with m.If(~response.valid):
            m.d.sync += [
                response.p.qp.eq(self.qps.data),
                response.p.original.eq(self.originals.data),
                response.p.status.eq(self.statuses.data),
            ]
            with m.If(self.answered != self.settled):
                m.d.sync += [response.valid.eq(1), self.answered.eq(self.answered + 1)]
        return m
