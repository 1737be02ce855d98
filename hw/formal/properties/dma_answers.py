"""The DMA engines answer their clients for commands that they took, and once for each.

The queue of bursts that wait for memory is any that keeps all items, in order: it has as many of
each kind as came and have not left, and what it shows is one of them. What memory answers is free.
"""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Mux, Signal, Value
from amaranth.lib import data

from stagecoach.gateware.dma.bursts import burst
from stagecoach.gateware.dma.read import MAX_OUTSTANDING_BURSTS as MOST_READS
from stagecoach.gateware.dma.read import ReadEngine
from stagecoach.gateware.dma.write import MAX_OUTSTANDING_BURSTS as MOST_WRITES
from stagecoach.gateware.dma.write import WriteEngine
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.invariants import invariants
from stagecoach.hw.formal.properties.axi import CONFIG, command_has_octets
from stagecoach.hw.formal.property import Mutation, Property, in_harness

CLIENTS = 2
BURST = data.StructLayout({"client": 1, "last": 1})
COUNT = 8
"""Bits of what is counted."""


@dataclass(frozen=True)
class _Bursts:
    """What is known of the bursts in the queue.

    lasts, others: for each client, how many there are that end a command, and that do not.
    comes: the burst that enters the queue. follows: for each client, its newest burst, in the
    queue or gone, does not end its command.
    """

    lasts: list[Signal]
    others: list[Signal]
    comes: Any
    follows: list[Signal]


def _queue(h: Harness, inside: Inside, name: str, most: int) -> _Bursts:
    """Leave the queue out, but count what is in it."""
    m = h.m
    queue = h.free_fifo(inside, name)
    comes, head = data.View(BURST, queue.w_data), data.View(BURST, queue.r_data)
    level = Signal(COUNT, name="level")
    leaves = queue.r_en & queue.r_rdy
    m.d.sync += level.eq(level + queue.w_en - leaves)
    h.assume(queue.level == level)
    h.assume(~queue.r_rdy | (level != 0))
    h.check("room in the queue", ~queue.w_en | (level < most))
    found = _Bursts([], [], comes, [])
    for client in range(CLIENTS):
        lasts, others = (
            Signal(COUNT, name=f"lasts_{client}"),
            Signal(COUNT, name=f"others_{client}"),
        )
        follows = Signal(name=f"follows_{client}")
        for count, is_last in ((lasts, 1), (others, 0)):
            enters = queue.w_en & (comes.client == client) & (comes.last == is_last)
            shown = queue.r_rdy & (head.client == client) & (head.last == is_last)
            m.d.sync += count.eq(count + enters - (shown & queue.r_en))
            h.assume(~shown | (count != 0))
        # If the oldest one is the only one that ends a command, and the newest one ends a
        # command, it is both.
        last_shown = queue.r_rdy & (head.client == client) & head.last
        h.assume(~(last_shown & (lasts == 1) & ~follows) | (others == 0))
        with m.If(queue.w_en & (comes.client == client)):
            m.d.sync += follows.eq(~comes.last)
        found.lasts.append(lasts)
        found.others.append(others)
        found.follows.append(follows)
    h.invariant("queue", level == _sum([*found.lasts, *found.others]))
    return found


def _sum(values: list[Any]) -> Value:
    return Value.cast(sum(values, start=0))


def _pending(h: Harness, client: Any, number: int, ends: Any) -> Signal:
    """How many commands of a client were taken, and have not ended."""
    pending = Signal(COUNT, name=f"pending_{number}")
    begins = client.command.valid & client.command.ready
    h.m.d.sync += pending.eq(pending + begins - ends)
    return pending


def _write_engine(h: Harness) -> None:
    dut = WriteEngine(CONFIG, clients=CLIENTS, whole=(1,))
    inside = h.block(dut)
    bursts = _queue(h, inside, "responses", MOST_WRITES)
    enters = inside.signal("w_en")
    invariants(h, "dma.write.WriteEngine", inside)
    valid, chosen = inside.signal("chosen_valid"), inside.view("chosen", burst(1))
    h.invariant("free", inside.signal("chosen_free") == ~valid)
    level = _sum([*bursts.lasts, *bursts.others])
    room = inside.signal("room")
    h.invariant("room", level + enters <= MOST_WRITES)
    h.invariant("room is known", ~room | (level + enters < MOST_WRITES))
    h.invariant("every second cycle", ~(valid & enters))
    splitter = inside.child("splitter0")
    cut = splitter.ports.o
    upstream = [splitter.signal("active") + (cut.valid & cut.p.last), 0]
    whole = ~valid | (chosen.tag == 0) | chosen.last
    h.invariant("a whole command is one burst", whole)
    for number, client in enumerate(dut.clients):
        pending = _pending(h, client, number, client.done)
        to_come = (
            upstream[number]
            + (valid & chosen.last & (chosen.tag == number))
            + (enters & bursts.comes.last & (bursts.comes.client == number))
            + bursts.lasts[number]
            + client.done
        )
        h.check(f"one end of each command of client {number}", pending == to_come)
        taken = ~client.done | (pending != 0)
        h.check(f"done for a command of client {number}", taken)
        h.check(f"error with it, client {number}", ~client.error | client.done)
        h.cover(f"done {number}", client.done & (pending == 2))


