"""Segments keep their boundaries, go as windows allow, and say what they have to."""

from collections import Counter
from typing import Any

import pytest
from amaranth.hdl import Value
from amaranth.sim import Simulator

from stagecoach.gateware.tcp.layouts import SendKind, fpdu_layout, send_job
from stagecoach.gateware.tcp.segment_list import PLACES, SEGMENTS, SegmentOperation
from stagecoach.gateware.tcp.transmit_plan import TO_DO
from stagecoach.gateware.tcp.transmit_segment import TransmitSegment
from stagecoach.gateware.tcp.transmit_state import TRANSMIT_STATE
from stagecoach.sim.cosim.streams import pack, seeded_random, unpack
from stagecoach.sim.model.tcp.segment import Flags

SPACE = 1 << 32
SMALLEST, LARGEST = 2, 256
LONGEST = (1 << 14) - 1
WINDOW_MOST = 1 << 30
LIMIT_CYCLES, LIST_CYCLES, CYCLES = 2, 3, 5
"""That `limit` is held, and until the outputs of the list, and all of them, are good."""

STEPS = 700
EVENTS = (
    *("fpdu", "fpdu", "fpdu", "driver", "new", "new", "new", "new"),
    *("ack", "ack", "again", "probe", "probe", "answer"),
)
Operation = SegmentOperation


class Connection:
    """Positions from the first byte on, boundaries of segments, and the row of the list."""

    def __init__(self, rng: Any, number: int) -> None:
        self.connection = number
        self.base = rng.choice([0, SPACE - 1, SPACE - 30_000, rng.getrandbits(32)])
        self.emss = rng.choice([1, 536, 1460, LONGEST])
        self.una = self.next = self.max = self.end = 0
        self.closing = 0
        self.segments: list[list[int]] = []  # start, end, whether it consists of FPDUs
        place = rng.randrange(PLACES)
        self.row: Any = dict.fromkeys(("first", "current", "head"), place)
        self.row |= dict.fromkeys(("first_start", "current_start"), self.base)

    def at(self, position: int) -> int:
        return (self.base + position) % SPACE

    def rest(self, position: int) -> int:
        """Bytes of the segment from a position in it on."""
        return next((end - position for _, end, _ in self.segments if position < end), 0)


