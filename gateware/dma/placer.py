"""The placer: moves verified payload from the FPDU store to host memory."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from gateware.config import RnicConfig
from gateware.ddp.headers import from_wire
from gateware.dma.bursts import WORD_BITS, WORD_OCTETS
from gateware.dma.lanes import choose_lanes, lanes_below, rotate_lanes
from gateware.interfaces import WORD, Layouts, StorePort, WriteClient

READS_AHEAD = StorePort.LATENCY + 5
"""Words on their way from the store, and those that the FIFO's level does not show yet."""

WORDS_AHEAD = 16
"""Words that wait for the write engine; enough for one per cycle."""


class Placer(wiring.Component):
    """Carries out placements in order: store octets at any offset to host octets at any address.

    Every placement with octets becomes one write command and its words, at the lanes of the host
    address. The store is circular: word addresses wrap. The octets of the store words of a
    `reversed` placement are turned round first. `release` is pulsed when all words of a
    `release` placement were read; a placement without octets does nothing else.

    One word per cycle, and the next placement's words follow at once. A placement costs its host
    words, and one cycle more if `store_octet` is above the lane of the address; one without
    octets costs one cycle. Placements are taken one every two cycles. Latency nine cycles from
    a placement to its first word. Under back-pressure of the write engine no read begins; the
    words of those on their way wait in a FIFO.

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
        m.submodules.words = words = SyncFIFOBuffered(width=WORD.size, depth=WORDS_AHEAD)
        # Reads are begun only while there is room for all that are on their way.
        step = Signal()
        m.d.sync += step.eq(words.level <= WORDS_AHEAD - READS_AHEAD)

        # The next placement
        held = Signal(self._layouts.placement)
        held_valid = Signal()
        plan = Signal()
        empty = Signal()
        lane = held.address[:WORD_BITS]
        m.d.comb += [
            self.placement.ready.eq(~held_valid),
            empty.eq(held.octets == 0),
        ]
        with m.If(~held_valid):
            m.d.sync += [held.eq(self.placement.payload), held_valid.eq(self.placement.valid)]
        with m.Elif(plan):
            m.d.sync += held_valid.eq(0)

        # Its write command
        command_valid = Signal()
        m.d.comb += self.write.command.valid.eq(command_valid)
        with m.If(self.write.command.ready):
            m.d.sync += command_valid.eq(0)
        with m.If(plan):
            m.d.sync += [
                command_valid.eq(~empty),
                self.write.command.payload.address.eq(held.address),
                self.write.command.payload.octets.eq(held.octets),
            ]

        # Its store reads: how many, and what they are for. When the octets move to higher lanes,
        # every read completes a host word, and the last may be needless; when they move to lower
        # lanes, the first read completes none.
        planned = Signal(
            data.StructLayout(
                {
                    "more_reads": 14,  # reads without the first
                    "primes": 1,  # the first read completes no host word
                    "writes": 1,  # the placement has octets
                    "reversed": 1,
                    "release": 1,
                    "store_address": store_bits,
                    "store_end": store_bits,
                    "rotation": WORD_BITS,
                }
            )
        )
        planned_valid = Signal()
        load = Signal()
        end = Signal(range(65535 + WORD_OCTETS))
        primes = Signal()
        m.d.comb += [
            plan.eq(held_valid & ~planned_valid & ~command_valid),
            end.eq(lane + held.octets - 1),
            primes.eq(lane < held.store_octet),
        ]
        with m.If(plan):
            m.d.sync += [
                planned_valid.eq(1),
                planned.more_reads.eq(Mux(empty, 0, end[WORD_BITS:] + primes)),
                planned.primes.eq(primes),
                planned.writes.eq(~empty),
                planned.reversed.eq(held.reversed),
                planned.release.eq(held.release),
                planned.store_address.eq(held.store_address),
                planned.store_end.eq(held.store_end),
                planned.rotation.eq(lane - held.store_octet),
            ]
        with m.Elif(load):
            m.d.sync += planned_valid.eq(0)

        # The read at store.address. What it is for travels beside it.
        mark = data.StructLayout(
            {
                "valid": 1,  # there is a read
                "write": 1,  # completes a host word
                "last": 1,  # of the placement
                "reversed": 1,
                "release": 1,
                "store_end": store_bits,
                "rotation": WORD_BITS,
            }
        )
        reading = Signal(mark)
        active = Signal()
        more_reads = Signal(14)
        last_read = Signal()  # more_reads is 0
        writes = Signal()
        releases = Signal()
        m.d.comb += [
            load.eq(planned_valid & (~active | (step & last_read))),
            reading.valid.eq(step & active),
            reading.last.eq(last_read),
            reading.release.eq(releases & last_read),
        ]
        with m.If(load):
            m.d.sync += [
                active.eq(1),
                writes.eq(planned.writes),
                releases.eq(planned.release),
                more_reads.eq(planned.more_reads),
                last_read.eq(planned.more_reads == 0),
                self.store.address.eq(planned.store_address),
                reading.write.eq(planned.writes & ~planned.primes),
                reading.reversed.eq(planned.reversed),
                reading.store_end.eq(planned.store_end),
                reading.rotation.eq(planned.rotation),
            ]
        with m.Elif(step & active):
            m.d.sync += [
                active.eq(~last_read),
                reading.write.eq(writes & ~last_read),
                more_reads.eq(more_reads - 1),
                last_read.eq(more_reads == 1),
                self.store.address.eq(self.store.address + 1),
            ]

        # The stages in which the store reads, one that rotates, one that joins two words
        fetched = reading
        for number in range(StorePort.LATENCY):
            stage = Signal(mark, name=f"fetched_{number}")
            m.d.sync += stage.eq(fetched)
            fetched = stage
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
            words.w_data.eq(word),
            words.w_en.eq(rotated.valid & rotated.write),
            self.write.data.valid.eq(words.r_rdy),
            self.write.data.payload.eq(words.r_data),
            words.r_en.eq(self.write.data.ready),
        ]
        # The data of a `fetched` read stand in the store's output register.
        m.d.sync += [
            self.store.release.eq(fetched.valid & fetched.release),
            self.store.release_end.eq(fetched.store_end),
        ]
        return m
