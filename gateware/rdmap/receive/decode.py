"""What kind of message a received segment belongs to."""

from amaranth.hdl import Cat, Const, Module, Mux
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.rdmap.checks import (
    IMMEDIATE_OPCODES,
    INVALIDATING_OPCODES,
    REQUEST_OPCODES,
    RESPONSE_OPCODES,
    SEND_OPCODES,
    is_any,
    rdmap_control,
)
from stagecoach.gateware.rdmap.headers import ULPDU_HEADER, Opcode
from stagecoach.hw.interface.wire import (
    TAGGED_HEADER_OCTETS,
    ULPDU_LENGTH_OCTETS,
    UNTAGGED_HEADER_OCTETS,
)

KIND = data.StructLayout(
    {
        "opcode": 4,
        "last": 1,  # the L bit
        "tagged": 1,  # the T bit
        "send": 1,
        "immediate": 1,
        "takes_entry": 1,  # one of both: in a receive entry
        "request": 1,
        "atomic_request": 1,  # and it is an atomic
        "response": 1,
        "atomic_response": 1,
        "invalidates": 1,  # the last segment of a Send that names an STag
    }
)


class ReceiveDecode(wiring.Component):
    """A cycle after `segment`: its `kind`, and the byte of the store after its DDP header."""

    def __init__(self, config: RnicConfig) -> None:
        super().__init__(
            {
                "segment": In(Layouts(config).segment),
                "kind": Out(KIND),
                "position": Out(config.store_address_bits + 3),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        header = data.View(ULPDU_HEADER, self.segment.header).tagged
        opcode = rdmap_control(header).opcode
        tagged, last = header.control.tagged, header.control.last
        first_octet = ULPDU_LENGTH_OCTETS + Mux(
            tagged, TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS
        )
        kind = self.kind
        m.d.sync += [
            kind.opcode.eq(opcode),
            kind.last.eq(last),
            kind.tagged.eq(tagged),
            kind.send.eq(is_any(opcode, SEND_OPCODES)),
            kind.immediate.eq(is_any(opcode, IMMEDIATE_OPCODES)),
            kind.takes_entry.eq(is_any(opcode, (*SEND_OPCODES, *IMMEDIATE_OPCODES))),
            kind.request.eq(is_any(opcode, REQUEST_OPCODES)),
            kind.atomic_request.eq(opcode == Opcode.ATOMIC_REQUEST),
            kind.response.eq(is_any(opcode, RESPONSE_OPCODES)),
            kind.atomic_response.eq(opcode == Opcode.ATOMIC_RESPONSE),
            kind.invalidates.eq(last & is_any(opcode, INVALIDATING_OPCODES)),
            self.position.eq(Cat(Const(0, 3), self.segment.store_address) + first_octet),
        ]
        return m
