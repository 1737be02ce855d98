"""Prefetches the entries of one kind of ring (send or receive) of every QP from host memory."""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.interfaces import (
    NO_COLLISION,
    EntryPort,
    Layouts,
    QpCommandKind,
    QpStrobe,
    ReadClient,
)
from stagecoach.gateware.queues.kick_queue import KickQueue
from stagecoach.gateware.queues.prefetch_lanes import PrefetchLanes
from stagecoach.gateware.queues.prefetch_memory import BASE_UNITS, LANE_UNITS, PrefetchMemory
from stagecoach.gateware.queues.prefetched_units import PrefetchedUnits
from stagecoach.gateware.queues.unit_arrivals import ARRIVED, COUNT_BITS, RUN, UnitArrivals
from stagecoach.hw.interface.causes import Cause

UNIT_OCTETS = 64
"""Size of a unit of a ring."""

UNIT_WORDS = UNIT_OCTETS // 8

OUTSTANDING = 32
"""Reads that may be on their way from host memory."""

TICK_CYCLES = 1024
"""Cycles from one lane that is taken back to the next one, at least."""


class Visit(enum.Enum, shape=2):
    """What the state machine is about."""

    FETCH = 0
    DOORBELL = 1
    RESCUE = 2
    COPY = 3


class RingFetcher(wiring.Component):
    """Keeps units of every QP's ring on chip, in ring order.

    An entry is one unit of 64 octets, or up to `entry_units` of them; what an entry takes only the
    consumer knows. A doorbell gives the running number (mod 2^16) after the last posted unit of a
    QP. `filled` pulses when a unit became available; by the next cycle `entries` can be asked for
    it.

    Every QP has room for 2 units. A QP with more that are posted gets a lane of 32 more if one of
    the `config.prefetch_lanes` is free, or can be taken back (docs/decisions/prefetch-lanes.md).
    `level` never falls but by a pop, except from more than 2 to 2.

    One read command fetches up to 4 units, up to the next running number that is a multiple of 4
    (without a lane 2), for a single QP at least every 16 cycles; from doorbell to command 9 cycles.
    Up to 32 commands are outstanding over all QPs. `read.data` is taken in every cycle.

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
    send: fetches the send rings, else the receive rings.
    tick_cycles: a lane is taken back once in so many cycles at most, if it was not used for two to
        three times as many. A power of two.
    """

    def __init__(
        self, config: RnicConfig, *, entry_units: int, send: bool, tick_cycles: int = TICK_CYCLES
    ):
        if entry_units not in (1, 2):
            raise ValueError(f"entry_units is {entry_units}; allowed: 1 or 2")
        self._config = config
        self._entry_units = entry_units
        self._send = send
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

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        qps = config.qps
        memory = PrefetchMemory(config)

        m.submodules.units = shown = PrefetchedUnits(
            config, memory, words=UNIT_WORDS, entry_units=self._entry_units
        )
        m.submodules.arrivals = arrivals = UnitArrivals(
            config, address_bits=memory.address_bits, words=UNIT_WORDS, outstanding=OUTSTANDING
        )
        m.submodules.lanes = lanes = PrefetchLanes(
            config, tick_cycles=self._tick_cycles, outstanding=OUTSTANDING
        )
        pop = self.entries.popping
        last_pop = QpStrobe(config).create(path=("last_pop",))
        wiring.connect(m, wiring.flipped(self.read.data), arrivals.word)
        wiring.connect(m, wiring.flipped(self.entries), shown.entries)
        m.d.comb += [
            arrivals.select.eq(self.entries.select),
            shown.arrived.eq(arrivals.selected.count),
            shown.store.eq(arrivals.store),
            shown.store_address.eq(arrivals.store_address),
            shown.store_data.eq(arrivals.store_data),
            self.filled.valid.eq(arrivals.filled.valid),
            self.filled.qp.eq(arrivals.filled.qp),
            lanes.pop.valid.eq(last_pop.valid),
            lanes.pop.qp.eq(last_pop.qp),
        ]
        m.d.sync += [last_pop.valid.eq(pop), last_pop.qp.eq(self.entries.select)]

        # Who wants to be visited: after a pop, a visit that left more to do, or a failed read
        m.submodules.kicked = kicked = KickQueue(config, kicks=3)
        qp = Signal(config.qp_bits)  # the one that is visited
        again = Signal()
        called = QpStrobe(config).create(path=("called",))
        m.d.sync += [called.valid.eq(again), called.qp.eq(qp)]
        clear = Signal()
        m.d.comb += [
            kicked.clear.eq(clear),
            kicked.clear_qp.eq(qp),
            kicked.kicks[0].valid.eq(last_pop.valid),
            kicked.kicks[0].qp.eq(last_pop.qp),
            kicked.kicks[1].valid.eq(called.valid),
            kicked.kicks[1].qp.eq(called.qp),
            kicked.kicks[2].valid.eq(arrivals.failed.valid),
            kicked.kicks[2].qp.eq(arrivals.failed.qp),
        ]

        # What is known of each ring. Nothing is looked at that was written a cycle before.
        ring_layout = data.StructLayout({"exists": 1, "base": 64, "log2": 4})
        counts_layout = data.StructLayout({"produced": 16, "fetched": 16})  # units

        def table(name: str, shape: data.StructLayout) -> Memory:
            m.submodules[name] = it = Memory(
                shape=shape, depth=qps, init=[], attrs=NO_COLLISION | {"ram_style": "block"}
            )
            return it

        rings, counts = table("rings", ring_layout), table("counts", counts_layout)
        rings_write, counts_write = rings.write_port(), counts.write_port()
        rings_read, counts_read = rings.read_port(), counts.read_port()
        for port in (rings_read, counts_read, rings_write, counts_write):
            m.d.comb += port.addr.eq(qp)
        m.d.comb += [shown.qp.eq(qp), arrivals.look.eq(qp), arrivals.set_qp.eq(qp), lanes.qp.eq(qp)]

        # The outputs of memories are slow: nothing is computed before these registers.
        ring = Signal(ring_layout)
        now = Signal(counts_layout)
        popped = Signal(memory.popped)
        home = Signal(memory.home)
        arrived = Signal(ARRIVED)
        m.d.sync += [
            ring.eq(rings_read.data),
            now.eq(counts_read.data),
            popped.eq(shown.popped),
            home.eq(shown.home),
            arrived.eq(arrivals.looked),
        ]

        # Reads on their way
        outstanding = Signal(range(OUTSTANDING + 1))
        request = Signal()
        may_fetch = Signal()
        command = self.read.command
        m.d.sync += [
            outstanding.eq(outstanding + request - arrivals.ended),
            may_fetch.eq(
                ~command.valid & ~request & (outstanding < OUTSTANDING) & arrivals.tag.ready
            ),
        ]
        with m.If(command.ready):
            m.d.sync += command.valid.eq(0)

        # The visit of a QP
        visit = Signal(Visit)
        popped_since = Signal()  # it was popped since its memories were read
        create = Signal()
        doorbell_last = Signal()
        number = Signal(16)  # of the next unit
        claimed = Signal(16)  # by the doorbell
        posted = Signal(16)  # units: as claimed, else as known
        slot = Signal(15)
        address = Signal(64)
        ahead = Signal(16)  # units posted and not fetched
        near = Signal(range(2 * RUN + 1))  # the same, or the largest if there are more
        known = Signal(16)  # units posted and not popped, before the doorbell
        claim = Signal(16)  # and with it
        used = Signal(COUNT_BITS)  # units fetched and not popped
        on_chip = Signal(COUNT_BITS)
        run = Signal(range(RUN + 1))  # units up to the next multiple, or the end of the ring
        wanted = Signal(range(RUN + 1))  # units to fetch, but for the room
        base_room = Signal(range(BASE_UNITS + 1))
        lane_room = Signal()  # for any run
        units = Signal(range(RUN + 1))
        wants_lane = Signal()
        starved = Signal()  # all that was on chip is popped
        more = Signal()  # the next run can be fetched at once
        fits = Signal()
        at_home = Signal(memory.home)
        m.d.sync += popped_since.eq(popped_since | (pop & (self.entries.select == qp)))

        # A lane that is taken back: its QP's oldest units are read again to where it has room of
        # its own, and the others are forgotten, unless one is popped or fetched meanwhile.
        rescuing = Signal()
        rescue_begun = Signal()
        rescue_allowed = Signal()
        disturbed = Signal()  # it was popped, or a read failed, or one was requested
        rescue_keep = Signal(range(BASE_UNITS + 1))  # units
        rescue_left = Signal(range(BASE_UNITS + 1))  # of them to read
        rescue_way = Signal(range(BASE_UNITS + 1))  # reads on their way
        rescue_copies = Signal()
        rescue_due = Signal()
        rescue_for = Signal(config.qp_bits)
        copied = Signal()
        m.d.comb += [
            lanes.hold.eq(rescuing),
            copied.eq(arrivals.ended & arrivals.ended_tag.copies),
            rescue_copies.eq(rescue_begun & (rescue_left != 0)),
            rescue_due.eq(
                rescuing & Mux(rescue_copies, may_fetch, ~rescue_begun | (rescue_way == 0))
            ),
        ]
        m.d.sync += [
            disturbed.eq(
                disturbed
                | (pop & (self.entries.select == lanes.idle_qp))
                | (copied & arrivals.ended_failed)
                | (lanes.fetch & (at_home.lane == lanes.idle_lane))
            ),
            rescue_way.eq(rescue_way + (request & (visit == Visit.COPY)) - copied),
        ]
        with m.If(lanes.tick):
            m.d.sync += rescue_allowed.eq(1)

        # What is written: nothing but zeros if `number`, `posted` and `units` are
        error = self.error
        failed = Signal()
        size = self.qp_command.payload
        m.d.comb += [
            rings_write.data.exists.eq(create),
            rings_write.data.base.eq(size.send_base if self._send else size.receive_base),
            rings_write.data.log2.eq(size.send_log2 if self._send else size.receive_log2),
            counts_write.data.produced.eq(posted),
            counts_write.data.fetched.eq(number + units),
            shown.posted.eq(posted),
            arrivals.set_row.count.eq(number),
            arrivals.set_row.failed.eq(failed),
            arrivals.set_row.told.eq(failed),
        ]
        with m.If(error.ready):
            m.d.sync += error.valid.eq(0)
        with m.If(~error.valid):
            m.d.sync += [
                error.payload.qp.eq(qp),
                error.payload.index.eq(Mux(failed, number, posted)),
                error.payload.cause.eq(Mux(failed, Cause.HOST_READ_ERROR, Cause.LOCAL_BAD_ENTRY)),
            ]
        with m.If(request):
            m.d.sync += [
                command.valid.eq(1),
                command.payload.address.eq(address),
                command.payload.octets.eq(units << exact_log2(UNIT_OCTETS)),
            ]

        def forget() -> None:
            """Write all tables of `qp`."""
            m.d.comb += [
                rings_write.en.eq(1),
                counts_write.en.eq(1),
                shown.settle.eq(1),
                shown.move.eq(1),
                shown.post.eq(1),
                arrivals.set.eq(1),
            ]

        with m.FSM():
            # After a reset no QP exists.
            with m.State("FORGET_ALL"):
                forget()
                m.d.comb += clear.eq(1)
                m.d.sync += qp.eq(qp + 1)
                with m.If(qp == qps - 1):
                    m.next = "IDLE"
            # Waits for a command, a doorbell, or a QP to fetch for.
            with m.State("IDLE"):
                pick = kicked.pick
                rings_bell = self.doorbell.valid & ~(doorbell_last & pick.valid)
                m.d.sync += [
                    qp.eq(pick.payload.qp),
                    visit.eq(Visit.FETCH),
                    create.eq(self.qp_command.payload.kind == QpCommandKind.CREATE),
                    claimed.eq(self.doorbell.payload.producer),
                    units.eq(0),
                ]
                with m.If(self.qp_command.valid):
                    m.d.sync += qp.eq(self.qp_command.payload.qp)
                    m.next = "DRAIN"
                with m.Elif(rescue_due):
                    m.d.sync += [
                        qp.eq(lanes.idle_qp),
                        visit.eq(Mux(rescue_copies, Visit.COPY, Visit.RESCUE)),
                    ]
                    m.next = "LOOK_UP"
                with m.Elif(rings_bell):
                    m.d.sync += [
                        qp.eq(self.doorbell.payload.qp),
                        visit.eq(Visit.DOORBELL),
                        doorbell_last.eq(1),
                    ]
                    m.next = "LOOK_UP"
                with m.Elif(pick.valid):
                    m.d.sync += doorbell_last.eq(0)
                    with m.If(may_fetch):
                        m.next = "LOOK_UP"
            # Waits until no read is outstanding if the command changes a ring.
            with m.State("DRAIN"):
                kind = self.qp_command.payload.kind
                m.d.sync += [number.eq(0), posted.eq(0)]
                with m.If((kind != QpCommandKind.CREATE) & (kind != QpCommandKind.DESTROY)):
                    m.next = "COMMAND"
                with m.Elif(outstanding == 0):
                    m.next = "FORGET"
            # Starts all numbers at 0, until that was done in a cycle without a pop, which uses the
            # memory, and without a unit that is counted: the enables do not wait for it.
            with m.State("FORGET"):
                forget()
                m.d.comb += lanes.forget.eq(1)
                m.d.sync += rescuing.eq(0)
                with m.If(~pop & ~arrivals.busy):
                    m.next = "COMMAND"
            # Takes the command.
            with m.State("COMMAND"):
                m.d.comb += self.qp_command.ready.eq(1)
                m.next = "IDLE"
            # The memories read; what was seen in IDLE is taken.
            with m.State("LOOK_UP"):
                m.d.comb += [
                    self.doorbell.ready.eq(visit == Visit.DOORBELL),
                    kicked.pick.ready.eq(visit == Visit.FETCH),
                ]
                m.d.sync += popped_since.eq(
                    (pop & (self.entries.select == qp))
                    | (last_pop.valid & (last_pop.qp == qp))  # it may not be written yet
                )
                m.next = "LATCH"
            # The outputs of the memories are registered.
            with m.State("LATCH"):
                m.next = "COMPARE"
            # Everything of the QP is here.
            with m.State("COMPARE"):
                first, last = Signal(16), Signal(16)
                m.d.comb += [
                    first.eq(
                        Mux(
                            (visit == Visit.COPY) | (visit == Visit.RESCUE),
                            popped.number + (rescue_keep - rescue_left)[: len(rescue_keep)],
                            now.fetched,
                        )
                    ),
                    last.eq(Mux(visit == Visit.DOORBELL, claimed, now.produced)),
                ]
                m.d.sync += [
                    at_home.eq(home),
                    number.eq(first),
                    posted.eq(last),
                    slot.eq(first & _below(ring.log2)),
                    ahead.eq(last - now.fetched),
                    known.eq(now.produced - popped.number),
                    claim.eq(last - popped.number),
                    used.eq(now.fetched - popped.number),
                    on_chip.eq(arrived.count - popped.number),
                ]
                m.next = "PLAN"
            # How many units can be fetched, and whence.
            with m.State("PLAN"):
                group = Signal(range(RUN + 1))
                to_end = Signal(range(RUN + 1))
                m.d.comb += [
                    group.eq(
                        Mux(
                            at_home.in_lane,
                            RUN - number[: exact_log2(RUN)],
                            BASE_UNITS - number[: exact_log2(BASE_UNITS)],
                        )
                    ),
                    to_end.eq((~number & _below(ring.log2))[: exact_log2(RUN)] + 1),
                ]
                m.d.sync += [
                    address.eq(ring.base + (slot << exact_log2(UNIT_OCTETS))),
                    near.eq(Mux(ahead >> exact_log2(2 * RUN), 2 * RUN, ahead)),
                    run.eq(Mux(group < to_end, group, to_end)),
                    base_room.eq(Mux(used < BASE_UNITS, BASE_UNITS - used[:2], 0)),
                    lane_room.eq(used <= LANE_UNITS - RUN),
                    wants_lane.eq(ring.exists & ~at_home.in_lane & _more_than_two(claim)),
                    starved.eq((visit == Visit.FETCH) & (on_chip == 0)),
                    fits.eq((claim <= 1 << ring.log2) & (claim >= known)),
                ]
                with m.Switch(visit):
                    with m.Case(Visit.FETCH):
                        m.next = "LIMIT"
                        with m.If(arrived.failed):
                            m.next = "FAILED"
                    with m.Case(Visit.DOORBELL):
                        m.next = "DOORBELL"
                    with m.Case(Visit.RESCUE):
                        m.next = "KEEP"
                        with m.If(rescue_begun):
                            m.next = "TAKE_BACK"
                    with m.Case(Visit.COPY):
                        m.d.sync += [units.eq(1), at_home.in_lane.eq(0)]
                        m.next = "REQUEST"
            # As many as were posted; and does the QP need a lane?
            with m.State("LIMIT"):
                m.d.sync += wanted.eq(Mux(near < run, near, run))
                m.next = "ROOM"
                with m.If(wants_lane & lanes.free):
                    m.next = "BIND"
                with m.Elif(wants_lane & starved & lanes.idle & rescue_allowed & ~rescuing):
                    m.d.sync += [
                        rescuing.eq(1),
                        rescue_begun.eq(0),
                        rescue_allowed.eq(0),
                        disturbed.eq(0),
                        rescue_left.eq(0),
                        rescue_for.eq(qp),
                    ]
            # As many as there is room for.
            with m.State("ROOM"):
                m.d.sync += [
                    units.eq(Mux(wanted < base_room, wanted, base_room)),
                    more.eq((wanted < base_room) & (near > wanted)),
                ]
                # A lane is filled run by run as its QP pops, but for the first two.
                with m.If(at_home.in_lane):
                    m.d.sync += [
                        units.eq(Mux(lane_room, wanted, 0)),
                        more.eq((used <= RUN) & (near > wanted)),
                    ]
                m.next = "REQUEST"
            # Requests the units; IDLE made sure that no command waits.
            with m.State("REQUEST"):
                m.next = "IDLE"
                with m.If(units != 0):
                    m.d.comb += request.eq(1)
                    with m.If(visit == Visit.FETCH):
                        m.d.comb += [counts_write.en.eq(1), again.eq(more)]
                    with m.Else():
                        m.d.sync += rescue_left.eq(rescue_left - 1)
            # Gives the QP a lane; what was fetched so far stays where it is.
            with m.State("BIND"):
                m.d.comb += [
                    shown.settled.number.eq(popped.number),
                    shown.settled.in_lane.eq(Cat(used == 0, used <= 1)),
                    shown.moved.in_lane.eq(1),
                    shown.moved.lane.eq(lanes.free_lane),
                ]
                m.d.sync += at_home.eq(shown.moved)
                with m.If(popped_since):
                    m.d.comb += again.eq(1)
                    m.next = "IDLE"
                with m.Elif(~pop):
                    m.d.comb += [shown.settle.eq(1), shown.move.eq(1), lanes.bind.eq(1)]
                    m.next = "PLAN"
            # What has to be copied before the lane can be taken back?
            with m.State("KEEP"):
                keep = BASE_UNITS - base_room
                m.d.sync += [
                    rescue_begun.eq(1),
                    rescue_keep.eq(keep),
                    rescue_left.eq(keep - sum(~bit for bit in popped.in_lane)),
                ]
                m.next = "IDLE"
                with m.If(~at_home.in_lane | arrived.failed | (on_chip != used)):
                    m.d.sync += rescuing.eq(0)
                    m.d.comb += lanes.renew.eq(1)
            # Forgets all that is in the lane.
            with m.State("TAKE_BACK"):
                m.d.comb += shown.settled.number.eq(popped.number)
                with m.If(disturbed):
                    m.d.sync += rescuing.eq(0)
                    m.d.comb += lanes.renew.eq(1)
                    m.next = "IDLE"
                with m.Elif(~pop & ~arrivals.busy):
                    m.d.comb += [
                        arrivals.set.eq(1),
                        shown.settle.eq(1),
                        shown.move.eq(1),
                        lanes.release.eq(1),
                    ]
                    m.d.sync += rescuing.eq(0)
                    m.next = "KEPT"
            # What was kept is all that was fetched.
            with m.State("KEPT"):
                m.d.comb += counts_write.en.eq(1)
                m.d.sync += qp.eq(rescue_for)
                m.next = "CALL"
            # Has the QP visited that needs it.
            with m.State("CALL"):
                m.d.comb += again.eq(1)
                m.next = "IDLE"
            # Takes the new producer number.
            with m.State("DOORBELL"):
                with m.If(~ring.exists):
                    m.next = "IDLE"
                with m.Elif(fits):
                    m.d.comb += [counts_write.en.eq(1), shown.post.eq(1)]
                    m.d.sync += visit.eq(Visit.FETCH)
                    m.next = "LIMIT"
                    with m.If(arrived.failed | ~may_fetch):
                        m.d.comb += again.eq(1)
                        m.next = "IDLE"
                with m.Elif(~error.valid):
                    m.d.sync += error.valid.eq(1)
                    m.next = "IDLE"
            # A read failed: which unit is the first one that is not there?
            with m.State("FAILED"):
                m.d.sync += number.eq(popped.number + on_chip)
                m.next = "TELL"
                with m.If(arrived.told | popped_since):
                    m.d.comb += again.eq(~arrived.told)
                    m.next = "IDLE"
            # Tells of it, once; others are visited while the error before waits.
            with m.State("TELL"):
                m.d.comb += failed.eq(1)
                with m.If(error.valid | arrivals.busy):
                    m.d.comb += again.eq(1)
                with m.Else():
                    m.d.sync += error.valid.eq(1)
                    m.d.comb += arrivals.set.eq(1)
                m.next = "IDLE"

        tag = arrivals.tag
        ended = arrivals.ended_tag.address
        m.d.comb += [
            tag.valid.eq(request),
            tag.payload.qp.eq(qp),
            tag.payload.address.eq(memory.address(at_home.in_lane, at_home.lane, qp, number)),
            tag.payload.copies.eq(visit == Visit.COPY),
            lanes.fetch.eq(request & at_home.in_lane),
            lanes.fetch_lane.eq(at_home.lane),
            lanes.arrive.eq(arrivals.ended & memory.is_in_lane(ended)),
            lanes.arrive_lane.eq(memory.lane(ended)),
        ]
        return m


def _below(log2: Value) -> Value:
    """Return a mask of so many bits."""
    return ((1 << log2) - 1)[:15]


def _more_than_two(number: Value) -> Value:
    return number[2:].any() | number[:2].all()
