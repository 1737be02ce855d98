"""Slots, buffers and FIFOs of `gateware`: no item is lost or doubled, and the order is kept.

Beside each block stands a list of the items that came and have not left. The block shows its oldest
one, takes no more than it has room for, and what it holds is that list, item by item. Payloads have
4 bits here: no block looks at them. FIFOs have few items. The addresses of `StreamFifo` go round in
one of two ways: alone if its memory has a power of two of words, else by a comparison.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from amaranth.hdl import Cat, Mux, Signal

from stagecoach.gateware.stream.buffer import StreamBuffer
from stagecoach.gateware.stream.fifo import StreamFifo
from stagecoach.gateware.stream.fork import Fork
from stagecoach.gateware.stream.prompt_fifo import PromptFifo
from stagecoach.gateware.stream.slot import StreamSlot
from stagecoach.hw.formal.device import class_name
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.invariants import invariants
from stagecoach.hw.formal.property import Mutation, Property, in_harness

WIDTH = 4
DEPTH = 4

Contents = Callable[[Harness, Inside], tuple[Any, Sequence[Any]]]
"""Number of items in a block, and the item at each place, the oldest one first."""


def _keeps_order(component: Any, room: int, contents: Contents) -> Callable[[Harness], None]:
    def build(h: Harness) -> None:
        dut = component()
        inside = h.block(dut)
        invariants(h, class_name(dut), inside)
        items = [Signal(WIDTH, name=f"item_{place}") for place in range(room + 1)]
        count = Signal(range(room + 2), name="count")
        comes, leaves = dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready
        h.m.d.sync += count.eq(count + comes - leaves)
        for place in range(room + 1):
            following = items[place + 1] if place < room else 0
            after = Mux(leaves, following, items[place])
            h.m.d.sync += items[place].eq(
                Mux(comes & (count - leaves == place), dut.i.payload, after)
            )
        h.check("room for what comes", ~comes | (count < room))
        h.check("the oldest one is shown", ~dut.o.valid | (count != 0))
        h.check("as it came", ~dut.o.valid | (dut.o.payload == items[0]))
        held, words = contents(h, inside)
        h.invariant("as many as came and have not left", held == count)
        for place, word in enumerate(words):
            h.invariant(f"item {place}", (held <= place) | (word == items[place]))
        waiting = (count != 0) & h.past(count != 0) & ~h.past(leaves)
        h.check("an item that waits is shown", ~(waiting & h.started) | dut.o.valid)
        h.cover("full", ~dut.i.ready & (count == room))
        h.cover("emptied", h.past(leaves) & (count == 0))

    return build


def _slot(_: Harness, inside: Inside) -> tuple[Any, Sequence[Any]]:
    o = inside.ports.o
    return o.valid, [o.payload]


def _buffer(_: Harness, inside: Inside) -> tuple[Any, Sequence[Any]]:
    o = inside.ports.o
    return o.valid + inside.signal("spare_full"), [o.payload, inside.signal("spare")]


def _ring(h: Harness, store: Any, oldest: Any, length: int) -> list[Any]:
    """The words of a memory from `oldest` on, around its end."""
    words = []
    for place in range(length):
        address = oldest + place
        words.append(h.word(store, Mux(address >= length, address - length, address)))
    return words


def prompt_fifo_contents(h: Harness, inside: Inside) -> tuple[Any, Sequence[Any]]:
    """Number of items in a `PromptFifo`, and the item at each place, the oldest one first."""
    o, level = inside.ports.o, inside.ports.level
    memory = inside.memory("memory")
    write, read = memory.write_ports[0].addr, memory.read_ports[0].addr
    rest = inside.ports._rest
    h.invariant("addresses", (write < rest) & (read < rest))
    ahead = Mux(write >= read, write - read, write + rest - read)
    h.invariant("distance", (level == ahead) | ((level == rest) & (ahead == 0)))
    return o.valid + level, [o.payload, *_ring(h, memory, read, rest)]


def _stream_fifo(h: Harness, inside: Inside) -> tuple[Any, Sequence[Any]]:
    fifo = inside.child("fifo")
    rest = inside.ports._depth - 1
    o, level = inside.ports.o, fifo.signal("inner_level")
    produce, consume = fifo.signal("produce"), fifo.signal("consume")
    h.invariant("addresses", (produce < rest) & (consume < rest))
    ahead = Mux(produce >= consume, produce - consume, produce + rest - consume)
    h.invariant("distance", (level == ahead) | ((level == rest) & (ahead == 0)))
    h.invariant("level", level <= rest)
    words = _ring(h, fifo.memory("storage"), consume, rest)
    shown = zip([o.payload, *words], [*words, 0], strict=True)
    return o.valid + level, [Mux(o.valid, *each) for each in shown]


def _fork(h: Harness) -> None:
    outputs = 3
    dut = Fork(WIDTH, outputs)
    inside = h.block(dut)
    h.assume(h.held(dut.i))
    # Who has taken the item on `i`
    taken = Signal(outputs)
    takes = Cat(o.valid & o.ready for o in dut.o)
    leaves = dut.i.valid & dut.i.ready
    h.m.d.sync += taken.eq(Mux(leaves, 0, taken | takes))
    h.check("none takes it twice", (taken & takes) == 0)
    h.check("it leaves when all have taken it", ~leaves | taken.all())
    h.check("it is offered to all others", ~dut.i.valid | (Cat(o.valid for o in dut.o) == ~taken))
    for number, o in enumerate(dut.o):
        h.check(f"output {number}", ~o.valid | (dut.i.valid & (o.payload == dut.i.payload)))
    h.invariant("remembered", inside.signal("taken") == taken)
    h.invariant("nothing is taken of nothing", (taken == 0) | dut.i.valid)
    h.cover("one by one", (taken == 0b101) & dut.i.valid)
    h.cover("all", leaves)


def _fifo(name: str, component: Any, room: int, contents: Contents, old: str, new: str) -> Property:
    return Property(
        name,
        f"no item is lost or doubled, the order is kept, none comes without room (depth {room})",
        in_harness(_keeps_order(component, room, contents)),
        mutations=(Mutation("stagecoach.gateware." + name.rpartition(".")[0], old, new),),
        covered=room + 5,
    )


PROPERTIES = (
    _fifo(
        "stream.slot.StreamSlot",
        lambda: StreamSlot(WIDTH),
        1,
        _slot,
        "self.i.ready.eq(~self.o.valid)",
        "self.i.ready.eq(1)",
    ),
    _fifo(
        "stream.buffer.StreamBuffer",
        lambda: StreamBuffer(WIDTH),
        2,
        _buffer,
        "self.o.valid.eq(spare_full | self.i.valid)",
        "self.o.valid.eq(self.i.valid)",
    ),
    _fifo(
        "stream.prompt_fifo.PromptFifo",
        lambda: PromptFifo(WIDTH, DEPTH),
        DEPTH,
        prompt_fifo_contents,
        "full.eq(self.level == rest - 1)",
        "full.eq(0)",
    ),
    *(
        _fifo(
            "stream.fifo.StreamFifo",
            partial(StreamFifo, WIDTH, depth),
            depth,
            _stream_fifo,
            "self.i.ready.eq(items.w_rdy)",
            "self.i.ready.eq(1)",
        )
        for depth in (DEPTH, DEPTH + 1)
    ),
    Property(
        "stream.fork.Fork",
        "every output gets every item once, and the next one when all have taken the last",
        in_harness(_fork),
        mutations=(
            Mutation(
                "stagecoach.gateware.stream.fork",
                "self.i.ready.eq(taken.all())",
                "self.i.ready.eq(taken.any())",
            ),
        ),
        covered=6,
    ),
)
