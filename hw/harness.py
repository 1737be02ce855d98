"""A device between registers, so that it can be placed with a few pins.

A device has more ports than a package has pins, and without pins nextpnr neither promotes the
clock to a global net nor routes it there. The harness registers every port, which is also what a
neighbour in a real design would do, and puts clock and reset on global nets as a board does.
"""

from amaranth.hdl import Cat, ClockDomain, Const, Instance, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

CHAIN_BITS = 256
"""Longest shift register: yosys recurses along it, and its WebAssembly build has a small stack."""


class Harness(wiring.Component):
    """Drives a device's inputs from shift registers and shifts its registered outputs out.

    Parameters
    ----------
    device: the component; it gets the submodule name `device`.

    Members
    -------
    clk, rst: pins of the clock and of the reset, which is registered.
    scan_in, scan_out: the ends of the shift registers, `CHAIN_BITS` of inputs or outputs each.
    capture: loads the outputs' registers into their chains instead of shifting those.
    """

    def __init__(self, device: wiring.Component):
        self._device = device
        leaves = list(device.signature.flatten(device))
        self._inputs = [Value.cast(leaf) for _, port, leaf in leaves if port.flow is In]
        self._outputs = [Value.cast(leaf) for _, port, leaf in leaves if port.flow is Out]
        super().__init__(
            {
                "clk": In(1),
                "rst": In(1),
                "scan_in": In(max(1, _chains(self._inputs))),
                "capture": In(1),
                "scan_out": Out(max(1, _chains(self._outputs))),
            }
        )

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
        m.d.comb += Cat(*self._inputs).eq(driven)
        for number, start in enumerate(range(0, len(driven), CHAIN_BITS)):
            chain = driven[start : start + CHAIN_BITS]
            m.d.pin += chain.eq(Cat(self.scan_in[number], chain[:-1]))

        registered = Signal(sum(map(len, self._outputs)))
        chains = Signal.like(registered)
        m.d.pin += registered.eq(Cat(*self._outputs))
        for number, start in enumerate(range(0, len(chains), CHAIN_BITS)):
            bits = slice(start, start + CHAIN_BITS)
            chain = chains[bits]
            m.d.pin += chain.eq(Mux(self.capture, registered[bits], Cat(Const(0, 1), chain[:-1])))
            m.d.comb += self.scan_out[number].eq(chain[-1])
        return m


def _chains(ports: list[Value]) -> int:
    return -(-sum(map(len, ports)) // CHAIN_BITS)
