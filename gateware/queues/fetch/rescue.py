"""Takes back a lane that is not used, for a QP that needs one."""

from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.layouts import QpStrobe
from stagecoach.gateware.queues.fetch.visit import found_layout
from stagecoach.gateware.queues.prefetch_memory import PrefetchMemory


class FetchRescue(wiring.Component):
    """Has the owner of an idle lane visited until the lane is free.

    The owner's oldest units are read again to where it has room of its own, one in a visit to COPY,
    and the others are forgotten, unless one is popped or fetched meanwhile or a read fails. Then
    the lane stays, and is as if it had been popped. A first visit to RESCUE says what is to be
    copied, a last one frees the lane and calls the QP that needs it.

    Latency: the first visit is taken a cycle after it came. The last one is, too, if the lane
    stays, or else 3 cycles after it came; later while something is popped or counted in every
    cycle. Throughput: one lane at a time, and one a tick. A visit is `due` for as long as it waits.

    Members
    -------
    idle: In(stream found_layout), the owner was looked up: a visit to RESCUE.
    starves: In(1), a pulse: QP `qp` needs a lane.
    lane_idle, idle_lane, idle_qp, tick: In, from the lanes: the lane to take back, and its owner.
    hold, renew, release: Out(1), to the lanes: keep to that lane; it stays; it is free.
    due: Out(1), visit `idle_qp`: `copies`, Out(1), if it is to copy. copied: Out, units that were.
    may_fetch: In(1), there is room for a read.
    requested: In(1), a pulse: a read begins, to copy if `copying`, In(1).
    fetch, fetch_lane: In, one for that lane does.
    ended: In(1), a pulse: one has ended, which was to copy if `ended_copy`, and failed if
        `ended_failed`, In(1).
    pop: In(QpStrobe). may_settle: In(1), nothing is popped, nor counted, in this cycle.
    settle: Out(1), a pulse: the owner's row of popped units is `settled`, its home none, and no
        units arrived but those before `number`. `settled` is 0 when no lane is to be freed.
    count: Out(1), a pulse: nothing but those is fetched.
    call: Out(QpStrobe), visit this QP.
    forget: In(1), a QP is forgotten: the lane stays for now. No visit is under way.
    """

    def __init__(self, memory: PrefetchMemory):
        self._own_units = memory.own_units
        config = memory.config
        lane = range(config.prefetch_lanes)
        super().__init__(
            {
                "idle": In(stream.Signature(found_layout(memory))),
                "starves": In(1),
                "qp": In(config.qp_bits),
                "lane_idle": In(1),
                "idle_lane": In(lane),
                "idle_qp": In(config.qp_bits),
                "tick": In(1),
                "hold": Out(1),
                "renew": Out(1),
                "release": Out(1),
                "due": Out(1),
                "copies": Out(1),
                "copied": Out(range(memory.own_units + 1)),
                "may_fetch": In(1),
                "requested": In(1),
                "copying": In(1),
                "fetch": In(1),
                "fetch_lane": In(lane),
                "ended": In(1),
                "ended_copy": In(1),
                "ended_failed": In(1),
                "pop": In(QpStrobe(config)),
                "may_settle": In(1),
                "settle": Out(1),
                "settled": Out(memory.popped),
                "count": Out(1),
                "call": Out(QpStrobe(config)),
                "forget": In(1),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        found = self.idle.payload
        own_units = self._own_units
        begun = Signal()  # it is known what is to be copied
        allowed = Signal()  # there was a tick since the last one
        disturbed = Signal()  # the owner was popped, or a read failed, or one was requested
        keep = Signal(range(own_units + 1))  # units
        left = Signal(range(own_units + 1))  # of them to read
        on_way = Signal(range(own_units + 1))  # reads that copy
        copy_begins, copy_ends = Signal(), Signal()
        m.d.comb += [
            copy_begins.eq(self.requested & self.copying),
            copy_ends.eq(self.ended & self.ended_copy),
            self.copies.eq(begun & (left != 0)),
            self.copied.eq(keep - left),
            self.due.eq(self.hold & Mux(self.copies, self.may_fetch, ~begun | (on_way == 0))),
        ]
        m.d.sync += [
            disturbed.eq(
                disturbed
                | (self.pop.valid & (self.pop.qp == self.idle_qp))
                | (copy_ends & self.ended_failed)
                | (self.fetch & (self.fetch_lane == self.idle_lane))
            ),
            on_way.eq(on_way + copy_begins - copy_ends),
        ]
        with m.If(copy_begins):
            m.d.sync += left.eq(left - 1)
        with m.If(self.tick):
            m.d.sync += allowed.eq(1)
        with m.If(self.starves & self.lane_idle & allowed & ~self.hold):
            m.d.sync += [
                self.hold.eq(1),
                begun.eq(0),
                allowed.eq(0),
                disturbed.eq(0),
                left.eq(0),
                self.call.qp.eq(self.qp),
            ]
        with m.If(self.forget):
            m.d.sync += self.hold.eq(0)

        with m.FSM():
            # Wait for the owner.
            with m.State("OWNER"):
                with m.If(~begun):
                    m.d.sync += keep.eq(
                        Mux(found.used < own_units, found.used[: len(keep)], own_units)
                    )
                with m.If(self.idle.valid):
                    m.next = "KEEP"
                    with m.If(begun):
                        m.next = "TAKE_BACK"

            # What has to be copied before the lane can be taken back?
            with m.State("KEEP"):
                m.d.comb += self.idle.ready.eq(1)
                m.d.sync += [
                    begun.eq(1),
                    left.eq(keep - sum(~bit for bit in found.popped.in_lane)),
                ]
                m.next = "OWNER"
                with m.If(~found.home.in_lane | found.failed | (found.on_chip != found.used)):
                    m.d.comb += self.renew.eq(1)
                    m.d.sync += self.hold.eq(0)

            # Forget all that is in the lane.
            with m.State("TAKE_BACK"):
                m.d.comb += self.settled.number.eq(found.popped.number)
                with m.If(disturbed):
                    m.d.comb += [self.renew.eq(1), self.idle.ready.eq(1)]
                    m.d.sync += self.hold.eq(0)
                    m.next = "OWNER"
                with m.Elif(self.may_settle):
                    m.d.comb += [self.settle.eq(1), self.release.eq(1)]
                    m.d.sync += self.hold.eq(0)
                    m.next = "KEPT"

            # What was kept is all that was fetched.
            with m.State("KEPT"):
                m.d.comb += self.count.eq(1)
                m.next = "CALL"

            # Have the QP visited that needs the lane.
            with m.State("CALL"):
                m.d.comb += [self.call.valid.eq(1), self.idle.ready.eq(1)]
                m.next = "OWNER"
        return m
