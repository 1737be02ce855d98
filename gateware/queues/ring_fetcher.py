"""Prefetches the entries of one kind of ring (send or receive) of every QP from host memory.

`fetch/__init__.py` says which part does what. Here they are joined.
"""

from amaranth import Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.host_memory import ReadClient
from stagecoach.gateware.layouts import Layouts, QpStrobe
from stagecoach.gateware.queues.fetch.choose import FetchChoose
from stagecoach.gateware.queues.fetch.command import FetchCommand
from stagecoach.gateware.queues.fetch.doorbell import FetchDoorbell
from stagecoach.gateware.queues.fetch.failure import FetchFailure
from stagecoach.gateware.queues.fetch.lookup import FetchLookup
from stagecoach.gateware.queues.fetch.plan import FetchPlan
from stagecoach.gateware.queues.fetch.request import FetchRequest
from stagecoach.gateware.queues.fetch.rescue import FetchRescue
from stagecoach.gateware.queues.kick_queue import KickQueue
from stagecoach.gateware.queues.ports import EntryPort
from stagecoach.gateware.queues.prefetch_lanes import PrefetchLanes
from stagecoach.gateware.queues.prefetch_memory import UNIT_OCTETS, PrefetchMemory
from stagecoach.gateware.queues.prefetched_units import PrefetchedUnits
from stagecoach.gateware.queues.unit_arrivals import UnitArrivals

UNIT_WORDS = UNIT_OCTETS // 8

TICK_CYCLES = 1024
"""Cycles from one lane that is taken back to the next one, at least."""


