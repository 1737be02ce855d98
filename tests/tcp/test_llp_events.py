"""A lane hears all that it has to of its connection, once, and nothing after its end."""

from collections import deque
from itertools import product
from random import Random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.tcp.layouts import attachment_layout, sender_event, settled_layout
from stagecoach.gateware.tcp.llp_events import LlpEvents
from stagecoach.hw.interface.llp import LlpEventKind
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter
from tests.support.verdicts import Verdicts, each_check, simulate

CONFIG = RnicConfig()
BITS, SPACE = CONFIG.qp_bits, 1 << 32
PATTERNS = ("always", "random")
LATENCY, PERIOD = 4, 5


class Connection:
    """What is known of one."""

    def __init__(self, number: int) -> None:
        self.number, self.fin = number, 0
        self.lane: int | None = None
        self.base = self.said = 0
        self.ended = self.failed = False


class Bench:
    """The block, the connections, and the events that have to come."""

    def __init__(self, dut: Any, rng: Random, pattern: str) -> None:
        self.dut, self.rng = dut, rng
        options: dict[str, Any] = {"rng": rng, "pattern": pattern}
        self.settled = StreamSource(dut, "settled", settled_layout(BITS), **options)
        self.sender = StreamSource(dut, "sender", sender_event(BITS), **options)
        self.attachments = StreamSource(dut, "attachment", attachment_layout(BITS), **options)
        layout = Layouts(CONFIG).llp_event
        self.events = StreamSink(dut, "event", layout, **options)
        StreamMonitor(dut, "event", layout, keep=False)
        self.connections: dict[int, Connection] = {}
        self.expected: deque[tuple[int, LlpEventKind, int]] = deque()

    def expect(self, known: Connection, kind: LlpEventKind, value: int) -> None:
        if known.lane is not None:
            self.expected.append((known.lane, kind, value))

    def follow(self, known: Connection) -> None:
        """What is settled is said."""
        available = (known.number - known.fin) % SPACE
        if known.lane is not None and available != known.said:
            self.expect(known, LlpEventKind.RX_AVAILABLE, (available - known.base) % SPACE)
            known.said = available

    def end(self, known: Connection) -> None:
        if not known.ended:
            known.ended = True
            self.expect(known, LlpEventKind.CLOSED, 0)

    async def idle(self) -> None:
        for source in (self.settled, self.sender, self.attachments):
            await source.wait_idle()

    async def begin(self, connection: int) -> None:
        self.connections[connection] = Connection(self.rng.getrandbits(32))
        self.note(connection, 0, begin=1)
        await self.idle()

    def note(self, connection: int, octets: int, **fields: int) -> None:
        """Octets were stored; or a FIN, or a failure came."""
        known = self.connections[connection]
        fin, failed = fields.get("fin", 0), fields.pop("failed", 0)
        number = (known.number + octets + fin) % SPACE
        fields.setdefault("fin", known.fin)
        note = {"connection": connection, "number": number, **fields}
        note |= {"edge": self.rng.getrandbits(32), "due": self.rng.randrange(3)}
        self.settled.put({"failed": failed, "note": note})
        if failed:
            self.end(known)
            return
        known.number, known.fin = number, fields["fin"]
        if not known.ended:
            self.follow(known)
        if known.fin:
            self.end(known)

    def say(self, connection: int, kind: LlpEventKind) -> None:
        known, value = self.connections[connection], self.rng.getrandbits(32)
        self.sender.put({"connection": connection, "kind": kind.value, "value": value})
        if kind is LlpEventKind.CLOSED:
            self.end(known)
        elif not known.ended:
            self.expect(known, kind, value)

    async def attach(self, connection: int, lane: int | None, base: int = 0) -> None:
        """Attach a lane, which does not have the last octets yet; or detach it."""
        await self.idle()
        known = self.connections[connection]
        base = (known.number - known.fin - base) % SPACE
        given = {"connection": connection, "attached": int(lane is not None)}
        number = self.rng.randrange(CONFIG.qps) if lane is None else lane
        self.attachments.put({**given, "lane": number, "base": base})
        known.lane, known.base, known.said = lane, base, base
        self.follow(known)
        if known.ended:
            self.expect(known, LlpEventKind.CLOSED, 0)
        await self.idle()

    async def check(self) -> None:
        await self.idle()
        while self.expected:
            lane, kind, value = self.expected.popleft()
            event = await self.events.get()
            assert (event["connection"], event["kind"]) == (lane, kind)
            assert event["value"] == value or kind is LlpEventKind.CLOSED
        await ClockCycles(self.dut.clk, 12)
        assert not len(self.events)


