"""Register accesses of the host: messages to AXI4-Lite."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.hostlink.octets import OCTET, MessageSlot
from stagecoach.gateware.registers.ports import AxiLiteSignature
from stagecoach.hw.interface.hostlink import Kind

ACCESS = data.StructLayout({"address": 16, "value": 32, "write": 1})
DONE_PAYLOAD_OCTETS = 5

SETTLE_CYCLES = 4
"""From the end of an access to what it changes at the interrupt output."""


class RegisterBridge(wiring.Component):
    """Makes one register access at a time and answers it.

    Members
    -------
    access: what the host asks for; waits while an access is under way.
    bus: AXI4-Lite, the device is its slave.
    o: REGISTER_DONE messages.
    mark: pulses when an access has ended. passed: what the device said before that, where order
        matters, has left; from the cycle after `mark` on.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "access": In(stream.Signature(ACCESS)),
                "bus": Out(AxiLiteSignature()),
                "o": Out(stream.Signature(OCTET)),
                "mark": Out(1),
                "passed": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus = self.bus
        m.submodules.slot = slot = MessageSlot(Kind.REGISTER_DONE, DONE_PAYLOAD_OCTETS)
        wiring.connect(m, slot.o, wiring.flipped(self.o))
        response = Signal(2)
        value = Signal(32)
        settle = Signal(range(SETTLE_CYCLES))
        m.d.comb += slot.i.payload.eq(Cat(response, value << 6))
        with m.FSM():
            with m.State("IDLE"):  # waits for the host
                m.d.comb += self.access.ready.eq(1)
                with m.If(self.access.valid):
                    m.d.sync += [
                        bus.awaddr.eq(self.access.p.address),
                        bus.araddr.eq(self.access.p.address),
                        bus.wdata.eq(self.access.p.value),
                        bus.wstrb.eq(0xF),
                        bus.awvalid.eq(self.access.p.write),
                        bus.wvalid.eq(self.access.p.write),
                        bus.arvalid.eq(~self.access.p.write),
                    ]
                    m.next = "ACCESS"
            with m.State("ACCESS"):  # waits for the answer of the device
                for valid, ready in (
                    (bus.awvalid, bus.awready),
                    (bus.wvalid, bus.wready),
                    (bus.arvalid, bus.arready),
                ):
                    with m.If(ready):
                        m.d.sync += valid.eq(0)
                m.d.comb += [bus.bready.eq(1), bus.rready.eq(1)]
                m.d.sync += settle.eq(SETTLE_CYCLES - 1)
                with m.If(bus.bvalid):
                    m.d.sync += [response.eq(bus.bresp), value.eq(0)]
                    m.next = "SETTLE"
                with m.If(bus.rvalid):
                    m.d.sync += [response.eq(bus.rresp), value.eq(bus.rdata)]
                    m.next = "SETTLE"
            with m.State("SETTLE"):  # waits until the interrupt has followed
                m.d.sync += settle.eq(settle - 1)
                with m.If(settle == 0):
                    m.d.comb += self.mark.eq(1)
                    m.next = "ORDER"
            with m.State("ORDER"):  # waits for what was said before
                with m.If(self.passed):
                    m.next = "DONE"
            with m.State("DONE"):  # hands the answer over
                m.d.comb += slot.i.valid.eq(1)
                with m.If(slot.i.ready):
                    m.next = "IDLE"
        return m
