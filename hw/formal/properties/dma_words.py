"""All words of a command have left its client when `done` comes; a buffer keeps what it is given.

The queue of bursts that wait for memory is any that keeps all items, in order, of which one is
followed. Memory answers a burst after its last word (AMBA AXI4, A3.3.1), in order. The buffers of
the read engine have few words here, and payloads of 4 bits, at which they do not look.
"""

from typing import Any

from amaranth.hdl import Mux, Signal, Value
from amaranth.lib import data

from stagecoach.gateware.dma.buffers import ReservedQueue
from stagecoach.gateware.dma.bursts import burst
from stagecoach.gateware.dma.read import ReadEngine
from stagecoach.gateware.dma.write import MAX_OUTSTANDING_BURSTS, WriteEngine
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.invariants import invariants
from stagecoach.hw.formal.properties.axi import BEATS, CONFIG
from stagecoach.hw.formal.properties.dma_answers import BURST, CLIENTS
from stagecoach.hw.formal.property import Mutation, Property, in_harness

COUNT = 7
"""Bits of the number of a burst: fewer than 2^COUNT are under way."""
DEPTH = 8
ENGINE_DEPTH = 16
"""Words of a buffer, alone and in the engine."""


def _counted(h: Harness, name: str, pulse: Any) -> Signal:
    count = Signal(COUNT, name=name)
    h.m.d.sync += count.eq(count + pulse)
    return count


def _done(h: Harness) -> None:
    m = h.m
    dut = WriteEngine(CONFIG, clients=CLIENTS, whole=(1,))
    inside = h.block(dut)
    axi = dut.m_axi
    queue = h.free_fifo(inside, "responses")
    for name in ("addresses", "splitter0"):
        h.free_part(inside, name)
    chosen, issue = inside.view("chosen", burst(1)), inside.signal("issue")
    words = inside.child("w_buffer")
    comes, shown = words.ports.i, words.ports.o
    invariants(h, "stream.buffer.StreamBuffer", words)

    # Bursts that were issued, have left their client, have left on W, entered the queue, were
    # answered. One of them, any, is followed.
    issued = _counted(h, "issued", issue)
    moved = _counted(h, "moved", comes.valid & comes.ready & comes.p.last)
    passed = _counted(h, "passed", axi.wvalid & axi.wready & axi.wlast)
    enters, answers = queue.w_en, queue.r_en & queue.r_rdy
    entered, answered = _counted(h, "entered", enters), _counted(h, "answered", answers)
    number = h.constant(COUNT, "number")
    own = data.View(BURST, Signal(BURST.size, name="own"))
    with m.If(issue & (issued == number)):
        m.d.sync += [own.client.eq(chosen.tag), own.last.eq(chosen.last)]
    h.assume(~(axi.bvalid & axi.bready) | (passed != answered))
    h.assume(~queue.r_rdy | (entered != answered))
    h.assume(queue.level == (entered - answered)[:COUNT])
    is_head = queue.r_rdy & (answered == number)
    h.assume(~is_head | (queue.r_data == own.as_value()))
    h.check("the queue gets it", ~(enters & (entered == number)) | (queue.w_data == own.as_value()))

    def before(one: Any, other: Any) -> Value:
        """How many bursts one count is ahead of another one."""
        return (one - other)[:COUNT]

    # It is issued, and not answered, or was answered in the cycle before.
    ends = answers & (answered == number)
    is_done = h.past(ends)
    goes = (moved == number) & (issued != moved)
    transfers = [client.data.valid & client.data.ready for client in dut.clients]
    for client, transfer in enumerate(transfers):
        h.check(f"words of client {client} alone", ~(goes & transfer) | (own.client == client))
        h.check(f"each goes on, client {client}", ~transfer | (comes.valid & comes.ready))
    one = sum(transfers, start=0)
    h.check("one word for each", (comes.valid & comes.ready) == one)
    left = before(moved, number) - 1
    gone = left[:COUNT] < (1 << (COUNT - 1))
    for client, port in enumerate(dut.clients):
        is_own = is_done & (own.client == client)
        h.check(f"its words have left, client {client}", ~(is_own & port.done) | gone)
        h.check(f"done at its end, client {client}", ~is_done | (port.done == (own.last & is_own)))
    h.cover("done", is_done & own.last & (own.client == 0))

    # Where it is
    level = before(issued, answered)
    waits = h.past(issue)
    h.invariant("queue", before(issued, entered) == inside.signal("w_en"))
    h.invariant("enters", inside.signal("w_en") == waits)
    valid, held = inside.signal("chosen_valid"), before(entered, answered)
    h.invariant("free", inside.signal("chosen_free") == ~valid)
    h.invariant("every second cycle", ~(valid & enters))
    h.invariant("few", held + enters <= MAX_OUTSTANDING_BURSTS)
    h.invariant("room", ~inside.signal("room") | (held + enters < MAX_OUTSTANDING_BURSTS))
    vacant, turn, fill = (inside.signal(name) for name in ("vacant", "turn", "fill"))
    busy = ~vacant
    h.invariant("two", before(issued, moved) == busy[0] + busy[1])
    h.invariant("next one", fill == turn ^ (before(issued, moved) == 1))
    h.invariant("turn", (before(issued, moved) != 1) | busy.bit_select(turn, 1))
    lasts = (shown.valid & shown.p.last) + (
        words.signal("spare_full") & words.view("spare", shown.p.shape()).last
    )
    h.invariant("on W", before(moved, passed) == lasts)
    h.invariant("answered after W", before(passed, answered) <= level)
    h.invariant("moved after", before(moved, answered) <= level)
    mine = before(number, moved) < before(issued, moved)
    for slot in range(2):
        place = Mux(turn == slot, 0, 1)
        here = mine & (before(number, moved) == place)
        selected = inside.signal(f"selected{slot}")
        right = Value.cast(selected == Value.cast(1 << own.client)) & busy[slot]
        h.invariant(f"slot {slot}", ~here | right)
        h.invariant(f"slot {slot} alone", ~vacant[slot] | (selected == 0))
        h.invariant(f"slot {slot} one client", (selected & (selected - 1))[:2] == 0)
    late = waits & (before(issued, 1) == number)
    response = inside.view("response_in", BURST)
    h.invariant("enters as it is", ~late | (response.as_value() == own.as_value()))
    h.invariant("its words", ~is_done | gone)


