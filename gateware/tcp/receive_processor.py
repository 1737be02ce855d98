"""The receiving side of established connections: what is stored, acknowledged, and announced."""

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import OCTETS_BITS
from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.stream.fifo import StreamFifo
from stagecoach.gateware.tcp.layouts import (
    FLAGS,
    HEADERS_OCTETS,
    LIMITS,
    PLACE,
    Due,
    ReceiveOperation,
    ack_event,
    receive_command,
    receive_job,
    received_segment,
    release_layout,
    ring_masks,
)
from stagecoach.gateware.tcp.ranges import RANGES, Ranges, no_ranges, ranges_layout
from stagecoach.gateware.tcp.receive_rows import (
    CLEARED,
    HALF,
    HEAD,
    HEAD_ROW,
    LIST,
    REST,
    REST_ROW,
    ROW_BITS,
    Row,
)
from stagecoach.gateware.tcp.segment_verdict import SegmentVerdict
from stagecoach.gateware.tcp.sequence import before, distance, less_than

ACK_EVENTS = 16
"""That wait for the sending side."""

WINDOW_FIELD_BITS = 16

SHIFT_MOST = 14
"""Of the window field (RFC 7323, 2.3)."""

_GIVEN = ("next", "edge", "ring", "size", "shift")
"""Fields of the place that a BEGIN gives."""

_RANGES = ranges_layout()

_LIMITS_BITS = 33


class _Kind(enum.Enum, shape=2):
    """What is worked on."""

    SEGMENT = 0
    RELEASE = 1
    COMMAND = 2


