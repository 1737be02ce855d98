"""The AXI master port: what is announced stays, no burst crosses 4 KiB, strobes are the bytes.

The proof goes in steps, each about one place where the next one begins. `BurstSplitter`: bursts
are the bytes of the command, in order, none across a block. `WriteEngine`: a burst goes to AW and
to W in one cycle, unchanged; the W channel has as many words of it as AW announces, with the
strobes of its bytes. Both channels, as AR of `ReadEngine`, hold what they show. `StreamBuffer`,
through which AW and W go, keeps all words in order (see `fifos`).
"""

from typing import Any

from amaranth.hdl import Cat, Const, Mux, Signal, Value
from amaranth.lib import data

from stagecoach.gateware.config import WORD_OCTETS, RnicConfig
from stagecoach.gateware.dma.bursts import WORD_BITS, BurstSplitter, burst
from stagecoach.gateware.dma.read import ReadEngine
from stagecoach.gateware.dma.write import WriteEngine
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.invariants import invariants
from stagecoach.hw.formal.property import Mutation, Property, in_harness

BOUNDARY_BITS = 12
"""A burst must not cross a 4 KiB boundary (AMBA AXI4, A3.4.1)."""

BEATS = 8
"""Of the longest burst here, the least that a device can have. Blocks of all sizes are aligned."""

SLOT = data.StructLayout(
    {"beats": 8, "first": 1, "last": 1, "start_lane": 3, "end_lane": 3, "client": 1}
)
"""What `WriteEngine` keeps of a burst for the W channel."""

CONFIG = RnicConfig(max_burst_beats=BEATS)


def _inside_4_kib(address: Any, beats: Any) -> Value:
    """Whether a burst of 8-byte beats, `beats` as AxLEN, stays in 4 KiB; its words are aligned."""
    first = address[WORD_BITS:BOUNDARY_BITS]
    end = first + beats
    return (address[:WORD_BITS] == 0) & (end < 1 << (BOUNDARY_BITS - WORD_BITS))


def _stays(h: Harness, valid: Any, ready: Any, *payload: Any) -> Value:
    """What an AXI channel shows while valid and not ready stays (AMBA AXI4, A3.2.1)."""
    shown = Cat(*payload)
    return ~h.past(valid & ~ready) | (valid & (shown == h.past(shown)))


def command_has_octets(commands: Any) -> Value:
    """Commands have 1 to 65535 bytes: `ReadClient`, `WriteClient`."""
    octets = commands.payload.octets
    return ~commands.valid | ((octets != 0) & (octets <= 65535))


def whole_in_block(commands: Any, beats: int) -> Value:
    """A command of a `whole` client does not cross a multiple of `beats` words."""
    block = beats * WORD_OCTETS
    octets = commands.payload.octets
    end = commands.payload.address[: (block - 1).bit_length()] + octets
    return ~commands.valid | ((octets != 0) & (end <= block))


def _splitter_holds(h: Harness, inside: Inside, name: str, max_beats: int) -> None:
    """What an output of a splitter is: a burst inside a block of `max_beats` words."""
    rule = h.invariant if name else h.check  # what an engine needs, or what the splitter claims
    o = inside.ports.o
    word_bits = (max_beats - 1).bit_length()
    first = o.payload.address[WORD_BITS : WORD_BITS + word_bits]
    aligned = o.payload.address[:WORD_BITS] == 0
    rule(f"{name}in a block", ~o.valid | (aligned & (first + o.payload.beats < max_beats)))
    active, end = inside.signal("active"), inside.signal("end")
    start = inside.signal("start")
    block_bits = WORD_BITS + word_bits
    h.invariant(
        f"{name}ends after its start",
        ~active | (end[block_bits:] != 0) | (end[:block_bits] >= start),
    )


