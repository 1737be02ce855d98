"""Commands of the TCP engine for memory have 1 to 65,535 bytes, as the DMA engines need (`axi`).

A command has what a job, a read, a request or a frame says, so each block is shown that the one
before it gives some bytes, of which fewer than all stand after the end of a ring.
"""

from collections.abc import Callable
from typing import Any

from amaranth.hdl import Mux, Signal, Value

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ethernet.layouts import ETHERNET_OCTETS
from stagecoach.gateware.ethernet.raw_receive import RawReceive
from stagecoach.gateware.ethernet.raw_transmit import RawTransmit
from stagecoach.gateware.tcp.layouts import PLACE, RING_LEAST_BITS, SendKind
from stagecoach.gateware.tcp.llp_receive import LlpReceive
from stagecoach.gateware.tcp.receive_processor import ReceiveProcessor
from stagecoach.gateware.tcp.receive_ring import ReceiveRing
from stagecoach.gateware.tcp.ring_gather import RingGather
from stagecoach.gateware.tcp.ring_reader import RingReader
from stagecoach.gateware.tcp.sequence import before, distance
from stagecoach.gateware.tcp.transmit_ring import TransmitRing
from stagecoach.gateware.tcp.transmit_segment import TransmitSegment
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.properties.axi import command_has_octets
from stagecoach.hw.formal.property import Mutation, Property, in_harness

CONFIG = RnicConfig(qps=4)
MTU = 1500


def _some(job: Any) -> Value:
    """A job or read has bytes, and fewer of them are at the beginning of the ring."""
    return (job.octets != 0) & (job.wrapped < job.octets)


def _raw_transmit(h: Harness) -> None:
    dut = RawTransmit(MTU)
    inside = h.block(dut)
    left, most = inside.signal("left"), MTU + ETHERNET_OCTETS
    frame = (left >= ETHERNET_OCTETS) & (left <= most)
    h.check("of a frame", command_has_octets(dut.read.command))
    h.invariant("left", ~inside.in_state("READ") | frame)
    h.cover("frame", inside.in_state("READ") & (left == most))


def _raw_receive(h: Harness) -> None:
    dut = RawReceive(MTU)
    inside = h.block(dut)
    # `ReceiveRing` says how long a frame is with its first word.
    begins = inside.signal("starts") & ~inside.signal("is_entry")
    h.assume(~begins | (dut.raw.p.octets != 0))
    h.check("of a frame or an entry", command_has_octets(dut.write.command))
    h.cover("frame", h.past(begins))


def _job_has_octets(job: Any) -> Value:
    """Of a job of `ReceiveRing`: a frame of the driver has some, what is written all of its own."""
    return ~job.frame | Mux(job.raw, job.octets != 0, (job.octets == 0) | _some(job))


def _commands(h: Harness, ring: Inside) -> None:
    """What `ReceiveRing` keeps of a job with two commands."""
    rest, wrapped = ring.signal("rest"), ring.signal("wrapped")
    h.invariant("rest", ~rest | (ring.ports.write.command.valid & (wrapped != 0)))


def _receive_ring(h: Harness) -> None:
    dut = ReceiveRing(4)
    inside = h.block(dut)
    job = dut.job.p
    h.assume(~dut.job.valid | _job_has_octets(job))
    h.check("of what is written", command_has_octets(dut.write.command))
    # A frame of the driver: its first word has all bytes of the job.
    takes = dut.job.valid & dut.job.ready & job.frame
    first, octets = Signal(), Signal.like(job.octets)
    with h.m.If(takes):
        h.m.d.sync += [first.eq(job.raw), octets.eq(job.octets)]
    with h.m.Elif(dut.raw.valid & dut.raw.ready):
        h.m.d.sync += first.eq(0)
    told = (dut.raw.p.octets == octets) & (octets != 0)
    h.check("of a frame of the driver", ~(dut.raw.valid & first) | told)
    h.cover("two commands", inside.signal("rest") & dut.write.command.ready)
    _commands(h, inside)
    begun = inside.in_state("RAW") & first
    h.invariant("begun", ~begun | ((inside.signal("octets") == octets) & (octets != 0)))
    h.invariant("first", ~first | inside.in_state("RAW"))


