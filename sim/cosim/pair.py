"""Two devices in one design, for tests that join them back to back."""

from amaranth import ClockSignal, Instance, Module, ResetSignal
from amaranth.lib import wiring

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.rnic import Rnic

PREFIXES = ("a_", "b_")
DEVICE = "rnic"
OTHER = "other_rnic"


class RnicPair(wiring.Component):
    """Two RNICs whose ports have the prefixes `a_` and `b_`.

    Both are instances of one module, which `sim.cosim.runner` finds in `parts`: whatever is done
    with the design on its way to a simulator is done once for the two.

    Parameters
    ----------
    config: sizes of the devices. other: of the second one, if they differ; then there are two
        modules.
    """

    def __init__(self, config: RnicConfig | None = None, other: RnicConfig | None = None):
        self.parts = {DEVICE: Rnic(config)}
        if other is not None:
            self.parts[OTHER] = Rnic(other)
        self._modules = dict(zip(PREFIXES, (DEVICE, OTHER if other else DEVICE), strict=True))
        super().__init__(
            {
                prefix + name: member
                for prefix, module in self._modules.items()
                for name, member in self.parts[module].signature.members.items()
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for prefix, module in self._modules.items():
            device = self.parts[module]
            ports: dict[str, object] = {"i_clk": ClockSignal(), "i_rst": ResetSignal()}
            for (first, *rest), member, _ in device.signature.flatten(device):
                signal = getattr(self, f"{prefix}{first}")
                for name in rest:
                    signal = getattr(signal, str(name))
                direction = "i" if member.flow is wiring.In else "o"
                ports[f"{direction}_{'__'.join([first, *map(str, rest)])}"] = signal
            m.submodules[prefix[0]] = Instance(module, **ports)
        return m