async def start(dut: Any) -> Bench:
    pattern = parameter("PATTERN")
    bench = Bench(dut, seeded_random(pattern), pattern)
    await start_clock_and_reset(dut)
    return bench


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_all_is_said_in_order(dut: Any) -> None:
    """Octets, windows, ends in all orders; before a lane is attached, with it, and after it."""
    bench = await start(dut)
    rng = bench.rng
    some = [0, 7, CONFIG.qps - 1]
    lanes = [CONFIG.qps - 1, 0, 3]
    for connection in some:
        await bench.begin(connection)
    for _ in range(400):
        which = rng.randrange(len(some))
        connection, kind = some[which], rng.random()
        known = bench.connections[connection]
        if kind < 0.5:
            bench.note(connection, rng.choice([0, 1, 1460]))
            await bench.idle()
        elif kind < 0.7:
            bench.say(connection, rng.choice([LlpEventKind.TX_WINDOW, LlpEventKind.EMSS]))
            await bench.idle()
        elif kind < 0.74 and not known.fin:
            bench.note(connection, rng.choice([0, 5]), fin=1)
            await bench.idle()
        elif kind < 0.77:
            bench.say(connection, LlpEventKind.CLOSED)
            await bench.idle()
        elif kind < 0.8 and not known.failed:
            known.failed = True
            bench.note(connection, 5, failed=1)
            await bench.idle()
        elif kind < 0.9:
            lane = lanes[which] if known.lane is None else None
            await bench.attach(connection, lane, base=rng.choice([0, 0, 9]))
        elif known.lane is None:
            await bench.begin(connection)
        await bench.check()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_each_end_is_said_once(dut: Any) -> None:
    """With its lane attached before, or after; what comes after it is not said."""
    bench = await start(dut)
    for end, early in product(("fin", "data and fin", "failed", "closed"), (True, False)):
        await bench.begin(5)
        if early:
            await bench.attach(5, 9)
        bench.note(5, 10)
        if end == "failed":
            bench.note(5, 10, failed=1)
        elif end == "closed":
            bench.say(5, LlpEventKind.CLOSED)
        else:
            bench.note(5, 10 * (end != "fin"), fin=1)
        await bench.idle()
        if not early:
            await bench.attach(5, 9, base=4)
        bench.say(5, LlpEventKind.TX_WINDOW)
        bench.say(5, LlpEventKind.CLOSED)
        bench.note(5, 3)
        await bench.check()
        await bench.attach(5, None)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_connection_that_begins_is_not_attached(dut: Any) -> None:
    """Whatever lane had the stream of an earlier one, or was noted before a reset."""
    bench = await start(dut)
    await bench.begin(5)
    await bench.attach(5, 9)
    bench.note(5, 10)
    await bench.check()
    await bench.begin(5)
    bench.note(5, 10)
    bench.say(5, LlpEventKind.TX_WINDOW)
    await bench.check()
    await bench.attach(5, 8, base=10)
    await bench.check()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_what_is_not_taken_waits(dut: Any) -> None:
    """Nothing is lost while the device takes no event; both sources are served then, in turns."""
    bench = await start(dut)
    for connection in (1, 2):
        await bench.begin(connection)
        await bench.attach(connection, connection + 20)
    await bench.check()
    bench.events.paused = True
    for _ in range(10):
        bench.note(1, 10)
    notes = list(bench.expected)
    bench.expected.clear()
    for _ in range(10):
        bench.say(2, LlpEventKind.TX_WINDOW)
    windows = list(bench.expected)
    await ClockCycles(dut.clk, 200)
    assert bench.settled.pending + bench.sender.pending >= 17
    bench.events.paused = False
    found = [await bench.events.get() for _ in range(20)]
    items = [(each["connection"], LlpEventKind(each["kind"]), each["value"]) for each in found]
    assert [each for each in items if each[0] == 21] == notes
    assert [each for each in items if each[0] == 22] == windows
    if parameter("PATTERN") == "always":
        # The one that was taken, and the one that waited, came before the turns.
        assert {items[at][0] + items[at + 1][0] for at in range(2, 18)} == {21 + 22}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_rate_and_latency(dut: Any) -> None:
    bench = await start(dut)
    for end in (bench.settled, bench.events):
        end.set_pattern("always")
    await bench.begin(3)
    await bench.attach(3, 3)
    await bench.check()
    for _ in range(10):
        bench.note(3, 8)
    came: list[int] = []
    first = cycle = 0
    while len(came) < 10:
        await RisingEdge(dut.clk)
        cycle += 1
        if dut.settled__valid.value and not first:
            first = cycle
        came += [cycle] * int(dut.event__valid.value and dut.event__ready.value)
    assert came[0] - first == LATENCY
    assert came[-1] - came[0] == 9 * PERIOD


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    return simulate(tmp_path_factory, LlpEvents(CONFIG), __name__, request.param, PATTERNS)


@each_check(globals())
def test_llp_events(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)