def _transmit_ring(h: Harness) -> None:
    dut = TransmitRing(4)
    inside = h.block(dut)
    ring = inside.child("ring")
    job = dut.job
    h.assume(h.held(job))
    h.check("of an FPDU", command_has_octets(dut.write.command))
    h.cover("two commands", ring.signal("rest") & dut.write.command.ready)
    _commands(h, ring)
    hands = inside.in_state("HAND")
    wrapped = inside.signal("wrapped")
    some = (wrapped == 0) | (job.p.fpdu & (wrapped < job.p.octets))
    h.invariant("job", ~hands | (job.valid & some))
    h.invariant("placed", ~inside.in_state("PLACE") | job.valid)


def _gathered(h: Harness, gather: Inside) -> Value:
    """The second command of `RingGather` is of a read that has two."""
    second, asked = gather.signal("$signal", 1), gather.ports.i
    h.invariant("second", ~second | (asked.valid & (asked.p.wrapped != 0) & ~asked.p.inline))
    h.cover("two commands", second)
    return Value.cast(second)


def _ring_gather(h: Harness) -> None:
    dut = RingGather(2)
    inside = h.block(dut)
    h.assume(h.held(dut.i))
    h.assume(~dut.i.valid | dut.i.p.inline | _some(dut.i.p))
    h.check("of a read", command_has_octets(dut.read.command))
    _gathered(h, inside)


def _ring_reader(h: Harness) -> None:
    dut = RingReader(CONFIG, MTU)
    inside = h.block(dut)
    job = dut.job
    h.assume(h.held(job))
    h.assume(~job.valid | (job.p.kind != SendKind.RING) | (job.p.octets != 0))
    h.check("of a segment", command_has_octets(dut.read.command))
    gather = inside.child("gather")
    second = _gathered(h, gather)
    walks = ~inside.in_state("TAKE")
    h.invariant("job", ~walks | (job.valid & (job.p.kind == SendKind.RING)))
    h.invariant("wrapped", ~inside.in_state("READ") | _some(gather.ports.i.p))
    h.invariant("read", ~second | inside.in_state("READ"))


def _llp_receive(h: Harness) -> None:
    dut = LlpReceive(CONFIG)
    inside = h.block(dut)
    request, gather = dut.request, inside.child("gather")
    read = gather.ports.i
    h.assume(h.held(request))
    h.assume(~request.valid | ((request.p.octets != 0) & (request.p.octets <= 65535)))
    # The row of a lane stands while a request for it waits.
    inline = read.p.inline
    row = h.past(read.valid & ~read.ready)
    h.assume(~row | (inline == h.past(inline)))
    h.check("of a request", command_has_octets(dut.read.command))
    _gathered(h, gather)
    h.invariant("request", inside.in_state("TAKE") | request.valid)
    h.invariant("wrapped", ~inside.in_state("READ") | _some(read.p))


def _receive_processor(h: Harness) -> None:
    dut = ReceiveProcessor(4, MTU)
    inside = h.block(dut)
    segment, job = dut.segment, dut.job
    for stream in (segment, dut.release, dut.command):
        h.assume(h.held(stream))
    h.assume(~segment.valid | (segment.p.segment.octets != 0))
    h.check("a job has bytes", ~job.valid | _job_has_octets(job.p))
    h.cover("at the end of the ring", job.valid & ~job.p.raw & (job.p.wrapped != 0))

    # The end of the data, in three steps, as soon as segment and place stand
    verdict, place = inside.child("verdict"), inside.view("place", PLACE)
    is_segment = inside.signal("kind") == 0
    given, after = segment.p.segment, verdict.signal("end_of_data")
    room, past_fin = verdict.signal("room"), verdict.signal("$signal", 4)
    walks = ("JOIN", "ADVANCE", "ROOM", "EDGE", "HAND", "WAIT")
    known = inside.in_state("FETCH", "MEASURE", "JUDGE", "MERGE", *walks) & is_segment
    full = known & ~inside.signal("raw")
    placed = full & inside.in_state("JUDGE", "MERGE", *walks)
    end = Mux(past_fin, place.fin, Mux(room[-1], place.edge, after))
    h.invariant("segment", ~known | segment.valid)
    h.invariant("end of data", ~known | (after == (given.sequence + given.payload)[:32]))
    h.invariant("room", ~placed | (room == distance(place.edge, after)))
    passed = place.fin_known & before(place.fin, after)
    h.invariant("past the FIN", ~placed | (past_fin == passed))
    measured = full & inside.in_state("MERGE", *walks)
    h.invariant("end", ~measured | (verdict.ports.end == end))
    octets, mask = inside.signal("$signal", 11), inside.signal("mask")
    low = (1 << RING_LEAST_BITS) - 1
    h.invariant("mask", inside.in_state("TAKE") | (mask[:RING_LEAST_BITS] == low))
    wraps = full & inside.in_state("EDGE", "HAND", "WAIT") & inside.signal("wraps")
    h.invariant("wraps", ~wraps | (verdict.ports.end[: len(octets)] < octets))


