"""Messages as bytes, and how they queue."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.stream.slot import StreamSlot

OCTET = data.StructLayout({"octet": 8, "last": 1})
"""A byte of a message, the kind first; `last` with the last one."""

DEPTH = 2048
"""Bytes with `last` that one block RAM holds."""


class OctetBuffer(wiring.Component):
    """Holds bytes until they are released by `commit`, or forgotten by `drop`.

    `i` takes a byte a cycle, `o` gives one every two cycles, the first one three cycles after the
    commit at the earliest. Both are registered.

    Parameters
    ----------
    depth: bytes, a power of two.

    Members
    -------
    commit: everything written before, and in this cycle, may leave.
    drop: everything written and not committed is forgotten; nothing is written in this cycle.
    """

    def __init__(self, depth: int = DEPTH):
        self._depth = depth
        super().__init__(
            {
                "i": In(stream.Signature(OCTET)),
                "o": Out(stream.Signature(OCTET)),
                "commit": In(1),
                "drop": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = self._depth
        bits = (depth - 1).bit_length()
        m.submodules.memory = store = memory.Memory(
            shape=9, depth=depth, init=[], attrs=NO_COLLISION
        )
        write, read = store.write_port(), store.read_port()
        end = Signal(bits)  # of what may leave
        behind = Signal(bits)  # the byte that is written in this cycle
        fetching = Signal()
        full = Signal()
        taken = Signal()
        m.d.comb += [
            self.i.ready.eq(~full),
            taken.eq(self.i.valid & ~full),
            write.en.eq(taken),
            write.data.eq(Cat(self.i.p.octet, self.i.p.last)),
            behind.eq(write.addr + taken),
        ]
        m.d.sync += [
            write.addr.eq(Mux(self.drop, end, behind)),
            # One byte may come before this is seen.
            full.eq((write.addr - read.addr)[:bits] >= depth - 4),
        ]
        with m.If(self.commit):
            m.d.sync += end.eq(behind)

        m.d.comb += read.en.eq((read.addr != end) & ~fetching & (~self.o.valid | self.o.ready))
        m.d.sync += fetching.eq(read.en)
        with m.If(read.en):
            m.d.sync += read.addr.eq(read.addr + 1)
        with m.If(fetching):
            m.d.sync += [self.o.valid.eq(1), Cat(self.o.p.octet, self.o.p.last).eq(read.data)]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        return m


class MessageSlot(wiring.Component):
    """Makes a message of the fields on `i`, one byte a cycle; takes the next one after it.

    Parameters
    ----------
    kind: of the messages. octets: of the payload, the first in the lowest bits of `i`.
    """

    def __init__(self, kind: int, octets: int):
        self._kind = kind
        self._octets = octets
        super().__init__({"i": In(stream.Signature(8 * octets)), "o": Out(stream.Signature(OCTET))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shift = Signal(8 * self._octets + 8)
        left = Signal(range(self._octets + 2))
        m.d.comb += [
            self.i.ready.eq(~self.o.valid),
            self.o.p.octet.eq(shift[:8]),
            self.o.p.last.eq(left == 1),
        ]
        with m.If(~self.o.valid):
            m.d.sync += [
                shift.eq(Cat(Const(self._kind, 8), self.i.payload)),
                left.eq(self._octets + 1),
                self.o.valid.eq(self.i.valid),
            ]
        with m.Elif(self.o.ready):
            m.d.sync += [shift.eq(shift >> 8), left.eq(left - 1)]
            with m.If(left == 1):
                m.d.sync += self.o.valid.eq(0)
        return m


class MessageArbiter(wiring.Component):
    """Joins streams of messages, whole messages one after another; everyone has its turn.

    A byte every two cycles. All of `o` is registered.
    """

    def __init__(self, inputs: int):
        super().__init__(
            {
                "i": In(stream.Signature(OCTET)).array(inputs),
                "o": Out(stream.Signature(OCTET)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = len(self.i)
        m.submodules.slot = slot = StreamSlot(OCTET)
        wiring.connect(m, slot.o, wiring.flipped(self.o))
        turn = Signal(range(count))
        inside = Signal()  # of a message
        following = Mux(turn == count - 1, 0, turn + 1)
        for number, port in enumerate(self.i):
            with m.If(turn == number):
                m.d.comb += [
                    slot.i.valid.eq(port.valid),
                    slot.i.payload.eq(port.payload),
                    port.ready.eq(slot.i.ready),
                ]
        with m.If(slot.i.valid & slot.i.ready):
            m.d.sync += inside.eq(~slot.i.p.last)
            with m.If(slot.i.p.last):
                m.d.sync += turn.eq(following)
        with m.Elif(~inside & ~slot.i.valid):
            m.d.sync += turn.eq(following)
        return m
