"""Frames and notices for the driver: slots and entries of two rings in host memory."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from stagecoach.gateware.ethernet.layouts import (
    ETHERNET_OCTETS,
    HOST_RING,
    OCTETS_BITS,
    RAW_NOTICE,
    RAW_WORD,
    NetworkKind,
    ring_mask,
    ring_place,
)
from stagecoach.gateware.host_memory import WORD, WriteClient
from stagecoach.gateware.queues.entries import entry_layout
from stagecoach.gateware.stream.buffer import StreamBuffer
from stagecoach.gateware.stream.prompt_fifo import PromptFifo
from stagecoach.hw.interface.network_entries import (
    NETWORK_ENTRY,
    NETWORK_ENTRY_OCTETS,
    slot_octets,
)

FRAMES = 16
"""Frames that were taken and whose entry was not commanded."""

COMMANDS = 32
"""Commands whose write responses are outstanding: as many as bursts of the write engine."""

ENTRY = entry_layout(NETWORK_ENTRY)

ENTRY_BITS = exact_log2(NETWORK_ENTRY_OCTETS)


class RawReceive(wiring.Component):
    """Writes frames into slots of one ring and tells of them, and of notices, in another one.

    The network queue has entries of 16 bytes (`hw/interface/network_entries.py`). A frame goes
    to the next slot; when the write response of all its bytes is there, its entry goes to the
    queue. Entries have the order of the frames. A notice goes before the entries of frames that
    wait for responses, and no frame is taken while a notice waits: each frame that comes after a
    notice was offered has its entry after it.

    A frame that comes while there is no free slot, no place in the queue for its entry, `frames`
    before it have none yet, or `commands` are not answered is taken and dropped. A notice waits
    for a place, and takes none that a frame was promised. An entry of a frame that memory could not
    write has 0 bytes; an entry that could not be written is lost. `failed` tells of both.

    Both rings have 2^0 to 2^15 places; numbers are modulo 2^16, and so may begin anywhere. While
    `enable` is low frames are dropped and notices wait; when the block is `idle` then, it begins
    anew: with the places that `queue_consumer` and `slot_consumer` name, both rings empty. `queue`
    and `slots` change then alone, and two cycles before `enable` rises at the latest.

    A frame costs its words and one cycle, and three for its entry, a notice three. From the first
    word of a frame, or a notice, to its command 1 cycle, to its first word 2. From the response to
    the command of the entry 2, if nothing else goes on. While memory takes no commands or no words
    the frame waits; if it only never answers, up to `frames` are taken, then all are dropped.

    Parameters
    ----------
    mtu: bytes of the longest IP packet: a frame has 14 more at most. Slots have 2 KiB, or 16 KiB
        if that is too short for it. frames, commands: how many may wait for memory; from 2 on.

    Members
    -------
    raw: frames. notice: what the driver is told; it stays until it is in the queue.
    queue, slots: the rings. queue_consumer: the number after the last entry that the driver has
        read; slot_consumer: after the last slot that it has freed. enable, idle: as said.
    write: of memory. interrupt: a pulse for each entry that is there. dropped: a pulse for each
        frame that is dropped. failed: a pulse for each write that failed.
    """

    def __init__(self, mtu: int = 1500, frames: int = FRAMES, commands: int = COMMANDS):
        if not 576 <= mtu < (1 << OCTETS_BITS) - ETHERNET_OCTETS:
            raise ValueError(f"RawReceive mtu is {mtu!r}; allowed: 576 to 16369")
        self._frames, self._commands = frames, commands
        self._slot_bits = exact_log2(slot_octets(mtu))
        super().__init__(
            {
                "raw": In(stream.Signature(RAW_WORD)),
                "notice": In(stream.Signature(RAW_NOTICE)),
                "queue": In(HOST_RING),
                "slots": In(HOST_RING),
                "queue_consumer": In(16),
                "slot_consumer": In(16),
                "enable": In(1),
                "idle": Out(1),
                "write": Out(WriteClient()),
                "interrupt": Out(1),
                "dropped": Out(1),
                "failed": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        raw, notice, command = self.raw, self.notice, self.write.command
        m.submodules.words = words = StreamBuffer(WORD)
        wiring.connect(m, words.o, wiring.flipped(self.write.data))
        # Bytes of frames, 0 for entries: of commands that are not answered; of stored frames that
        # have no entry.
        m.submodules.commanded = commanded = PromptFifo(OCTETS_BITS, self._commands)
        m.submodules.stored = stored = PromptFifo(OCTETS_BITS, self._frames)
        word = words.i

        # Running numbers: of the next frame, of the next one that has no entry; of the next entry,
        # and of the one after those that frames were promised.
        slot, entered, placed, promised = (
            Signal(16, name=name) for name in ("slot", "entered", "placed", "promised")
        )
        # They change in cycles of which none follows another one, so what stands in registers here
        # is true when it counts.
        waiting = Signal(range(self._frames + 1))  # frames that have no entry
        queue_room = Signal()
        slots_room = Signal()
        entry_place = Signal(64)
        slot_place = Signal(64)
        queue_used, slots_used = promised - self.queue_consumer, slot - self.slot_consumer
        m.d.sync += [
            waiting.eq(slot - entered),
            queue_room.eq(~(queue_used & ~ring_mask(self.queue.log2))[:16].any()),
            slots_room.eq(~(slots_used & ~ring_mask(self.slots.log2))[:16].any()),
            entry_place.eq(ring_place(self.queue, placed, ENTRY_BITS)),
            slot_place.eq(ring_place(self.slots, slot, self._slot_bits)),
        ]

        has_place, fits = Signal(), Signal()
        goes = Signal()  # a command may
        is_entry = Signal()  # the command, if one goes
        tells = Signal()  # the entry, of a frame
        phase = Signal()
        starts = Signal()
        m.d.comb += [
            has_place.eq(self.enable & queue_room),
            fits.eq(has_place & slots_room & (waiting != self._frames) & commanded.i.ready),
            goes.eq(commanded.i.ready & ~command.valid),
            is_entry.eq(stored.o.valid | notice.valid),
            commanded.i.valid.eq(starts),
            commanded.i.payload.eq(Mux(is_entry, 0, raw.p.octets)),
        ]
        with m.If(command.ready):
            m.d.sync += command.valid.eq(0)
        with m.If(starts):
            m.d.sync += command.valid.eq(1)
        with m.If(~command.valid):
            m.d.sync += [
                command.p.address.eq(Mux(is_entry, entry_place, slot_place)),
                command.p.octets.eq(Mux(is_entry, NETWORK_ENTRY_OCTETS, raw.p.octets)),
            ]

        entry = Signal(ENTRY)
        second = Signal()  # word of the entry
        m.d.comb += entry.phase.eq(phase)
        with m.If(tells):
            m.d.comb += [
                entry.kind.eq(NetworkKind.FRAME),
                entry.octets.eq(stored.o.payload),
                entry.slot.eq(entered),
            ]
        with m.Else():
            m.d.comb += [
                entry.kind.eq(notice.p.kind),
                entry.connection.eq(notice.p.connection),
                entry.sequence.eq(notice.p.sequence),
                entry.acknowledgment.eq(notice.p.acknowledgment),
                entry.flags.eq(notice.p.fin),
            ]
        m.d.comb += [word.p.data.eq(raw.p.data), word.p.last.eq(raw.p.last)]
        with m.FSM(init="CHOOSE") as fsm:
            with m.State("CHOOSE"):  # an entry of a frame, a notice, or a frame
                m.d.sync += [
                    tells.eq(stored.o.valid),
                    phase.eq(~placed.bit_select(self.queue.log2, 1)),
                ]
                with m.If(goes & (stored.o.valid | (notice.valid & has_place))):
                    m.d.comb += starts.eq(1)
                    m.d.sync += [
                        placed.eq(placed + 1),
                        promised.eq(promised + ~stored.o.valid),
                    ]
                    m.next = "ENTRY"
                with m.Elif(raw.valid & ~fits):
                    m.d.comb += self.dropped.eq(1)
                    m.next = "DROP"
                with m.Elif(raw.valid & goes):
                    m.d.comb += starts.eq(1)
                    m.d.sync += [slot.eq(slot + 1), promised.eq(promised + 1)]
                    m.next = "FRAME"
            with m.State("ENTRY"):  # its words
                m.d.comb += [
                    word.valid.eq(1),
                    word.p.data.eq(Value.cast(entry).word_select(second, 64)),
                    word.p.last.eq(second),
                ]
                with m.If(word.ready):
                    m.d.sync += second.eq(~second)
                with m.If(word.ready & second):
                    m.d.comb += [stored.o.ready.eq(tells), notice.ready.eq(~tells)]
                    m.d.sync += entered.eq(entered + tells)
                    m.next = "CHOOSE"
            with m.State("FRAME"):  # its words
                m.d.comb += [word.valid.eq(raw.valid), raw.ready.eq(word.ready)]
                with m.If(raw.valid & raw.ready & raw.p.last):
                    m.next = "CHOOSE"
            with m.State("DROP"):  # the words of a frame
                m.d.comb += raw.ready.eq(1)
                with m.If(raw.valid & raw.p.last):
                    m.next = "CHOOSE"
            m.d.comb += self.idle.eq(fsm.ongoing("CHOOSE") & ~commanded.o.valid & ~stored.o.valid)

        # Responses come in the order of the commands.
        octets = commanded.o.payload
        m.d.comb += [
            commanded.o.ready.eq(self.write.done),
            stored.i.valid.eq(self.write.done & (octets != 0)),
            stored.i.payload.eq(Mux(self.write.error, 0, octets)),
            self.interrupt.eq(self.write.done & (octets == 0)),
            self.failed.eq(self.write.done & self.write.error),
        ]
        with m.If(self.idle & ~self.enable):
            m.d.sync += [
                slot.eq(self.slot_consumer),
                entered.eq(self.slot_consumer),
                placed.eq(self.queue_consumer),
                promised.eq(self.queue_consumer),
            ]
        return m
