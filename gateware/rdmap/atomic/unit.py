"""The atomic unit: reads, changes and writes words of host memory, for all QPs."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.host_memory import ReadClient, WriteClient
from stagecoach.gateware.rdmap.atomic.accept import AtomicAccept
from stagecoach.gateware.rdmap.atomic.compute import AtomicCompute
from stagecoach.gateware.rdmap.atomic.operations import request_layout, response_layout
from stagecoach.gateware.rdmap.atomic.respond import AtomicRespond
from stagecoach.gateware.rdmap.atomic.settle import AtomicSettle

OPERATIONS = 32
"""Atomics that are in flight: as many as come while one waits for 350 cycles, one every 11."""


class AtomicUnit(wiring.Component):
    """Carries out atomics so that each is one step against every other one of the device.

    The package's page says which stage does what. Here they are joined.

    `request` brings operations, at most one of a QP until its response is there, each when its QP
    may see what it returns: all earlier placements of the stream are visible. `response` brings
    each exactly one answer, when its own write, and any write whose value it returns, has its AXI
    response. Answers come in the order of the requests, and so do the effects.

    Up to `operations` are in flight, each with a read of its own. One that comes while an earlier
    one on its word may still write uses that one's value on chip instead of the word
    (docs/decisions/atomic-unit.md). An error of a read ends one operation and changes nothing; an
    error of a write ends the operation that wrote, and what was computed with its value and wrote
    nothing itself starts over.

    Latency, in cycles without those of host memory and of the engines: 2 to the read command, 9
    from the word to the write command, 5 from the write response to the response. Throughput: one
    operation every 11 cycles, on one word or on different ones, or the latency of read and write
    divided by `operations` if that is more. A request is taken every 8 cycles, or 2 more for each
    operation in flight that has another address in its bucket (`AtomicAddresses`), which is rare.
    None is taken while `operations` are in flight, while write responses wait to be looked at, or
    while an operation starts over. One answer is offered beside those in flight: while it is not
    taken, `operations` more are, and their accesses go on. If a read or a write never ends, what
    came after it never does, and after `operations` of them nothing more is taken.

    Parameters
    ----------
    config: sizes of the device.
    operations: how many are in flight, a power of two from 2 to 32.

    Members
    -------
    read: client of `dma/read.py`, whose buffer for it holds `operations` words.
    write: client of `dma/write.py`.
    """

    def __init__(self, config: RnicConfig, operations: int = OPERATIONS):
        if not 2 <= operations <= 32 or operations & (operations - 1):
            raise ValueError(
                f"AtomicUnit operations is {operations!r}; allowed: a power of two from 2 to 32"
            )
        self._config = config
        self._count = operations
        super().__init__(
            {
                "request": In(stream.Signature(request_layout(config))),
                "response": Out(stream.Signature(response_layout(config))),
                "read": Out(ReadClient()),
                "write": Out(WriteClient()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, count = self._config, self._count
        m.submodules.accept = accept = AtomicAccept(config, count)
        m.submodules.compute = compute = AtomicCompute(count)
        m.submodules.settle = settle = AtomicSettle(count)
        m.submodules.respond = respond = AtomicRespond(config, count)
        # The tables, each with the stage that writes it
        wiring.connect(m, accept.operands, compute.operands)
        wiring.connect(m, accept.earlier, compute.earlier)
        wiring.connect(m, accept.qps, respond.qps)
        wiring.connect(m, compute.outcomes, settle.outcomes)
        wiring.connect(m, compute.originals, respond.originals)
        wiring.connect(m, settle.statuses, respond.statuses)
        m.d.comb += [
            accept.select.eq(compute.select),
            accept.selects.eq(compute.selects),
            compute.selected.eq(accept.selected),
            # How far each stage is
            compute.accepted.eq(accept.accepted),
            accept.computed.eq(compute.computed),
            settle.computed.eq(compute.computed),
            accept.settled.eq(settle.settled),
            compute.settled.eq(settle.settled),
            respond.settled.eq(settle.settled),
            accept.answered.eq(respond.answered),
            # Write responses
            settle.write_begins.eq(compute.write_begins),
            settle.done.eq(self.write.done),
            settle.error.eq(self.write.error),
            accept.writes_due.eq(settle.writes_due),
            accept.responses_wait.eq(settle.responses_wait),
            # One that starts over
            accept.failed_under.eq(settle.failed_under),
            compute.again.eq(accept.again),
            settle.again.eq(accept.again),
            settle.recomputed.eq(compute.recomputed),
            accept.settles.eq(settle.settles),
        ]
        wiring.connect(m, wiring.flipped(self.request), accept.request)
        wiring.connect(m, accept.command, wiring.flipped(self.read.command))
        wiring.connect(m, wiring.flipped(self.read.data), compute.read)
        wiring.connect(m, compute.command, wiring.flipped(self.write.command))
        wiring.connect(m, compute.data, wiring.flipped(self.write.data))
        wiring.connect(m, respond.response, wiring.flipped(self.response))
        return m
