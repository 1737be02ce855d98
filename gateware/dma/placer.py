"""The placer: moves verified payload from the FPDU store to host memory."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_OCTETS, RnicConfig
from stagecoach.gateware.ddp.headers import from_wire
from stagecoach.gateware.dma.bursts import WORD_BITS
from stagecoach.gateware.dma.lanes import choose_lanes, lanes_below, rotate_lanes
from stagecoach.gateware.host_memory import WORD, WriteClient
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.mpa.ports import StorePort
from stagecoach.gateware.stream.prompt_fifo import PromptFifo

READS_AHEAD = StorePort.LATENCY + 5
"""Words on their way from the store, those that the FIFO's level does not show yet, and the one
that it has put out."""

WORDS_AHEAD = 16
"""Words that wait for the write engine; enough for one per cycle."""


class Placer(wiring.Component):
    """Carries out placements in order: store bytes at any offset to host bytes at any address.

    Every placement with bytes becomes one write command and its words, at the lanes of the host
    address. The store is circular: word addresses wrap. The bytes of the store words of a
    `reversed` placement are turned round first. `release` is pulsed when all words of a
    `release` placement were read; a placement without bytes does nothing else.

    One word per cycle, and the next placement's words follow at once. A placement costs its host
    words, and one cycle more if `store_octet` is above the lane of the address; one without
    bytes costs one cycle. Placements are taken one every two cycles. From a placement to its
    write command 1 cycle, to its first word 5 if none is before it, or 7 if `store_octet` is above
    the lane of the address. Under back-pressure of the write engine no read begins; the words of
    those on their way wait in a FIFO.

    Members
    -------
    placement: placements in order.
    store: the FPDU store's read and release side.
    write: client port of the write engine; its `done` and `error` are for others.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        self._layouts = Layouts(config)
        super().__init__(
            {
                "placement": In(stream.Signature(self._layouts.placement)),
                "store": Out(StorePort(config)),
                "write": Out(WriteClient()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        store_bits = self._config.store_address_bits
        m.submodules.words = words = PromptFifo(WORD, WORDS_AHEAD)
        wiring.connect(m, words.o, wiring.flipped(self.write.data))
        # Reads are begun only while there is room for all that are on their way.
        step = Signal()
        m.d.sync += step.eq(words.level <= WORDS_AHEAD - READS_AHEAD)

        # The next placement's write command
        place = self.placement.payload
        plan = Signal()
        empty = Signal()
        lane = place.address[:WORD_BITS]
        command = self.write.command
        command_free = Signal(init=1)  # there is none, with a low fan-out
        m.d.comb += empty.eq(place.octets == 0)
        with m.If(command.ready):
            m.d.sync += [command.valid.eq(0), command_free.eq(1)]
        with m.If(~command.valid):
            m.d.sync += [
                command.payload.address.eq(place.address),
                command.payload.octets.eq(place.octets),
            ]
        with m.If(plan):
            m.d.sync += [command.valid.eq(~empty), command_free.eq(empty)]

        # Its store reads: how many, and what they are for. When the bytes move to higher lanes,
        # every read completes a host word, and the last may be needless; when they move to lower
        # lanes, the first read completes none.
        planned = Signal(
            data.StructLayout(
                {
                    "more_reads": 14,  # reads without the first
                    "primes": 1,  # the first read completes no host word
                    "writes": 1,  # the placement has bytes
                    "reversed": 1,
                    "release": 1,
                    "store_address": store_bits,
                    "stored": self._layouts.stored,
                    "rotation": WORD_BITS,
                }
            )
        )
        planned_valid = Signal()
        begin = Signal()  # its first read is made, or was made
        early = Signal()  # the first read is made before the plan is there
        begun = Signal()  # that was in the last cycle
        end = Signal(range(65535 + WORD_OCTETS))
        primes = Signal()
        m.d.comb += [
            self.placement.ready.eq(~planned_valid & command_free),
            plan.eq(self.placement.valid & self.placement.ready),
            end.eq(lane + place.octets - 1),
            primes.eq(lane < place.store_octet),
        ]
        # Loaded whenever there is none, so that its enable does not wait for a placement.
        with m.If(~planned_valid):
            m.d.sync += [
                planned.more_reads.eq(Mux(empty, 0, end[WORD_BITS:] + primes)),
                planned.primes.eq(primes),
                planned.writes.eq(~empty),
                planned.reversed.eq(place.reversed),
                planned.release.eq(place.release),
                planned.store_address.eq(place.store_address),
                planned.stored.eq(place.stored),
                planned.rotation.eq(lane - place.store_octet),
            ]
        with m.If(plan):
            m.d.sync += planned_valid.eq(1)
        with m.Elif(begin):
            m.d.sync += planned_valid.eq(0)

        # The read at store.address: one after the first one of a placement, the first one of a
        # plan, or that of a placement whose plan is being made. And what it is for.
        mark = data.StructLayout(
            {
                "valid": 1,  # there is a read
                "write": 1,  # completes a host word
                "last": 1,  # of the placement
                "reversed": 1,
                "release": 1,
                "stored": self._layouts.stored,
                "rotation": WORD_BITS,
            }
        )
        reading = Signal(mark)
        first = Signal(mark)  # for the first one of a plan
        active = Signal()  # the reads after the first one are made
        address = Signal(store_bits)
        more_reads = Signal(14)
        last_read = Signal()  # more_reads is 0
        now = Signal(mark)  # what those are for
        single = Signal()
        m.d.comb += [
            single.eq(planned.more_reads == 0),
            early.eq(plan & step & ~active),
            begin.eq((step | begun) & planned_valid & ~active),
            first.valid.eq(1),
            first.write.eq(planned.writes & ~planned.primes),
            first.last.eq(single),
            first.reversed.eq(planned.reversed),
            first.release.eq(planned.release & single),
            first.stored.eq(planned.stored),
            first.rotation.eq(planned.rotation),
            self.store.address.eq(Mux(planned_valid, planned.store_address, place.store_address)),
            reading.eq(first),
            reading.valid.eq(step & (active | (planned_valid & ~begun))),
        ]
        m.d.sync += begun.eq(early)
        with m.If(active):
            m.d.comb += [
                self.store.address.eq(address),
                reading.write.eq(now.write),
                reading.last.eq(last_read),
                reading.reversed.eq(now.reversed),
                reading.release.eq(now.release & last_read),
                reading.stored.eq(now.stored),
                reading.rotation.eq(now.rotation),
            ]
        with m.If(~active):
            m.d.sync += [
                now.write.eq(planned.writes),
                now.reversed.eq(planned.reversed),
                now.release.eq(planned.release),
                now.stored.eq(planned.stored),
                now.rotation.eq(planned.rotation),
                more_reads.eq(planned.more_reads - 1),
                last_read.eq(planned.more_reads == 1),
                address.eq(planned.store_address + 1),
                active.eq(begin & ~single),
            ]
        with m.Elif(step):
            m.d.sync += [
                more_reads.eq(more_reads - 1),
                last_read.eq(more_reads == 1),
                address.eq(address + 1),
                active.eq(~last_read),
            ]

        # The stages in which the store reads, one that rotates, one that joins two words
        fetched = reading
        for number in range(StorePort.LATENCY):
            stage = Signal(mark, name=f"fetched_{number}")
            m.d.sync += stage.eq(fetched)
            fetched = stage
            if number == 0:
                fetched = Signal(mark)
                m.d.comb += fetched.eq(Mux(begun, first, stage))
        rotated = Signal(mark)
        rotated_data = Signal(64)
        previous_data = Signal(64)
        from_previous = Signal(WORD_OCTETS)  # lanes that the word before supplies
        store_data = Mux(fetched.reversed, from_wire(self.store.data), self.store.data)
        with m.If(fetched.valid):
            m.d.sync += [
                rotated_data.eq(rotate_lanes(store_data, fetched.rotation)),
                previous_data.eq(rotated_data),
                from_previous.eq(lanes_below(fetched.rotation)),
            ]
        word = Signal(WORD)
        m.d.sync += rotated.eq(fetched)
        m.d.comb += [
            word.data.eq(choose_lanes(from_previous, previous_data, rotated_data)),
            word.last.eq(rotated.last),
            words.i.payload.eq(word),
            words.i.valid.eq(rotated.valid & rotated.write),
        ]
        # The data of a `fetched` read stand in the store's output register.
        m.d.sync += [
            self.store.release.eq(fetched.valid & fetched.release),
            self.store.released.eq(fetched.stored),
        ]
        return m
