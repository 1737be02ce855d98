"""After a reset no visit comes to an end before the connection table has forgotten all.

The whole MPA receiver, without what only looks at bytes: none of that is relied on. The queues of
connections and of visits are any that give away nothing before something has come.
"""

from typing import Any

from amaranth.hdl import Signal

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.receive_table import Operation
from stagecoach.gateware.mpa.receiver import MpaReceiver
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.invariants import invariants
from stagecoach.hw.formal.property import Mutation, Property, in_harness

NAME = "mpa.receiver.MpaReceiver"


def _came(h: Harness, inside: Inside, name: str) -> Any:
    """Leave a FIFO out; whether anything has come to it since the reset."""
    queue, came = h.free_fifo(inside, name), Signal(name=f"came_{name}")
    with h.m.If(queue.w_en):
        h.m.d.sync += came.eq(1)
    h.assume(~queue.r_rdy | came)
    return came


def _build(h: Harness) -> None:
    inside = h.block(MpaReceiver(RnicConfig(qps=4)))
    scheduler, deframer = inside.child("scheduler"), inside.child("deframer")
    table, visits = scheduler.child("table"), scheduler.child("visits")
    for owner, names in (
        (inside, ("store", "order")),
        (deframer, ("aligner", "remover", "count", "segments", "releases")),
        (visits.child("requests"), ("answers",)),
    ):
        for name in names:
            h.free_part(owner, name)
    came = [_came(h, table, "waiting"), _came(h, visits.child("visits"), "fifo")]
    invariants(h, NAME, inside)

    clearing = table.signal("clearing")
    quiet = ~clearing
    h.check("no end waits for the table", quiet | ~visits.ports.end_waiting)
    h.check("no visit begins", quiet | ~table.ports.begun)
    for name, there in (
        ("may visit", table.signal("may_visit")),
        ("waiting", came[0]),
        ("begin", table.ports.begin.valid | table.child("begin").signal("spare_full")),
        ("requests", ~visits.child("requests").in_state("IDLE")),
        ("visits", came[1]),
        ("next", visits.child("next").ports.o.valid),
        ("deframer", deframer.signal("visiting")),
        ("left", deframer.signal("_left").any()),
    ):
        h.invariant(name, quiet | ~there)
    for name in ("_read", "_relate", "_decide"):
        operation = table.view(name, table.ports._item).operation
        h.invariant(name, quiet | (operation <= Operation.CLEAR))
    h.cover("cleared", quiet & visits.ports.end_waiting)


MPA = "stagecoach.gateware.mpa"

PROPERTIES = (
    Property(
        NAME,
        "no end of a visit waits for the table while that is cleared after a reset",
        in_harness(_build),
        mutations=(
            Mutation(f"{MPA}.deframer", "flush.eq(visiting & may_turn", "flush.eq(may_turn"),
            Mutation(f"{MPA}.receive_table", "second & may_visit & enough &", "second & enough &"),
            Mutation(
                f"{MPA}.receive_table",
                "decides.operation >= Operation.COMMAND.value",
                "decides.operation <= Operation.COMMAND.value",
            ),
        ),
        depth=1,
        reached=1,
        mutant_cycles=16,
    ),
)
