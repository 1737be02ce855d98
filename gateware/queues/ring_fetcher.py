"""Prefetches the entries of one kind of ring (send or receive) of every QP from host memory."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gateware.config import RnicConfig
from gateware.interfaces import (
    NO_COLLISION,
    READ_WORD,
    EntryPort,
    Layouts,
    QpCommandKind,
    QpStrobe,
    ReadClient,
)
from gateware.queues.scheduler import Scheduler
from gateware.stream_buffer import StreamBuffer
from gateware.stream_fifo import StreamFifo
from hw.interface.causes import Cause

OUTSTANDING = 16
"""Units that may be on their way from host memory."""


class RingFetcher(wiring.Component):
    """Keeps up to `prefetch` units of every QP's ring on chip, in ring order.

    An entry is one unit, or up to `entry_units` of them; what an entry takes only the consumer
    knows. A doorbell gives the running number (mod 2^16) behind the last posted unit of a QP. The
    fetcher reads posted units, one read command each, while fewer than `prefetch` of the QP are
    on chip or on their way; QPs take turns unit by unit. `filled` pulses when a unit became
    available; by the next cycle `entries` can be asked for it. Up to 16 reads are outstanding over
    all QPs; one unit is requested every 6 cycles.

    CREATE takes base and size of the ring and starts all numbers at 0; DESTROY makes the QP deaf
    to doorbells. Both wait until no read is outstanding, so nothing that was read for the old QP
    can be taken for the new one; the command is taken (`ready`) when it has had its effect. The
    consumer must not pop from this QP meanwhile, and must leave a cycle without a pop now and then
    (`EntryPort` makes it so). Commands of other kinds are taken and ignored.

    A doorbell that claims more units than the ring has, or takes units back, changes nothing
    but raises LOCAL_BAD_ENTRY with its producer number as index. After a failed read
    (HOST_READ_ERROR, index of the unit) no further unit of this QP becomes available. A doorbell
    of a QP that does not exist is ignored. `read.data` is taken in every cycle but that of a
    CREATE and while a second read error waits for `error`.

    Parameters
    ----------
    config: sizes of the device.
    unit_octets: size of a unit, a power of two of at least 16.
    entry_units: units of the longest entry, 1 or 2.
    prefetch: units of a QP on chip, a power of two of at least `entry_units`.
    send: fetches the send rings, else the receive rings.
    """

    def __init__(
        self, config: RnicConfig, *, unit_octets: int, entry_units: int, prefetch: int, send: bool
    ):
        if unit_octets < 16 or unit_octets & (unit_octets - 1):
            raise ValueError(f"unit_octets is {unit_octets}; allowed: a power of two from 16")
        if entry_units not in (1, 2):
            raise ValueError(f"entry_units is {entry_units}; allowed: 1 or 2")
        if not entry_units <= prefetch <= 64 or prefetch & (prefetch - 1):
            raise ValueError(
                f"prefetch is {prefetch}; allowed: a power of two from {entry_units} to 64"
            )
        self._config = config
        self._unit_octets = unit_octets
        self._entry_units = entry_units
        self._prefetch = prefetch
        self._send = send
        layouts = Layouts(config)
        super().__init__(
            {
                "qp_command": In(stream.Signature(layouts.qp_command)),
                "doorbell": In(stream.Signature(layouts.doorbell)),
                "read": Out(ReadClient()),
                # The consumer's view is declared in EntryPort: `select` is an input here.
                "entries": In(EntryPort(config, entry_units * unit_octets // 8)),
                "filled": Out(QpStrobe(config)),
                "error": Out(stream.Signature(layouts.qp_error)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        qps = config.qps
        words = self._unit_octets // 8
        slot_bits = exact_log2(self._prefetch)
        word_bits = exact_log2(words)
        unit_shift = exact_log2(self._unit_octets)

        context_layout = data.StructLayout({"exists": 1, "base": 64, "mask": 15})
        # How many units arrived, mod 2 * prefetch: enough for the difference to `popped`.
        arrived_layout = data.StructLayout({"count": slot_bits + 1, "failed": 1})
        tag_layout = data.StructLayout({"qp": config.qp_bits, "index": 16})

        def memory(name: str, shape) -> Memory:
            m.submodules[name] = it = Memory(shape=shape, depth=qps, init=[])
            return it

        contexts = memory("contexts", context_layout)  # of the ring
        produced = memory("produced", 16)  # units posted
        fetched = memory("fetched", 16)  # units requested
        popped = memory("popped", 16)  # units taken by the consumer
        arrived = memory("arrived", arrived_layout)
        # A unit is looked at only when it has arrived, so no word is read while it is written.
        m.submodules.buffer = buffer = Memory(
            shape=64, depth=qps * self._prefetch * words, init=[], attrs=NO_COLLISION
        )
        m.submodules.tags = tags = StreamFifo(tag_layout, OUTSTANDING)
        m.submodules.next_tag = next_tag = StreamBuffer(tag_layout)
        wiring.connect(m, tags.o, next_tag.i)

        contexts_write = contexts.write_port()
        produced_write = produced.write_port()
        fetched_write = fetched.write_port()
        popped_write = popped.write_port()
        arrived_write = arrived.write_port()
        buffer_write = buffer.write_port()

        # What the state machine works on.
        qp = Signal(config.qp_bits)
        wipe = Signal()
        context_read = contexts.read_port()
        produced_read = produced.read_port()
        fetched_read = fetched.read_port()
        popped_read = popped.read_port()
        for port in (context_read, produced_read, fetched_read, popped_read):
            m.d.comb += port.addr.eq(qp)

        # Consumer's side
        ports = self.entries
        selected_popped = popped.read_port(domain="comb")
        selected_produced = produced.read_port()
        selected_arrived = arrived.read_port()
        buffer_read = buffer.read_port()
        selected_index = Signal(16)
        selected_slot = Signal(slot_bits)
        m.d.comb += [
            selected_slot.eq(
                selected_popped.data
                + (ports.word_address[word_bits:] if self._entry_units > 1 else 0)
            ),
            selected_popped.addr.eq(ports.select),
            selected_produced.addr.eq(ports.select),
            selected_arrived.addr.eq(ports.select),
            buffer_read.addr.eq(Cat(ports.word_address[:word_bits], selected_slot, ports.select)),
        ]
        level = Signal(slot_bits + 1)
        m.d.comb += level.eq(selected_arrived.data.count - selected_index)
        m.d.sync += [
            selected_index.eq(selected_popped.data),
            ports.index.eq(selected_index),
            ports.posted.eq(selected_produced.data - selected_index),
            ports.level.eq(level),
            ports.word.eq(buffer_read.data),
        ]

        pop_read = popped.read_port(domain="comb")
        m.d.comb += [
            pop_read.addr.eq(ports.pop_qp),
            popped_write.addr.eq(Mux(ports.pop, ports.pop_qp, qp)),
            popped_write.data.eq(Mux(ports.pop, pop_read.data + 1 + ports.pop_both, 0)),
            popped_write.en.eq(ports.pop | wipe),
        ]

        # Units that come back
        tag = Signal(tag_layout)
        tag_valid = Signal()
        take_tag = Signal()
        unit_failed = Signal()
        word_number = Signal(range(words))
        arrived_now = arrived.read_port(domain="comb")
        report = Signal()  # a read error waits
        report_tag = Signal(tag_layout)
        m.submodules.read_data = read_data = StreamBuffer(READ_WORD)
        wiring.connect(m, wiring.flipped(self.read.data), read_data.i)
        word = read_data.o.payload
        transfer = Signal()
        unit_ends = Signal()
        failed = Signal()
        m.d.comb += [
            read_data.o.ready.eq(tag_valid & ~report),
            transfer.eq(read_data.o.valid & read_data.o.ready),
            unit_ends.eq(transfer & word.last),
            failed.eq(unit_failed | word.error | arrived_now.data.failed),
            buffer_write.en.eq(transfer),
            buffer_write.addr.eq(Cat(word_number, tag.index[:slot_bits], tag.qp)),
            buffer_write.data.eq(word.data),
            arrived_now.addr.eq(tag.qp),
            arrived_write.addr.eq(Mux(wipe, qp, tag.qp)),
            arrived_write.en.eq(wipe | unit_ends),
            next_tag.o.ready.eq(~tag_valid | unit_ends),
            take_tag.eq(next_tag.o.valid & next_tag.o.ready),
        ]
        with m.If(~wipe):
            m.d.comb += [
                arrived_write.data.count.eq(arrived_now.data.count + ~failed),
                arrived_write.data.failed.eq(failed),
            ]
        with m.If(transfer):
            m.d.sync += [
                word_number.eq(Mux(word.last, 0, word_number + 1)),
                unit_failed.eq((unit_failed | word.error) & ~word.last),
            ]
        with m.If(unit_ends):
            m.d.sync += tag_valid.eq(0)
            with m.If((unit_failed | word.error) & ~arrived_now.data.failed):
                m.d.sync += [report.eq(1), report_tag.eq(tag)]
        with m.If(take_tag):
            m.d.sync += [tag.eq(next_tag.o.payload), tag_valid.eq(1)]
        m.d.sync += [
            self.filled.valid.eq(unit_ends & ~failed),
            self.filled.qp.eq(tag.qp),
        ]

        # Errors: of a read, or of a doorbell
        error = self.error
        error_free = Signal()
        bad_doorbell = Signal()  # the state machine has one; taken if `error_free`
        claimed = Signal(16)
        m.d.comb += error_free.eq(~error.valid & ~report)
        with m.If(error.ready):
            m.d.sync += error.valid.eq(0)
        with m.If(~error.valid):
            with m.If(report):
                m.d.sync += [
                    report.eq(0),
                    error.valid.eq(1),
                    error.payload.qp.eq(report_tag.qp),
                    error.payload.index.eq(report_tag.index),
                    error.payload.cause.eq(Cause.HOST_READ_ERROR),
                ]
            with m.Elif(bad_doorbell):
                m.d.sync += [
                    error.valid.eq(1),
                    error.payload.qp.eq(qp),
                    error.payload.index.eq(claimed),
                    error.payload.cause.eq(Cause.LOCAL_BAD_ENTRY),
                ]

        # Who wants to fetch: after a doorbell, a pop, or a fetch that left more to do
        m.submodules.scheduler = scheduler = Scheduler(config, kicks=2)
        again = Signal()
        m.d.comb += [
            scheduler.kicks[0].valid.eq(again),
            scheduler.kicks[0].qp.eq(qp),
            scheduler.kicks[1].valid.eq(ports.pop),
            scheduler.kicks[1].qp.eq(ports.pop_qp),
        ]

        # The outputs of block RAMs are slow: nothing is computed before these registers.
        context = Signal(context_layout)
        produced_now = Signal(16)
        fetched_now = Signal(16)
        popped_now = Signal(16)
        m.d.sync += [
            context.eq(context_read.data),
            produced_now.eq(produced_read.data),
            fetched_now.eq(fetched_read.data),
            popped_now.eq(popped_read.data),
        ]

        outstanding = Signal(range(OUTSTANDING + 1))
        request = Signal()
        unit_ended = Signal()
        m.d.sync += [
            unit_ended.eq(unit_ends),
            outstanding.eq(outstanding + request - unit_ended),
        ]

        ring = Signal(context_layout)
        create = Signal()
        is_doorbell = Signal()
        doorbell_last = Signal()
        slot = Signal(15)
        next_fetch = Signal(16)
        some = Signal()  # posted units wait to be fetched
        more = Signal()  # and more than one
        room = Signal()  # on chip
        claim = Signal(16)  # units not consumed, as the doorbell claims
        known = Signal(16)  # and as they were before it
        fits = Signal()
        command = self.read.command
        with m.If(command.ready):
            m.d.sync += command.valid.eq(0)
        m.d.comb += command.payload.octets.eq(self._unit_octets)
        size = self.qp_command.payload
        log2 = size.send_log2 if self._send else size.receive_log2
        base = size.send_base if self._send else size.receive_base

        m.d.comb += [
            contexts_write.addr.eq(qp),
            contexts_write.data.eq(Mux(wipe, Cat(create, ring.base, ring.mask), 0)),
            contexts_write.en.eq(wipe),
            produced_write.addr.eq(qp),
            produced_write.data.eq(Mux(wipe, 0, claimed)),
            fetched_write.addr.eq(qp),
            fetched_write.data.eq(Mux(wipe, 0, next_fetch + 1)),
        ]

        with m.FSM():
            # After a reset no QP exists.
            with m.State("FORGET_ALL"):
                m.d.comb += [wipe.eq(1), produced_write.en.eq(1), fetched_write.en.eq(1)]
                m.d.sync += qp.eq(qp + 1)
                with m.If(qp == qps - 1):
                    m.next = "IDLE"
            # Waits for a command, a doorbell, or a QP to fetch for.
            with m.State("IDLE"):
                pick = scheduler.pick
                with m.If(self.qp_command.valid):
                    m.d.sync += [
                        qp.eq(self.qp_command.payload.qp),
                        create.eq(self.qp_command.payload.kind == QpCommandKind.CREATE),
                        ring.base.eq(base),
                        ring.mask.eq((1 << log2) - 1),
                    ]
                    m.next = "DRAIN"
                with m.Elif(self.doorbell.valid & ~(doorbell_last & pick.valid)):
                    m.d.sync += [
                        qp.eq(self.doorbell.payload.qp),
                        claimed.eq(self.doorbell.payload.producer),
                        is_doorbell.eq(1),
                        doorbell_last.eq(1),
                    ]
                    m.next = "LOOK_UP"
                with m.Elif(pick.valid):
                    m.d.sync += doorbell_last.eq(0)
                    with m.If(~command.valid & (outstanding != OUTSTANDING) & tags.i.ready):
                        m.d.sync += [qp.eq(pick.payload.qp), is_doorbell.eq(0)]
                        m.next = "LOOK_UP"
            # Waits until no read is outstanding if the command changes a ring.
            with m.State("DRAIN"):
                kind = self.qp_command.payload.kind
                with m.If((kind != QpCommandKind.CREATE) & (kind != QpCommandKind.DESTROY)):
                    m.d.comb += self.qp_command.ready.eq(1)
                    m.next = "IDLE"
                with m.Elif(outstanding == 0):
                    m.next = "FORGET"
            # Starts all numbers at 0; the memory of the popped ones may be in use for a pop.
            with m.State("FORGET"):
                m.d.comb += [wipe.eq(1), produced_write.en.eq(1), fetched_write.en.eq(1)]
                with m.If(~ports.pop):
                    m.d.comb += self.qp_command.ready.eq(1)
                    m.next = "IDLE"
            # The memories read; what was seen in IDLE is taken.
            with m.State("LOOK_UP"):
                m.d.comb += [
                    self.doorbell.ready.eq(is_doorbell),
                    scheduler.pick.ready.eq(~is_doorbell),
                ]
                m.next = "LATCH"
            # The outputs of the memories are registered.
            with m.State("LATCH"):
                m.next = "COMPARE"
            # Everything of the QP is here.
            with m.State("COMPARE"):
                ahead = Signal(16)
                m.d.comb += ahead.eq(produced_now - fetched_now)
                m.d.sync += [
                    ring.eq(context),
                    slot.eq(fetched_now & context.mask),
                    next_fetch.eq(fetched_now),
                    some.eq(ahead != 0),
                    more.eq(ahead[1:] != 0),
                    room.eq((fetched_now - popped_now)[:16] < self._prefetch),
                    claim.eq(claimed - popped_now),
                    known.eq(produced_now - popped_now),
                ]
                m.next = "CHECK"
            # Requests the unit, or checks the doorbell.
            with m.State("CHECK"):
                m.d.sync += fits.eq((claim <= ring.mask + 1) & (claim >= known))
                with m.If(is_doorbell):
                    m.next = "DOORBELL"
                with m.Else():
                    # IDLE made sure that no command waits.
                    m.d.sync += command.payload.address.eq(ring.base + (slot << unit_shift))
                    m.next = "IDLE"
                    with m.If(ring.exists & some & room):
                        m.d.comb += [request.eq(1), fetched_write.en.eq(1), again.eq(more)]
                        m.d.sync += command.valid.eq(1)
            # Takes the new producer number.
            with m.State("DOORBELL"):
                with m.If(~ring.exists):
                    m.next = "IDLE"
                with m.Elif(fits):
                    m.d.comb += [produced_write.en.eq(1), again.eq(1)]
                    m.next = "IDLE"
                with m.Else():
                    m.d.comb += bad_doorbell.eq(1)
                    with m.If(error_free):
                        m.next = "IDLE"

        m.d.comb += [
            tags.i.valid.eq(request),
            tags.i.payload.qp.eq(qp),
            tags.i.payload.index.eq(next_fetch),
        ]
        return m
