"""Each QP sees the entries of its ring, or a shared one, and keeps what its message has taken."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpCommandKind
from stagecoach.gateware.queues.shared_entries import LOOKUP, SharedEntries
from stagecoach.sim.cosim.streams import StreamSource, seeded_random, start_clock_and_reset
from tests.support.runner import parameter, run_cocotb

MOD = 1 << 16
WORDS = 8
ROUNDS, SEGMENTS = 6, 250
ANSWERS = ("level", "posted", "index", "failed", "word")
READ = WORDS + LOOKUP
"""Cycles from the first question to that after the last word."""


@pytest.mark.parametrize("qps", [2, 256])
def test_shared_entries(qps: int) -> None:
    block = SharedEntries(RnicConfig(qps=qps), WORDS)
    run_cocotb(block, __name__, parameters={"QPS": str(qps)})


@dataclass
class Ring:
    """A ring as the fetcher shows it."""

    index: int = 0
    entries: deque[list[int]] = field(default_factory=deque)
    level: int = 0
    failed: bool = False
    limit: int = 0
    used: bool = False


@dataclass
class Qp:
    """A QP, the entry that it holds, and the number of one that is not delivered."""

    ring: int
    shared: bool
    held: tuple[int, list[int]] | None = None
    open: int | None = None


class Bench:
    """Drives the consumer and the rings a cycle at a time, and checks what is said."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.qps = int(parameter("QPS"))
        self.rng = seeded_random(self.qps)
        self.rings = [Ring() for _ in range(self.qps)]
        self.all = [Qp(number, False) for number in range(self.qps)]
        self.layout = Layouts(RnicConfig(qps=self.qps)).qp_command
        self.commands = StreamSource(dut, "qp_command", self.layout)
        self.given: deque[dict[str, int]] = deque()
        self.qp = 0
        self.answers: deque[dict[str, int]] = deque([{}, {}])
        self.queries: deque[tuple[int | None, bool]] = deque([(None, False)] * 2)
        self.reached: deque[set[int]] = deque([set(), set()])  # of this cycle and the next one
        self.popped: tuple[int, int] | None = None  # in the cycle before: ring, entries before it
        # In the two cycles before: an entry of a shared ring was popped; one was used.
        self.ended = deque([(False, False)] * 2, 2)
        self.undelivered: deque[int] = deque()
        self.delivering: int | None = None  # in the cycle before
        self.last_coming = 0
        self.coming = 0  # the QP that is selected in the next cycle
        self.changing = False
        self.shared: list[int] = []
        self.seen: set[Any] = set()
        for name in ("pop", "popping", "keep", "select", "arriving", "stays", "word_address"):
            getattr(dut, f"entries__{name}").value = 0
        dut.delivered__valid.value = dut.query_qp.value = 0

    def command(self, kind: QpCommandKind, qp: int, **fields: int) -> None:
        self.given.append({"kind": kind.value, "qp": qp} | fields)
        noise = {"pd": self.rng.getrandbits(16), "limit": self.rng.getrandbits(16)}
        self.commands.put(noise | self.given[-1])

    async def cycle(
        self,
        address: int = 0,
        *,
        pop: bool = False,
        keep: bool = False,
        arriving: int | None = None,
        delivers: int | None = None,
    ) -> dict[str, int]:
        """One cycle in which QP `self.qp` is selected; what is said of two cycles ago."""
        dut, rng = self.dut, self.rng
        arriving = self.qp if arriving is None else arriving
        stays = arriving == self.coming and not self.changing and rng.random() < 0.5
        dut.entries__select.value, dut.entries__stays.value = self.qp, int(stays)
        dut.entries__arriving.value = rng.randrange(self.qps) if stays else arriving
        self.coming = arriving
        dut.entries__word_address.value = address
        dut.entries__pop.value = dut.entries__popping.value = int(pop)
        dut.entries__keep.value = int(keep)
        dut.delivered__valid.value = int(delivers is not None)
        dut.delivered__qp.value = rng.randrange(self.qps) if delivers is None else delivers
        asked = rng.randrange(self.qps)
        dut.query_qp.value = asked
        for name, value in self.answers.popleft().items():
            getattr(dut, f"rings__{name}").value = value
        await RisingEdge(dut.clk)

        # The rings, and what the block asks them
        number = int(dut.rings__select.value)
        assert number == self.last_coming
        assert self.changing or number == self.all[self.qp].ring
        self.last_coming = int(dut.rings__coming.value)
        ring, qp = self.rings[number], self.all[self.qp]
        at = int(dut.rings__word_address.value)
        self.answers.append(
            {
                "level": ring.level,
                "posted": len(ring.entries),
                "index": ring.index,
                "failed": int(ring.failed),
                "word": ring.entries[0][at] if ring.level else rng.getrandbits(64),
            }
        )
        # What is told of limits, and of what was taken two cycles ago
        now = self.reached.popleft()
        self.reached.append(set())
        told = {int(dut.reached__qp.value)} if dut.reached__valid.value else set()
        assert told == now
        self.seen |= {("reached", len(now))}
        index, is_open = self.queries.popleft()
        if index is not None:
            assert dut.taken.value == is_open
            assert not is_open or dut.taken_index.value == index
        known = self.all[asked]
        self.queries.append((known.open or 0, known.open is not None))
        said = {name: int(getattr(dut, f"entries__{name}").value) for name in (*ANSWERS, "shared")}
        self._pops(ring, number, qp, pop, keep, delivers)
        return said

    def _pops(
        self, ring: Ring, number: int, qp: Qp, pop: bool, keep: bool, delivers: int | None
    ) -> None:
        """What comes of a cycle."""
        dut, rng = self.dut, self.rng
        # A pop of the cycle before is compared with the limit as it is now, a cycle later.
        if self.popped is not None:
            last, there = self.popped
            if there <= self.rings[last].limit:
                self.rings[last].limit = 0
                self.reached[1].add(last)
        self.popped = None
        takes = qp.shared and qp.held is None and (pop or keep)
        popping = takes or (pop and not qp.shared)
        assert dut.rings__pop.value == dut.rings__popping.value == popping
        if popping:
            entry = ring.entries.popleft()
            taken = ring.index, entry
            if takes:
                self.popped = number, len(ring.entries) + 1
                qp.held, qp.open = taken, ring.index
            ring.index = (ring.index + 1) % MOD
            if not ring.index:
                self.seen.add("wraps")
            ring.level -= 1
            ring.used = True
        if pop:
            qp.held = None
            if qp.shared:
                self.undelivered.append(self.qp)
        # A delivery is known a cycle later.
        if self.delivering is not None:
            self.all[self.delivering].open = None
        self.delivering = delivers
        # Commands
        taken_now = dut.qp_command__valid.value and dut.qp_command__ready.value
        if taken_now:
            assert not pop and not keep
            command = self.given.popleft()
            target = self.rings[command["qp"]]
            if command["kind"] == QpCommandKind.CREATE.value:
                shared = bool(command["shared"])
                self.all[command["qp"]] = Qp(command["ring"] if shared else command["qp"], shared)
            elif command["kind"] == QpCommandKind.RING_CREATE.value:
                assert not self.ended[0][0] and not self.ended[1][1]
                target.limit = 0
            elif command["kind"] == QpCommandKind.RING_LIMIT.value:
                assert not self.ended[0][0] and not self.ended[1][1]
                left = (command["producer"] - target.index) % MOD
                below = left < command["limit"]
                target.limit = 0 if below else command["limit"]
                if below:
                    self.reached[0].add(command["qp"])
                self.seen.add(("limit", below))
        self.ended.append((takes, pop or keep))
        # The fetcher goes on.
        for one in self.rings:
            if one.level < len(one.entries) and not one.failed and rng.random() < 0.1:
                one.level += 1

    # What the consumer does

    async def settle(self) -> None:
        """Until all commands were taken; where the selected QP takes from changes meanwhile."""
        self.changing = True
        while self.given:
            await self.cycle()
        for _ in range(4):
            await self.cycle()
        self.changing = False

    async def begin_round(self, used: list[int]) -> None:
        """Other rings, some of which are shared by several QPs."""
        rng = self.rng
        self.undelivered.clear()
        self.delivering = None
        self.shared = rng.sample(used, len(used) // 2)
        for number in used:
            index = rng.choice([0, MOD - 30])
            self.rings[number] = Ring(index, limit=self.rings[number].limit)
            if number in self.shared:
                self.command(QpCommandKind.RING_CREATE, number)
            takes = number in self.shared or rng.random() < 0.4
            ring = rng.choice(self.shared)
            self.command(QpCommandKind.CREATE, number, shared=int(takes), ring=ring)
        await self.settle()

    def end_message(self) -> int | None:
        """A QP whose message is delivered: before its next one ends, or never if that failed."""
        number = self.qp if self.qp in self.undelivered else None
        if number is None and self.undelivered and self.rng.random() < 0.5:
            number = self.rng.choice(list(self.undelivered))
        if number is None:
            return None
        self.undelivered.remove(number)
        return number if self.rng.random() < 0.9 else None

    async def select(self, number: int) -> None:
        for _ in range(2):
            await self.cycle(arriving=number)
        self.qp = number

    def post(self, ring: Ring) -> None:
        """Perhaps posts entries, or has the ring fail; and perhaps gives some ring a limit."""
        rng = self.rng
        if rng.random() < 0.3:
            for _ in range(rng.randint(1, 3)):
                ring.entries.append([rng.getrandbits(64) for _ in range(WORDS)])
            ring.failed |= rng.random() < 0.01
        one = rng.choice(self.shared)
        bound = self.rings[one]
        if bound.used and rng.random() < 0.1 and not self.given:
            limit = rng.choice([0, 1, 5, MOD - 1])
            producer = (bound.index + len(bound.entries)) % MOD
            self.command(QpCommandKind.RING_LIMIT, one, limit=limit, producer=producer)

    async def segment(self, following: int) -> None:
        """The QP that is selected looks, reads, and takes an entry or not; then the next one."""
        rng, qp = self.rng, self.all[self.qp]
        ring, held = self.rings[qp.ring], qp.held is not None
        self.post(ring)
        free = qp.shared and not held
        asked = LOOKUP + 1  # words since the scan began
        for address in range(asked):
            said = await self.cycle(address, delivers=self.end_message() if not address else None)
        waits = 0
        while not said["level"] and waits < 20:
            said, waits, asked = await self.cycle(), waits + 1, 0
            assert said["failed"] == (free and ring.failed)
        assert said["shared"] == free
        if not said["level"]:
            self.seen.add("failed" if said["failed"] else "none")
            await self.select(following)
            return
        number, words = qp.held or (ring.index, ring.entries[0])
        assert said["index"] == number
        assert said["level"] == 1 or not held
        assert said["posted"] == (1 if held else len(ring.entries))
        # It reads all that is needed for what it does.
        what = rng.choice(["pop", "keep", "leave"])
        whole = (what == "keep" and free) or rng.random() < 0.3
        until = READ if whole else rng.randint(0, READ)
        # The next segment may be selected already in the cycle after this one ends.
        late = what == "leave" or rng.random() < 0.3
        told = self.qp if late else following
        while asked < until:
            address = asked if asked < WORDS else 0
            said = await self.cycle(address, arriving=told if asked == until - 1 else None)
            if asked >= LOOKUP:
                assert said["word"] == words[asked - LOOKUP]
            asked += 1
        if self.coming != told:
            await self.cycle(arriving=told)
        self.seen.add((qp.shared, "held" if held and what != "leave" else what))
        if what == "leave":
            await self.select(following)
            return
        await self.cycle(pop=what == "pop", keep=what == "keep", arriving=told)
        if late:
            await self.select(following)
        else:
            self.qp = following


@cocotb.test(timeout_time=8, timeout_unit="ms")
async def check_each_message_has_its_entry(dut: Any) -> None:
    bench = Bench(dut)
    rng, qps = bench.rng, bench.qps
    used = sorted({0, qps - 1, *(rng.randrange(qps) for _ in range(4))})
    await start_clock_and_reset(dut)
    for number in range(qps):
        bench.command(QpCommandKind.CREATE, number, shared=0, ring=rng.randrange(qps))
    await bench.settle()
    for _ in range(ROUNDS):
        await bench.begin_round(used)
        await bench.select(rng.choice(used))
        for _ in range(SEGMENTS):
            await bench.segment(rng.choice(used))
    assert {("reached", 1), ("limit", True), ("limit", False), "wraps"} <= bench.seen
    kinds = {
        (shared, what) for shared in (True, False) for what in ("pop", "keep", "held", "leave")
    }
    assert kinds - {(False, "held")} | {"none", "failed"} <= bench.seen