def _read_engine(h: Harness) -> None:
    dut = ReadEngine(CONFIG, (16, 0))
    inside = h.block(dut)
    h.free_part(inside, "queue0")
    bursts = _queue(h, inside, "order", MOST_READS)
    enters = inside.signal("w_en")
    invariants(h, "dma.read.ReadEngine", inside)
    granted, latest, fits = (inside.signal(name) for name in ("granted", "latest", "fits"))
    received_for, received = inside.signal("received_for"), dut.clients[1].data.p
    level = _sum([*bursts.lasts, *bursts.others])
    loads = inside.signal("loads")
    h.invariant("free", inside.signal("ar_free") == ~dut.m_axi.arvalid)
    h.invariant("at most one", (granted & (granted - 1))[: len(granted)] == 0)
    h.invariant("room", level + enters <= MOST_READS)
    room = inside.signal("room")
    h.invariant("room is known", ~room | (level + enters < MOST_READS))
    h.invariant("every second cycle", ~(loads & enters))
    h.assume(dut.clients[1].data.ready)
    for number, client in enumerate(dut.clients):
        h.assume(command_has_octets(client.command))
        splitter = inside.child(f"splitter{number}")
        o, active = splitter.ports.o, splitter.signal("active")
        h.invariant(f"fits {number}", ~fits[number] | o.valid)
        h.invariant(f"granted {number}", ~granted[number] | (o.valid & (latest == number)))
        mine = received_for[number]
        pending = _pending(h, client, number, mine & received.last)
        comes = enters & (bursts.comes.client == number)
        before = active + (o.valid & o.p.last) + (comes & bursts.comes.last) + bursts.lasts[number]
        to_come = before + (mine & received.last)
        h.check(f"one last word of each command of client {number}", pending == to_come)
        h.check(f"words for a command of client {number}", ~mine | (pending != 0))
        h.invariant(f"more to come of {number}", ~mine | received.last | (before != 0))
        h.invariant(f"next burst of {number}", ~o.valid | o.p.last | active)
        follows = Mux(comes, ~bursts.comes.last, bursts.follows[number])
        h.invariant(f"open {number}", ~follows | active | o.valid)
        ends = (bursts.lasts[number] != 0) | bursts.follows[number]
        h.invariant(f"ends {number}", (bursts.others[number] == 0) | ends)
        h.cover(f"last word {number}", mine & received.last & (pending == 2))


READ = "stagecoach.gateware.dma.read"
WRITE = "stagecoach.gateware.dma.write"

PROPERTIES = (
    Property(
        "dma.write.WriteEngine",
        "done comes for a command that was taken, once for each",
        in_harness(_write_engine),
        mutations=(
            Mutation(WRITE, "client.done.eq(mine & head.last)", "client.done.eq(mine)"),
            Mutation(WRITE, "mine = answered & (head.client == number)", "mine = answered"),
            Mutation(WRITE, "responses.level < MAX_OUTSTANDING_BURSTS - 1", "1"),
        ),
        depth=1,
        reached=8,
    ),
    Property(
        "dma.read.ReadEngine",
        "words come for a command that was taken, one last one for each",
        in_harness(_read_engine),
        mutations=(
            Mutation(
                READ, "received.last.eq(axi.rlast & head.last)", "received.last.eq(axi.rlast)"
            ),
            Mutation(READ, "arrival & (head.client == number)", "arrival"),
            Mutation(READ, "order.level < MAX_OUTSTANDING_BURSTS - 1", "1"),
            Mutation(READ, "order.r_en.eq(arrival & axi.rlast)", "order.r_en.eq(arrival)"),
        ),
        depth=1,
        reached=8,
    ),
)
