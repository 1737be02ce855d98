"""Hands queue entries to the write engine and remembers whose they are."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.host_memory import WORD, WriteClient
from stagecoach.gateware.stream.buffer import StreamBuffer
from stagecoach.hw.interface.queue_entries import COMPLETION_ENTRY_OCTETS, EVENT_ENTRY_OCTETS

ENTRY_OCTETS = 32
ENTRY_WORDS = ENTRY_OCTETS // 8

OUTSTANDING = 16
"""Entries whose write responses may be outstanding."""

assert ENTRY_OCTETS == COMPLETION_ENTRY_OCTETS == EVENT_ENTRY_OCTETS


def entry_tag(config: RnicConfig) -> data.StructLayout:
    """What is remembered of an entry until it is visible."""
    return data.StructLayout({"ring": range(config.cqs + 1), "qp": config.qp_bits, "solicited": 1})


class EntryWriter(wiring.Component):
    """Writes entries of 32 bytes and tells of each when its write response is there.

    A command one cycle after an entry came, its words from three cycles after it on; an entry
    every five cycles if the write engine takes them at once.

    Members
    -------
    i: the address of an entry, its bytes and its tag. It must not be valid unless `room` was high
        since the entry before it was taken.
    write: client of `dma/write.py`.
    room: one more entry may come. An entry counts from the third cycle after it was taken; there is
        a place for one that does not count yet, so this falls when `OUTSTANDING` - 1 do.
    idle: all entries that came have left through `done`.
    done: an entry's tag, in order, when its write response is there, and if that was an error.
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
                "done": Out(stream.Signature(data.StructLayout({"tag": self._tag, "failed": 1}))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.tags = tags = SyncFIFOBuffered(width=self._tag.size, depth=OUTSTANDING)
        m.submodules.responses = responses = SyncFIFOBuffered(width=1, depth=OUTSTANDING)
        # Two buffers: the write engine is far, and so is the register of the entry.
        m.submodules.words = words = StreamBuffer(WORD)
        m.submodules.words_out = words_out = StreamBuffer(WORD)
        wiring.connect(m, words.o, words_out.i)
        wiring.connect(m, words_out.o, wiring.flipped(self.write.data))
        command, word = self.write.command, words.i

        # An entry is counted a cycle after it came.
        take, taken = Signal(), Signal()
        tag = Signal(self._tag)
        left = Signal(8 * ENTRY_OCTETS)
        words_left = Signal(range(ENTRY_WORDS + 1))
        free = Signal(init=1)  # that is 0
        # The first word goes beside the command, the others when that was taken.
        first = Signal()
        commanded = Signal(init=1)  # not command.valid, which is for the write engine alone
        goes = (commanded | first) & word.ready
        outstanding = Signal(range(OUTSTANDING + 1))
        leaves = Signal()
        m.d.comb += [
            self.i.ready.eq(free),
            take.eq(self.i.valid & self.i.ready),
            tags.w_en.eq(taken),
            tags.w_data.eq(tag),
            self.done.valid.eq(responses.r_rdy),
            self.done.p.tag.eq(tags.r_data),
            self.done.p.failed.eq(responses.r_data),
            leaves.eq(self.done.valid & self.done.ready),
            tags.r_en.eq(leaves),
            responses.r_en.eq(leaves),
            command.payload.octets.eq(ENTRY_OCTETS),
            word.valid.eq((commanded | first) & ~free),
            word.payload.data.eq(left[:64]),
            word.payload.last.eq(words_left == 1),
        ]
        with m.If(command.ready):
            m.d.sync += [command.valid.eq(0), commanded.eq(1)]
        with m.If(free | goes):
            m.d.sync += left.eq(Mux(free, self.i.payload.entry, left >> 64))
        with m.If(word.valid & word.ready):
            m.d.sync += [
                words_left.eq(words_left - 1),
                first.eq(0),
                free.eq(words_left == 1),
            ]
        with m.If(free):
            m.d.sync += [command.payload.address.eq(self.i.payload.address), tag.eq(self.i.p.tag)]
        with m.If(take):
            m.d.sync += [
                command.valid.eq(1),
                commanded.eq(0),
                words_left.eq(ENTRY_WORDS),
                first.eq(1),
                free.eq(0),
            ]

        m.d.sync += [
            taken.eq(take),
            responses.w_en.eq(self.write.done),
            responses.w_data.eq(self.write.error),
            outstanding.eq(outstanding + taken - leaves),
            self.room.eq(outstanding < OUTSTANDING - 1),
        ]
        m.d.comb += self.idle.eq((outstanding == 0) & ~taken)
        return m
