"""The store for received FPDUs until they are verified and placed."""

from amaranth.hdl import Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.interfaces import NO_COLLISION, StorePort

MARGIN_WORDS = 16
"""Words kept free, so that `full` may be late; an empty store is not mistaken for a full one."""


class FpduStore(wiring.Component):
    """Circular memory of 64-bit words; what is written counts only when it is committed.

    Words after the last commit belong to an FPDU that is not verified yet: `rewind` forgets them.
    The placer releases committed words in order.

    Members
    -------
    write, word: append a word. Allowed for 8 cycles after `full` rose.
    address: where the next word goes.
    full: there is no room for more.
    commit, commit_end: everything before the address `commit_end` is verified.
    rewind: the next word goes after the last commit.
    placer: `StorePort`, seen from the placer.
    """

    def __init__(self, config: RnicConfig):
        self._words = config.fpdu_store_octets // 8
        address = config.store_address_bits
        super().__init__(
            {
                "write": In(1),
                "word": In(64),
                "address": Out(address),
                "full": Out(1),
                "commit": In(1),
                "commit_end": In(address),
                "rewind": In(1),
                "placer": In(StorePort(config)),
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
            write.en.eq(self.write & ~self.rewind),
            write.addr.eq(self.address),
            write.data.eq(self.word),
        ]
        m.d.sync += [read.addr.eq(self.placer.address), self.placer.data.eq(read.data)]

        verified = Signal.like(self.address)
        with m.If(self.commit):
            m.d.sync += verified.eq(self.commit_end)
        with m.If(self.rewind):
            m.d.sync += self.address.eq(verified)
        with m.Elif(self.write):
            m.d.sync += self.address.eq(self.address + 1)

        released = Signal.like(self.address)
        used = Signal.like(self.address)
        with m.If(self.placer.release):
            m.d.sync += released.eq(self.placer.release_end)
        m.d.sync += [
            used.eq(self.address - released),
            self.full.eq(used >= self._words - MARGIN_WORDS),
        ]
        return m