def _buffer(h: Harness) -> None:
    dut = ReservedQueue(4, DEPTH)
    inside = h.block(dut)
    output = h.free_fifo(inside, "output")
    places, entered, shown = (Signal(4, name=name) for name in ("came", "entered", "left"))
    freed = Signal(4, name="freed")
    leaves = output.r_en & output.r_rdy
    h.m.d.sync += [
        places.eq(places + dut.push),
        entered.eq(entered + output.w_en),
        shown.eq(shown + leaves),
        freed.eq(freed + dut.freed),
    ]
    # The one who reserves: no more words than places. One word, any, is followed.
    h.assume(~dut.push | ((places - freed)[:4] < DEPTH))
    number, word = h.constant(4, "number"), Signal(4, name="word")
    with h.m.If(dut.push & (places == number)):
        h.m.d.sync += word.eq(dut.word)
    # The FIFO keeps its items, in order.
    h.assume(~output.r_rdy | (entered != shown))
    h.assume(~(output.r_rdy & (shown == number)) | (output.r_data == word))
    own = output.w_en & (entered == number)
    h.check("in order, as it came", ~own | (output.w_data == word))
    h.check("none that has not come", ~output.w_en | (entered != places))
    h.check("none is freed that has not come", ~dut.freed | (freed != places))
    offered = dut.o.valid & (shown == number)
    h.check("the same leaves", ~offered | (dut.o.payload == word))

    memory = inside.memory("memory")
    (write,), (read,) = memory.write_ports, memory.read_ports
    level = inside.signal("level")
    under_way = [inside.signal(name) for name in ("fetched", "arrived")]
    fetched = (entered + sum(under_way, start=0))[:4]
    h.invariant("level", (level <= DEPTH) & ((places - fetched)[:4] == level))
    h.invariant("freed", (freed + dut.freed)[:4] == fetched)
    h.invariant("write", write.addr == places[: len(write.addr)])
    h.invariant("read", read.addr == fetched[: len(read.addr)])
    is_kept = (number - fetched)[:4] < level
    h.invariant("kept", ~is_kept | (h.word(memory, number[: len(read.addr)]) == word))
    arrives = under_way[1] & (entered == number)
    h.invariant("arrived", ~arrives | (inside.signal("word") == word))
    reads = under_way[0] & ((entered + under_way[1])[:4] == number)
    h.invariant("fetched", ~reads | (read.data == word))


