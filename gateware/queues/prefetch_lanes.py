"""Lanes: prefetch memory that is lent to the QPs whose rings are in use."""

from amaranth.hdl import Cat, Elaboratable, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import QpStrobe

OLD = 3
"""Ticks without a pop after which a lane may be taken back."""


class PrefetchLanes(wiring.Component):
    """Knows which QP has which lane, and which one may be taken back.

    A lane may be taken back when nothing is on its way to it and its QP has popped nothing since
    the lane was bound, or came up in vain, for 2 to 3 ticks. All outputs are registers: they lag
    their inputs by one cycle, `idle` by two.

    Parameters
    ----------
    config: sizes of the device.
    tick_cycles: cycles of a tick, a power of two.
    outstanding: reads that may be on their way to a lane.

    Members
    -------
    bind: In(1), lane `free_lane` is that of `qp` from now on; only while `free`.
    forget: In(1), `qp` has no lane.
    release: In(1), lane `idle_lane` is free. renew: In(1), it is as if it had been popped.
    pop: In(QpStrobe). fetch, arrive: In(1), a read for `fetch_lane`, `arrive_lane` begins, ends.
    free: Out(1), a lane is free: `free_lane`.
    idle: Out(1), one may be taken back: `idle_lane`, that of `idle_qp`. They hold while `hold`.
    tick: Out(1), a pulse.
    """

    def __init__(self, config: RnicConfig, *, tick_cycles: int, outstanding: int):
        self._count = config.prefetch_lanes
        self._tick_cycles = tick_cycles
        self._outstanding = outstanding
        lane = range(self._count)
        super().__init__(
            {
                "qp": In(config.qp_bits),
                "bind": In(1),
                "forget": In(1),
                "release": In(1),
                "renew": In(1),
                "hold": In(1),
                "pop": In(QpStrobe(config)),
                "fetch": In(1),
                "fetch_lane": In(lane),
                "arrive": In(1),
                "arrive_lane": In(lane),
                "free": Out(1),
                "free_lane": Out(lane),
                "idle": Out(1),
                "idle_lane": Out(lane),
                "idle_qp": Out(config.qp_bits),
                "tick": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        since = Signal(range(self._tick_cycles))
        m.d.sync += [since.eq(since + 1), self.tick.eq(since == self._tick_cycles - 1)]

        bound, idle, owners = [], [], []
        for lane in range(self._count):
            owner = Signal.like(self.qp, name=f"owner_{lane}")
            is_bound = Signal(name=f"bound_{lane}")
            age = Signal(range(OLD + 1), name=f"age_{lane}")
            on_way = Signal(range(self._outstanding + 1), name=f"on_way_{lane}")
            is_idle = Signal(name=f"idle_{lane}")
            begins, ends = Signal(name=f"begins_{lane}"), Signal(name=f"ends_{lane}")
            popped = Signal(name=f"popped_{lane}")
            chosen = self.free_lane == lane
            m.d.comb += [
                begins.eq(self.fetch & (self.fetch_lane == lane)),
                ends.eq(self.arrive & (self.arrive_lane == lane)),
            ]
            m.d.sync += [
                on_way.eq(on_way + begins - ends),
                popped.eq(self.pop.valid & (self.pop.qp == owner)),
                is_idle.eq(is_bound & (age == OLD) & (on_way == 0)),
            ]
            with m.If(self.tick & (age != OLD)):
                m.d.sync += age.eq(age + 1)
            with m.If(popped | (self.renew & (self.idle_lane == lane))):
                m.d.sync += age.eq(0)
            with m.If(self.bind & chosen):
                m.d.sync += [owner.eq(self.qp), is_bound.eq(1), age.eq(0)]
            with m.If(
                (self.forget & (owner == self.qp)) | (self.release & (self.idle_lane == lane))
            ):
                m.d.sync += is_bound.eq(0)
            bound.append(is_bound)
            idle.append(is_idle)
            owners.append(owner)

        m.d.sync += self.free.eq(~Cat(bound).all() & ~self.bind)
        with m.If(~self.hold):
            m.d.sync += self.idle.eq(Cat(idle).any())
        for lane in reversed(range(self._count)):
            with m.If(~bound[lane]):
                m.d.sync += self.free_lane.eq(lane)
            with m.If(~self.hold & idle[lane]):
                m.d.sync += [self.idle_lane.eq(lane), self.idle_qp.eq(owners[lane])]
        return m
