"""An event compares with a connection as RFC 9293, 3.10.7.4 and its neighbours say."""

from typing import Any

from amaranth.hdl import Value
from amaranth.sim import Simulator

from stagecoach.gateware.tcp.layouts import (
    TRANSMIT_SETTINGS,
    ack_event,
    due_layout,
    settled_layout,
)
from stagecoach.gateware.tcp.transmit_comparison import SEEN, TransmitComparison
from stagecoach.gateware.tcp.transmit_state import TRANSMIT_STATE
from stagecoach.sim.cosim.streams import pack, seeded_random, unpack

SPACE = 1 << 32
FAR = (1 << 31) - 1
"""The most that two numbers or times are apart: then the earlier one is known."""

BITS = 8
CASES = 400
CHALLENGE_PERIOD_US = 5_000_000  # RFC 5961, 7: counted anew every 5 s
AFTER_ONE_CYCLE = (
    *("newer", "same", "some", "all_acked", "beyond", "overtakes", "fresh", "acks_fin"),
    *("shut", "grown"),
)
FLAGS = [name for name in SEEN.members if SEEN[name].width == 1]


class Case:
    """Inputs, and how they compare; positions count from SND.UNA, times from now."""

    def __init__(self, rng: Any) -> None:
        def anything(layout: Any) -> Any:
            return unpack(layout, rng.getrandbits(layout.size))

        def near(*positions: int) -> int:
            return max(0, rng.choice(positions) + rng.randint(-1, 1))

        base = rng.choice([rng.getrandbits(32), SPACE - 1 - rng.randrange(4), 0])
        self.now = now = rng.choice([rng.getrandbits(32), rng.randrange(3), SPACE - 1])
        queued = rng.choice([0, 1, rng.randrange(1 << 30)])
        highest = rng.choice([0, queued, rng.randint(0, queued)])
        following = rng.choice([0, highest, rng.randint(0, highest)])
        ack = rng.choice([near(0, following, highest, queued), -1, FAR, -FAR, 0])
        timed_number = rng.choice([near(following, highest), ack, ack + 1])
        window_from, segment = rng.getrandbits(32), rng.choice([0, 1, -1, FAR, -FAR])
        shift = rng.choice([0, 14, rng.randrange(15)])
        window = rng.choice([0, 1, 0xFFFF, rng.getrandbits(16)])
        scaled = window * 2**shift
        known = rng.choice([scaled, near(scaled), rng.getrandbits(30)])
        largest = rng.choice([scaled, near(scaled), (1 << 30) - 1])
        announced, grown = rng.getrandbits(32), rng.choice([0, 1, rng.getrandbits(30)])
        shut = rng.getrandbits(1)
        late = {
            name: rng.choice([0, 1, -1, FAR, -FAR, rng.randrange(1000)])
            for name in ("resend", "acknowledge")
        }
        r2 = rng.choice([0, 1, (1 << 29) - 1, rng.getrandbits(29)])
        idle = rng.choice([r2, max(0, r2 - 1), r2 + 1, 0, SPACE - 1])
        challenged = rng.choice(
            [CHALLENGE_PERIOD_US + rng.randint(-1, 1), 0, SPACE - 1, rng.getrandbits(32)]
        )
        measured = rng.choice([0, 1, (1 << 29) - 1, rng.getrandbits(29)])
        delay = rng.choice([0, 1, (1 << 29) - 1, rng.getrandbits(29)])

        self.settings = anything(TRANSMIT_SETTINGS) | {"r2": r2, "delayed_ack": delay}
        self.ack = anything(ack_event(BITS)) | {
            "acknowledgment": (base + ack) % SPACE,
            "sequence": (window_from + segment) % SPACE,
            "window": window,
        }
        self.note = anything(settled_layout(BITS))
        self.note["note"] |= {
            "edge": (announced + grown) % SPACE,
            "number": (announced - (0 if shut else rng.randint(1, 1 << 30))) % SPACE,
        }
        self.due = anything(due_layout(BITS))
        self.state = state = anything(TRANSMIT_STATE)
        positions = {"una": 0, "next": following, "max": highest, "end": queued}
        state["numbers"] |= {name: (base + at) % SPACE for name, at in positions.items()}
        state["numbers"]["since"] = (now - idle) % SPACE
        state["path"]["shift"] = shift
        times, windows = state["times"], state["windows"]
        times |= {
            "timed_number": (base + timed_number) % SPACE,
            "timed_at": (now - measured) % SPACE,
            "challenged_at": (now - challenged) % SPACE,
        }
        for name, microseconds in late.items():
            times["deadlines"][name]["at"] = (now - microseconds) % SPACE
        windows |= {"window": known, "max_window": largest}
        windows |= {"window_from": window_from, "announced": announced}

        def has_come(name: str) -> bool:
            armed = times["deadlines"][name]["armed"]
            return bool(self.due[name] and armed and late[name] >= 0)

        self.seen = {
            "newer": ack > 0,
            "same": ack == 0,
            "some": highest > 0,
            "all_acked": ack >= highest,
            "beyond": ack > highest,
            "overtakes": ack > following,
            "fresh": segment >= 0,
            "sampled": bool(times["timed"]) and ack >= timed_number,
            "acks_fin": bool(state["numbers"]["closing"]) and ack > queued,
            "unchanged": scaled == known,
            "larger": scaled > largest,
            "shut": bool(shut),
            "resend_due": has_come("resend"),
            "ack_due": has_come("acknowledge"),
            "renews": challenged >= CHALLENGE_PERIOD_US,
            "gives_up": idle >= r2,
            "peer_window": scaled,
            "measured": measured,
            "delayed": (now + delay) % SPACE,
            "grown": grown,
        }
        # Nothing is known of numbers that are further apart.
        if abs(ack - highest) > FAR:
            del self.seen["all_acked"], self.seen["beyond"]
        for name, position in {
            "overtakes": following,
            "sampled": timed_number,
            "acks_fin": queued,
        }.items():
            if abs(ack - position) > FAR:
                del self.seen[name]