def _splitter(h: Harness) -> None:
    dut = BurstSplitter(BEATS)
    inside = h.block(dut)
    h.assume(command_has_octets(dut.i))
    _splitter_holds(h, inside, "", BEATS)
    # The command of which bursts are made
    command = Signal.like(Value.cast(dut.i.payload.address), name="address")
    last_octet = Signal(64, name="last_octet")
    following = Signal(64, name="following")  # the byte from which on there was no burst
    begun = Signal()
    active, end, start = (inside.signal(name) for name in ("active", "end", "start"))
    block, o = inside.signal("block"), dut.o.payload
    makes = active & (~dut.o.valid | dut.o.ready)
    with h.m.If(dut.i.valid & dut.i.ready):
        address = dut.i.payload.address
        h.m.d.sync += [
            command.eq(address),
            last_octet.eq(address + dut.i.payload.octets - 1),
            following.eq(address),
            begun.eq(0),
        ]
    with h.m.Elif(makes):
        h.m.d.sync += begun.eq(1)
    block_bits = len(start)
    offset = Const(0, block_bits)
    with h.m.If(makes):
        h.m.d.sync += following.eq(Cat(offset, block + 1))
    h.invariant("where it stands", ~active | (following == Cat(start, block)))
    h.invariant("where it ends", ~active | ((Cat(offset, block) + end)[:64] == last_octet))
    h.invariant("first", ~active | (inside.signal("first") == ~begun))
    h.invariant("aligned after the first", ~active | ~begun | (start == 0))
    h.invariant("start lane", ~active | (inside.signal("start_lane") == command[:WORD_BITS]))
    # What a burst is, in the cycle after it is made
    made, began = h.past(makes), h.past(~begun)
    at, until = h.past(following), h.past(last_octet)
    words = o.address + (o.beats << WORD_BITS)  # the last word
    h.check("follows", ~made | (o.address == Cat(Const(0, WORD_BITS), at[WORD_BITS:])))
    h.check("first of the command", ~made | (o.first == began))
    h.check("last of the command", ~made | (o.last == ~active | ~h.past(active)))
    h.check(
        "ends where the command does",
        ~(made & o.last) | (words[WORD_BITS:64] == until[WORD_BITS:64]),
    )
    h.check("end lane", ~(made & o.last) | (o.end_lane == until[:WORD_BITS]))
    h.check("lane of the first byte", ~made | (o.start_lane == h.past(command)[:WORD_BITS]))
    h.check(
        "no gap to the next one",
        ~(made & ~o.last) | ((words + WORD_OCTETS)[:64] == following),
    )
    h.cover("three bursts", made & o.last & (h.past(o.beats) == BEATS - 1) & h.past(made))


def _read_engine(h: Harness) -> None:
    dut = ReadEngine(CONFIG, (16, 0))
    inside = h.block(dut)
    axi = dut.m_axi
    invariants(h, "dma.read.ReadEngine", inside)
    granted, latest, fits = (inside.signal(name) for name in ("granted", "latest", "fits"))
    h.invariant("free", inside.signal("ar_free") == ~axi.arvalid)
    h.invariant("at most one", (granted & (granted - 1))[: len(granted)] == 0)
    for number, client in enumerate(dut.clients):
        h.assume(command_has_octets(client.command))
        splitter = inside.child(f"splitter{number}")
        _splitter_holds(h, splitter, f"client {number} ", BEATS)
        valid = splitter.ports.o.valid
        h.invariant(f"client {number} fits", ~fits[number] | valid)
        h.invariant(f"client {number} granted", ~granted[number] | (valid & (latest == number)))
        burst_taken = splitter.ports.o.payload
        told = (axi.araddr == h.past(burst_taken.address)) & (
            axi.arlen == h.past(burst_taken.beats)
        )
        taken = h.past(valid & splitter.ports.o.ready)
        h.check(f"client {number} announced", ~taken | (axi.arvalid & told))
    h.check(
        "AR stays",
        _stays(h, axi.arvalid, axi.arready, axi.araddr, axi.arlen, axi.arsize, axi.arburst),
    )
    h.check("AR in 4 KiB", ~axi.arvalid | _inside_4_kib(axi.araddr, axi.arlen))
    h.check("8 bytes a beat, incrementing", (axi.arsize == 3) & (axi.arburst == 1))
    h.cover("long burst waits", axi.arvalid & ~axi.arready & (axi.arlen == BEATS - 1))


