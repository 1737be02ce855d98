"""Tells the host of what happens to shared receive rings, beside the events of QPs."""

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpCommandKind, QpStrobe
from stagecoach.gateware.queues.qp_errors import QpErrors
from stagecoach.hw.interface.causes import Cause


class SrqEvents(wiring.Component):
    """Joins three kinds of events, of which one is taken at a time, by turns.

    The events of QPs pass. So do the errors of receive rings: that of a shared ring becomes an
    event, any other goes on as an `error` of its QP. A limit that was reached becomes an event with
    SRQ_LIMIT_REACHED, one for each ring, however often it was reached before that is taken.

    Latency: none for an event, or two cycles until it has its turn; that of `QpErrors` for a limit.
    If `event` is never taken, limits wait, and errors are not taken. A command that begins or ends
    a receive ring is taken when no error of a ring waits, so that one of the ring before is not
    taken for one of this; RING_DESTROY when no limit waits, too. No QP takes from the ring then, so
    nothing comes after it. Other commands are taken at once.

    Members
    -------
    qp_command: In(stream qp_command).
    reached: In(QpStrobe), the limit of a ring; not in the first `config.qps` cycles after a reset.
    ring_error: In(stream qp_error), of receive rings.
    error: Out(stream qp_error), of the QPs with these rings.
    qp_event: In(stream qp_error). event: Out(stream event).
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        layouts = Layouts(config)
        self._error = layouts.qp_error
        error = stream.Signature(layouts.qp_error)
        super().__init__(
            {
                "qp_command": In(stream.Signature(layouts.qp_command)),
                "reached": In(QpStrobe(config)),
                "ring_error": In(error),
                "error": Out(error),
                "qp_event": In(error),
                "event": Out(stream.Signature(layouts.event)),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        event, ring_error = self.event, self.ring_error
        command = self.qp_command.payload
        m.submodules.limits = limits = QpErrors(self._config, Cause.SRQ_LIMIT_REACHED)
        m.submodules.shared = shared = Memory(
            shape=1, depth=self._config.qps, init=[], attrs={"ram_style": "distributed"}
        )
        write, read = shared.write_port(), shared.read_port(domain="comb")
        creates_srq = command.kind == QpCommandKind.RING_CREATE
        creates_own = (command.kind == QpCommandKind.CREATE) & ~command.shared
        m.d.comb += [
            write.addr.eq(command.qp),
            write.data.eq(creates_srq),
            write.en.eq(
                self.qp_command.valid & self.qp_command.ready & (creates_srq | creates_own)
            ),
            read.addr.eq(ring_error.p.qp),
            limits.fail.valid.eq(self.reached.valid),
            limits.fail.qp.eq(self.reached.qp),
        ]

        # An event that is offered stands until it is taken; the turn stands while nothing comes.
        of_ring = ring_error.valid & read.data
        sources = (self.qp_event.valid, of_ring, limits.error.valid)
        payloads = (self.qp_event.payload, ring_error.payload, limits.error.payload)
        turn = Signal(range(len(sources)))
        with m.If(Cat(sources).any() & (~event.valid | event.ready)):
            m.d.sync += turn.eq(Mux(turn == len(sources) - 1, 0, turn + 1))
        with m.Switch(turn):
            for number, (valid, payload) in enumerate(zip(sources, payloads, strict=True)):
                with m.Case(number):
                    m.d.comb += [
                        event.valid.eq(valid),
                        *(event.payload[name].eq(payload[name]) for name, _ in self._error),
                        event.payload.srq.eq(number != 0),
                    ]
        m.d.comb += [
            self.error.valid.eq(ring_error.valid & ~read.data),
            self.error.payload.eq(ring_error.payload),
            self.qp_event.ready.eq(event.ready & (turn == 0)),
            ring_error.ready.eq(Mux(read.data, event.ready & (turn == 1), self.error.ready)),
            limits.error.ready.eq(event.ready & (turn == 2)),
        ]

        # So many cycles after the last limit was named, or taken, none waits.
        settled = self._config.qps + 3
        since = Signal(range(settled + 1))
        with m.If(self.reached.valid | limits.error.valid):
            m.d.sync += since.eq(0)
        with m.Elif(since != settled):
            m.d.sync += since.eq(since + 1)
        destroys_srq = command.kind == QpCommandKind.RING_DESTROY
        changes = creates_srq | creates_own | destroys_srq
        m.d.comb += self.qp_command.ready.eq(
            ~(changes & ring_error.valid) & ~(destroys_srq & (since != settled))
        )
        return m
