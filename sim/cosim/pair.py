"""Two devices in one design, for tests that join them back to back."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gateware.config import RnicConfig
from gateware.interfaces import AxiLiteSignature, AxiSignature, LlpSignature
from gateware.rnic import Rnic


class RnicPair(wiring.Component):
    """Two RNICs whose ports have the prefixes `a_` and `b_`."""

    def __init__(self, config: RnicConfig | None = None):
        self._config = config or RnicConfig()
        members: dict[str, wiring.Member] = {}
        for prefix in ("a_", "b_"):
            members |= {
                prefix + "s_axi": In(AxiLiteSignature()),
                prefix + "m_axi": Out(AxiSignature()),
                prefix + "llp": Out(LlpSignature(self._config)),
                prefix + "irq": Out(1),
            }
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for prefix in ("a_", "b_"):
            m.submodules[prefix[0]] = device = Rnic(self._config)
            for name in ("s_axi", "m_axi", "llp"):
                wiring.connect(
                    m, getattr(device, name), wiring.flipped(getattr(self, prefix + name))
                )
            m.d.comb += getattr(self, prefix + "irq").eq(device.irq)
        return m
