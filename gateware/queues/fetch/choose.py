"""Chooses which QP a ring fetcher visits next."""

from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.queues.fetch.visit import Visit, visit_layout
from stagecoach.gateware.queues.prefetch_memory import PrefetchMemory


class FetchChoose(wiring.Component):
    """Begins a visit or a command when the one before is over.

    A command goes before a lane that is taken back, that before doorbells and QPs that were kicked;
    these two take turns while both wait. A QP that was kicked waits until it may fetch.

    Latency: a cycle from what waits to `visit` or `command`. Throughput: one at a time, with a
    cycle between them. While `visit` or `command` is not taken, nothing else is, except what
    `visit` tells of: that is taken in its first cycle. After a reset nothing begins until each QP
    was forgotten, one a cycle.

    Members
    -------
    qp_command: In(stream qp_command), taken by `command`: Out(stream).
    doorbell: In(stream doorbell). pick: In(stream qp_number), QPs that were kicked.
    visit: Out(stream visit_layout), which stands until the visit is over.
    may_fetch: In(1), there is room for a read. It stays high until one was requested.
    rescue_due: In(1), QP `rescue_qp` is to be visited for its lane, to copy a unit if
        `rescue_copies`; `rescue_copied` of them were.
    qp: Out, the QP of the visit, of the command, or that is forgotten.
    forget: Out(1), QP `qp` has no ring; after a reset.
    """

    def __init__(self, memory: PrefetchMemory):
        config = memory.config
        self._qps = config.qps
        layouts = Layouts(config)
        super().__init__(
            {
                "qp_command": In(stream.Signature(layouts.qp_command)),
                "doorbell": In(stream.Signature(layouts.doorbell)),
                "pick": In(stream.Signature(layouts.qp_number)),
                "command": Out(stream.Signature(layouts.qp_command)),
                "visit": Out(stream.Signature(visit_layout(memory))),
                "may_fetch": In(1),
                "rescue_due": In(1),
                "rescue_copies": In(1),
                "rescue_copied": In(range(memory.own_units + 1)),
                "rescue_qp": In(config.qp_bits),
                "qp": Out(config.qp_bits),
                "forget": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        doorbell_last = Signal()
        visit = self.visit.payload
        m.d.comb += [self.qp.eq(visit.qp), self.command.payload.eq(self.qp_command.payload)]

        with m.FSM():
            # After a reset no QP exists.
            with m.State("FORGET_ALL"):
                m.d.comb += self.forget.eq(1)
                m.d.sync += visit.qp.eq(visit.qp + 1)
                with m.If(visit.qp == self._qps - 1):
                    m.next = "IDLE"

            # Wait for a command, a doorbell, or a QP to fetch for.
            with m.State("IDLE"):
                rings_bell = self.doorbell.valid & ~(doorbell_last & self.pick.valid)
                m.d.sync += [
                    visit.qp.eq(self.pick.payload.qp),
                    visit.kind.eq(Visit.FETCH),
                    visit.claimed.eq(self.doorbell.payload.producer),
                    visit.copied.eq(self.rescue_copied),
                ]
                with m.If(self.qp_command.valid):
                    m.d.sync += visit.qp.eq(self.qp_command.payload.qp)
                    m.next = "COMMAND"
                with m.Elif(self.rescue_due):
                    m.d.sync += [
                        visit.qp.eq(self.rescue_qp),
                        visit.kind.eq(Mux(self.rescue_copies, Visit.COPY, Visit.RESCUE)),
                    ]
                    m.next = "BEGIN"
                with m.Elif(rings_bell):
                    m.d.sync += [
                        visit.qp.eq(self.doorbell.payload.qp),
                        visit.kind.eq(Visit.DOORBELL),
                        doorbell_last.eq(1),
                    ]
                    m.next = "BEGIN"
                with m.Elif(self.pick.valid):
                    m.d.sync += doorbell_last.eq(0)
                    with m.If(self.may_fetch):
                        m.next = "BEGIN"

            # What was seen in IDLE is taken.
            with m.State("BEGIN"):
                m.d.comb += [
                    self.visit.valid.eq(1),
                    self.doorbell.ready.eq(visit.kind == Visit.DOORBELL),
                    self.pick.ready.eq(visit.kind == Visit.FETCH),
                ]
                m.next = "VISIT"
                with m.If(self.visit.ready):
                    m.next = "IDLE"

            # Wait until the visit is over.
            with m.State("VISIT"):
                m.d.comb += self.visit.valid.eq(1)
                with m.If(self.visit.ready):
                    m.next = "IDLE"

            # Wait until the command is done.
            with m.State("COMMAND"):
                m.d.comb += [
                    self.command.valid.eq(1),
                    self.qp_command.ready.eq(self.command.ready),
                ]
                with m.If(self.command.ready):
                    m.next = "IDLE"
        return m
