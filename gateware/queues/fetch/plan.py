"""Plans which units of a ring are read next."""

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from stagecoach.gateware.queues.fetch.visit import Visit, below, found_layout, read_layout
from stagecoach.gateware.queues.prefetch_memory import LANE_UNITS, UNIT_OCTETS, PrefetchMemory
from stagecoach.gateware.queues.unit_arrivals import RUN


class FetchPlan(wiring.Component):
    """Says which units are to be read, and gives a QP a lane that needs one.

    A read has what was posted and has room on chip, up to the next number that is a multiple of
    `RUN` (without a lane of `own_units`, if that is less) and to the end of the ring. A visit to
    COPY reads one unit to where its QP has room of its own.

    Latency: from `found` to `read` 3 cycles, 1 to COPY, and 3 more if the QP gets a lane. `found`
    is taken with `read`, or instead if nothing is to be read. Throughput: one visit at a time.
    While `read` is not taken, `found` is not. A lane is lent in a cycle without a pop only.

    Members
    -------
    found: In(stream found_layout), FETCH, DOORBELL or COPY.
    read: Out(stream read_layout).
    count: Out(1), a pulse: `units`, Out, are fetched. `units` is 0 between visits.
    again: Out(1), a pulse: visit the QP again.
    popping: In(1), something is popped. popped_since: In(1), the QP was, since it was looked up.
    lane_free: In(1), `free_lane` is nobody's.
    bind: Out(1), a pulse: the QP has the lane `free_lane`; its row of popped units is `settled`,
        its home `moved`. Both are 0 when no lane is to be lent.
    starves: Out(1), a pulse: the QP needs a lane, has nothing on chip, and no lane is free.
    """

    def __init__(self, memory: PrefetchMemory):
        self._memory = memory
        super().__init__(
            {
                "found": In(stream.Signature(found_layout(memory))),
                "read": Out(stream.Signature(read_layout(memory))),
                "count": Out(1),
                "units": Out(range(RUN + 1)),
                "again": Out(1),
                "popping": In(1),
                "popped_since": In(1),
                "lane_free": In(1),
                "free_lane": In(range(memory.config.prefetch_lanes)),
                "bind": Out(1),
                "settled": Out(memory.popped),
                "moved": Out(memory.home),
                "starves": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        found = self.found.payload
        own_units = self._memory.own_units
        own_run = min(own_units, RUN)
        copies = found.kind == Visit.COPY
        bound = Signal()  # the QP got a lane in this visit
        home = Signal(self._memory.home)  # where the units go
        address = Signal(64)
        near = Signal(range(2 * RUN + 1))  # units ahead, or the largest if there are more
        run = Signal(range(RUN + 1))  # units up to the next multiple, or the end of the ring
        wanted = Signal(range(RUN + 1))  # units to fetch, but for the room
        own_room = Signal(range(own_units + 1))
        lane_room = Signal()  # for any run
        wants_lane = Signal()
        starved = Signal()  # all that was on chip is popped
        more = Signal()  # the next run can be fetched at once
        read = self.read.payload
        m.d.comb += [
            read.qp.eq(found.qp),
            read.units.eq(self.units),
            read.address.eq(address),
            read.place.eq(self._memory.address(home.in_lane, home.lane, found.qp, found.number)),
            read.home.eq(home),
            read.copies.eq(copies),
        ]

        with m.FSM():
            # Wait for a visit. How many units can be fetched, and whence?
            with m.State("PLAN"):
                in_lane = found.home.in_lane | bound
                group = Signal(range(RUN + 1))
                to_end = Signal(range(RUN + 1))
                m.d.comb += [
                    group.eq(
                        Mux(
                            in_lane,
                            RUN - found.number[: exact_log2(RUN)],
                            own_run - found.number[: exact_log2(own_run)],
                        )
                    ),
                    to_end.eq((~found.number & below(found.ring.log2))[: exact_log2(RUN)] + 1),
                ]
                m.d.sync += [
                    self.units.eq(0),
                    address.eq(found.ring.base + (found.slot << exact_log2(UNIT_OCTETS))),
                    near.eq(Mux(found.ahead >> exact_log2(2 * RUN), 2 * RUN, found.ahead)),
                    run.eq(Mux(group < to_end, group, to_end)),
                    own_room.eq(
                        Mux(found.used < own_units, own_units - found.used[: len(own_room)], 0)
                    ),
                    lane_room.eq(found.used <= LANE_UNITS - RUN),
                    wants_lane.eq(found.ring.exists & ~in_lane & _exceeds(found.claim, own_units)),
                    starved.eq((found.kind == Visit.FETCH) & (found.on_chip == 0)),
                ]
                with m.If(~bound):
                    m.d.sync += home.eq(found.home)
                with m.If(self.found.valid):
                    m.next = "LIMIT"
                    with m.If(copies):
                        m.d.sync += [self.units.eq(1), home.in_lane.eq(0)]
                        m.next = "READ"

            # As many as were posted; and does the QP need a lane?
            with m.State("LIMIT"):
                m.d.sync += wanted.eq(Mux(near < run, near, run))
                m.next = "ROOM"
                with m.If(wants_lane & self.lane_free):
                    m.next = "BIND"
                with m.Elif(wants_lane & starved):
                    m.d.comb += self.starves.eq(1)

            # As many as there is room for.
            with m.State("ROOM"):
                m.d.sync += [
                    self.units.eq(Mux(wanted < own_room, wanted, own_room)),
                    more.eq((wanted < own_room) & (near > wanted)),
                ]
                # A lane is filled run by run as its QP pops, but never has less than the QP's room.
                with m.If(home.in_lane):
                    m.d.sync += [
                        self.units.eq(Mux(lane_room, wanted, 0)),
                        more.eq((found.used <= max(RUN, own_units)) & (near > wanted)),
                    ]
                m.next = "READ"

            # Wait until the units are requested, if there are any.
            with m.State("READ"):
                m.d.comb += self.read.valid.eq(self.units != 0)
                with m.If(~self.read.valid | self.read.ready):
                    m.d.comb += [
                        self.found.ready.eq(1),
                        self.count.eq(self.read.valid & ~copies),
                        self.again.eq(self.count & more),
                    ]
                    m.d.sync += bound.eq(0)
                    m.next = "PLAN"

            # Give the QP a lane; what was fetched so far stays where it is.
            with m.State("BIND"):
                m.d.comb += [
                    self.settled.number.eq(found.popped.number),
                    self.settled.in_lane.eq(Cat(found.used <= unit for unit in range(own_units))),
                    self.moved.in_lane.eq(1),
                    self.moved.lane.eq(self.free_lane),
                ]
                m.d.sync += home.eq(self.moved)
                with m.If(self.popped_since):
                    m.d.comb += [self.again.eq(1), self.found.ready.eq(1)]
                    m.next = "PLAN"
                with m.Elif(~self.popping):
                    m.d.comb += self.bind.eq(1)
                    m.d.sync += bound.eq(1)
                    m.next = "PLAN"
        return m


def _exceeds(number: Value, power: int) -> Value:
    """Whether a number is more than a power of two."""
    bit = exact_log2(power)
    return number[bit + 1 :].any() | (number[bit] & number[:bit].any())
