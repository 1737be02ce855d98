"""How far and in which portions the LLP lets a QP send: window and MULPDU."""

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, LlpEventKind
from stagecoach.gateware.mpa.mulpdu import Mulpdu


def connect_layout(config: RnicConfig) -> data.StructLayout:
    """What `TransmitLimits` must know of a QP CONNECT."""
    return data.StructLayout({"qp": config.qp_bits, "emss": 16, "markers": 1})


class TransmitLimits(wiring.Component):
    """Keeps the LLP window and the MULPDU of every QP. It never refuses an event for long.

    Members
    -------
    connect: In(stream), a QP starts: window at position 0, MULPDU from its first EMSS. It takes
        effect before `ready`.
    llp_event: In(stream llp_event), `TX_WINDOW` and `EMSS` are stored, others ignored.
    select: In(qp); `window` and `mulpdu` are those of QP `select` one cycle ago.
    kick, kick_qp: Out, a QP may go on; held until `kick_taken`.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        super().__init__(
            {
                "connect": In(stream.Signature(connect_layout(config))),
                "llp_event": In(stream.Signature(Layouts(config).llp_event)),
                "select": In(config.qp_bits),
                "window": Out(32),
                "mulpdu": Out(16),
                "kick": Out(1),
                "kick_qp": Out(config.qp_bits),
                "kick_taken": In(1),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        depth = self._config.qps
        m.submodules.windows = windows = Memory(shape=32, depth=depth, init=[])
        m.submodules.mulpdus = mulpdus = Memory(shape=16, depth=depth, init=[])
        m.submodules.markers = markers = Memory(shape=1, depth=depth, init=[])
        window_write, window_read = windows.write_port(), windows.read_port()
        mulpdu_write, mulpdu_read = mulpdus.write_port(), mulpdus.read_port()
        markers_write, markers_read = markers.write_port(), markers.read_port()
        m.submodules.compute = compute = Mulpdu()

        qp = Signal(self._config.qp_bits)
        value = Signal(32)
        has_markers = Signal()
        is_connect = Signal()
        step = Signal(range(Mulpdu.LATENCY + 1))
        event = self.llp_event.payload
        m.d.comb += [
            window_read.addr.eq(self.select),
            mulpdu_read.addr.eq(self.select),
            self.window.eq(window_read.data),
            self.mulpdu.eq(mulpdu_read.data),
            markers_read.addr.eq(qp),
            window_write.addr.eq(qp),
            window_write.data.eq(value),
            mulpdu_write.addr.eq(qp),
            mulpdu_write.data.eq(compute.mulpdu),
            markers_write.addr.eq(qp),
            markers_write.data.eq(has_markers),
            compute.emss.eq(value),
            compute.markers.eq(has_markers),
            self.kick_qp.eq(qp),
        ]

        with m.FSM():
            # Wait for a CONNECT or an event.
            with m.State("IDLE"):
                m.d.sync += step.eq(0)
                with m.If(self.connect.valid):
                    m.d.sync += [
                        qp.eq(self.connect.payload.qp),
                        value.eq(0),
                        has_markers.eq(self.connect.payload.markers),
                        is_connect.eq(1),
                    ]
                    m.next = "CONNECT"
                with m.Else():
                    m.d.comb += self.llp_event.ready.eq(1)
                    m.d.sync += [qp.eq(event.connection), value.eq(event.value), is_connect.eq(0)]
                    with m.If(self.llp_event.valid):
                        with m.Switch(event.kind):
                            with m.Case(LlpEventKind.TX_WINDOW):
                                m.next = "WINDOW"
                            with m.Case(LlpEventKind.EMSS):
                                m.next = "MARKERS"

            # The window starts at position 0; then the EMSS goes into the same register.
            with m.State("CONNECT"):
                m.d.comb += [window_write.en.eq(1), markers_write.en.eq(1)]
                m.d.sync += value.eq(self.connect.payload.emss)
                m.next = "MULPDU"

            # Store the window.
            with m.State("WINDOW"):
                m.d.comb += window_write.en.eq(1)
                m.next = "KICK"

            # Look up whether the QP sends Markers: address now, data in the next state.
            with m.State("MARKERS"):
                m.next = "MARKERS_DATA"

            with m.State("MARKERS_DATA"):
                m.d.sync += has_markers.eq(markers_read.data)
                m.next = "MULPDU"

            # Wait for the MULPDU and store it.
            with m.State("MULPDU"):
                m.d.sync += step.eq(step + 1)
                with m.If(step == Mulpdu.LATENCY):
                    m.d.comb += [mulpdu_write.en.eq(1), self.connect.ready.eq(is_connect)]
                    with m.If(is_connect):
                        m.next = "IDLE"
                    with m.Else():
                        m.next = "KICK"

            # The QP may have waited for this.
            with m.State("KICK"):
                m.d.comb += self.kick.eq(1)
                with m.If(self.kick_taken):
                    m.next = "IDLE"
        return m
