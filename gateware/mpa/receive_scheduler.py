"""Knows what every connection has received, and leads the deframer to those worth a visit."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.mpa.layouts import MpaLayouts
from stagecoach.gateware.mpa.ports import ClosedPort, VisitPort
from stagecoach.gateware.mpa.receive_events import ReceiveEvents
from stagecoach.gateware.mpa.receive_table import ReceiveTable
from stagecoach.gateware.mpa.receive_visits import ReceiveVisits


class ReceiveScheduler(wiring.Component):
    """Keeps the receive side of every connection and chooses whom the deframer visits.

    A connection with enough bytes for the FPDU at its head waits in a queue, once. Its visit
    goes on for as long as more is available, at most `VISIT_OCTETS` and the rest of an FPDU if
    others wait. If it ends where the next FPDU is not there completely, the connection comes back
    when it is. Visits to other connections are requested from the LLP while the bytes of those
    before are on their way: 128 of them, or 384 beats.

    An event, the begin and the end of a visit take two cycles each of the table; all three of a
    visit without queue and merged events, four. The first request is offered 13 cycles after the
    event that makes it possible.

    While the LLP answers nothing, commands and events are still taken.

    Members
    -------
    command, event: see `gateware.layouts` and `ReceiveTable`.
    request: to the LLP.
    deframer: `VisitPort`. closed: `ClosedPort`.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        layouts = Layouts(config)
        mpa = MpaLayouts(config)
        super().__init__(
            {
                "command": In(stream.Signature(layouts.qp_command)),
                "event": In(stream.Signature(layouts.llp_event)),
                "request": Out(stream.Signature(mpa.rx_request)),
                "deframer": Out(VisitPort(config)),
                "closed": Out(ClosedPort(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.events = events = ReceiveEvents(self._config)
        m.submodules.table = table = ReceiveTable(self._config)
        m.submodules.visits = visits = ReceiveVisits(self._config)
        wiring.connect(m, wiring.flipped(self.event), events.i)
        wiring.connect(m, wiring.flipped(self.command), table.command)
        wiring.connect(m, table.closed, wiring.flipped(self.closed))
        wiring.connect(m, table.begin, visits.begin)
        wiring.connect(m, visits.request, wiring.flipped(self.request))
        wiring.connect(m, visits.deframer, wiring.flipped(self.deframer))
        m.d.comb += [
            table.waiting.eq(events.waiting),
            table.event.eq(events.event),
            events.taken.eq(table.taken),
            table.end_waiting.eq(visits.end_waiting),
            table.end.eq(visits.end),
            visits.end_taken.eq(table.end_taken),
        ]
        for name in ("others", "number", "begun", "forget", "announce", "available"):
            m.d.comb += getattr(visits, name).eq(getattr(table, name))
        return m