class ReceiveProcessor(wiring.Component):
    """Works on segments, releases and commands, one at a time, and keeps what they change.

    A segment gives a job: where its data goes, of which it keeps what is new, in the window, and
    within four ranges out of order, and what is said of its connection when that is stored. It
    gives an event if the sending side has to know of it. A release, or a command, gives a job
    without a frame if the right edge of the window moved, or if the connection begins.

    The right edge moves as RFC 9293, 3.8.6.2.2 says, by one MSS at least: never left, and never
    past what was released and the ring. Whether the peer has to be told is for the sending side.
    After the peer's FIN it rests: nothing follows.

    Frames of a `raw` segment, of no connection, and of one whose sending side has `ended`, are for
    the driver. Those of a connection that is dead here, and not yet there, are dropped: the driver
    learns of the end before it sees them.

    A segment takes 10 cycles, its job is there in the 11th; a release or a command takes 8, a frame
    of the driver 2. What is worked on waits at its port. A command goes first; a release and a
    segment that both wait take turns. If a job is not taken, or 16 events are not, everything
    waits. All numbers are modulo 2^32.

    Parameters
    ----------
    connections: 2 to 256. mtu: bytes of the longest IP packet.

    Members
    -------
    segment, release, command: as said. A release is of bytes that were stored; after a BEGIN the
        connection is what it says, and nothing of an earlier one is under way.
    limits_write, limits_connection, limits: writes what the sending side knows, at any time; those
        of another connection come 2 cycles later at the earliest. It counts 2 cycles later.
    job: to `ReceiveRing`, in order. event: to the sending side.
    queued: a pulse, an event begins to wait for `event`.
    asked, out_of_order: whether a connection has ranges, now.
    ask, ranges: a connection is taken when nothing else is read for three cycles. One cycle later
        `order` and `used` of its ranges are there, two later the first half of `list`, three later
        the second one: as they were after the last segment that is done, or as the one at work has
        them. What is taken when nothing is at work holds up a segment for two cycles.
    """

    def __init__(self, connections: int = 64, mtu: int = 1500):
        if not 2 <= connections <= 256:
            raise ValueError(f"ReceiveProcessor connections is {connections!r}; allowed: 2 to 256")
        if not 576 <= mtu < 1 << OCTETS_BITS:
            raise ValueError(f"ReceiveProcessor mtu is {mtu!r}; allowed: 576 to 16383")
        self._connections = connections
        self._mss = mtu - HEADERS_OCTETS
        self._bits = bits = (connections - 1).bit_length()
        super().__init__(
            {
                "segment": In(stream.Signature(received_segment(bits))),
                "release": In(stream.Signature(release_layout(bits))),
                "command": In(stream.Signature(receive_command(bits))),
                "limits_write": In(1),
                "limits_connection": In(bits),
                "limits": In(LIMITS),
                "job": Out(stream.Signature(receive_job(bits))),
                "event": Out(stream.Signature(ack_event(bits))),
                "queued": Out(1),
                "asked": In(bits),
                "out_of_order": Out(1),
                "ask": In(stream.Signature(bits)),
                "ranges": Out(ranges_layout()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Narrow rows, one in a cycle: as wide as a place, they would take twice the block RAMs.
        m.submodules.table = table = memory.Memory(
            shape=ROW_BITS, depth=len(Row) * self._connections, init=[], attrs=NO_COLLISION
        )
        m.submodules.held = held = memory.Memory(shape=1, depth=self._connections, init=[])
        # Two words: the oldest, and whether it has ended; the highest. They are written in two
        # cycles after they came.
        m.submodules.limits = limits_table = memory.Memory(
            shape=_LIMITS_BITS, depth=2 * self._connections, init=[]
        )
        m.submodules.verdict = verdict = SegmentVerdict()
        m.submodules.ranges = merge = Ranges()
        m.submodules.events = events = StreamFifo(ack_event(self._bits), ACK_EVENTS)
        wiring.connect(m, wiring.flipped(self.event), events.o)
        read, write = table.read_port(), table.write_port()
        limits_read, limits_write = limits_table.read_port(), limits_table.write_port()
        held_read, held_write = held.read_port(domain="comb"), held.write_port()

        new_limits, limits_connection = Signal(LIMITS), Signal.like(self.limits_connection)
        writes_limits, limits_word = Signal(2), Signal()
        m.d.sync += [
            writes_limits.eq(Cat(self.limits_write, writes_limits)),
            limits_word.eq(~limits_word),
        ]
        with m.If(self.limits_write):
            m.d.sync += [
                new_limits.eq(self.limits),
                limits_connection.eq(self.limits_connection),
            ]

        segment, release, command = self.segment.p.segment, self.release.p, self.command.p
        flags = data.View(FLAGS, segment.flags)
        kind = Signal(_Kind)
        turn = Signal()  # of the releases
        connection = Signal(self._bits)
        chosen = Signal(self._bits)
        place, ranges, limits = Signal(PLACE), Signal(_RANGES), Signal(LIMITS)
        after = Signal(PLACE)  # the place with what a segment changes
        none = _RANGES.const(no_ranges())
        head = data.View(HEAD_ROW, read.data[: HEAD_ROW.size])
        rest = data.View(REST_ROW, read.data[: REST_ROW.size])
        halves = data.View(LIST, read.data[: LIST.size])
        takes_head = [
            *(place[name].eq(head[name]) for name in HEAD),
            *(ranges[name].eq(head[name]) for name in ("order", "used")),
        ]
        takes_rest = [place[name].eq(rest[name]) for name in REST]
        is_segment, begins = Signal(), Signal()
        raw = Signal()  # the frame is for the driver
        some = Signal()  # there is data that can be kept
        m.d.comb += [
            is_segment.eq(kind == _Kind.SEGMENT),
            begins.eq((kind == _Kind.COMMAND) & (command.operation == ReceiveOperation.BEGIN)),
            limits_write.en.eq(writes_limits.any()),
            limits_write.addr.eq(Cat(limits_word, limits_connection)),
            limits_write.data.eq(
                Mux(limits_word, new_limits.highest, Cat(new_limits.oldest, new_limits.ended))
            ),
            limits_read.addr.eq(Cat(C(0, 1), chosen)),
            held_read.addr.eq(self.asked),
            self.out_of_order.eq(held_read.data),
            held_write.addr.eq(connection),
            held_write.data.eq(merge.ranges_after.used != 0),
            self.ranges.order.eq(head.order),
            self.ranges.used.eq(head.used),
            verdict.segment.eq(segment),
            verdict.place.eq(place),
            verdict.limits.eq(limits),
            verdict.live.eq(is_segment & ~place.dead),
            merge.following.eq(place.next),
            merge.first.eq(verdict.first),
            merge.end.eq(verdict.end),
            merge.ranges.eq(ranges),
            merge.adds.eq(verdict.text & some),
        ]
        for number in range(RANGES):
            m.d.comb += self.ranges.list[number].eq(halves[number % HALF])

        # Who asks has three rows, one after the other, while nothing else is read.
        free = Signal()  # from now on, for three cycles
        steps, asked = Signal(2), Signal(self._bits)
        m.d.comb += [
            self.ask.ready.eq(free & ~steps.any()),
            read.addr.eq(Cat(C(0, 2), self.ask.payload)),
        ]
        m.d.sync += steps.eq(Cat(self.ask.valid & self.ask.ready, steps))
        with m.If(self.ask.ready):
            m.d.sync += asked.eq(self.ask.payload)
        for step, row in enumerate((Row.FIRST_LIST, Row.SECOND_LIST)):
            with m.If(steps[step]):
                m.d.comb += read.addr.eq(Cat(row, asked))

        stored = Signal()  # data is kept
        octets, cut, skip = (Signal(OCTETS_BITS) for _ in range(3))
        fin_now = Signal()
        number, edge = Signal(32), Signal(32)  # RCV.NXT and right edge, after this
        moved = Signal()  # the right edge does
        limit, least = Signal(32), Signal(32)  # of the right edge: greatest, and the least next one
        ring_octets, ring_mask = ring_masks(place.size)
        mask = Signal(len(ring_mask))
        address = Signal.like(place.ring)
        wraps = Signal()  # the data goes past the end of the ring
        room, left, window = Signal(32), Signal(32), Signal(32)
        due, next_due = Signal(Due), Signal(Due)
        has_event, next_has_event = Signal(), Signal()
        hands, done = Signal(), Signal()

        # How far the right edge may go; its place in the ring.
        m.d.sync += [
            limit.eq(place.released + ring_octets),
            least.eq(place.edge + self._mss),
            mask.eq(ring_mask),
        ]
        after_head, after_rest = Signal(HEAD_ROW), Signal(REST_ROW)
        m.d.comb += [
            *(after_head[name].eq(after[name]) for name in HEAD),
            *(after_head[name].eq(merge.ranges_after[name]) for name in ("order", "used")),
            write.addr.eq(Cat(Row.HEAD, connection)),
            write.data.eq(after_head),
        ]

        with m.FSM(init="TAKE"):
            with m.State("TAKE"):  # a command, a release or a segment
                releases = self.release.valid & (turn | ~self.segment.valid)
                m.d.comb += [
                    chosen.eq(
                        Mux(
                            self.command.valid,
                            command.connection,
                            Mux(releases, release.connection, self.segment.p.connection),
                        )
                    ),
                ]
                work = self.command.valid | self.release.valid | self.segment.valid
                wanted = Mux(self.command.valid | releases, Row.REST, Row.HEAD)
                m.d.comb += free.eq(~work)
                m.d.sync += [
                    connection.eq(chosen),
                    raw.eq(0),
                    moved.eq(0),
                    due.eq(Due.NONE),
                    has_event.eq(0),
                ]
                with m.If(~steps.any()):
                    with m.If(work):
                        m.d.comb += read.addr.eq(Cat(wanted, chosen))
                    with m.If(self.command.valid):
                        m.d.sync += kind.eq(_Kind.COMMAND)
                        m.next = "FETCH"
                    with m.Elif(releases):
                        m.d.sync += kind.eq(_Kind.RELEASE)
                        m.next = "FETCH"
                    with m.Elif(self.segment.valid):
                        m.d.sync += kind.eq(_Kind.SEGMENT)
                        m.next = "FETCH"
                        with m.If(segment.raw | ~self.segment.p.found):
                            m.d.sync += raw.eq(1)
                            m.next = "HAND"
            with m.State("FETCH"):  # the first row is there
                following = Mux(is_segment, Row.FIRST_LIST, Row.HEAD)
                m.d.comb += [
                    read.addr.eq(Cat(following, connection)),
                    limits_read.addr.eq(Cat(C(1, 1), connection)),
                ]
                m.d.sync += [
                    *takes_rest,
                    limits.oldest.eq(limits_read.data),
                    limits.ended.eq(limits_read.data[-1]),
                ]
                with m.If(is_segment):
                    m.d.sync += takes_head
                m.next = "MEASURE"
            with m.State("MEASURE"):  # distances of a segment; what a release or a command says
                m.d.sync += limits.highest.eq(limits_read.data)
                m.d.sync += [ranges.list[number].eq(halves[number]) for number in range(HALF)]
                m.next = "JUDGE"
                with m.If(is_segment):
                    m.d.comb += read.addr.eq(Cat(Row.SECOND_LIST, connection))
                    with m.If(limits.ended):
                        m.d.sync += raw.eq(1)
                        m.next = "HAND"
                with m.Else():
                    m.d.comb += free.eq(1)
                    m.d.sync += takes_head
                    with m.If(kind == _Kind.RELEASE):
                        known = Mux(release.relative, place.released, place.base)
                        m.d.sync += place.released.eq(known + release.value)
                    with m.Else():
                        with m.Switch(command.operation):
                            with m.Case(ReceiveOperation.ATTACH):
                                m.d.sync += place.base.eq(place.released)
                            with m.Case(ReceiveOperation.DISCARD):
                                m.d.sync += place.discards.eq(1)
                            with m.Default():
                                m.d.sync += [
                                    *(place[name].eq(command[name]) for name in _GIVEN),
                                    *(place[name].eq(0) for name in CLEARED),
                                    place.released.eq(command.next),
                                    place.base.eq(command.next),
                                    ranges.order.eq(none.order),
                                    ranges.used.eq(none.used),
                                ]
            with m.State("JUDGE"):  # numbers in the window
                m.d.sync += [ranges.list[HALF + each].eq(halves[each]) for each in range(HALF)]
                m.next = "ADVANCE"
                with m.If(is_segment):
                    m.d.comb += read.addr.eq(Cat(Row.REST, connection))
                    m.next = "MERGE"
            with m.State("MERGE"):  # the verdict; comparisons with the ranges
                m.d.comb += free.eq(1)
                m.d.sync += [
                    *takes_rest,
                    some.eq(before(verdict.first, verdict.end)),
                    octets.eq(distance(verdict.end, verdict.first)),
                    cut.eq(distance(verdict.first, segment.sequence)),
                ]
                m.next = "JOIN"
            with m.State("JOIN"):  # what the data becomes one with; the FIN
                m.d.sync += skip.eq(segment.header + cut)
                m.next = "ADVANCE"
            with m.State("ADVANCE"):  # to the FIN; the room in the ring; the place of the data
                m.d.sync += [
                    stored.eq(merge.taken),
                    # Not again after the FIN was taken: RCV.NXT is past it then.
                    fin_now.eq(verdict.fin_known & (verdict.fin == merge.following_after)),
                    room.eq(limit - merge.following_after),
                    left.eq(least - merge.following_after),
                    address.eq(place.ring + (verdict.first & mask)),
                ]
                m.next = "ROOM"
            with m.State("ROOM"):  # half of the ranges; what the window field can say
                low, field = Signal(32), Signal(32)
                m.d.comb += [
                    low.eq(Cat(place.shift > number for number in range(SHIFT_MOST))),
                    field.eq(Cat(C(-1, WINDOW_FIELD_BITS), low)),
                    write.en.eq(stored),
                    write.addr.eq(Cat(Row.FIRST_LIST, connection)),
                    write.data.eq(Cat(*merge.ranges_after.list[:HALF])),
                ]
                m.d.sync += [
                    number.eq(merge.following_after + fin_now),
                    window.eq(Mux((room & ~field).any(), field, room) & ~low),
                    wraps.eq(less_than(verdict.end & mask, octets)),
                ]
                m.next = "EDGE"
            with m.State("EDGE"):  # the right edge, which rests after the FIN; what is said
                m.d.comb += [
                    write.en.eq(stored | ~is_segment),
                    write.addr.eq(Cat(Row.SECOND_LIST, connection)),
                    write.data.eq(Cat(*merge.ranges_after.list[HALF:])),
                ]
                with m.If(~is_segment):
                    m.d.comb += [
                        write.addr.eq(Cat(Row.REST, connection)),
                        *(after_rest[name].eq(place[name]) for name in REST),
                        write.data.eq(after_rest),
                    ]
                m.d.sync += [
                    edge.eq(number + window),
                    moved.eq((window >= left) & ~after.fin_taken),
                    due.eq(next_due),
                    has_event.eq(next_has_event),
                ]
                m.next = "HAND"
            with m.State("HAND"):  # the job and the event, if there is room
                m.d.comb += [hands.eq(1), free.eq(raw), write.en.eq(~raw), held_write.en.eq(~raw)]
                m.next = "WAIT"
                with m.If(done):
                    m.next = "TAKE"
            with m.State("WAIT"):  # until there is
                m.d.comb += [hands.eq(1), free.eq(1)]
                with m.If(done):
                    m.next = "TAKE"

        m.d.comb += [
            after.eq(place),
            after.next.eq(number),
            after.edge.eq(Mux(moved, edge, place.edge)),
            after.fin.eq(verdict.fin),
            after.fin_known.eq(verdict.fin_known),
            after.fin_taken.eq(place.fin_taken | fin_now),
            after.dead.eq(place.dead | verdict.reset | verdict.lost),
            next_has_event.eq(
                verdict.acknowledges | verdict.challenge | verdict.reset | verdict.lost | fin_now
            ),
        ]
        with m.If(verdict.answer | (verdict.text & (flags.fin | fin_now))):
            m.d.comb += next_due.eq(Due.NOW)
        with m.Elif(verdict.text & (segment.payload != 0)):
            # Data is held out of order, or was.
            gap = (ranges.used != 0) | (merge.ranges_after.used != 0)
            m.d.comb += next_due.eq(Mux(gap, Value.cast(Due.NOW), Value.cast(Due.LATER)))
        job, event = self.job.p, events.i.p
        next_job = Signal.like(job)
        in_frame = Signal()  # the data is there
        has_job = Signal()
        m.d.comb += [
            in_frame.eq(is_segment & ~self.segment.p.placed),
            next_job.frame.eq(in_frame),
            next_job.raw.eq(raw),
            next_job.skip.eq(skip),
            next_job.octets.eq(Mux(raw, segment.octets, Mux(stored & in_frame, octets, 0))),
            # As many as the place of the end in the ring; a ring is larger than a frame.
            next_job.wrapped.eq(Mux(stored & in_frame & wraps, verdict.end[:OCTETS_BITS], 0)),
            next_job.address.eq(address),
            next_job.ring.eq(place.ring),
            next_job.settle.eq(begins | moved | (due != Due.NONE)),
            next_job.note.connection.eq(connection),
            next_job.note.number.eq(after.next),
            next_job.note.edge.eq(after.edge),
            next_job.note.due.eq(due),
            next_job.note.fin.eq(after.fin_taken),
            next_job.note.begin.eq(begins),
            has_job.eq(next_job.frame | next_job.settle),
            event.connection.eq(connection),
            event.acknowledges.eq(verdict.acknowledges),
            event.acknowledgment.eq(segment.acknowledgment),
            event.sequence.eq(segment.sequence),
            event.window.eq(segment.window),
            event.empty.eq((segment.payload == 0) & ~flags.syn & ~flags.fin),
            event.fin.eq(fin_now),
            event.reset.eq(verdict.reset),
            event.lost.eq(verdict.lost),
            event.challenge.eq(verdict.challenge),
            done.eq(hands & (~has_job | ~self.job.valid) & (~has_event | events.i.ready)),
            events.i.valid.eq(done & has_event),
            self.queued.eq(done & has_event),
            self.segment.ready.eq(done & is_segment),
            self.release.ready.eq(done & (kind == _Kind.RELEASE)),
            self.command.ready.eq(done & (kind == _Kind.COMMAND)),
        ]
        with m.If(self.job.ready):
            m.d.sync += self.job.valid.eq(0)
        with m.If(~self.job.valid):
            m.d.sync += job.eq(next_job)
        with m.If(done):
            m.d.sync += turn.eq(is_segment)
            with m.If(has_job):
                m.d.sync += self.job.valid.eq(1)
        return m