def test_events_at_random() -> None:
    """All is known after two cycles, what is not of times or of the scaled window after one."""
    dut, rng = TransmitComparison(BITS), seeded_random()
    counts = dict.fromkeys(FLAGS, 0)
    layouts = {
        "state": TRANSMIT_STATE,
        "settings": TRANSMIT_SETTINGS,
        "ack": ack_event(BITS),
        "note": settled_layout(BITS),
        "due": due_layout(BITS),
    }

    async def bench(ctx: Any) -> None:
        def disturb() -> None:
            ctx.set(dut.now, rng.getrandbits(32))
            for name, layout in layouts.items():
                ctx.set(Value.cast(getattr(dut, name)), rng.getrandbits(layout.size))

        for _ in range(CASES):
            disturb()
            ctx.set(dut.compares, 1)
            await ctx.tick()
            case = Case(rng)
            ctx.set(dut.now, case.now)
            for name, layout in layouts.items():
                ctx.set(Value.cast(getattr(dut, name)), pack(layout, getattr(case, name)))
            await ctx.tick()
            seen = unpack(SEEN, ctx.get(Value.cast(dut.seen)))
            for name in AFTER_ONE_CYCLE:
                assert seen[name] == case.seen.get(name, seen[name]), name
            await ctx.tick()
            ctx.set(dut.compares, 0)
            seen = unpack(SEEN, ctx.get(Value.cast(dut.seen)))
            assert {name: seen[name] for name in case.seen} == case.seen
            # It stays whatever comes then.
            disturb()
            await ctx.tick().repeat(2)
            assert unpack(SEEN, ctx.get(Value.cast(dut.seen))) == seen
            for name in FLAGS:
                counts[name] += seen[name]

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert all(CASES // 40 < count < CASES for count in counts.values()), counts
