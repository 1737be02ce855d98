"""The AXI4-Lite slave that holds the registers of a description of `hw/interface`."""

from functools import reduce
from operator import or_
from pathlib import Path

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.dma.ports import RESPONSE_OKAY, RESPONSE_SLVERR
from stagecoach.gateware.registers.ports import AxiLiteSignature
from stagecoach.hw.interface.registers import RNIC, Register, registers

ADDRESS_BITS = 12

READ_GROUP = 8
"""Registers among which one cycle selects."""


def register_layout(register: Register) -> data.FlexibleLayout:
    """The fields of a register at their places in a 32-bit word."""
    return data.FlexibleLayout(
        32,
        {field.name: data.Field(field.width, field.low) for field in register.fields},
    )


def address_of(name: str, source: Path = RNIC) -> int:
    """Byte offset of the register `name`; `StopIteration` if there is none."""
    return next(register.address for register in registers(source) if register.name == name)


def _is_message(register: Register) -> bool:
    return any(field.message for field in register.fields)


def _is_sticky(register: Register) -> bool:
    return any(field.clear_on_one for field in register.fields)


def _is_driven(register: Register) -> bool:
    return any(field.driven for field in register.fields) and not _is_sticky(register)


def _is_stored(register: Register) -> bool:
    writable = any(field.writable for field in register.fields)
    return writable and not _is_message(register) and not _is_sticky(register)


