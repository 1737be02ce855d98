"""Cutting a memory command into AXI bursts."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from stagecoach.gateware.config import MAX_AXI_BEATS, WORD_OCTETS

WORD_BITS = exact_log2(WORD_OCTETS)
"""log2 of the bytes of a data word."""

AXI_SIZE_WORD = 3
"""AxSIZE of 8-octet beats (AMBA AXI, A3.4.1)."""

AXI_BURST_INCR = 1
"""AxBURST of incrementing bursts (AMBA AXI, A3.4.1)."""


def tagged_command(tag_bits: int) -> data.StructLayout:
    """Return the layout of a memory command with a tag that its bursts inherit."""
    return data.StructLayout({"address": 64, "octets": 17, "tag": tag_bits})


def burst(tag_bits: int) -> data.StructLayout:
    """Return the layout of one burst of a command."""
    return data.StructLayout(
        {
            "address": 64,  # a multiple of 8
            "beats": 8,  # minus one, as AxLEN
            "first": 1,  # of the command
            "last": 1,  # of the command
            "start_lane": 3,  # lane of the first byte of the command
            "end_lane": 3,  # lane of the last byte of the command
            "tag": tag_bits,
        }
    )


class BurstSplitter(wiring.Component):
    """Cuts commands of 1 to 65535 bytes into bursts of at most `max_beats` words, in order.

    All bursts but the first start at a multiple of `max_beats` words. Such blocks divide 4 KiB, so
    no burst crosses a 4 KiB boundary, and cutting needs no wide arithmetic. Two cycles from a
    command to its first burst; then one burst per cycle; one idle cycle between commands.
    """

    def __init__(self, max_beats: int, tag_bits: int = 1):
        if not 1 <= max_beats <= MAX_AXI_BEATS or max_beats & (max_beats - 1):
            raise ValueError(
                f"BurstSplitter max_beats is {max_beats!r}; allowed: a power of two from 1 to "
                f"{MAX_AXI_BEATS}"
            )
        self._max_beats = max_beats
        self._tag_bits = tag_bits
        super().__init__(
            {
                "i": In(stream.Signature(tagged_command(tag_bits))),
                "o": Out(stream.Signature(burst(tag_bits))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        block_bits = WORD_BITS + (self._max_beats - 1).bit_length()
        command = self.i.payload

        active = Signal()
        first = Signal()
        tag = Signal(self._tag_bits)
        block = Signal(64 - block_bits)
        start = Signal(block_bits)  # byte in the block where the burst starts
        start_lane = Signal(WORD_BITS)
        # Byte offset of the last byte of the command from the start of its first block
        end = Signal(range((1 << block_bits) + 65535))
        blocks_left = end[block_bits:]

        m.d.comb += self.i.ready.eq(~active)
        with m.If(~active):
            m.d.sync += [
                active.eq(self.i.valid),
                first.eq(1),
                tag.eq(command.tag),
                block.eq(command.address[block_bits:]),
                start.eq(command.address[:block_bits]),
                start_lane.eq(command.address[:WORD_BITS]),
                end.eq(command.address[:block_bits] + command.octets - 1),
            ]

        last = Signal()
        end_beat = Signal(range(self._max_beats))
        m.d.comb += [
            last.eq(blocks_left == 0),
            end_beat.eq(self._max_beats - 1),
        ]
        with m.If(last):
            m.d.comb += end_beat.eq(end[WORD_BITS:block_bits])

        with m.If(~self.o.valid | self.o.ready):
            m.d.sync += [
                self.o.valid.eq(active),
                self.o.payload.address[WORD_BITS:block_bits].eq(start[WORD_BITS:]),
                self.o.payload.address[block_bits:].eq(block),
                self.o.payload.beats.eq((end_beat - start[WORD_BITS:])[: len(end_beat)]),
                self.o.payload.first.eq(first),
                self.o.payload.last.eq(last),
                self.o.payload.start_lane.eq(start_lane),
                self.o.payload.end_lane.eq(end[:WORD_BITS]),
                self.o.payload.tag.eq(tag),
            ]
            with m.If(active):
                m.d.sync += [
                    active.eq(~last),
                    first.eq(0),
                    start.eq(0),
                    block.eq(block + 1),
                    blocks_left.eq(blocks_left - 1),
                ]
        return m
