"""A connection and an event, and what the plan has to say of them."""

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

from amaranth.hdl import Value
from amaranth.sim import Simulator

from stagecoach.gateware.tcp.layouts import (
    TRANSMIT_SETTINGS,
    Due,
    NoticeKind,
    ack_event,
    due_layout,
    fpdu_layout,
    settled_layout,
    transmit_command,
)
from stagecoach.gateware.tcp.transmit_plan import TO_DO, TransmitPlan
from stagecoach.gateware.tcp.transmit_state import TRANSMIT_STATE
from stagecoach.gateware.tcp.transmit_turn import TransmitKind
from stagecoach.sim.cosim.streams import pack, unpack

SPACE = 1 << 32
BITS = 8
MSS = 1460

PERIOD_US = 5_000_000  # of challenges (RFC 5961, 7)
MOST_CHALLENGES = 5
R2_US = 100_000_000
R1 = 3  # retransmissions (RFC 9293, 3.8.3)
DELAY_US = 40_000
QUEUED, SENT, RESENT = 5000, 3000, 1000
"""Positions from SND.UNA on: of the end of all bytes, of SND.MAX and of SND.NXT."""

LAYOUTS = {
    "ack": ack_event(BITS),
    "note": settled_layout(BITS),
    "due": due_layout(BITS),
    "fpdu": fpdu_layout(BITS),
    "command": transmit_command(BITS),
}


def anything(rng: Any, layout: Any) -> Any:
    return unpack(layout, rng.getrandbits(layout.size))


class Case:
    """A connection that is alive and has sent, an event, and what has to come of it.

    It has sent SND.MAX, and is at SND.NXT again; nothing is closed, nothing is due.
    """

    def __init__(self, rng: Any, kind: TransmitKind) -> None:
        self.kind = kind
        self.base = rng.choice([rng.getrandbits(32), SPACE - 1, SPACE - SENT, 0])
        self.now = rng.choice([rng.getrandbits(32), 0, SPACE - 1])
        self.events = {name: anything(rng, layout) for name, layout in LAYOUTS.items()}
        self.settings = anything(rng, TRANSMIT_SETTINGS)
        self.settings |= {"r2": R2_US, "delayed_ack": DELAY_US}
        self.state = state = anything(rng, TRANSMIT_STATE)
        self.numbers, self.windows = state["numbers"], state["windows"]
        self.path, self.times = state["path"], state["times"]
        self.deadlines = self.times["deadlines"]
        self.numbers |= {"una": self.at(0), "next": self.at(RESENT), "max": self.at(SENT)}
        self.numbers |= {"end": self.at(QUEUED), "since": self.ago(R2_US - 1), "retries": 1}
        self.numbers |= dict.fromkeys(("alive", "attached"), 1)
        off = ("closing", "passive", "peer_fin", "fin_acknowledged", "probed", "persists")
        self.numbers |= dict.fromkeys((*off, "unacknowledged"), 0)
        self.numbers["emss"] = MSS
        self.path |= {"shift": 7, "challenges": 1}
        self.times |= {"timed": 0, "challenged_at": self.ago(PERIOD_US - 1)}
        self.deadlines["resend"] = {"armed": 1, "at": self.ago(-1)}
        self.deadlines["acknowledge"] = {"armed": 0, "at": self.ago(0)}
        self.windows |= {"window": 100 << 7, "max_window": 200 << 7}
        self.windows |= {"edge": self.at(0), "announced": self.at(0)}
        # The window as it was; an ACK of nothing new.
        self.ack, self.due = self.events["ack"], self.events["due"]
        self.ack |= {"acknowledges": 1, "acknowledgment": self.at(0), "window": 100}
        self.ack |= {"sequence": self.windows["window_from"]}
        self.ack |= dict.fromkeys(("empty", "fin", "reset", "lost", "challenge"), 0)
        self.note = self.events["note"]["note"]
        self.events["note"]["failed"] = 0
        self.note |= {"due": Due.NONE.value, "fin": 0, "edge": self.at(0), "number": self.at(-MSS)}
        self.due |= {"resend": 0, "acknowledge": 0}
        self.fpdu, self.command = self.events["fpdu"], self.events["command"]
        self.fpdu |= {"octets": 64, "close": 0}
        self.command |= {"emss": MSS, "octets": 64}

        self.to_do: set[str] = set()
        self.cause: NoticeKind | None = None
        self.after: list[tuple[tuple[str, ...], int | None]] = []

    def at(self, position: int) -> int:
        return (self.base + position) % SPACE

    def ago(self, microseconds: int) -> int:
        return (self.now - microseconds) % SPACE

    def wants(self, to_do: str, cause: NoticeKind | None = None) -> None:
        self.to_do |= set(to_do.split())
        if cause is not None:
            self.to_do.add("ends")
            self.cause = cause

    def becomes(self, **fields: int | None) -> None:
        """Changes; `None`: of that nothing is said."""
        self.after += [(tuple(name.split("__")), value) for name, value in fields.items()]

    def expected(self, found: Any) -> Any:
        state = deepcopy(self.state)
        for names, value in self.after:
            part, is_now = state, found
            for name in names[:-1]:
                part, is_now = part[name], is_now[name]
            part[names[-1]] = is_now[names[-1]] if value is None else value
        return state


Change = Callable[[Case], None]

CASES: list[tuple[str, TransmitKind, Change]] = []


def case(kind: TransmitKind) -> Callable[[Change], Change]:
    def keep(change: Change) -> Change:
        CASES.append((change.__name__, kind, change))
        return change

    return keep


def check(cases: Iterable[Case], rng: Any) -> None:
    """All inputs but windows are there for two cycles, those for one; then the plan is read."""
    dut = TransmitPlan(BITS, MSS)

    async def bench(ctx: Any) -> None:
        state, seen = Value.cast(dut.state), Value.cast(dut.seen)
        for each in cases:
            ctx.set(dut.compares, 1)
            ctx.set(dut.kind, each.kind)
            ctx.set(dut.now, each.now)
            ctx.set(Value.cast(dut.settings), pack(TRANSMIT_SETTINGS, each.settings))
            for name, layout in LAYOUTS.items():
                ctx.set(Value.cast(getattr(dut, name)), pack(layout, each.events[name]))
            early = dict(each.state, windows=anything(rng, TRANSMIT_STATE["windows"].shape))
            ctx.set(state, pack(TRANSMIT_STATE, early))
            await ctx.tick()
            ctx.set(state, pack(TRANSMIT_STATE, each.state))
            await ctx.tick()
            ctx.set(dut.compares, 0)
            compared = ctx.get(seen)
            for _ in range(2):
                to_do = unpack(TO_DO, ctx.get(Value.cast(dut.to_do)))
                cause = to_do.pop("cause")
                assert {name for name, is_set in to_do.items() if is_set} == each.to_do
                assert each.cause is None or NoticeKind(cause) is each.cause
                found = unpack(TRANSMIT_STATE, ctx.get(Value.cast(dut.state_after)))
                assert found == each.expected(found)
                assert ctx.get(seen) == compared
                await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
