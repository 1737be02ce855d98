"""One AXI4-Lite port for the registers of two blocks."""

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.registers.block import ADDRESS_BITS
from stagecoach.gateware.registers.ports import AxiLiteSignature


class RegisterSplit(wiring.Component):
    """Gives accesses below an address to one register block, all others to another one.

    One write and one read at a time, and neither waits for the other. An access takes one cycle
    more than the block alone; nothing of it reaches the other block. AXI4-Lite answers accesses of
    a direction in their order, so a write that a block does not answer, as one to a message
    register that waits, holds up all later writes, also those to the other block, for as long as
    that lasts. Reads go on meanwhile. A block that never answers stops its direction for ever; so
    does a host that never takes an answer. No counter.

    Parameters
    ----------
    boundary: byte address of the first register of `above`; a multiple of 4.

    Members
    -------
    bus: from the host. below, above: to the blocks; addresses are those of `bus`.
    """

    def __init__(self, boundary: int):
        if boundary % 4 or not 0 < boundary < 1 << ADDRESS_BITS:
            allowed = f"a multiple of 4 from 4 to {(1 << ADDRESS_BITS) - 4}"
            raise ValueError(f"RegisterSplit boundary is {boundary!r}; allowed: {allowed}")
        self._boundary = boundary
        bus = AxiLiteSignature(ADDRESS_BITS)
        super().__init__({"bus": In(bus), "below": Out(bus), "above": Out(bus)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._write(m)
        self._read(m)
        return m

    def _write(self, m: Module) -> None:
        bus, blocks = self.bus, (self.below, self.above)
        above = Signal(name="write_above")
        for number, block in enumerate(blocks):
            # A block takes address and data in any order
            with m.If(block.awready):
                m.d.sync += block.awvalid.eq(0)
            with m.If(block.wready):
                m.d.sync += block.wvalid.eq(0)
            with m.If(above == number):
                m.d.comb += bus.bresp.eq(block.bresp)
        with m.FSM(name="write"):
            with m.State("WRITE"):  # waits for address and data
                with m.If(bus.awvalid & bus.wvalid):
                    m.d.comb += [bus.awready.eq(1), bus.wready.eq(1)]
                    m.d.sync += above.eq(bus.awaddr >= self._boundary)
                    for number, block in enumerate(blocks):
                        begins = (bus.awaddr >= self._boundary) == number
                        m.d.sync += [
                            block.awaddr.eq(bus.awaddr),
                            block.awprot.eq(bus.awprot),
                            block.wdata.eq(bus.wdata),
                            block.wstrb.eq(bus.wstrb),
                            block.awvalid.eq(begins),
                            block.wvalid.eq(begins),
                        ]
                    m.next = "RESPONSE"
            with m.State("RESPONSE"):  # waits for that of the block, until the host has taken it
                self._answer(m, above, bus, "b", "WRITE")

    def _read(self, m: Module) -> None:
        bus, blocks = self.bus, (self.below, self.above)
        above = Signal(name="read_above")
        for number, block in enumerate(blocks):
            with m.If(block.arready):
                m.d.sync += block.arvalid.eq(0)
            with m.If(above == number):
                m.d.comb += [bus.rdata.eq(block.rdata), bus.rresp.eq(block.rresp)]
        with m.FSM(name="read"):
            with m.State("READ"):  # waits for an address
                m.d.comb += bus.arready.eq(1)
                with m.If(bus.arvalid):
                    m.d.sync += above.eq(bus.araddr >= self._boundary)
                    for number, block in enumerate(blocks):
                        m.d.sync += [
                            block.araddr.eq(bus.araddr),
                            block.arprot.eq(bus.arprot),
                            block.arvalid.eq((bus.araddr >= self._boundary) == number),
                        ]
                    m.next = "WORD"
            with m.State("WORD"):  # waits for that of the block, until the host has taken it
                self._answer(m, above, bus, "r", "READ")

    def _answer(self, m: Module, above: Signal, bus: Any, channel: str, done: str) -> None:
        """Passes the answer of the chosen block on; then the next access may come."""
        valid, ready = getattr(bus, f"{channel}valid"), getattr(bus, f"{channel}ready")
        for number, block in enumerate((self.below, self.above)):
            with m.If(above == number):
                m.d.comb += [
                    valid.eq(getattr(block, f"{channel}valid")),
                    getattr(block, f"{channel}ready").eq(ready),
                ]
        with m.If(valid & ready):
            m.next = done
