"""The MPA receiver: from the LLP's bytes to verified FPDUs in the store."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.mpa.deframer import Deframer
from stagecoach.gateware.mpa.fpdu_store import FpduStore
from stagecoach.gateware.mpa.layouts import MpaLayouts
from stagecoach.gateware.mpa.ports import StorePort
from stagecoach.gateware.mpa.receive_scheduler import ReceiveScheduler
from stagecoach.gateware.mpa.release_order import ReleaseOrder


class MpaReceiver(wiring.Component):
    """Requests received bytes, finds FPDUs in them, checks them, and keeps them in the store.

    An FPDU of n bytes, Markers included, takes ceil(n / 8) cycles and none between FPDUs of one
    connection. From the end of an FPDU to the next connection it takes one cycle more, and at least
    four cycles pass between connections; out of the middle of an FPDU it takes eight cycles. Its
    segment comes seven cycles after its last beat. In the store it stands as if without Markers.

    Members
    -------
    qp_command: CREATE, CONNECT, STOP and DESTROY; always taken within a few cycles.
    llp_event: RX_AVAILABLE and CLOSED; others are ignored.
    rx_request, rx, rx_release: the receive side of the LLP port.
    segment: whole FPDUs with a good CRC and good Markers, and what went wrong, in the order of each
        connection. queued: a pulse for each when it is certain to come; after STOP or DESTROY was
        taken, no segment of the connection is queued later than 8 cycles.
    store: the placer's side of the store. FPDUs may be released in any order; those after one that
        is not keep their room until it is, and nothing is received when there is none left.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        layouts = Layouts(config)
        mpa = MpaLayouts(config)
        super().__init__(
            {
                "qp_command": In(stream.Signature(layouts.qp_command)),
                "llp_event": In(stream.Signature(layouts.llp_event)),
                "rx_request": Out(stream.Signature(mpa.rx_request)),
                "rx": In(stream.Signature(64)),
                "rx_release": Out(stream.Signature(mpa.rx_release)),
                "segment": Out(stream.Signature(layouts.segment)),
                "queued": Out(1),
                "store": In(StorePort(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.scheduler = scheduler = ReceiveScheduler(self._config)
        m.submodules.deframer = deframer = Deframer(self._config)
        m.submodules.store = store = FpduStore(self._config)
        m.submodules.order = order = ReleaseOrder(self._config)

        wiring.connect(m, wiring.flipped(self.qp_command), scheduler.command)
        wiring.connect(m, wiring.flipped(self.llp_event), scheduler.event)
        wiring.connect(m, scheduler.request, wiring.flipped(self.rx_request))
        wiring.connect(m, scheduler.deframer, deframer.visit)
        wiring.connect(m, scheduler.closed, deframer.closed)
        wiring.connect(m, wiring.flipped(self.rx), deframer.rx)
        wiring.connect(m, deframer.release, wiring.flipped(self.rx_release))
        wiring.connect(m, deframer.segment, wiring.flipped(self.segment))
        wiring.connect(m, deframer.store, store.writer)
        wiring.connect(m, deframer.numbers, order.numbers)
        m.d.comb += [
            self.queued.eq(deframer.queued),
            store.address.eq(self.store.address),
            self.store.data.eq(store.data),
            order.release.eq(self.store.release),
            order.released.eq(self.store.released),
            store.free.eq(order.free),
            store.free_end.eq(order.free_end),
        ]
        return m
