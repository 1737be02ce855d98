"""The arithmetic of FetchAdd, Swap and CmpSwap on a 64-bit operand (RFC 7306, 5.1)."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.layouts import OPERANDS, AtomicOperation

LATENCY = 3
"""Cycles from the operands to the result."""


class AtomicArithmetic(wiring.Component):
    """Computes what an atomic writes.

    Latency `LATENCY` cycles, one operation per cycle. There is no back-pressure and no valid: what
    comes out belongs to the inputs of `LATENCY` cycles ago, and who feeds it counts the cycles.

    All values are numbers. The operation is thus done in the byte order of host memory if
    `original` is the number that the host sees there: for a little-endian host a word as the AXI
    port delivers it, byte of the lowest address in bits [7:0]. The caller turns wire fields into
    numbers and back (`from_wire`, `to_wire` of `gateware/ddp/headers.py`).

    An operation that is none of `AtomicOperation` writes nothing; its AOpCode was to be refused.

    Members
    -------
    operands: operation, data and masks of the request.
    original: the Original Remote Data Value.
    result: what is to be written.
    writes: it has to be. Low for a CmpSwap that did not match: it must leave memory
        alone (5.1.2), and writing `original` back could undo what was written meanwhile.
    will_write: `writes` of the next cycle.
    """

    operands: In(OPERANDS)
    original: In(64)
    result: Out(64)
    writes: Out(1)
    will_write: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        given, original = self.operands, self.original
        # The result is a sum and what is added to it without a carry. The sum leaves out the bits
        # of the mask, so that of FetchAdd carries nothing out of a field, which ends at such a bit.
        #            sum                            without a carry
        # FetchAdd   original & ~mask, data & ~mask (original ^ data) & mask
        # Swap       data & ~mask                   data & mask
        # CmpSwap    original & ~mask               data & mask
        adds, swaps, compares = (
            given.operation == each
            for each in (
                AtomicOperation.FETCH_ADD,
                AtomicOperation.SWAP,
                AtomicOperation.CMP_SWAP,
            )
        )
        augend = Signal(64)
        addend = Signal(64)
        masked = Signal(64)
        differs = Signal(8)  # one bit per byte
        always, matching = Signal(), Signal()  # it writes; it does if nothing differs
        m.d.sync += [
            augend.eq(original & ~given.mask & ~swaps.replicate(64)),
            addend.eq(given.data & ~given.mask & ~compares.replicate(64)),
            masked.eq((original & adds.replicate(64) ^ given.data) & given.mask),
            differs.eq(
                Cat(
                    ((original ^ given.compare) & given.compare_mask)[low : low + 8].any()
                    for low in range(0, 64, 8)
                )
            ),
            always.eq(adds | swaps),
            matching.eq(compares),
        ]

        total = Signal(64)
        masked_2 = Signal(64)
        m.d.sync += [
            total.eq(augend + addend),
            masked_2.eq(masked),
            self.will_write.eq(always | matching & ~differs.any()),
        ]

        m.d.sync += [self.result.eq(total ^ masked_2), self.writes.eq(self.will_write)]
        return m
