"""Frames of the driver: descriptors and frames are read out of host memory, and leave whole."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from stagecoach.gateware.config import WORD_OCTETS
from stagecoach.gateware.ethernet.layouts import (
    ETHERNET_OCTETS,
    FRAME_BEAT,
    HOST_RING,
    OCTETS_BITS,
    ring_place,
)
from stagecoach.gateware.host_memory import ReadClient
from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.queues.entries import entry_layout
from stagecoach.hw.interface.network_entries import FRAME_DESCRIPTOR, FRAME_DESCRIPTOR_OCTETS

DESCRIPTOR = entry_layout(FRAME_DESCRIPTOR)

DESCRIPTOR_BITS = exact_log2(FRAME_DESCRIPTOR_OCTETS)

_WORD_BITS = exact_log2(WORD_OCTETS)


class RawTransmit(wiring.Component):
    """Reads one descriptor after the other, and the frame of each, and sends it when it is whole.

    Descriptors have 16 bytes (`hw/interface/network_entries.py`) and stand in a ring of 2^0 to
    2^15 places; `producer` is the number after the last one that the driver has written,
    `consumer` the number after the last one that is done: its last word was taken, or it was
    refused or could not be read. Both are modulo 2^16, and may begin anywhere: while `enable` is
    low and the block is `idle`, `consumer` follows `producer`. `queue` changes then alone, and two
    cycles before `enable` rises at the latest. A descriptor that was begun is done when `enable`
    falls, no other one is begun.

    A frame below 14 bytes, or above the MTU and 14, or whose address is no multiple of 8, is
    `refused`. If memory reports an error of
    the descriptor or of any word of the frame, nothing of that frame is sent, and `failed` says so.

    A frame costs, beside twice the latency of memory, 9 cycles and its words twice, into the store
    and out of it. From `producer` to the command 1 cycle; from the second word of the descriptor to
    the command of the frame 2; from the last word of memory to the first of the frame 3. Then it
    leaves with a word in each cycle. A reader that takes nothing holds up the frames after it, and
    so does memory that never answers; nothing else waits.

    Parameters
    ----------
    mtu: bytes of the longest IP packet.

    Members
    -------
    queue, producer, consumer, enable, idle: as said. read: of memory. frame: to `FrameOutput`.
        Each word is taken when it comes. refused, failed: a pulse for each such frame.
    """

    def __init__(self, mtu: int = 1500):
        if not 576 <= mtu < (1 << OCTETS_BITS) - ETHERNET_OCTETS:
            raise ValueError(f"RawTransmit mtu is {mtu!r}; allowed: 576 to 16369")
        self._most = mtu + ETHERNET_OCTETS
        super().__init__(
            {
                "queue": In(HOST_RING),
                "producer": In(16),
                "consumer": Out(16),
                "enable": In(1),
                "idle": Out(1),
                "read": Out(ReadClient()),
                "frame": Out(stream.Signature(FRAME_BEAT)),
                "refused": Out(1),
                "failed": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        command, word, frame = self.read.command, self.read.data, self.frame
        words = -(-self._most // WORD_OCTETS)
        m.submodules.store = store = memory.Memory(
            shape=64, depth=words, init=[], attrs=NO_COLLISION
        )
        write, read = store.write_port(), store.read_port()

        # Of the descriptor: its place, its words and what is in them.
        place = Signal(64)
        low, high = Signal(64), Signal(64)
        descriptor = Signal(DESCRIPTOR)
        bad = Signal()  # a word of it, or of the frame, could not be read
        # Words of the frame: the one that comes or is fetched; then it is at the output of the
        # memory, then at `frame`. Those after the last one are fetched in vain. Bytes that have
        # not left.
        number = Signal(range(words + 1))
        fetches, fetched = Signal(), Signal()
        moves = Signal()
        left = Signal(OCTETS_BITS)
        m.d.comb += [
            # None comes that was not asked for.
            word.ready.eq(1),
            descriptor.eq(Cat(low, high)),
            write.addr.eq(number),
            write.data.eq(word.p.data),
            read.addr.eq(number),
            read.en.eq(moves),
            moves.eq(~frame.valid | frame.ready),
            frame.p.last.eq(left <= WORD_OCTETS),
            frame.p.octets.eq(Mux(frame.p.last, left, WORD_OCTETS)),
        ]
        with m.If(moves):
            m.d.sync += [
                fetched.eq(fetches),
                frame.valid.eq(fetched),
                frame.p.data.eq(read.data),
            ]
        with m.If(word.valid):
            m.d.sync += bad.eq(bad | word.p.error)

        with m.FSM(init="WAIT"):
            with m.State("WAIT"):  # for a descriptor
                m.d.comb += self.idle.eq(1)
                m.d.sync += [
                    bad.eq(0),
                    place.eq(ring_place(self.queue, self.consumer, DESCRIPTOR_BITS)),
                ]
                with m.If(~self.enable):
                    m.d.sync += self.consumer.eq(self.producer)
                with m.Elif(self.consumer != self.producer):
                    m.next = "ASK"
            with m.State("ASK"):  # for the descriptor
                m.d.comb += [
                    command.valid.eq(1),
                    command.p.address.eq(place),
                    command.p.octets.eq(FRAME_DESCRIPTOR_OCTETS),
                ]
                with m.If(command.ready):
                    m.next = "DESCRIPTOR"
            with m.State("DESCRIPTOR"):  # its words
                with m.If(word.valid):
                    m.d.sync += [low.eq(high), high.eq(word.p.data)]
                    with m.If(word.p.last):
                        m.next = "CHECK"
            with m.State("CHECK"):  # what was read
                octets = descriptor.octets
                m.d.sync += [number.eq(0), left.eq(octets)]
                m.next = "READ"
                with m.If(bad):
                    m.d.comb += self.failed.eq(1)
                    m.next = "DONE"
                with m.Elif(
                    (octets < ETHERNET_OCTETS)
                    | (octets > self._most)
                    | descriptor.address[:_WORD_BITS].any()
                ):
                    m.d.comb += self.refused.eq(1)
                    m.next = "DONE"
            with m.State("READ"):  # the frame
                m.d.comb += [
                    command.valid.eq(1),
                    command.p.address.eq(descriptor.address),
                    command.p.octets.eq(left),
                ]
                with m.If(command.ready):
                    m.next = "FILL"
            with m.State("FILL"):  # the store with its words
                m.d.comb += write.en.eq(word.valid)
                with m.If(word.valid):
                    m.d.sync += number.eq(number + 1)
                with m.If(word.valid & word.p.last):
                    m.d.sync += number.eq(0)
                    m.next = "SEND"
                    with m.If(bad | word.p.error):
                        m.d.comb += self.failed.eq(1)
                        m.next = "DONE"
            with m.State("SEND"):  # all of them
                m.d.comb += fetches.eq(1)
                m.d.sync += number.eq(number + moves)
                with m.If(frame.valid & frame.ready):
                    m.d.sync += left.eq(left - WORD_OCTETS)
                    with m.If(frame.p.last):
                        m.d.sync += [fetched.eq(0), frame.valid.eq(0)]
                        m.next = "DONE"
            with m.State("DONE"):  # the next one
                m.d.sync += self.consumer.eq(self.consumer + 1)
                m.next = "WAIT"
        return m
