"""A device between registers, so that it can be placed with a few pins.

A device has more ports than a package has pins, and without pins nextpnr neither promotes the
clock to a global net nor routes it there. The harness registers every port, which is also what a
neighbour in a real design would do, and puts clock and reset on global nets as a board does.
"""

from amaranth.hdl import Cat, ClockDomain, Instance, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Harness(wiring.Component):
    """Drives a device's inputs from a shift register and shifts its registered outputs out.

    Parameters
    ----------
    device: the component; it gets the submodule name `device`.

    Members
    -------
    clk, rst: pins of the clock and of the reset, which is registered.
    scan_in, scan_out: the two ends of the shift registers.
    capture: loads the outputs' registers into the chain instead of shifting it.
    """

    def __init__(self, device: wiring.Component):
        super().__init__(
            {"clk": In(1), "rst": In(1), "scan_in": In(1), "capture": In(1), "scan_out": Out(1)}
        )
        self._device = device
        leaves = list(device.signature.flatten(device))
        self._inputs = [Value.cast(leaf) for _, port, leaf in leaves if port.flow is In]
        self._outputs = [Value.cast(leaf) for _, port, leaf in leaves if port.flow is Out]

    @property
    def flip_flops(self) -> int:
        """Flip-flops of the harness itself."""
        return 1 + sum(map(len, self._inputs)) + 2 * sum(map(len, self._outputs))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.domains.sync = sync = ClockDomain()
        m.domains.pin = pin = ClockDomain(reset_less=True)
        reset = Signal()
        m.d.pin += reset.eq(self.rst)
        m.d.comb += [sync.clk.eq(self.clk), pin.clk.eq(self.clk)]
        m.submodules.global_reset = Instance("DCCA", i_CLKI=reset, i_CE=1, o_CLKO=sync.rst)
        m.submodules.device = self._device
        # The registers of the harness need no reset.
        driven = Signal(sum(map(len, self._inputs)))
        m.d.pin += driven.eq(Cat(self.scan_in, driven[:-1]))
        m.d.comb += Cat(*self._inputs).eq(driven)

        registered = Signal(sum(map(len, self._outputs)))
        chain = Signal.like(registered)
        m.d.pin += [
            registered.eq(Cat(*self._outputs)),
            chain.eq(Mux(self.capture, registered, Cat(driven[-1], chain[:-1]))),
        ]
        m.d.comb += self.scan_out.eq(chain[-1])
        return m