def _room(h: Harness) -> None:
    dut = ReadEngine(CONFIG, (ENGINE_DEPTH, 0))
    inside = h.block(dut)
    queue = h.free_part(inside, "queue0")
    h.free_fifo(inside, "order")
    # Words that were asked for, have come and were freed
    asked, came, freed = (Signal(8, name=name) for name in ("asked", "came", "freed"))
    splitter = inside.child("splitter0")
    o = splitter.ports.o
    taken = o.valid & o.ready
    h.m.d.sync += [
        asked.eq(asked + Mux(taken, o.p.beats + 1, 0)),
        came.eq(came + queue.push),
        freed.eq(freed + queue.freed),
    ]
    h.assume(~queue.push | (asked != came))  # memory answers what was asked
    h.assume(~queue.freed | (freed != came))  # `_buffer`
    held = (came - freed)[:8]
    h.check("room for each word", ~queue.push | (held < ENGINE_DEPTH))
    shown = queue.word.as_value() == inside.signal("received")
    h.check("the words of memory", ~queue.push | shown)
    h.check("of this client", queue.push == inside.signal("received_for")[0])
    h.cover("full", held == ENGINE_DEPTH)

    free, freed_before = inside.signal("free"), inside.signal("freed0")
    to_come = (asked - came)[:8]
    total = free + freed_before + held + to_come
    few = (free <= ENGINE_DEPTH) & (held <= ENGINE_DEPTH) & (to_come <= ENGINE_DEPTH)
    h.invariant("places", few & (total == ENGINE_DEPTH))
    fits, granted = inside.signal("fits")[0], inside.signal("granted")[0]
    h.invariant("granted", ~(fits | granted) | (o.valid & (free > o.p.beats)))
    h.invariant("beats", o.p.beats < BEATS)


WRITE = "stagecoach.gateware.dma.write"
READ = "stagecoach.gateware.dma.read"
BUFFERS = "stagecoach.gateware.dma.buffers"

PROPERTIES = (
    Property(
        "dma.write.WriteEngine",
        "all words of a command have left its client when done comes",
        in_harness(_done),
        mutations=tuple(
            Mutation(WRITE, old, new)
            for old, new in (
                ("response_in.client.eq(chosen.tag)", "response_in.client.eq(latest)"),
                ("response_in.last.eq(chosen.last)", "response_in.last.eq(1)"),
                ("answered.eq(axi.bvalid & responses.r_rdy)", "answered.eq(responses.r_rdy)"),
                ("selected[number].eq(1 << coming.client)", "selected[number].eq(1)"),
            )
        ),
        depth=1,
        reached=6,
    ),
    Property(
        "dma.buffers.ReservedQueue",
        f"words leave in order, as they came (depth {DEPTH})",
        in_harness(_buffer),
        mutations=tuple(
            Mutation(BUFFERS, old, new)
            for old, new in (
                ("fetch.eq((level != 0) & room)", "fetch.eq(room)"),
                ("arrived.eq(fetched)", "arrived.eq(fetch)"),
                ("write.addr.eq(write.addr + 1)", "write.addr.eq(write.addr + 2)"),
            )
        ),
        depth=1,
    ),
    Property(
        "dma.read.ReadEngine",
        "a buffer has room for each word that memory answers",
        in_harness(_room),
        mutations=tuple(
            Mutation(READ, old, new)
            for old, new in (
                ("reserved.eq(splitter.o.payload.beats + 1)", "reserved.eq(1)"),
                ("(free > splitter.o.payload.beats)", "(free != 0)"),
                ("free - reserved + freed", "free + freed"),
                ("queue.push.eq(received_for[number])", "queue.push.eq(received_for.any())"),
            )
        ),
        depth=1,
        reached=4,
    ),
)
