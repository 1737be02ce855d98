"""The states of a QP and what moves it, found by running the block that knows them."""

import itertools
from typing import Any

from amaranth.sim import Simulator

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import QpCommandKind
from stagecoach.gateware.queues.qp_states import QpState, QpStates
from stagecoach.hw.interface.causes import Cause
from tools.figures.svg import HOST, MUTED, PAPER, RECEIVE, TRANSMIT, WIRE, Drawing, width_of

ERROR = "an error"
COMMANDS = ("CREATE", "CONNECT", "STOP", "DESTROY")
REACHED = {
    "RESET": ("DESTROY",),
    "INIT": ("CREATE",),
    "RTS": ("CREATE", "CONNECT"),
    "ERROR": ("CREATE", "STOP"),
}
"""Commands that bring a QP, from RESET on, into each state."""
_LOOKS = {
    "RESET": (HOST, "unused"),
    "INIT": (TRANSMIT, "rings are read ahead"),
    "RTS": (RECEIVE, "sends and receives"),
    "ERROR": (WIRE, "work is flushed"),
}
_TOP = 108
_EVENT_CYCLES = 24
"""More than a command or an error takes (`QpStates`)."""


def steps() -> dict[tuple[str, str], list[str]]:
    """What moves a QP from one state into another; what changes nothing is left out."""
    block = QpStates(RnicConfig(qps=2), errors=1)
    found: dict[tuple[str, str], list[str]] = {}

    async def command(context: Any, kind: str) -> None:
        context.set(block.qp_command.payload.kind, getattr(QpCommandKind, kind))
        context.set(block.qp_command.valid, 1)
        while not context.get(block.qp_command.ready):
            await context.tick()
        await context.tick()
        context.set(block.qp_command.valid, 0)

    async def error(context: Any) -> None:
        context.set(block.errors[0].payload.cause, Cause.CRC_ERROR)
        context.set(block.errors[0].valid, 1)
        while not context.get(block.errors[0].ready):
            await context.tick()
        await context.tick()
        context.set(block.errors[0].valid, 0)
        await context.tick().repeat(_EVENT_CYCLES)

    async def run(context: Any) -> None:
        context.set(block.event.ready, 1)
        context.set(block.termination.ready, 1)
        for before, move in itertools.product(REACHED, (*COMMANDS, ERROR)):
            await command(context, "DESTROY")
            for kind in REACHED[before]:
                await command(context, kind)
            await context.tick().repeat(4)
            assert QpState(context.get(block.query_state)).name == before
            await (error(context) if move == ERROR else command(context, move))
            await context.tick().repeat(4)
            after = QpState(context.get(block.query_state)).name
            if after != before:
                found.setdefault((before, after), []).append(move)

    simulator = Simulator(block)
    simulator.add_clock(1e-8)
    simulator.add_testbench(run)
    simulator.run()
    return found


def qp_states() -> str:
    """The states in a row: steps forward above them, steps back below."""
    d = Drawing(1000, 380, "The states of a QP")
    names = list(REACHED)
    middle = {name: 110 + 260 * number for number, name in enumerate(names)}
    for name, x in middle.items():
        fill, note = _LOOKS[name]
        d.box(x - 74, _TOP, 148, 56, fill, name, note)
    d.label(20, 24, "From the gateware: commands of the driver in capitals.")
    moves = steps()
    # The shortest steps are nearest to the states.
    order = sorted(moves, key=lambda move: abs(names.index(move[0]) - names.index(move[1])))
    height = {True: 0, False: 0}
    for before, after in order:
        distance = names.index(after) - names.index(before)
        words = ", ".join(moves[before, after])
        start, end = middle[before], middle[after]
        if distance == 1:
            d.arrow((start + 74, _TOP + 28), (end - 74, _TOP + 28))
            d.text((start + end) / 2, _TOP + 18, words, 12, MUTED)
            continue
        forward = distance > 0
        height[forward] += 1
        level = _TOP - 34 * height[True] if forward else _TOP + 56 + 38 * height[False]
        edge = _TOP if forward else _TOP + 56
        # Steps out of a box, and into it, do not share a line.
        first = start + (14 if forward else -10 * height[False])
        last = end + (-14 if forward else 12 * (height[False] - 2))
        d.arrow((first, edge), (first, level), (last, level), (last, edge))
        half = width_of(words, 12) / 2 + 4
        at = (first + last) / 2
        d.rectangle(at - half, level - 8, 2 * half, 16, PAPER, PAPER)
        d.text(at, level + 4, words, 12, MUTED)
    return d.svg()
