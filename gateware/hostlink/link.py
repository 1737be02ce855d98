"""The host link of an RNIC: the ports of the device on a line of bytes, its LLP port among them."""

from amaranth.hdl import Module, ResetInserter
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.ports import AxiSignature
from stagecoach.gateware.hostlink.link_core import LinkCore
from stagecoach.gateware.hostlink.llp_bridge import LlpBridge
from stagecoach.gateware.mpa.ports import LlpSignature
from stagecoach.gateware.registers.ports import AxiLiteSignature
from stagecoach.hw.interface.hostlink import EVENTS, Kind


class HostLink(wiring.Component):
    """`LinkCore`, and the messages of an LLP port.

    Parameters
    ----------
    config, clock_hz, retry_cycles: see `LinkCore`.

    Members
    -------
    i, o, registers, memory, irq, restart: see `LinkCore`. llp: the LLP port of the device.
    """

    def __init__(self, config: RnicConfig, clock_hz: int, retry_cycles: int):
        self._config = config
        self._core = LinkCore(
            config,
            clock_hz,
            retry_cycles,
            events=EVENTS,
            memory_log2=0,
            irqs=1,
            kind=Kind.LLP_DATA,
            sources=4,
        )
        super().__init__(
            {
                "i": In(stream.Signature(8)),
                "o": Out(stream.Signature(8)),
                "registers": Out(AxiLiteSignature()),
                "memory": In(AxiSignature()),
                "llp": In(LlpSignature(config)),
                "irq": In(1),
                "restart": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        llp = LlpBridge(self._config)
        m.submodules.core = core = self._core
        m.submodules.llp = ResetInserter(core.restart)(llp)
        for name in ("i", "memory"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(core, name))
        for name in ("o", "registers"):
            wiring.connect(m, getattr(core, name), wiring.flipped(getattr(self, name)))
        wiring.connect(m, wiring.flipped(self.llp), llp.llp)
        wiring.connect(m, core.data, llp.data)
        for source, port in zip(
            (llp.taken, llp.requests, llp.releases, llp.sends), core.sources, strict=True
        ):
            wiring.connect(m, source, port)
        is_event = core.kind == Kind.LLP_EVENT
        m.d.comb += [
            core.irq.eq(self.irq),
            self.restart.eq(core.restart),
            llp.mark.eq(core.mark),
            core.passed.eq(llp.passed),
            llp.event.payload.eq(core.fields),
            llp.event.valid.eq(core.message_valid & is_event),
            # What is not known here is ignored
            core.message_ready.eq(llp.event.ready | ~is_event),
        ]
        return m
