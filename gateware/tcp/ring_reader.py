"""Segments that are sent out of the ring of their connection: they are whole, and summed, first."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_OCTETS, RnicConfig
from stagecoach.gateware.dma.lanes import lanes_below
from stagecoach.gateware.ethernet.layouts import FRAME_WORD, OCTETS_BITS
from stagecoach.gateware.host_memory import ReadClient
from stagecoach.gateware.ip.checksum import Checksum
from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.stream.fifo import StreamFifo
from stagecoach.gateware.stream.prompt_fifo import PromptFifo
from stagecoach.gateware.stream.read_ahead import ReadAhead
from stagecoach.gateware.tcp.layouts import (
    HEADERS_OCTETS,
    RING_ADDRESS_BITS,
    SendKind,
    ring_masks,
    send_job,
)
from stagecoach.gateware.tcp.ring_gather import RingGather
from stagecoach.gateware.tcp.sequence import before, less_than
from stagecoach.gateware.tcp.word_table import WordTable

SEGMENTS = 2
"""Of the longest that are kept: one comes while the other one leaves."""

JOBS = 8
"""That wait: for what is read for them, or for one before them."""

RING = data.StructLayout({"address": RING_ADDRESS_BITS, "size": 4})
"""Of a connection, as `receive_command` gives them."""

_SUM = data.StructLayout({"sum": 16, "failed": 1})


class RingReader(wiring.Component):
    """Passes jobs on, in order; those of the ring when their payload is on the chip, with its sum.

    A segment of the ring is read when all of it is stored there: by one command, or two if the end
    of the ring is among its bytes. Commands go out up to 8 jobs ahead, as long as words find room
    in the read engine. If memory reports an error, the job and its words are dropped, and `failed`
    says whose they were, in its place in the order. The job of a segment that will never be stored
    is dropped: who keeps the ring has told of that.

    A job that reads nothing costs a cycle and leaves after 2; one of the ring costs 5, or 6 with
    two commands. 5 cycles from such a job to its command; 7 from the last word of memory to the
    job, if no other one waits before it; one word per cycle, in and out. If `o`, `words` or
    `failed` is not taken, words wait here, then in the read engine, and jobs where they are. While
    memory does not answer, or a segment is not stored, all jobs after it wait. Numbers are modulo
    2^32, and addresses wrap with the ring.

    Parameters
    ----------
    config: sizes of the device: as many connections as it has QPs. mtu: bytes of the longest IP
        packet.

    Members
    -------
    write, connection, ring: a pulse, 3 cycles after the one before at the earliest, a connection
        has that ring; no job of it waits then.
    job: segments. o: the same, to the builder. words: the payload of those of the ring, from lane 0
        on; lanes after the last byte mean nothing.
    queued: a pulse, a job that was taken from `job` begins to wait for what is read for it, or for
        those before it. left: a pulse, it does not any more: it is passed on, or has failed.
    connection_read, stored, lost, known: of `TransmitRing`. read: of memory. failed: connections.
    """

    def __init__(self, config: RnicConfig, mtu: int = 1500):
        if not 576 <= mtu < 1 << OCTETS_BITS:
            raise ValueError(f"RingReader mtu is {mtu!r}; allowed: 576 to 16383")
        self._config = config
        self._bits = bits = config.qp_bits
        words = -(-(mtu - HEADERS_OCTETS) // WORD_OCTETS)
        self._place_bits = (SEGMENTS * words - 1).bit_length()
        super().__init__(
            {
                "write": In(1),
                "connection": In(bits),
                "ring": In(RING),
                "job": In(stream.Signature(send_job(bits))),
                "o": Out(stream.Signature(send_job(bits))),
                "words": Out(stream.Signature(FRAME_WORD)),
                "queued": Out(1),
                "left": Out(1),
                "connection_read": Out(bits),
                "stored": In(32),
                "lost": In(1),
                "known": In(1),
                "read": Out(ReadClient()),
                "failed": Out(stream.Signature(bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.rings = rings = WordTable(RING, self._config.qps)
        m.submodules.gather = gather = RingGather(JOBS)
        m.submodules.jobs = jobs = StreamFifo(send_job(self._bits), JOBS)
        wiring.connect(m, gather.read, wiring.flipped(self.read))
        job, place = self.job.p, gather.i.p

        # Commands of the next job.
        end = Signal(32)
        address, ring = Signal(RING_ADDRESS_BITS), Signal(RING_ADDRESS_BITS)
        wrapped = Signal(OCTETS_BITS)
        _, mask = ring_masks(rings.found.size)
        after = end & mask
        m.d.comb += [
            rings.address.eq(self.connection),
            rings.row.eq(self.ring),
            rings.write.eq(self.write),
            rings.read_address.eq(job.connection),
            self.connection_read.eq(job.connection),
            jobs.i.payload.eq(job),
            self.queued.eq(jobs.i.valid & jobs.i.ready),
            place.address.eq(address),
            place.octets.eq(job.octets),
            place.wrapped.eq(wrapped),
            place.ring.eq(ring),
        ]
        with m.FSM(init="TAKE"):
            with m.State("TAKE"):  # a job
                m.d.sync += end.eq(job.sequence + job.octets)
                with m.If(self.job.valid):
                    with m.If(job.kind == SendKind.RING):
                        with m.If(~rings.writes):
                            m.d.comb += rings.fetch.eq(1)
                            m.next = "RING"
                    with m.Else():
                        m.d.comb += [jobs.i.valid.eq(1), self.job.ready.eq(jobs.i.ready)]
            with m.State("RING"):  # that of its connection comes
                m.next = "REST"
            with m.State("REST"):  # of it
                m.next = "PLACE"
            with m.State("PLACE"):  # until it is stored
                m.d.sync += [
                    ring.eq(rings.found.address),
                    address.eq(rings.found.address + (job.sequence & mask)),
                    wrapped.eq(Mux(less_than(after, job.octets), after, 0)),
                ]
                with m.If(self.known & self.lost):
                    m.d.comb += self.job.ready.eq(1)
                    m.next = "TAKE"
                with m.Elif(self.known & ~before(self.stored, end)):
                    m.next = "READ"
            with m.State("READ"):  # until all commands are taken
                m.d.comb += [
                    gather.i.valid.eq(self.job.valid & jobs.i.ready),
                    jobs.i.valid.eq(gather.i.ready),
                    self.job.ready.eq(jobs.i.ready & gather.i.ready),
                ]
                with m.If(self.job.ready):
                    m.next = "TAKE"

        self._keep(m, gather, jobs)
        return m

    def _keep(self, m: Module, gather: RingGather, jobs: StreamFifo) -> None:
        """Keep and sum what was read, and pass on the jobs that have theirs."""
        depth = 1 << self._place_bits
        # A word is fetched when its segment is whole, after it was written.
        m.submodules.store = store = memory.Memory(
            shape=FRAME_WORD, depth=depth, init=[], attrs=NO_COLLISION
        )
        m.submodules.ahead = ahead = ReadAhead(FRAME_WORD)
        m.submodules.checksum = checksum = Checksum()
        m.submodules.sums = sums = PromptFifo(_SUM, JOBS)
        wiring.connect(m, wiring.flipped(self.words), ahead.o)
        write, read = store.write_port(), store.read_port()

        # Places, with a bit that tells a full store from an empty one: of the next word, of the
        # one after all whole segments, and of what is fetched next.
        coming, whole, leaving = (
            Signal(self._place_bits + 1, name=name) for name in ("coming", "whole", "leaving")
        )
        beat = gather.o.p
        takes = Signal()
        first = Signal(init=1)
        failed = Signal(Checksum.LATENCY)
        m.d.comb += [
            gather.o.ready.eq((coming ^ leaving) != depth),
            takes.eq(gather.o.valid & gather.o.ready),
            write.addr.eq(coming),
            write.data.data.eq(beat.data),
            write.data.last.eq(beat.last),
            write.en.eq(takes),
            checksum.valid.eq(takes),
            checksum.word.eq(beat.data),
            checksum.lanes.eq(lanes_below(beat.octets)),
            checksum.first.eq(first),
            checksum.last.eq(beat.last),
            read.addr.eq(leaving),
            ahead.there.eq(leaving != whole),
            ahead.word.eq(read.data),
            read.en.eq(ahead.fetch),
            sums.i.valid.eq(checksum.done),
            sums.i.p.sum.eq(checksum.sum),
            sums.i.p.failed.eq(failed[-1]),
        ]
        m.d.sync += failed.eq((failed << 1) | beat.error)
        with m.If(ahead.fetch):
            m.d.sync += leaving.eq(leaving + 1)
        with m.If(takes):
            m.d.sync += [first.eq(beat.last), coming.eq(coming + 1)]
            with m.If(beat.last & beat.error):
                m.d.sync += coming.eq(whole)
            with m.Elif(beat.last):
                m.d.sync += whole.eq(coming + 1)

        # The first job that waits: there is a sum for each that is read, so it finds room.
        head, result = jobs.o.p, sums.o.p
        reads = head.kind == SendKind.RING
        good = ~reads | (sums.o.valid & ~result.failed)
        bad = reads & sums.o.valid & result.failed
        leaves = Signal()
        m.d.comb += [
            self.o.valid.eq(jobs.o.valid & good),
            self.o.payload.eq(head),
            self.failed.valid.eq(jobs.o.valid & bad),
            self.failed.payload.eq(head.connection),
            leaves.eq((self.o.valid & self.o.ready) | (self.failed.valid & self.failed.ready)),
            jobs.o.ready.eq(leaves),
            self.left.eq(leaves),
            sums.o.ready.eq(leaves & reads),
        ]
        with m.If(reads):
            m.d.comb += self.o.p.sum.eq(result.sum)
