"""Where segments become frames: headers of Ethernet, IPv4 and TCP before their payload."""

from amaranth.hdl import C, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.encodings import encoding
from stagecoach.gateware.ethernet.layouts import FRAME_BEAT, FRAME_WORD, OCTETS_BITS
from stagecoach.gateware.ip.checksum import big_endian, folded
from stagecoach.gateware.ip.header import ETHERTYPE_IPV4, PROTOCOL_TCP
from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.tcp.header import TCP_OCTETS
from stagecoach.gateware.tcp.layouts import FLAGS, HEADERS_OCTETS, SendKind, send_job
from stagecoach.gateware.tcp.ranges import ranges_layout
from stagecoach.gateware.tcp.sack_blocks import SackBlocks
from stagecoach.gateware.tcp.sequence import distance
from stagecoach.gateware.tcp.settle import SETTLED
from stagecoach.hw.interface import network_entries
from stagecoach.hw.interface.queue_entries import size_of

HEADER_WORDS = 7
"""Of a frame without options: 54 octets."""

LAST_HEADER_OCTETS = 6
"""Of them, those of the last word."""

_SHARED = 8 - LAST_HEADER_OCTETS
"""Bytes of the payload that follow there."""

WINDOW_FIELD_MOST = 0xFFFF

NEVER_FRAGMENT = 0x4000
"""Flags and fragment offset (RFC 791, 3.1)."""


HeaderRow = encoding(
    "HeaderRow",
    network_entries.HeaderRow.__members__,
    3,
    "Rows of the headers of a connection.",
)

_TOLD = 5
"""Another one, of which the driver knows nothing."""

HEADER_FIELDS = data.StructLayout(
    {
        **{"ip_sum": 16, "tcp_sum": 16, "service": 8, "ttl": 8},
        **{"shift": 4, "unused": 3, "blocks": 1, "reserved": 8},
    }
)
"""What is not a byte of a frame, and what may change: in one row, so that it changes at once
(`hw/interface/network_entries.py`). blocks: SACK blocks may be sent."""

assert HEADER_FIELDS.size == 8 * size_of(network_entries.HEADER_FIELDS)