def _transmit_segment(h: Harness) -> None:
    dut = TransmitSegment(4)
    h.block(dut)
    of_ring = dut.job.kind == SendKind.RING
    h.check("one of the ring has bytes", ~of_ring | (dut.job.octets != 0))
    h.cover("of the ring", of_ring)


COMMANDS = "commands for host memory have 1 to 65,535 bytes"
JOBS = "jobs for host memory have bytes, and fewer of them at the beginning of a ring"


def _property(
    block: str,
    build: Callable[[Harness], None],
    *changes: tuple[str, str],
    name: str = COMMANDS,
) -> Property:
    module = f"stagecoach.gateware.{block.rpartition('.')[0]}"
    return Property(
        block,
        name,
        in_harness(build),
        mutations=tuple(Mutation(module, old, new) for old, new in changes),
        depth=1,
        reached=3,
    )


PROPERTIES = (
    _property(
        "ethernet.raw_transmit.RawTransmit",
        _raw_transmit,
        ("(octets < ETHERNET_OCTETS)", "(octets == ETHERNET_OCTETS)"),
    ),
    _property(
        "ethernet.raw_receive.RawReceive",
        _raw_receive,
        ("Mux(is_entry, NETWORK_ENTRY_OCTETS, raw.p.octets)", "raw.p.octets"),
    ),
    _property(
        "tcp.receive_ring.ReceiveRing",
        _receive_ring,
        ("rest.eq(writes & (job.wrapped != 0))", "rest.eq(writes)"),
        ("command.valid.eq(writes)", "command.valid.eq(~job.raw)"),
        ("self.raw.p.octets.eq(octets)", "self.raw.p.octets.eq(left)"),
    ),
    _property(
        "tcp.receive_processor.ReceiveProcessor",
        _receive_processor,
        ("wraps.eq(less_than(verdict.end & mask, octets))", "wraps.eq(1)"),
        ("raw, segment.octets, Mux(", "raw, segment.payload, Mux("),
        name=JOBS,
    ),
    _property(
        "tcp.transmit_segment.TransmitSegment",
        _transmit_segment,
        ("some = ~self.answers & octets.any()", "some = octets.any()"),
        name=JOBS,
    ),
    _property(
        "tcp.transmit_ring.TransmitRing",
        _transmit_ring,
        ("Mux(job.fpdu & less_than(after, job.octets), after, 0)", "after"),
    ),
    _property(
        "tcp.ring_gather.RingGather",
        _ring_gather,
        ("wraps.eq((asked.wrapped != 0) & ~asked.inline)", "wraps.eq(~asked.inline)"),
        ("command.valid.eq(goes & ~asked.inline)", "command.valid.eq(goes)"),
    ),
    _property(
        "tcp.ring_reader.RingReader",
        _ring_reader,
        ("Mux(less_than(after, job.octets), after, 0)", "after"),
    ),
    _property(
        "tcp.llp_receive.LlpReceive",
        _llp_receive,
        ("Mux(less_than(end & mask, request.octets), after, 0)", "after"),
    ),
)
