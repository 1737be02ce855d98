"""The arithmetic of FetchAdd, Swap and CmpSwap on a 64-bit operand (RFC 7306, 5.1)."""

from amaranth import unsigned
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from hw.interface import queue_entries

LATENCY = 3
"""Cycles from the operands to the result."""


class AtomicOperation(enum.Enum, shape=unsigned(2)):
    """The low bits of the AOpCode (RFC 7306, Figure 5; Swap: draft-ietf-storm-rdmap-ext-00)."""

    FETCH_ADD = queue_entries.AtomicOperation.FETCH_ADD
    SWAP = queue_entries.AtomicOperation.SWAP
    CMP_SWAP = queue_entries.AtomicOperation.CMP_SWAP


OPERANDS = data.StructLayout(
    {
        "operation": AtomicOperation,
        "data": 64,  # Add or Swap Data
        "mask": 64,  # Add or Swap Mask; Swap ignores it
        "compare": 64,  # CmpSwap: Compare Data
        "compare_mask": 64,  # CmpSwap
    }
)
"""What an Atomic Request asks for (RFC 7306, 5.2.1), every field as a number."""


class AtomicArithmetic(wiring.Component):
    """Computes what an atomic leaves in memory.

    Latency `LATENCY` cycles, one operation per cycle. There is no back-pressure and no valid: what
    comes out belongs to the inputs of `LATENCY` cycles ago, and who feeds it counts the cycles.

    All values are numbers. The operation is thus done in the byte order of host memory if
    `original` is the number that the host sees there: for a little-endian host a word as the AXI
    port delivers it, octet of the lowest address in bits [7:0]. The caller turns wire fields into
    numbers and back (`from_wire`, `to_wire` of `gateware/ddp/headers.py`).

    An operation that is none of `AtomicOperation` changes nothing; its AOpCode was to be refused.

    Members
    -------
    operands: operation, data and masks of the request.
    original: the Original Remote Data Value.
    result: the value that memory has afterwards.
    writes: `result` has to be written. Low for a CmpSwap that did not match: it must leave memory
        alone (5.1.2), and writing `original` back could undo what somebody else wrote meanwhile.
    """

    operands: In(OPERANDS)
    original: In(64)
    result: Out(64)
    writes: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        given, original = self.operands, self.original

        # A field ends at each bit of the mask. Without these bits nothing is carried out of a
        # field, and what they themselves become is the sum of three bits without a carry.
        lower_original = Signal(64)
        lower_added = Signal(64)
        ends = Signal(64)
        replaced = Signal(64)
        differs = Signal(8)  # one bit per octet
        m.d.sync += [
            lower_original.eq(original & ~given.mask),
            lower_added.eq(given.data & ~given.mask),
            ends.eq((original ^ given.data) & given.mask),
            replaced.eq(original & ~given.mask | given.data & given.mask),
            differs.eq(
                Cat(
                    ((original ^ given.compare) & given.compare_mask)[low : low + 8].any()
                    for low in range(0, 64, 8)
                )
            ),
        ]
        operation_1 = Signal(AtomicOperation)
        original_1 = Signal(64)
        data_1 = Signal(64)
        m.d.sync += [
            operation_1.eq(given.operation),
            original_1.eq(original),
            data_1.eq(given.data),
        ]

        total = Signal(64)
        ends_2 = Signal(64)
        other = Signal(64)  # the result of everything but FetchAdd
        adds = Signal()
        writes = Signal()
        m.d.sync += [
            total.eq(lower_original + lower_added),
            ends_2.eq(ends),
            adds.eq(operation_1 == AtomicOperation.FETCH_ADD),
            writes.eq(0),
            other.eq(original_1),
        ]
        with m.Switch(operation_1):
            with m.Case(AtomicOperation.FETCH_ADD):
                m.d.sync += writes.eq(1)
            with m.Case(AtomicOperation.SWAP):
                m.d.sync += [writes.eq(1), other.eq(data_1)]
            with m.Case(AtomicOperation.CMP_SWAP):
                with m.If(~differs.any()):
                    m.d.sync += [writes.eq(1), other.eq(replaced)]

        m.d.sync += [self.result.eq(other), self.writes.eq(writes)]
        with m.If(adds):
            m.d.sync += self.result.eq(total ^ ends_2)
        return m