class Builder(wiring.Component):
    """Makes a frame of each job, in order: headers, then the payload, or SACK blocks.

    A header has the sequence number of the job, the number that may be acknowledged when it is
    built, and the window from there to the right edge, or the largest that the field can say. The
    acknowledgment is 0 without ACK. A job with `blocks`, and so without payload, has the ranges out
    of order as an option, if there are any and the fields of its connection allow it. IPv4 packets
    have no options and identification 0, and are never fragmented (RFC 6864, 4).

    Bare ACKs of a connection that wait after others would all say the same when they leave, and a
    peer takes three ACKs alike for a loss (RFC 5681, 3.2). So a job that is not `needed` is dropped
    if the last frame of its connection had the same number and window, and it has no SACK blocks.
    What an earlier connection of that number was told counts, too: that it is the same takes equal
    numbers of both peers, and costs one ACK, which the next segment brings about.

    A frame begins when its payload is there, and then needs a word of it in each cycle. One word
    per cycle, 2 cycles between frames: a bare ACK takes 9 in all; one that may have SACK blocks, or
    that is not `needed`, 10, and 10 more if it has some, beside their words, if `ask` is taken at
    once. The first word comes 3
    cycles after a job. If `frame` is not taken, all waits; so does all that follows if a payload
    does not come, or nobody takes `ask`. Numbers are modulo 2^32.

    Parameters
    ----------
    connections: 2 to 256.

    Members
    -------
    write, connection, row, word: a pulse writes a row of a connection, 2 cycles after the one
        before at the earliest: what is sent with it has it, or has what it was.
    job: `sum` is that of the payload, and means nothing without. store, ring: words of payload,
        from lane 0 on, each with all bytes of its job. connection_read, settled: of `Settle`.
        asked, out_of_order: whether a connection has ranges. ask, ranges: as those of `SackBlocks`.
        frame: to `FrameOutput`.
    sent, again, sent_connection: a pulse, the last word of a segment leaves for `frame`.
    """

    def __init__(self, connections: int = 64):
        if not 2 <= connections <= 256:
            raise ValueError(f"Builder connections is {connections!r}; allowed: 2 to 256")
        self._connections = connections
        self._bits = bits = (connections - 1).bit_length()
        super().__init__(
            {
                "write": In(1),
                "connection": In(bits),
                "row": In(HeaderRow),
                "word": In(64),
                "job": In(stream.Signature(send_job(bits))),
                "store": In(stream.Signature(FRAME_WORD)),
                "ring": In(stream.Signature(FRAME_WORD)),
                "connection_read": Out(bits),
                "settled": In(SETTLED),
                "asked": Out(bits),
                "out_of_order": In(1),
                "ask": Out(stream.Signature(bits)),
                "ranges": In(ranges_layout()),
                "frame": Out(stream.Signature(FRAME_BEAT)),
                "sent": Out(1),
                "again": Out(1),
                "sent_connection": Out(bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # A row is not written while it is read.
        m.submodules.rows = rows = memory.Memory(
            shape=64, depth=8 * self._connections, init=[], attrs=NO_COLLISION
        )
        m.submodules.blocks = blocks = SackBlocks(self._connections)
        wiring.connect(m, blocks.ask, wiring.flipped(self.ask))
        write, read = rows.write_port(), rows.read_port()
        # What each peer was told last: the number, and the room from there to the right edge. It
        # is kept in a row that no word of a header is in.
        told_layout = data.StructLayout({"number": 32, "room": 32})
        job = self.job.p
        flags = data.View(FLAGS, job.flags)
        # Each row of a frame is read once, so what is to be written waits for a cycle at most.
        reads, writes = Signal(), Signal()
        tells = Signal()  # what is told waits to be kept
        header_address, header_word = Signal.like(write.addr), Signal(64)
        writes_header = Signal()
        with m.If(self.write):
            m.d.sync += [
                header_address.eq(Cat(self.row, self.connection)),
                header_word.eq(self.word),
                writes.eq(1),
            ]
        with m.Elif(writes_header):
            m.d.sync += writes.eq(0)

        fields = Signal(HEADER_FIELDS)
        number, room = Signal(32), Signal(32)
        taking, begun = Signal(), Signal()  # a job may be taken; was taken in the last cycle
        told = Signal(told_layout)
        repeats, drops = Signal(), Signal()  # that; so the job is
        octets, total, check = Signal(OCTETS_BITS), Signal(16), Signal(16)
        window = Signal(16)
        row = Signal(3)
        m.d.comb += [
            writes_header.eq(writes & ~(reads & (header_address == read.addr))),
            write.en.eq(writes_header | tells),
            write.addr.eq(Cat(C(_TOLD, 3), job.connection)),
            write.data.eq(Cat(number, room)),
            read.addr.eq(Cat(row, job.connection)),
            read.en.eq(reads),
            self.connection_read.eq(job.connection),
            blocks.connection.eq(job.connection),
            self.asked.eq(job.connection),
            blocks.out_of_order.eq(self.out_of_order),
            blocks.ranges.eq(self.ranges),
            blocks.allowed.eq(fields.blocks),
            octets.eq(Mux(job.blocks, blocks.octets, job.octets)),
            total.eq(octets + HEADERS_OCTETS),
        ]

        m.d.sync += begun.eq(self.job.valid & taking)
        with m.If(begun):  # what is settled is there
            m.d.sync += [
                number.eq(Mux(flags.ack, self.settled.number, 0)),
                room.eq(distance(self.settled.edge, self.settled.number)),
            ]
        with m.If(writes_header):
            m.d.comb += [write.addr.eq(header_address), write.data.eq(header_word)]
        with m.Elif(tells):
            m.d.sync += tells.eq(0)

        # Checksums and window, step by step, out of what stands still while a header leaves. All
        # of it is there 5 cycles after the fields, one before the word that needs it.
        ip_total, ip_check = Signal(17), Signal(16)
        sequence_sum, acknowledgment_sum, known_sum = Signal(17), Signal(18), Signal(17)
        numbers_sum, others_sum = Signal(19), Signal(18)
        tcp_total, tcp_once = Signal(20), Signal(17)
        offset, offset_flags = Signal(4), Signal(16)
        shifted = Signal(32)
        blocks_sum, content_sum = Signal(16), Signal(16)
        m.d.comb += [
            offset.eq((TCP_OCTETS + Mux(job.blocks, blocks.octets, 0)) >> 2),
            offset_flags.eq(Cat(job.flags, C(0, 4), offset)),
            shifted.eq(room >> fields.shift),
            content_sum.eq(Mux(job.kind == SendKind.NOTHING, blocks_sum, job.sum)),
            blocks_sum.eq(Mux(job.blocks, blocks.sum, 0)),
        ]
        m.d.sync += [
            ip_total.eq(fields.ip_sum + total),
            ip_check.eq(~folded(ip_total)),
            sequence_sum.eq(job.sequence[16:] + job.sequence[:16]),
            acknowledgment_sum.eq(number[16:] + number[:16] + offset_flags),
            known_sum.eq(fields.tcp_sum + (octets + TCP_OCTETS)),
            window.eq(Mux(shifted[16:].any(), WINDOW_FIELD_MOST, shifted)),
            numbers_sum.eq(sequence_sum + acknowledgment_sum),
            others_sum.eq(known_sum + window + content_sum),
            tcp_total.eq(numbers_sum + others_sum),
            tcp_once.eq(folded(tcp_total)),
            check.eq(~folded(tcp_once)),
        ]

        # The words of the header.
        step = Signal()  # a word is taken into the register
        place = Signal(range(HEADER_WORDS))
        coming = Signal(FRAME_WORD)
        header = Signal(64)
        with m.Switch(place):
            for index, parts in enumerate(
                (
                    (read.data,),
                    (read.data[:32], _octets(ETHERTYPE_IPV4, 2), _octets(0x45, 1), fields.service),
                    (
                        *(big_endian(total), _octets(0, 2), _octets(NEVER_FRAGMENT, 2)),
                        *(fields.ttl, _octets(PROTOCOL_TCP, 1)),
                    ),
                    (big_endian(ip_check), read.data[16:]),
                    (read.data[:48], big_endian(job.sequence[16:])),
                    (big_endian(job.sequence[:16]), big_endian(number), big_endian(offset_flags)),
                    (
                        big_endian(window),
                        big_endian(check),
                        _octets(0, 2),
                        coming.data[: 8 * _SHARED],
                    ),
                )
            ):
                with m.Case(index):
                    m.d.comb += header.eq(Cat(*parts))

        # The payload: bytes of a word that stand two lanes further on than in the frame wait for
        # the next one.
        payload = Signal()
        there = Signal()
        takes = Signal()
        m.d.comb += [
            payload.eq(octets != 0),
            self.store.ready.eq(takes & (job.kind == SendKind.STORE)),
            self.ring.ready.eq(takes & (job.kind == SendKind.RING)),
            blocks.o.ready.eq(takes & (job.kind == SendKind.NOTHING)),
        ]
        with m.Switch(job.kind):
            for kind, source in (
                (SendKind.STORE, self.store),
                (SendKind.RING, self.ring),
                (SendKind.NOTHING, blocks.o),
            ):
                with m.Case(kind):
                    m.d.comb += [coming.eq(source.payload), there.eq(source.valid)]
        starts = Signal()  # what the frame needs is there
        m.d.comb += [
            starts.eq(Mux(job.kind == SendKind.NOTHING, ~job.blocks | blocks.done, there)),
            # `done` comes after `repeats`.
            drops.eq(~job.needed & blocks.done & (blocks.octets == 0) & repeats),
        ]
        m.d.sync += repeats.eq((number == told.number) & (room == told.room))
        tail = octets[:3]  # bytes of the last word, 0 for all
        fits = coming.last & ((tail == 1) | (tail == 2))  # in the word before
        rest = Signal(64 - 8 * _SHARED)
        free = Signal()
        frame, done = self.frame.p, Signal()
        m.d.comb += [
            free.eq(~self.frame.valid | self.frame.ready),
            self.job.ready.eq(done),
            # A job is dropped before its first word, or never.
            self.sent.eq(done & ~drops),
            self.again.eq(job.again),
            self.sent_connection.eq(job.connection),
        ]
        with m.If(self.frame.ready):
            m.d.sync += self.frame.valid.eq(0)
        with m.If(step):
            m.d.sync += [self.frame.valid.eq(1), frame.last.eq(done)]
        with m.If(takes):
            m.d.sync += rest.eq(coming.data[8 * _SHARED :])

        with m.FSM(init="TAKE"):
            with m.State("TAKE"):  # a job
                m.d.comb += [
                    taking.eq(1),
                    row.eq(Mux(job.needed, HeaderRow.FIELDS, _TOLD)),
                    reads.eq(self.job.valid),
                    blocks.begin.eq(self.job.valid & job.blocks),
                ]
                m.d.sync += place.eq(0)
                with m.If(self.job.valid):
                    m.next = "READ"
                    with m.If(~job.needed):
                        m.next = "TOLD"
            with m.State("TOLD"):  # what its peer knows is there
                m.d.comb += [row.eq(HeaderRow.FIELDS), reads.eq(1)]
                m.d.sync += told.eq(data.View(told_layout, read.data))
                m.next = "READ"
            with m.State("READ"):  # what is known of its connection is there
                m.d.comb += [row.eq(HeaderRow.DESTINATION), reads.eq(1)]
                m.d.sync += fields.eq(data.View(HEADER_FIELDS, read.data))
                m.next = "HEAD"
            with m.State("HEAD"):  # its words, the last one with bytes of the payload
                last = place == HEADER_WORDS - 1
                m.d.comb += [
                    step.eq(free & ((place != 0) | (starts & ~drops))),
                    row.eq(place + 1),
                    reads.eq(step & ~last),
                    takes.eq(step & last & payload),
                    done.eq((step & last & (~payload | fits)) | (drops & (place == 0))),
                ]
                with m.If(step & (place == 1) & flags.ack):
                    m.d.sync += tells.eq(1)
                with m.If(drops & (place == 0)):
                    m.next = "TAKE"
                with m.If(step):
                    m.d.sync += [place.eq(place + 1), frame.data.eq(header), frame.octets.eq(8)]
                    with m.If(last):
                        with m.If(~payload | fits):
                            more = Mux(payload, tail[:2], 0)
                            m.d.sync += frame.octets.eq(LAST_HEADER_OCTETS + more)
                            m.next = "TAKE"
                        with m.Elif(coming.last):
                            m.next = "FLUSH"
                        with m.Else():
                            m.next = "BODY"
            with m.State("BODY"):  # words of the payload
                m.d.comb += [step.eq(free & there), takes.eq(step), done.eq(step & fits)]
                with m.If(step):
                    m.d.sync += [
                        frame.data.eq(Cat(rest, coming.data)),
                        frame.octets.eq(Mux(fits, LAST_HEADER_OCTETS + tail[:2], 8)),
                    ]
                    with m.If(fits):
                        m.next = "TAKE"
                    with m.Elif(coming.last):
                        m.next = "FLUSH"
            with m.State("FLUSH"):  # what is left of the last one
                m.d.comb += [step.eq(free), done.eq(free)]
                with m.If(free):
                    m.d.sync += [
                        frame.data.eq(rest),
                        frame.octets.eq((tail - _SHARED)[:3]),
                    ]
                    m.next = "TAKE"
        return m


def _octets(value: int, count: int) -> Const:
    """Bytes of a header, the most significant one first."""
    return C(int.from_bytes(value.to_bytes(count, "big"), "little"), 8 * count)