class RegisterBlock(wiring.Component):
    """All registers of a description, one member for each, named as there in lower case.

    A driven register is an input; a stored one an output, which begins as the description says; a
    message register an output stream of what is written; a write-1-to-clear register has an input
    `<name>_set` of pulses and an output of its bits. Constants have no member. The payload of a
    message is there two cycles before it is valid.

    One write and one read at a time; a read takes 4 cycles, a write 3 and as long as the receiver
    of a message makes it wait. An address without a register, or a write that does not cover the
    whole register, is answered SLVERR.

    Parameters
    ----------
    source: the description: `RNIC`, `NETWORK` or `MEMORY` of `hw/interface/registers.py`.

    Members
    -------
    bus: the AXI4-Lite port.
    read: pulses when a register is read, with its address in `read_address`.
    """

    def __init__(self, source: Path = RNIC) -> None:
        self._registers = registers(source)
        members = {
            "bus": In(AxiLiteSignature(ADDRESS_BITS)),
            "read": Out(1),
            "read_address": Out(ADDRESS_BITS),
        }
        for register in self._registers:
            name = register.name.lower()
            layout = register_layout(register)
            if _is_message(register):
                members[name] = Out(stream.Signature(layout))
            elif _is_sticky(register):
                members[name + "_set"] = In(layout)
                members[name] = Out(layout)
            elif _is_driven(register):
                members[name] = In(layout)
            elif _is_stored(register):
                resets = {field.name: field.reset for field in register.fields}
                members[name] = Out(layout, init=resets)
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._elaborate_write(m)
        self._elaborate_read(m)
        return m

    def _elaborate_write(self, m: Module) -> None:
        bus = self.bus
        address = Signal(ADDRESS_BITS)
        word = Signal(32)
        whole = Signal()
        found = Signal()
        is_message = Signal()
        known = Signal()
        messages = [register.address for register in self._registers if _is_message(register)]
        m.d.sync += is_message.eq(Cat(address == message for message in messages).any())
        addressed = {}
        for register in self._registers:
            name = register.name.lower()
            if _is_message(register) or _is_sticky(register) or _is_stored(register):
                addressed[name] = Signal(name=f"address_is_{name}")
                m.d.sync += addressed[name].eq(address == register.address)
        m.d.comb += known.eq(Cat(addressed.values()).any())

        with m.FSM(name="write"):
            with m.State("WRITE"):  # waits for address and data
                with m.If(bus.awvalid & bus.wvalid):
                    m.d.comb += [bus.awready.eq(1), bus.wready.eq(1)]
                    m.d.sync += [
                        address.eq(bus.awaddr),
                        word.eq(bus.wdata),
                        whole.eq(bus.wstrb.all()),
                    ]
                    m.next = "DECODE"
            with m.State("DECODE"):  # compares the address
                m.next = "STORE"
            with m.State("STORE"):  # stores the word, or waits until its message is taken
                m.d.sync += bus.bresp.eq(Mux(whole & known, RESPONSE_OKAY, RESPONSE_SLVERR))
                m.next = "RESPOND"
                with m.If(whole):
                    m.d.comb += found.eq(1)
                    with m.If(is_message):
                        m.next = "MESSAGE"
            with m.State("MESSAGE"):  # waits until the message is taken
                for register in self._registers:
                    if _is_message(register):
                        name = register.name.lower()
                        with m.If(addressed[name] & getattr(self, name).ready):
                            m.next = "RESPOND"
            with m.State("RESPOND"):  # waits until the host took the response
                m.d.comb += bus.bvalid.eq(1)
                with m.If(bus.bready):
                    m.next = "WRITE"

        for register in self._registers:
            name = register.name.lower()
            if name not in addressed:
                continue
            hit = Signal(name=f"write_{name}")
            m.d.comb += hit.eq(found & addressed[name])
            if _is_message(register):
                port = getattr(self, name)
                m.d.comb += port.payload.eq(word)
                with m.If(port.ready):
                    m.d.sync += port.valid.eq(0)
                with m.If(hit):
                    m.d.sync += port.valid.eq(1)
            elif _is_sticky(register):
                bits = getattr(self, name).as_value()
                pulses = getattr(self, name + "_set").as_value()
                clear = Signal(32, name=f"clear_{name}")
                with m.If(hit):
                    m.d.comb += clear.eq(word)
                m.d.sync += bits.eq((bits & ~clear) | pulses)
            elif _is_stored(register):
                with m.If(hit):
                    m.d.sync += getattr(self, name).as_value().eq(word)

    def _elaborate_read(self, m: Module) -> None:
        bus = self.bus
        address = Signal(ADDRESS_BITS)
        readable = [
            register
            for register in self._registers
            if any(field.readable for field in register.fields)
        ]
        # The word is selected in three cycles: registers, within a group, among the groups.
        groups = []
        for first in range(0, len(readable), READ_GROUP):
            found = Signal(name=f"found_{first}")
            word = Signal(32, name=f"word_{first}")
            hits, words = [], []
            for register in readable[first : first + READ_GROUP]:
                hit = Signal(name=f"read_{register.name.lower()}")
                m.d.sync += hit.eq(address == register.address)
                hits.append(hit)
                words.append(Mux(hit, self._value(register), 0))
            m.d.sync += [found.eq(Cat(hits).any()), word.eq(reduce(or_, words))]
            groups.append((found, word))
        with m.FSM(name="read"):
            with m.State("READ"):  # waits for an address
                m.d.comb += bus.arready.eq(1)
                with m.If(bus.arvalid):
                    m.d.sync += address.eq(bus.araddr)
                    m.next = "DECODE"
            with m.State("DECODE"):  # compares the address
                m.next = "SELECT"
            with m.State("SELECT"):  # selects the register
                m.d.comb += [self.read.eq(1), self.read_address.eq(address)]
                m.next = "COLLECT"
            with m.State("COLLECT"):  # joins the groups
                m.d.sync += [bus.rdata.eq(0), bus.rresp.eq(RESPONSE_SLVERR)]
                for found, word in groups:
                    with m.If(found):
                        m.d.sync += [bus.rdata.eq(word), bus.rresp.eq(RESPONSE_OKAY)]
                m.next = "RESPOND"
            with m.State("RESPOND"):  # waits until the host took the word
                m.d.comb += bus.rvalid.eq(1)
                with m.If(bus.rready):
                    m.next = "READ"

    def _value(self, register: Register) -> Signal | int:
        if register.constant is not None:
            return register.constant
        return getattr(self, register.name.lower()).as_value()
