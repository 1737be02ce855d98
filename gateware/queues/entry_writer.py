"""Hands queue entries to the write engine and remembers whose they are."""

from amaranth import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from gateware.config import RnicConfig
from gateware.interfaces import WORD, WriteClient
from gateware.stream_buffer import StreamBuffer
from hw.interface.queue_entries import COMPLETION_ENTRY_OCTETS, EVENT_ENTRY_OCTETS

ENTRY_OCTETS = 32
ENTRY_WORDS = ENTRY_OCTETS // 8

OUTSTANDING = 16
"""Entries whose write responses may be outstanding."""

assert ENTRY_OCTETS == COMPLETION_ENTRY_OCTETS == EVENT_ENTRY_OCTETS


def entry_tag(config: RnicConfig) -> data.StructLayout:
    """What is remembered of an entry until it is visible."""
    return data.StructLayout({"ring": range(config.cqs + 1), "qp": config.qp_bits, "solicited": 1})


class EntryWriter(wiring.Component):
    """Writes entries of 32 octets and tells of each when its write response is there.

    A command one cycle after an entry came, its words from three cycles after it on; an entry
    every six cycles if the write engine takes them at once.

    Members
    -------
    i: the address of an entry, its octets and its tag. It must not be valid without `room`.
    write: client of `dma/write.py`.
    room: one more entry may come; as it was a cycle ago, so not in the cycle after one came.
    idle: no write response is outstanding.
    done, failed, tag: an entry's write response is there; it was an error; its tag.
    """

    def __init__(self, config: RnicConfig):
        self._tag = entry_tag(config)
        super().__init__(
            {
                "i": In(
                    stream.Signature(
                        data.StructLayout(
                            {"address": 64, "entry": 8 * ENTRY_OCTETS, "tag": self._tag}
                        )
                    )
                ),
                "write": Out(WriteClient()),
                "room": Out(1),
                "idle": Out(1),
                "done": Out(1),
                "failed": Out(1),
                "tag": Out(self._tag),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.tags = tags = SyncFIFOBuffered(width=self._tag.size, depth=OUTSTANDING)
        m.submodules.words = words = StreamBuffer(WORD)
        wiring.connect(m, words.o, wiring.flipped(self.write.data))
        command, word = self.write.command, words.i

        take = Signal()
        left = Signal(8 * ENTRY_OCTETS)
        words_left = Signal(range(ENTRY_WORDS + 1))
        outstanding = Signal(range(OUTSTANDING + 1))
        m.d.comb += [
            self.i.ready.eq(words_left == 0),
            take.eq(self.i.valid & self.i.ready),
            tags.w_en.eq(take),
            tags.w_data.eq(self.i.payload.tag),
            tags.r_en.eq(self.write.done),
            command.payload.octets.eq(ENTRY_OCTETS),
            word.valid.eq(~command.valid & (words_left != 0)),
            word.payload.data.eq(left[:64]),
            word.payload.last.eq(words_left == 1),
        ]
        with m.If(command.ready):
            m.d.sync += command.valid.eq(0)
        with m.If(word.valid & word.ready):
            m.d.sync += [left.eq(left >> 64), words_left.eq(words_left - 1)]
        with m.If(words_left == 0):
            m.d.sync += [
                command.payload.address.eq(self.i.payload.address),
                left.eq(self.i.payload.entry),
            ]
        with m.If(take):
            m.d.sync += [command.valid.eq(1), words_left.eq(ENTRY_WORDS)]

        m.d.sync += [
            outstanding.eq(outstanding + take - self.write.done),
            self.room.eq(outstanding < OUTSTANDING - 1),
            self.done.eq(self.write.done),
            self.failed.eq(self.write.done & self.write.error),
            self.tag.eq(tags.r_data),
        ]
        m.d.comb += self.idle.eq((outstanding == 0) & ~self.done)
        return m