def _write_engine(h: Harness) -> None:
    dut = WriteEngine(CONFIG, clients=2, whole=(1,))
    inside = h.block(dut)
    axi = dut.m_axi
    invariants(h, "dma.write.WriteEngine", inside)
    valid, chosen = inside.signal("chosen_valid"), inside.view("chosen", burst(1))
    issue = inside.signal("issue")
    h.invariant("free", inside.signal("chosen_free") == ~valid)
    h.assume(command_has_octets(dut.clients[0].command))
    _splitter_holds(h, inside.child("splitter0"), "client 0 ", BEATS)
    h.assume(whole_in_block(dut.clients[1].command, BEATS))
    h.invariant("chosen in 4 KiB", ~valid | _inside_4_kib(chosen.address, chosen.beats))
    addresses, words = inside.child("addresses").ports, inside.child("w_buffer").ports
    for name, stream in (
        ("AW shown", addresses.o.payload),
        ("AW after it", inside.child("addresses").view("spare", addresses.o.payload.shape())),
    ):
        shown = addresses.o.valid
        if name != "AW shown":
            shown = inside.child("addresses").signal("spare_full")
        h.invariant(f"{name} in 4 KiB", ~shown | _inside_4_kib(stream.address, stream.beats))
    h.check(
        "AW stays",
        _stays(h, axi.awvalid, axi.awready, axi.awaddr, axi.awlen, axi.awsize, axi.awburst),
    )
    h.check("W stays", _stays(h, axi.wvalid, axi.wready, axi.wdata, axi.wstrb, axi.wlast))
    h.check("AW in 4 KiB", ~axi.awvalid | _inside_4_kib(axi.awaddr, axi.awlen))
    h.check("8 bytes a beat, incrementing", (axi.awsize == 3) & (axi.awburst == 1))
    h.check(
        "AW is told what was chosen",
        ~issue
        | (
            addresses.i.valid
            & addresses.i.ready
            & (addresses.i.payload.address == chosen.address)
            & (addresses.i.payload.beats == chosen.beats)
        ),
    )
    # The bursts that were issued and of which not all words went to the W channel
    kept = Cat(
        chosen.beats, chosen.first, chosen.last, chosen.start_lane, chosen.end_lane, chosen.tag
    )
    bursts = [Signal(len(kept), name=f"issued_{place}") for place in range(2)]
    count = Signal(range(3), name="issued")
    sent = Signal(9, name="sent")  # words of the oldest
    beats, first, last = bursts[0][:8], bursts[0][8], bursts[0][9]
    start_lane, end_lane, client = bursts[0][10:13], bursts[0][13:16], bursts[0][16]
    word, moves = words.i.payload, words.i.valid & words.i.ready
    ends = moves & (sent == beats)
    h.m.d.sync += [count.eq(count + issue - ends), sent.eq(Mux(ends, 0, sent + moves))]
    for place in range(2):
        following = bursts[1] if place == 0 else 0
        after = Mux(ends, following, bursts[place])
        h.m.d.sync += bursts[place].eq(Mux(issue & (count - ends == place), kept, after))
    h.invariant("room for a burst", ~issue | (count < 2) | ends)
    h.check("words are of a burst", ~words.i.valid | (count != 0))
    h.check("last word", ~words.i.valid | (word.last == (sent == beats)))
    h.invariant("none begun", (count != 0) | (sent == 0))
    h.invariant("not more words", (count == 0) | (sent <= beats))
    for lane in range(WORD_OCTETS):
        before = first & (sent == 0) & (lane < start_lane)
        behind = last & (sent == beats) & (lane > end_lane)
        h.check(f"strobe {lane}", ~words.i.valid | (word.strobe[lane] == ~(before | behind)))
    chosen_client = Mux(client, dut.clients[1].data.payload.data, dut.clients[0].data.payload.data)
    h.check("data of its client", ~words.i.valid | (word.data == chosen_client))
    _w_slots(h, inside, bursts, count, sent)
    h.cover("two bursts", moves & word.last & (count == 2))
    h.cover("strobes", moves & (word.strobe == 0b00111000))
    h.cover("long", moves & (sent == BEATS - 1))


