"""Prefetches the entries of one kind of ring (send or receive) of every QP from host memory."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gateware.config import RnicConfig
from gateware.interfaces import (
    NO_COLLISION,
    EntryPort,
    Layouts,
    QpCommandKind,
    QpStrobe,
    ReadClient,
)
from gateware.queues.prefetch_lanes import PrefetchLanes
from gateware.queues.scheduler import Scheduler
from gateware.queues.unit_arrivals import ARRIVED, COUNT_BITS, RUN, UnitArrivals
from hw.interface.causes import Cause

UNIT_OCTETS = 64
"""Size of a unit of a ring."""

UNIT_WORDS = UNIT_OCTETS // 8
BASE_UNITS = 2
"""Units of prefetch memory that each QP has of its own."""

LANE_UNITS = 32
"""Units of a lane."""

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
    consumer knows. A doorbell gives the running number (mod 2^16) behind the last posted unit of a
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
    (HOST_READ_ERROR, index of the unit) no further unit of this QP becomes available, and it keeps
    its lane. A doorbell of a QP that does not exist is ignored. While a read error waits for
    `error` nothing is fetched.

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

        context_layout = data.StructLayout({"exists": 1, "base": 64, "mask": 15})
        # In the order of the ring: `in_base` units where every QP has room (if it has a lane; else
        # all), then those in its lane.
        popped_layout = data.StructLayout({"number": 16, "in_base": range(BASE_UNITS + 1)})
        home_layout = data.StructLayout({"in_lane": 1, "lane": range(config.prefetch_lanes)})

        # The larger half of the prefetch memory comes first.
        base_bits = exact_log2(BASE_UNITS) + config.qp_bits
        lane_bits = exact_log2(LANE_UNITS) + exact_log2(config.prefetch_lanes)
        half_bits = max(base_bits, lane_bits)
        lanes_first = lane_bits >= base_bits
        address_bits = half_bits + 1
        depth = ((1 << base_bits) + (1 << lane_bits)) * UNIT_WORDS

        def address_of(in_lane, lane, qp, number):
            """Where a unit stands in the prefetch memory."""
            lane_number = Cat(number[: exact_log2(LANE_UNITS)], lane, Const(0, half_bits))
            base_number = Cat(number[: exact_log2(BASE_UNITS)], qp, Const(0, half_bits))
            return Cat(
                Mux(in_lane, lane_number[:half_bits], base_number[:half_bits]),
                ~in_lane if lanes_first else in_lane,
            )

        def memory(name: str, shape, **attrs: str) -> Memory:
            m.submodules[name] = it = Memory(shape=shape, depth=qps, init=[], attrs=attrs)
            return it

        contexts = memory("contexts", context_layout)  # of the ring
        produced = memory("produced", 16)  # units posted
        fetched = memory("fetched", 16)  # units requested
        # Both are read while they are written, which block RAM does not bear. Units taken by the
        # consumer.
        popped = memory("popped", popped_layout, ram_style="distributed")
        homes = memory("homes", home_layout, ram_style="distributed")
        # A unit is looked at only when it has arrived, so no word is read while it is written.
        m.submodules.buffer = buffer = Memory(shape=64, depth=depth, init=[], attrs=NO_COLLISION)
        m.submodules.arrivals = arrivals = UnitArrivals(
            config, address_bits=address_bits, words=UNIT_WORDS, outstanding=OUTSTANDING
        )
        m.submodules.lanes = lanes = PrefetchLanes(
            config, tick_cycles=self._tick_cycles, outstanding=OUTSTANDING
        )
        wiring.connect(m, wiring.flipped(self.read.data), arrivals.word)

        contexts_write = contexts.write_port()
        produced_write = produced.write_port()
        fetched_write = fetched.write_port()
        popped_write = popped.write_port()
        homes_write = homes.write_port()
        buffer_write = buffer.write_port()
        m.d.comb += [
            buffer_write.en.eq(arrivals.store),
            buffer_write.addr.eq(arrivals.store_address),
            buffer_write.data.eq(arrivals.store_data),
            self.filled.valid.eq(arrivals.filled.valid),
            self.filled.qp.eq(arrivals.filled.qp),
        ]

        # What the state machine works on.
        qp = Signal(config.qp_bits)
        wipe = Signal()
        context_read = contexts.read_port()
        produced_read = produced.read_port()
        fetched_read = fetched.read_port()
        popped_read = popped.read_port()
        homes_read = homes.read_port()
        for port in (context_read, produced_read, fetched_read, popped_read, homes_read):
            m.d.comb += port.addr.eq(qp)
        m.d.comb += arrivals.look.eq(qp)

        # Consumer's side
        ports = self.entries
        # Asked for a cycle earlier, because an address is made of them.
        selected_popped = popped.read_port(transparent_for=(popped_write,))
        selected_home = homes.read_port(transparent_for=(homes_write,))
        selected_produced = produced.read_port()
        buffer_read = buffer.read_port()
        selected_number = Signal(16)
        second = ports.word_address[exact_log2(UNIT_WORDS) :] if self._entry_units > 1 else Const(0)
        # Of both units that an entry may have: the word address comes late in its cycle.
        units_at = []
        for unit in range(self._entry_units):
            number_of = selected_popped.data.number[: exact_log2(LANE_UNITS)] + unit
            in_lane = selected_home.data.in_lane & (selected_popped.data.in_base <= unit)
            units_at.append(address_of(in_lane, selected_home.data.lane, ports.select, number_of))
        m.d.comb += [
            selected_popped.addr.eq(ports.coming),
            selected_home.addr.eq(ports.coming),
            selected_produced.addr.eq(ports.select),
            arrivals.select.eq(ports.select),
            buffer_read.addr.eq(
                Cat(
                    ports.word_address[: exact_log2(UNIT_WORDS)],
                    Mux(second, units_at[-1], units_at[0]),
                )
            ),
        ]
        level = Signal(COUNT_BITS)
        m.d.comb += level.eq(arrivals.selected.count - selected_number)
        m.d.sync += [
            selected_number.eq(selected_popped.data.number),
            ports.index.eq(selected_number),
            ports.posted.eq(selected_produced.data - selected_number),
            ports.level.eq(level),
            ports.word.eq(buffer_read.data),
        ]

        settled = Signal(popped_layout)  # what the state machine writes
        settle = Signal()  # in a cycle without a pop
        # Of the selected QP: nothing else pops it, so this is right although a cycle old, unless
        # the state machine settled it in that cycle, which leaves the number as it is.
        selected_in_base = Signal(range(BASE_UNITS + 1))
        m.d.sync += selected_in_base.eq(
            Mux(settle & (qp == ports.select), settled.in_base, selected_popped.data.in_base)
        )
        m.d.comb += [
            popped_write.addr.eq(Mux(ports.pop, ports.select, qp)),
            popped_write.data.eq(settled),
            popped_write.en.eq(ports.pop | wipe | settle),
            lanes.pop.valid.eq(ports.pop),
            lanes.pop.qp.eq(ports.select),
        ]
        with m.If(ports.pop):
            m.d.comb += [
                popped_write.data.number.eq(selected_number + 1 + ports.pop_both),
                popped_write.data.in_base.eq(~ports.pop_both & selected_in_base[1]),
            ]

        # Errors: of a read, or of a doorbell
        error = self.error
        failure = arrivals.error
        error_free = Signal()
        bad_doorbell = Signal()  # the state machine has one; taken if `error_free`
        claimed = Signal(16)
        m.d.comb += [error_free.eq(~error.valid & ~failure.valid), failure.ready.eq(~error.valid)]
        with m.If(error.ready):
            m.d.sync += error.valid.eq(0)
        with m.If(~error.valid):
            with m.If(failure.valid):
                m.d.sync += [
                    error.valid.eq(1),
                    error.payload.qp.eq(failure.p.qp),
                    error.payload.index.eq(failure.p.index),
                    error.payload.cause.eq(Cause.HOST_READ_ERROR),
                ]
            with m.Elif(bad_doorbell):
                m.d.sync += [
                    error.valid.eq(1),
                    error.payload.qp.eq(qp),
                    error.payload.index.eq(claimed),
                    error.payload.cause.eq(Cause.LOCAL_BAD_ENTRY),
                ]

        # Who wants to fetch: after a doorbell, a pop, or a visit that left more to do
        m.submodules.scheduler = scheduler = Scheduler(config, kicks=2)
        again = Signal()
        m.d.comb += [
            scheduler.kicks[0].valid.eq(again),
            scheduler.kicks[0].qp.eq(qp),
            scheduler.kicks[1].valid.eq(ports.pop),
            scheduler.kicks[1].qp.eq(ports.select),
        ]

        # The outputs of memories are slow: nothing is computed before these registers.
        context = Signal(context_layout)
        produced_now = Signal(16)
        fetched_now = Signal(16)
        popped_now = Signal(popped_layout)
        home = Signal(home_layout)
        arrived_now = Signal(ARRIVED)
        m.d.sync += [
            context.eq(context_read.data),
            produced_now.eq(produced_read.data),
            fetched_now.eq(fetched_read.data),
            popped_now.eq(popped_read.data),
            home.eq(homes_read.data),
            arrived_now.eq(arrivals.looked),
        ]

        # Reads on their way
        outstanding = Signal(range(OUTSTANDING + 1))
        request = Signal()
        may_fetch = Signal()
        command = self.read.command
        m.d.sync += [
            outstanding.eq(outstanding + request - arrivals.ended),
            may_fetch.eq(
                ~command.valid
                & ~request
                & (outstanding < OUTSTANDING)
                & arrivals.tag.ready
                & ~failure.valid
            ),
        ]
        with m.If(command.ready):
            m.d.sync += command.valid.eq(0)

        # The visit of a QP
        visit = Signal(Visit)
        popped_since = Signal()  # it was popped since its memories were read
        ring = Signal(context_layout)
        create = Signal()
        doorbell_last = Signal()
        number = Signal(16)  # of the next unit
        slot = Signal(15)
        address = Signal(64)
        ahead = Signal(16)  # units posted and not fetched
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
        at_home = Signal(home_layout)
        m.d.sync += popped_since.eq(popped_since | (ports.pop & (ports.select == qp)))

        # A lane that is taken back: its QP's oldest units are read again to where it has room of
        # its own, and the others are forgotten, unless one is popped or fetched meanwhile.
        rescuing = Signal()
        rescue_begun = Signal()
        rescue_allowed = Signal()
        rescued_since = Signal()  # it was popped
        rescue_fetched = Signal(16)
        rescue_number = Signal(16)  # of the next unit to read
        rescue_left = Signal(range(BASE_UNITS + 1))  # units to read
        rescue_keep = Signal(range(BASE_UNITS + 1))
        rescue_way = Signal(range(BASE_UNITS + 1))  # reads on their way
        rescue_failed = Signal()
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
            rescued_since.eq(rescued_since | (ports.pop & (ports.select == lanes.idle_qp))),
            rescue_failed.eq(rescue_failed | (copied & arrivals.ended_failed)),
            rescue_way.eq(rescue_way + (request & (visit == Visit.COPY)) - copied),
        ]
        with m.If(lanes.tick):
            m.d.sync += rescue_allowed.eq(1)

        size = self.qp_command.payload
        log2 = size.send_log2 if self._send else size.receive_log2
        base = size.send_base if self._send else size.receive_base
        keep_row = Signal(ARRIVED)
        m.d.comb += [
            contexts_write.addr.eq(qp),
            contexts_write.data.eq(Mux(wipe, Cat(create, ring.base, ring.mask), 0)),
            contexts_write.en.eq(wipe),
            produced_write.addr.eq(qp),
            produced_write.data.eq(Mux(wipe, 0, claimed)),
            fetched_write.addr.eq(qp),
            fetched_write.data.eq(Mux(wipe, 0, number + units)),
            homes_write.addr.eq(qp),
            arrivals.set_qp.eq(qp),
            arrivals.set_row.eq(Mux(wipe, 0, keep_row)),
            lanes.qp.eq(qp),
        ]
        with m.If(request):
            m.d.sync += [
                command.valid.eq(1),
                command.payload.address.eq(address),
                command.payload.octets.eq(units << exact_log2(UNIT_OCTETS)),
            ]

        with m.FSM():
            # After a reset no QP exists.
            with m.State("FORGET_ALL"):
                m.d.comb += [
                    wipe.eq(1),
                    produced_write.en.eq(1),
                    fetched_write.en.eq(1),
                    homes_write.en.eq(1),
                    arrivals.set.eq(1),
                ]
                m.d.sync += qp.eq(qp + 1)
                with m.If(qp == qps - 1):
                    m.next = "IDLE"
            # Waits for a command, a doorbell, or a QP to fetch for.
            with m.State("IDLE"):
                pick = scheduler.pick
                with m.If(self.qp_command.valid):
                    m.d.sync += [
                        qp.eq(self.qp_command.payload.qp),
                        create.eq(self.qp_command.payload.kind == QpCommandKind.CREATE),
                        ring.base.eq(base),
                        ring.mask.eq((1 << log2) - 1),
                    ]
                    m.next = "DRAIN"
                with m.Elif(rescue_due):
                    m.d.sync += [
                        qp.eq(lanes.idle_qp),
                        visit.eq(Mux(rescue_copies, Visit.COPY, Visit.RESCUE)),
                    ]
                    m.next = "LOOK_UP"
                with m.Elif(self.doorbell.valid & ~(doorbell_last & pick.valid)):
                    m.d.sync += [
                        qp.eq(self.doorbell.payload.qp),
                        claimed.eq(self.doorbell.payload.producer),
                        visit.eq(Visit.DOORBELL),
                        doorbell_last.eq(1),
                    ]
                    m.next = "LOOK_UP"
                with m.Elif(pick.valid):
                    m.d.sync += doorbell_last.eq(0)
                    with m.If(may_fetch):
                        m.d.sync += [qp.eq(pick.payload.qp), visit.eq(Visit.FETCH)]
                        m.next = "LOOK_UP"
            # Waits until no read is outstanding if the command changes a ring.
            with m.State("DRAIN"):
                kind = self.qp_command.payload.kind
                with m.If((kind != QpCommandKind.CREATE) & (kind != QpCommandKind.DESTROY)):
                    m.d.comb += self.qp_command.ready.eq(1)
                    m.next = "IDLE"
                with m.Elif(outstanding == 0):
                    m.next = "FORGET"
            # Starts all numbers at 0; the memory of the popped ones may be in use for a pop.
            with m.State("FORGET"):
                m.d.comb += [
                    wipe.eq(1),
                    produced_write.en.eq(1),
                    fetched_write.en.eq(1),
                    homes_write.en.eq(1),
                    arrivals.set.eq(1),
                    lanes.forget.eq(1),
                ]
                m.d.sync += rescuing.eq(0)
                with m.If(~ports.pop & ~arrivals.busy):
                    m.d.comb += self.qp_command.ready.eq(1)
                    m.next = "IDLE"
            # The memories read; what was seen in IDLE is taken.
            with m.State("LOOK_UP"):
                m.d.comb += [
                    self.doorbell.ready.eq(visit == Visit.DOORBELL),
                    scheduler.pick.ready.eq(visit == Visit.FETCH),
                ]
                m.d.sync += popped_since.eq(ports.pop & (ports.select == qp))
                m.next = "LATCH"
            # The outputs of the memories are registered.
            with m.State("LATCH"):
                m.next = "COMPARE"
            # Everything of the QP is here.
            with m.State("COMPARE"):
                first = Signal(16)
                posted = Signal(16)
                m.d.comb += [
                    first.eq(Mux(visit == Visit.COPY, rescue_number, fetched_now)),
                    posted.eq(Mux(visit == Visit.DOORBELL, claimed, produced_now)),
                ]
                m.d.sync += [
                    ring.eq(context),
                    at_home.eq(home),
                    number.eq(first),
                    slot.eq(first & context.mask),
                    ahead.eq(posted - fetched_now),
                    known.eq(produced_now - popped_now.number),
                    claim.eq(posted - popped_now.number),
                    used.eq(fetched_now - popped_now.number),
                    on_chip.eq(arrived_now.count - popped_now.number),
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
                    to_end.eq((~number & ring.mask)[: exact_log2(RUN)] + 1),
                ]
                m.d.sync += [
                    address.eq(ring.base + (slot << exact_log2(UNIT_OCTETS))),
                    run.eq(Mux(group < to_end, group, to_end)),
                    base_room.eq(Mux(used < BASE_UNITS, BASE_UNITS - used[:2], 0)),
                    lane_room.eq(used <= LANE_UNITS - RUN),
                    wants_lane.eq(ring.exists & ~at_home.in_lane & (claim > BASE_UNITS)),
                    starved.eq((visit == Visit.FETCH) & (on_chip == 0)),
                    fits.eq((claim <= ring.mask + 1) & (claim >= known)),
                ]
                with m.Switch(visit):
                    with m.Case(Visit.FETCH):
                        m.next = "LIMIT"
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
                m.d.sync += wanted.eq(Mux(ahead < run, ahead[: len(run)], run))
                m.next = "ROOM"
                with m.If(wants_lane & lanes.free):
                    m.next = "BIND"
                with m.Elif(wants_lane & starved & lanes.idle & rescue_allowed & ~rescuing):
                    m.d.sync += [
                        rescuing.eq(1),
                        rescue_begun.eq(0),
                        rescue_allowed.eq(0),
                        rescued_since.eq(0),
                        rescue_failed.eq(0),
                        rescue_left.eq(0),
                        rescue_for.eq(qp),
                    ]
            # As many as there is room for.
            with m.State("ROOM"):
                m.d.sync += [
                    units.eq(Mux(wanted < base_room, wanted, base_room)),
                    more.eq((wanted < base_room) & (ahead > wanted)),
                ]
                # A lane is filled run by run as its QP pops, but for the first two.
                with m.If(at_home.in_lane):
                    m.d.sync += [
                        units.eq(Mux(lane_room, wanted, 0)),
                        more.eq((used <= RUN) & (ahead > wanted)),
                    ]
                m.next = "REQUEST"
            # Requests the units; IDLE made sure that no command waits.
            with m.State("REQUEST"):
                m.next = "IDLE"
                with m.If(ring.exists & (units != 0)):
                    m.d.comb += request.eq(1)
                    with m.If(visit == Visit.FETCH):
                        m.d.comb += [fetched_write.en.eq(1), again.eq(more)]
                    with m.Else():
                        m.d.sync += [
                            rescue_number.eq(rescue_number + 1),
                            rescue_left.eq(rescue_left - 1),
                        ]
            # Gives the QP a lane; what was fetched so far stays where it is.
            with m.State("BIND"):
                m.d.comb += [
                    settled.number.eq(popped_now.number),
                    settled.in_base.eq(used),
                    homes_write.data.in_lane.eq(1),
                    homes_write.data.lane.eq(lanes.free_lane),
                ]
                m.d.sync += at_home.eq(homes_write.data)
                with m.If(popped_since):
                    m.d.comb += again.eq(1)
                    m.next = "IDLE"
                with m.Elif(~ports.pop):
                    m.d.comb += [settle.eq(1), homes_write.en.eq(1), lanes.bind.eq(1)]
                    m.next = "PLAN"
            # What has to be copied before the lane can be taken back?
            with m.State("KEEP"):
                m.d.sync += [
                    rescue_begun.eq(1),
                    rescue_fetched.eq(fetched_now),
                    rescue_number.eq(popped_now.number + popped_now.in_base),
                    rescue_keep.eq(Mux(on_chip < BASE_UNITS, on_chip, BASE_UNITS)),
                ]
                m.next = "KEEP_LEFT"
                with m.If(~at_home.in_lane | arrived_now.failed | (on_chip != used)):
                    m.d.sync += rescuing.eq(0)
                    m.d.comb += lanes.renew.eq(1)
                    m.next = "IDLE"
            with m.State("KEEP_LEFT"):
                with m.If(rescue_keep > popped_now.in_base):
                    m.d.sync += rescue_left.eq(rescue_keep - popped_now.in_base)
                m.next = "IDLE"
            # Forgets all that is in the lane.
            with m.State("TAKE_BACK"):
                same = Signal()
                m.d.comb += [
                    keep_row.count.eq(number),
                    same.eq(~rescued_since & ~rescue_failed & (fetched_now == rescue_fetched)),
                ]
                m.d.sync += [number.eq(popped_now.number + rescue_keep), units.eq(0)]
                m.next = "FORGET_LANE"
                with m.If(~same):
                    m.d.sync += rescuing.eq(0)
                    m.d.comb += lanes.renew.eq(1)
                    m.next = "IDLE"
            with m.State("FORGET_LANE"):
                m.d.comb += keep_row.count.eq(number)
                with m.If(rescued_since):
                    m.d.sync += rescuing.eq(0)
                    m.d.comb += lanes.renew.eq(1)
                    m.next = "IDLE"
                with m.Elif(~ports.pop & ~arrivals.busy):
                    m.d.comb += [
                        arrivals.set.eq(1),
                        fetched_write.en.eq(1),
                        homes_write.en.eq(1),
                        lanes.release.eq(1),
                    ]
                    m.d.sync += [rescuing.eq(0), qp.eq(rescue_for)]
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
                    m.d.comb += produced_write.en.eq(1)
                    m.d.sync += visit.eq(Visit.FETCH)
                    m.next = "LIMIT"
                    with m.If(~may_fetch):
                        m.d.comb += again.eq(1)
                        m.next = "IDLE"
                with m.Else():
                    m.d.comb += bad_doorbell.eq(1)
                    with m.If(error_free):
                        m.next = "IDLE"

        tag = arrivals.tag
        m.d.comb += [
            tag.valid.eq(request),
            tag.payload.qp.eq(qp),
            tag.payload.index.eq(number),
            tag.payload.address.eq(address_of(at_home.in_lane, at_home.lane, qp, number)),
            tag.payload.in_lane.eq(at_home.in_lane),
            tag.payload.lane.eq(at_home.lane),
            tag.payload.copies.eq(visit == Visit.COPY),
            lanes.fetch.eq(request & at_home.in_lane),
            lanes.fetch_lane.eq(at_home.lane),
            lanes.arrive.eq(arrivals.ended & arrivals.ended_tag.in_lane),
            lanes.arrive_lane.eq(arrivals.ended_tag.lane),
        ]
        return m
