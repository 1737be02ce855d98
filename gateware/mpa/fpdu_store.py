"""The store for received FPDUs until they are verified and placed."""

from amaranth.hdl import Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.mpa.ports import StoreWritePort

MARGIN_WORDS = 16
"""Words kept free, so that `full` may be late; an empty store is not mistaken for a full one."""


class FpduStore(wiring.Component):
    """Circular memory of 64-bit words; what is written counts only when it is committed.

    Words after the last commit belong to an FPDU that is not verified yet: `rewind` forgets them.
    Committed words are kept until they are freed, in order (`ReleaseOrder`).

    Members
    -------
    writer: `StoreWritePort`, seen from the store.
    address, data: the placer reads; as of the `StorePort`.
    free, free_end: In, a pulse, all words before the address `free_end` are free.
    """

    def __init__(self, config: RnicConfig):
        self._words = config.fpdu_store_octets // 8
        super().__init__(
            {
                "writer": In(StoreWritePort(config)),
                "address": In(config.store_address_bits),
                "data": Out(64),
                "free": In(1),
                "free_end": In(config.store_address_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Only committed words are read.
        m.submodules.memory = words = memory.Memory(
            shape=64, depth=self._words, init=[], attrs=NO_COLLISION
        )
        write, read = words.write_port(), words.read_port()

        # A register before the memory, which is spread over the whole chip.
        m.d.sync += [
            write.en.eq(self.writer.write & ~self.writer.rewind),
            write.addr.eq(self.writer.address),
            write.data.eq(self.writer.word),
        ]
        m.d.sync += [read.addr.eq(self.address), self.data.eq(read.data)]

        verified = Signal.like(self.writer.address)
        with m.If(self.writer.commit):
            m.d.sync += verified.eq(self.writer.commit_end)
        with m.If(self.writer.rewind):
            m.d.sync += self.writer.address.eq(verified)
        with m.Elif(self.writer.write):
            m.d.sync += self.writer.address.eq(self.writer.address + 1)

        freed = Signal.like(self.writer.address)
        used = Signal.like(self.writer.address)
        with m.If(self.free):
            m.d.sync += freed.eq(self.free_end)
        m.d.sync += [
            used.eq(self.writer.address - freed),
            self.writer.full.eq(used >= self._words - MARGIN_WORDS),
        ]
        return m