class Bench:
    """The block, and what it has to say."""

    def __init__(self, ctx: Any, dut: TransmitSegment, rng: Any, connections: int) -> None:
        self.ctx, self.dut, self.rng = ctx, dut, rng
        self.bits = (connections - 1).bit_length()
        self.seen: Counter[str] = Counter()

    async def begin(
        self, c: Connection, operation: Operation, position: int, work: Any = (), **inputs: int
    ) -> None:
        """The inputs, until the outputs of the list are good; those that are not named vary."""
        ctx, dut, rng = self.ctx, self.dut, self.rng
        state = unpack(TRANSMIT_STATE, rng.getrandbits(TRANSMIT_STATE.size))
        state["numbers"] |= {name: c.at(getattr(c, name)) for name in ("una", "max", "end")}
        state["numbers"] |= {"next": c.at(c.next), "closing": c.closing, "emss": c.emss}
        state["path"]["segments"] = c.row
        self.fpdu = unpack(fpdu_layout(self.bits), rng.getrandbits(fpdu_layout(self.bits).size))
        self.fpdu["octets"] = inputs.pop("fpdu", self.fpdu["octets"])
        for name in ("window", "max_window"):
            state["windows"][name] = inputs.pop(name, 0)
        values = {"octets": rng.randint(1, LONGEST), "of_fpdu": 0, "crowded": rng.getrandbits(1)}
        values |= {"limit": rng.getrandbits(32), "bare": 0, "answers": 0, "take": 0}
        values |= {"outstanding": c.una != c.max, "stored": rng.getrandbits(1), **inputs}
        self.stored = values["stored"]
        ctx.set(Value.cast(dut.state), pack(TRANSMIT_STATE, state))
        await ctx.tick()  # it is there before the others
        ctx.set(Value.cast(dut.fpdu), pack(fpdu_layout(self.bits), self.fpdu))
        ctx.set(Value.cast(dut.work), pack(TO_DO, dict.fromkeys(work, 1)))
        ctx.set(dut.operation, operation)
        ctx.set(dut.connection, c.connection)
        ctx.set(dut.number, c.at(position))
        for name, value in values.items():
            ctx.set(getattr(dut, name), value)
        await ctx.tick().repeat(LIMIT_CYCLES)
        ctx.set(dut.limit, rng.getrandbits(32))  # it counted
        await ctx.tick().repeat(LIST_CYCLES - LIMIT_CYCLES)

    def row(self) -> Any:
        return unpack(SEGMENTS, self.ctx.get(Value.cast(self.dut.segments_after)))

    def check_job(
        self, c: Connection, sequence: int, octets: int, flags: int, **others: int
    ) -> None:
        job = unpack(send_job(self.bits), self.ctx.get(Value.cast(self.dut.job)))
        del job["again"]  # the caller says it
        payload = SendKind.STORE if self.stored else SendKind.RING
        assert job == {
            "connection": c.connection,
            "kind": (payload if octets else SendKind.NOTHING).value,
            "sequence": c.at(sequence),
            "octets": octets,
            "sum": self.fpdu["sum"],
            "flags": flags,
            **{"blocks": 0, "needed": 1, **others},
        }

    async def append(self, c: Connection, octets: int, is_fpdu: bool) -> None:
        """An FPDU joins the last segment if that waits and has room (RFC 5044, 5)."""
        await self.begin(c, Operation.APPEND, c.max, octets=octets, of_fpdu=is_fpdu)
        last = c.segments[-1] if c.segments else None
        if is_fpdu and last and last[2] and last[0] >= max(c.max, c.next) and last[0] >= c.una:
            joins = last[1] - last[0] + octets <= c.emss
        else:
            joins = False
        if joins and last:
            last[1] += octets
        else:
            c.segments.append([c.end, c.end + octets, is_fpdu])
        assert self.ctx.get(self.dut.free) == PLACES - 1 - len(c.segments)
        self.ctx.set(self.dut.take, 1)
        c.row, c.end = self.row(), c.end + octets
        await self.ctx.tick()
        self.ctx.set(self.dut.take, 0)
        self.seen["joins"] += joins

    async def acknowledge(self, c: Connection, position: int) -> None:
        """Whole segments are freed, two at a time."""
        more, c.una, c.next = 1, position, max(c.next, position)
        while more:
            await self.begin(c, Operation.FREE, position)
            c.row, more = self.row(), self.ctx.get(self.dut.more)
            freed = [each for each in c.segments[:2] if each[1] <= position]
            del c.segments[: len(freed)]
            assert self.ctx.get(self.dut.free) == PLACES - 1 - len(c.segments)
            assert more or not c.segments or c.segments[0][1] > position
            self.seen["more"] += more

    async def send(self, c: Connection, work: str | None = None, **inputs: int) -> None:
        """RFC 9293, 3.8.6.2.1; and again what was sent, whatever windows are."""
        ctx, dut, rng = self.ctx, self.dut, self.rng
        again, probes = work == "resends", work == "probes"
        position = c.una if again else c.next
        full, waits = min(c.rest(position), c.emss), c.end - position
        if again:
            full = min(full, c.max - c.una)
        flight = position - c.una
        window, limit = (
            max(
                0,
                flight
                + rng.choice([0, 1, full - 1, full, full + 1, full // 2, -1, 20_000, 40_000]),
            )
            for _ in range(2)
        )
        window = 0 if probes and rng.getrandbits(1) else rng.choice([window, WINDOW_MOST])
        limit = rng.choice([limit, WINDOW_MOST])
        largest = max(window, rng.choice([2 * full, 2 * full + 1, window, WINDOW_MOST]))
        crowded = rng.getrandbits(1)
        await self.begin(
            c,
            Operation.RESEND if again else Operation.SEND,
            position,
            [work] if work else [],
            **{"window": window, "max_window": largest, "limit": limit, "crowded": crowded},
            **inputs,
        )
        await ctx.tick().repeat(CYCLES - LIST_CYCLES)

        usable = (window if probes else min(limit, window)) - flight
        octets = full if again else max(0, min(full, usable))
        whole = octets == full and (again or usable >= 0)
        last = whole and full == waits
        fin = 0
        if again:
            fin, sends = c.closing and last and c.max > position + octets, True
        elif probes:
            sends = octets > 0
        else:
            fin = c.closing and last and octets < window - flight
            sends = fin or (octets > 0 and (whole or 2 * octets >= largest))
            # Nothing joins the last segment of what is closed.
            if crowded and c.una != c.max and not c.closing and last:
                sends = False
                self.seen["held"] += 1
        following = position + octets + fin
        found = {
            name: ctx.get(getattr(dut, name))
            for name in ("sends", "sent", "whole", "following", "advances", "ends", "fpdu_alone")
        }
        is_fpdu = inputs.get("of_fpdu", 0)
        assert found == {
            "sends": bool(sends),
            "sent": octets,
            "whole": whole,
            "following": c.at(following),
            "advances": following > c.max,
            "ends": last and (fin or not c.closing),
            "fpdu_alone": bool(is_fpdu and last and octets == inputs["fpdu"]),
        }
        self.seen["alone"] += found["fpdu_alone"]
        self.seen[work or "new"] += 1
        self.seen["fin"] += fin
        if sends:
            flags = Flags.ACK | (Flags.PSH if octets and last else 0) | (Flags.FIN if fin else 0)
            self.check_job(c, position, octets, int(flags))
            if not again or rng.getrandbits(1):
                c.row = self.row() if whole else c.row
                c.next = following
            c.max = max(c.max, following)
        elif probes and (waits or c.closing):
            # One byte, or FIN alone, whatever the window is.
            ctx.set(dut.bare, 1)
            flags = Flags.ACK | (Flags.PSH if waits == 1 else 0) | (0 if waits else Flags.FIN)
            self.check_job(c, position, int(waits > 0), int(flags))
            self.seen["bare"] += 1

    async def answer(self, c: Connection) -> None:
        """A segment without data, after all that was sent (RFC 9293, 3.10.7.4): at once."""
        resets, insists = self.rng.getrandbits(1), self.rng.getrandbits(1)
        work = [name for name, is_set in (("resets", resets), ("insists", insists)) if is_set]
        await self.begin(c, Operation.SEND, self.rng.choice([c.una, c.next]), work, answers=1)
        flags = Flags.ACK | (Flags.RST if resets else 0)
        others = {"blocks": 1 - resets, "needed": resets | insists}
        self.check_job(c, c.max, 0, int(flags), **others)


@pytest.mark.parametrize("connections", [SMALLEST, LARGEST])
def test_connections_by_turns(connections: int) -> None:
    """Each sends, is acknowledged, and sends again; then another one has its number."""
    dut, rng = TransmitSegment(connections), seeded_random(connections)
    seen: Counter[str] = Counter()

    async def run(ctx: Any) -> None:
        bench = Bench(ctx, dut, rng, connections)
        bench.seen = seen
        numbers = [0, connections - 1]
        known = {number: Connection(rng, number) for number in numbers}
        for _ in range(STEPS):
            number = rng.choice(numbers)
            if rng.random() < 0.02:
                known[number] = Connection(rng, number)
            c = known[number]
            what = rng.choice(EVENTS)
            if what in ("fpdu", "driver") and not c.closing and len(c.segments) < PLACES - 1:
                octets = rng.choice([1, c.emss, rng.randint(1, c.emss), min(2 * c.emss, LONGEST)])
                await bench.append(c, octets, what == "fpdu")
                if what == "fpdu" and rng.random() < 0.7:
                    await bench.send(c, of_fpdu=1, fpdu=octets)
                c.closing = int(rng.random() < 0.1)
            elif what == "ack" and c.max > c.una:
                await bench.acknowledge(c, rng.choice([c.max, rng.randint(c.una + 1, c.max)]))
                if c.una > c.end:  # of FIN
                    known[c.connection] = Connection(rng, c.connection)
            elif what == "new" and c.next <= c.end:
                await bench.send(c)
            elif what == "again" and c.max > c.una:
                await bench.send(c, "resends")
            elif what == "probe" and c.una == c.max:
                await bench.send(c, "probes")
            elif what == "answer":
                await bench.answer(c)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(run)
    simulator.run()
    names = ("joins", "more", "new", "resends", "probes", "bare", "held", "fin", "alone")
    assert all(seen[name] for name in names), seen
