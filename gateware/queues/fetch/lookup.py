"""Looks up where the ring of a visited QP stands."""

from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.layouts import QpStrobe
from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.queues.fetch.visit import RING, Visit, below, found_layout, visit_layout
from stagecoach.gateware.queues.prefetch_memory import PrefetchMemory
from stagecoach.gateware.queues.unit_arrivals import ARRIVED, RUN

COUNTS = data.StructLayout({"produced": 16, "fetched": 16})
"""Running numbers after the last unit that was posted, and that was requested."""


class FetchLookup(wiring.Component):
    """Keeps the rings of all QPs; reads and compares what is known of the visited one.

    What was found goes to one of three streams with the same payload, and `visit` is taken when
    that one is. All is as it was in the first cycle of `visit`; pops of that cycle and the one
    before are not in it, but raise `popped_since`. Numbers are mod 2^16, as the doorbell's; those
    of what is on chip have as many bits as tell them apart.

    Latency: 3 cycles from `visit`. Throughput: one visit at a time. While its stream is not taken,
    `visit` is not, and all stands.

    Members
    -------
    visit: In(stream visit_layout).
    found: Out(stream found_layout), to be planned, of any kind but RESCUE.
    idle: Out(stream found_layout), of kind RESCUE.
    failed: Out(stream found_layout), of kind FETCH, but a read had failed.
    qp: In, that of `visit`, and when there is none that of a command.
    popped, home, arrived: In, rows of QP `qp` a cycle ago.
    pop, last_pop: In(QpStrobe), a pop now and in the cycle before.
    popped_since: Out(1), QP `qp` was popped, and that may not be in what was found.
    restart: In(1), `number` and `posted` are 0 from the next cycle to the next visit.
    forget: In(1), after `restart` or a reset: QP `qp` has the ring `ring`, In(RING), of which
        nothing was posted. `units` is 0 then.
    count: In(1), QP `qp` has `posted` units; the next one to fetch is `units`, In, after `number`.
    """

    def __init__(self, memory: PrefetchMemory):
        self._memory = memory
        config = memory.config
        found = stream.Signature(found_layout(memory))
        super().__init__(
            {
                "visit": In(stream.Signature(visit_layout(memory))),
                "found": Out(found),
                "idle": Out(found),
                "failed": Out(found),
                "qp": In(config.qp_bits),
                "popped": In(memory.popped),
                "home": In(memory.home),
                "arrived": In(ARRIVED),
                "pop": In(QpStrobe(config)),
                "last_pop": In(QpStrobe(config)),
                "popped_since": Out(1),
                "restart": In(1),
                "forget": In(1),
                "ring": In(RING),
                "count": In(1),
                "units": In(range(RUN + 1)),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        visit = self.visit.payload

        # Nothing is looked at that was written a cycle before.
        def table(name: str, shape: data.StructLayout) -> Memory:
            m.submodules[name] = it = Memory(
                shape=shape,
                depth=self._memory.config.qps,
                init=[],
                attrs=NO_COLLISION | {"ram_style": "block"},
            )
            return it

        rings, counts = table("rings", RING), table("counts", COUNTS)
        rings_write, counts_write = rings.write_port(), counts.write_port()
        rings_read, counts_read = rings.read_port(), counts.read_port()
        for port in (rings_read, counts_read, rings_write, counts_write):
            m.d.comb += port.addr.eq(self.qp)

        now = Signal(COUNTS)
        arrived = Signal(ARRIVED)
        found = Signal(found_layout(self._memory))
        for way in (self.found, self.idle, self.failed):
            m.d.comb += [
                way.payload.eq(found),
                way.payload.qp.eq(visit.qp),
                way.payload.kind.eq(visit.kind),
                way.payload.failed.eq(arrived.failed),
                way.payload.told.eq(arrived.told),
            ]
        m.d.comb += [
            rings_write.data.eq(self.ring),
            rings_write.en.eq(self.forget),
            counts_write.data.produced.eq(found.posted),
            counts_write.data.fetched.eq(found.number + self.units),
            counts_write.en.eq(self.forget | self.count),
        ]

        pops = Signal()
        m.d.comb += pops.eq(self.pop.valid & (self.pop.qp == self.qp))
        m.d.sync += self.popped_since.eq(self.popped_since | pops)

        with m.FSM():
            # Wait for a visit; the memories read.
            with m.State("LOOK_UP"):
                m.d.sync += self.popped_since.eq(
                    # The pop of the cycle before may not be written yet.
                    pops | (self.last_pop.valid & (self.last_pop.qp == self.qp))
                )
                with m.If(self.restart):
                    m.d.sync += [found.number.eq(0), found.posted.eq(0)]
                with m.If(self.visit.valid):
                    m.next = "LATCH"

            # The outputs of memories are slow: nothing is computed before these registers.
            with m.State("LATCH"):
                m.d.sync += [
                    found.ring.eq(rings_read.data),
                    now.eq(counts_read.data),
                    found.popped.eq(self.popped),
                    found.home.eq(self.home),
                    arrived.eq(self.arrived),
                ]
                m.next = "COMPARE"

            # Everything of the QP is here.
            with m.State("COMPARE"):
                first, last, oldest = Signal(16), Signal(16), found.popped.number
                m.d.comb += [
                    first.eq(
                        Mux(
                            (visit.kind == Visit.COPY) | (visit.kind == Visit.RESCUE),
                            oldest + visit.copied,
                            now.fetched,
                        )
                    ),
                    last.eq(Mux(visit.kind == Visit.DOORBELL, visit.claimed, now.produced)),
                ]
                m.d.sync += [
                    found.number.eq(first),
                    found.slot.eq(first & below(found.ring.log2)),
                    found.posted.eq(last),
                    found.ahead.eq(last - now.fetched),
                    found.known.eq(now.produced - oldest),
                    found.claim.eq(last - oldest),
                    found.used.eq(now.fetched - oldest),
                    found.on_chip.eq(arrived.count - oldest),
                ]
                m.next = "FOUND"

            # Wait until the visit is over.
            with m.State("FOUND"):
                fails = (visit.kind == Visit.FETCH) & arrived.failed
                is_idle = visit.kind == Visit.RESCUE
                m.d.comb += [
                    self.failed.valid.eq(fails),
                    self.idle.valid.eq(is_idle),
                    self.found.valid.eq(~fails & ~is_idle),
                    self.visit.ready.eq(
                        Mux(
                            fails,
                            self.failed.ready,
                            Mux(is_idle, self.idle.ready, self.found.ready),
                        )
                    ),
                ]
                with m.If(self.visit.ready):
                    m.next = "LOOK_UP"
        return m