class RingFetcher(wiring.Component):
    """Keeps units of every QP's ring on chip, in ring order.

    An entry is one unit of 64 bytes, or up to `entry_units` of them; what an entry takes only the
    consumer knows. A doorbell gives the running number (mod 2^16) after the last posted unit of a
    QP. `filled` pulses when a unit became available; by the next cycle `entries` can be asked for
    it.

    Every QP has room for `own_units`. A QP with more that are posted gets a lane of 32 more if one
    of the `config.prefetch_lanes` is free, or can be taken back (docs/decisions/prefetch-lanes.md).
    `level` never falls but by a pop, except from more than `own_units` to `own_units`.

    One read command fetches up to 4 units, up to the next running number that is a multiple of 4
    (without a lane of `own_units`, if that is less), for a single QP at least every 16 cycles; from
    doorbell to command 9 cycles. Up to `outstanding` commands are outstanding over all QPs.
    `read.data` is taken in every cycle.

    CREATE takes base and size of the ring and starts all numbers at 0; DESTROY makes the QP deaf
    to doorbells. Both wait until no read is outstanding, so nothing that was read for the old QP
    can be taken for the new one; the command is taken (`ready`) when it has had its effect. The
    consumer must not pop from this QP meanwhile, and must leave a cycle without a pop now and then
    (`EntryPort` makes it so). Commands of other kinds are taken and ignored.

    A doorbell that claims more units than the ring has, or takes units back, changes nothing
    but raises LOCAL_BAD_ENTRY with its producer number as index. After a failed read
    (HOST_READ_ERROR, index of the first unit that is not there) no further unit of this QP becomes
    available or is read, and it keeps its lane. A doorbell of a QP that does not exist is ignored.

    Parameters
    ----------
    config: sizes of the device.
    entry_units: units of the longest entry, 1 or 2.
    own_units: units of each QP that are on chip without a lane, a power of two from 2 on.
    send: fetches the send rings, else the receive rings.
    outstanding: read commands that may be on their way: read latency by cycles for each read.
    tick_cycles: a lane is taken back once in so many cycles at most, if it was not used for two to
        three times as many. A power of two.
    """

    def __init__(
        self,
        config: RnicConfig,
        *,
        entry_units: int,
        own_units: int,
        send: bool,
        outstanding: int = 32,
        tick_cycles: int = TICK_CYCLES,
    ):
        if entry_units not in (1, 2):
            raise ValueError(f"entry_units is {entry_units}; allowed: 1 or 2")
        self._config = config
        self._memory = PrefetchMemory(config, own_units)
        self._entry_units = entry_units
        self._send = send
        self._outstanding = outstanding
        self._tick_cycles = tick_cycles
        layouts = Layouts(config)
        super().__init__(
            {
                "qp_command": In(stream.Signature(layouts.qp_command)),
                "doorbell": In(stream.Signature(layouts.doorbell)),
                "read": Out(ReadClient()),
                # The consumer's view is declared in EntryPort: `select` is an input here.
                "entries": In(EntryPort(config, entry_units * UNIT_WORDS)),
                "filled": Out(QpStrobe(config)),
                "error": Out(stream.Signature(layouts.qp_error)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        memory = self._memory
        # The parts of a visit
        m.submodules.choose = choose = FetchChoose(memory)
        m.submodules.lookup = lookup = FetchLookup(memory)
        m.submodules.doorbell = doorbell = FetchDoorbell(memory)
        m.submodules.plan = plan = FetchPlan(memory)
        m.submodules.request = request = FetchRequest(memory, outstanding=self._outstanding)
        m.submodules.rescue = rescue = FetchRescue(memory)
        m.submodules.failure = failure = FetchFailure(memory)
        m.submodules.command = command = FetchCommand(config, send=self._send)
        # What was read
        m.submodules.units = shown = PrefetchedUnits(
            memory, words=UNIT_WORDS, entry_units=self._entry_units
        )
        m.submodules.arrivals = arrivals = UnitArrivals(
            config,
            address_bits=memory.address_bits,
            words=UNIT_WORDS,
            outstanding=self._outstanding,
        )
        m.submodules.lanes = lanes = PrefetchLanes(
            config, tick_cycles=self._tick_cycles, outstanding=self._outstanding
        )
        # Who wants to be visited: after a pop, a visit that left more to do, or a failed read
        m.submodules.kicked = kicked = KickQueue(config, kicks=3)

        wiring.connect(m, wiring.flipped(self.qp_command), choose.qp_command)
        wiring.connect(m, wiring.flipped(self.doorbell), choose.doorbell)
        wiring.connect(m, kicked.pick, choose.pick)
        wiring.connect(m, choose.command, command.command)
        wiring.connect(m, choose.visit, lookup.visit)
        wiring.connect(m, lookup.found, doorbell.i)
        wiring.connect(m, doorbell.o, plan.found)
        wiring.connect(m, plan.read, request.read)
        wiring.connect(m, request.command, wiring.flipped(self.read.command))
        wiring.connect(m, wiring.flipped(self.read.data), arrivals.word)
        wiring.connect(m, lookup.idle, rescue.idle)
        wiring.connect(m, lookup.failed, failure.failed)
        wiring.connect(m, doorbell.refused, failure.refused)
        wiring.connect(m, failure.error, wiring.flipped(self.error))
        wiring.connect(m, wiring.flipped(self.entries), shown.entries)
        wiring.connect(m, arrivals.filled, wiring.flipped(self.filled))

        pop, last_pop, called = (
            QpStrobe(config).create(path=(name,)) for name in ("pop", "last_pop", "called")
        )
        again = doorbell.again | plan.again | failure.again
        m.d.comb += [pop.valid.eq(self.entries.popping), pop.qp.eq(self.entries.select)]
        m.d.sync += [
            last_pop.valid.eq(pop.valid),
            last_pop.qp.eq(pop.qp),
            called.valid.eq(again | rescue.call.valid),
            called.qp.eq(choose.qp),
        ]
        with m.If(rescue.call.valid):
            m.d.sync += called.qp.eq(rescue.call.qp)
        for kick, source in zip(kicked.kicks, (last_pop, called, arrivals.failed), strict=True):
            m.d.comb += [kick.valid.eq(source.valid), kick.qp.eq(source.qp)]

        # Between the parts
        forget = choose.forget | command.forget
        may_settle = ~pop.valid & ~arrivals.busy
        m.d.comb += [
            choose.may_fetch.eq(request.may_fetch),
            choose.rescue_due.eq(rescue.due),
            choose.rescue_copies.eq(rescue.copies),
            choose.rescue_copied.eq(rescue.copied),
            choose.rescue_qp.eq(lanes.idle_qp),
            lookup.qp.eq(choose.qp),
            lookup.popped.eq(shown.popped),
            lookup.home.eq(shown.home),
            lookup.arrived.eq(arrivals.looked),
            lookup.pop.valid.eq(pop.valid),
            lookup.pop.qp.eq(pop.qp),
            lookup.last_pop.valid.eq(last_pop.valid),
            lookup.last_pop.qp.eq(last_pop.qp),
            lookup.restart.eq(command.restart),
            lookup.forget.eq(forget),
            lookup.ring.eq(command.ring),
            lookup.count.eq(doorbell.post | plan.count | rescue.count),
            lookup.units.eq(plan.units),
            doorbell.may_fetch.eq(request.may_fetch),
            plan.popping.eq(pop.valid),
            plan.popped_since.eq(lookup.popped_since),
            plan.lane_free.eq(lanes.free),
            plan.free_lane.eq(lanes.free_lane),
            request.tag_room.eq(arrivals.tag.ready),
            request.ended.eq(arrivals.ended),
            arrivals.tag.valid.eq(request.requested),
            arrivals.tag.payload.eq(request.tag),
            rescue.starves.eq(plan.starves),
            rescue.qp.eq(choose.qp),
            rescue.lane_idle.eq(lanes.idle),
            rescue.idle_lane.eq(lanes.idle_lane),
            rescue.idle_qp.eq(lanes.idle_qp),
            rescue.tick.eq(lanes.tick),
            rescue.may_fetch.eq(request.may_fetch),
            rescue.requested.eq(request.requested),
            rescue.copying.eq(request.tag.copies),
            rescue.fetch.eq(request.fetch),
            rescue.fetch_lane.eq(request.fetch_lane),
            rescue.ended.eq(arrivals.ended),
            rescue.ended_copy.eq(arrivals.ended_tag.copies),
            rescue.ended_failed.eq(arrivals.ended_failed),
            rescue.pop.valid.eq(pop.valid),
            rescue.pop.qp.eq(pop.qp),
            rescue.may_settle.eq(may_settle),
            rescue.forget.eq(command.forget),
            failure.popped_since.eq(lookup.popped_since),
            failure.counting.eq(arrivals.busy),
            command.quiet.eq(request.quiet),
            command.may_settle.eq(may_settle),
            kicked.clear.eq(choose.forget),
            kicked.clear_qp.eq(choose.qp),
        ]

        # What was read: only zeros are stored of a QP that is forgotten.
        found = lookup.found.payload
        ended = arrivals.ended_tag.address
        m.d.comb += [
            shown.qp.eq(choose.qp),
            shown.arrived.eq(arrivals.selected.count),
            shown.failed.eq(arrivals.selected.failed),
            shown.store.eq(arrivals.store),
            shown.store_address.eq(arrivals.store_address),
            shown.store_data.eq(arrivals.store_data),
            shown.settle.eq(forget | plan.bind | rescue.settle),
            shown.settled.number.eq(plan.settled.number | rescue.settled.number),
            shown.settled.in_lane.eq(plan.settled.in_lane | rescue.settled.in_lane),
            shown.move.eq(forget | plan.bind | rescue.settle),
            shown.moved.eq(plan.moved),
            shown.post.eq(forget | doorbell.post),
            shown.posted.eq(found.posted),
            arrivals.select.eq(self.entries.select),
            arrivals.look.eq(choose.qp),
            arrivals.set.eq(forget | rescue.settle | failure.tell),
            arrivals.set_qp.eq(choose.qp),
            arrivals.set_row.count.eq(Mux(failure.tell, failure.count, found.number)),
            arrivals.set_row.failed.eq(failure.tell),
            arrivals.set_row.told.eq(failure.tell),
            lanes.qp.eq(choose.qp),
            lanes.bind.eq(plan.bind),
            lanes.forget.eq(command.forget),
            lanes.release.eq(rescue.release),
            lanes.renew.eq(rescue.renew),
            lanes.hold.eq(rescue.hold),
            lanes.pop.valid.eq(last_pop.valid),
            lanes.pop.qp.eq(last_pop.qp),
            lanes.fetch.eq(request.fetch),
            lanes.fetch_lane.eq(request.fetch_lane),
            lanes.arrive.eq(arrivals.ended & memory.is_in_lane(ended)),
            lanes.arrive_lane.eq(memory.lane(ended)),
        ]
        return m