def _w_slots(h: Harness, inside: Inside, bursts: list[Any], count: Any, sent: Any) -> None:
    """The two registers of `WriteEngine` hold the bursts that were issued."""
    turn, fill, vacant = (inside.signal(name) for name in ("turn", "fill", "vacant"))
    last_beat, first_beat = inside.signal("last_beat"), inside.signal("first_beat")
    busy = ~vacant
    h.invariant("so many", count == busy[0] + busy[1])
    h.invariant("next one", fill == turn ^ (count == 1))
    h.invariant("turn", (count != 1) | busy.bit_select(turn, 1))
    lower, upper = inside.signal("lower"), inside.signal("upper")
    for number in range(2):
        slot = inside.view(f"burst{number}", SLOT)
        selected = inside.signal(f"selected{number}")
        for place in range(2):
            here = busy[number] & ((turn == number) if place == 0 else (turn != number))
            done = sent if place == 0 else 0
            issued = bursts[place]
            same = (
                (slot.beats == (issued[:8] - done)[:8])
                & (slot.first == issued[8])
                & (slot.last == issued[9])
                & (slot.start_lane == issued[10:13])
                & (slot.end_lane == issued[13:16])
                & (slot.client == issued[16])
            )
            h.invariant(f"slot {number} is burst {place}", ~here | same)
        h.invariant(
            f"slot {number} last", vacant[number] | (last_beat[number] == (slot.beats == 0))
        )
        done_first = (sent == 0) | (turn != number)
        h.invariant(
            f"slot {number} first",
            vacant[number] | (first_beat[number] == (slot.first & done_first)),
        )
        h.invariant(
            f"slot {number} client",
            selected == Mux(vacant[number], 0, Value.cast(1 << slot.client)),
        )
        mine = busy[number] & (turn == number)
        h.invariant(
            f"slot {number} data", ~mine | ((lower == slot.client) & (upper == ~slot.client))
        )


READ = "stagecoach.gateware.dma.read"
WRITE = "stagecoach.gateware.dma.write"
BURSTS = "stagecoach.gateware.dma.bursts"

PROPERTIES = (
    Property(
        "dma.bursts.BurstSplitter",
        "the bursts of a command are its bytes, in order, none across a block",
        in_harness(_splitter),
        mutations=(
            Mutation(BURSTS, "blocks_left.eq(blocks_left - 1)", "blocks_left.eq(0)"),
            Mutation(BURSTS, "end_beat.eq(self._max_beats - 1)", "end_beat.eq(self._max_beats)"),
            Mutation(BURSTS, "command.octets - 1)", "command.octets)"),
            Mutation(BURSTS, "(end_beat - start[WORD_BITS:])[: len(end_beat)]", "end_beat"),
        ),
        covered=8,
    ),
    Property(
        "dma.read.ReadEngine",
        "every burst is announced; AR stays until it is taken; no burst crosses 4 KiB",
        in_harness(_read_engine),
        mutations=(
            Mutation(READ, "with m.If(~axi.arvalid):", "with m.If(1):"),
            Mutation(READ, "(ar_free & room)", "(room)"),
            Mutation(BURSTS, "start.eq(0),", "start.eq(8),"),
        ),
        covered=10,
    ),
    Property(
        "dma.write.WriteEngine",
        "AW and W stay until they are taken; no burst crosses 4 KiB; as many words as announced, "
        "with the strobes of the bytes",
        in_harness(_write_engine),
        mutations=(
            Mutation(WRITE, "lane < current.start_lane", "lane <= current.start_lane"),
            Mutation(WRITE, "is_last & current.last & (lane", "current.last & (lane"),
            Mutation(WRITE, "last_beat[number].eq(each.beats == 1)", "last_beat[number].eq(1)"),
            Mutation(
                WRITE,
                "beats.eq(chosen.beats),\n            words_in.beats",
                "beats.eq(0),\n            words_in.beats",
            ),
            Mutation(WRITE, "issue & (fill == number)", "issue"),
        ),
        covered=14,
    ),
)
