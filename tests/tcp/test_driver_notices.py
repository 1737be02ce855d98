"""The driver is told of octets that it has to read, of each end once, and of nothing after it."""

from itertools import pairwise
from random import Random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.ethernet.layouts import RAW_NOTICE, NetworkKind
from stagecoach.gateware.tcp.driver_notices import DriverNotices
from stagecoach.gateware.tcp.layouts import (
    NoticeKind,
    attachment_layout,
    notice_layout,
    settled_layout,
)
from stagecoach.sim.cosim.signals import cycles, every_cycle
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    pack,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb
from tests.support.verdicts import Verdicts, each_check, simulate

SMALLEST, LARGEST = 2, 256
PATTERNS = ("always", "random")
SPACE = 1 << 32
QUIET = 60
NOTE_TAKEN, READABLE_AFTER, NOTICE_AFTER, EACH, SHOWN = 8, 9, 2, 3, 24


class Bench:
    """Notes, notices, and what is settled of each connection when they were taken."""

    def __init__(self, dut: Any, rng: Random, pattern: str) -> None:
        self.dut, self.rng = dut, rng
        self.connections = int(parameter("CONNECTIONS", str(LARGEST)))
        self.bits = bits = (self.connections - 1).bit_length()
        self.notes = StreamSource(dut, "note", settled_layout(bits))
        self.notices = StreamSource(dut, "notice", notice_layout(bits), rng=rng, pattern=pattern)
        self.sink = StreamSink(dut, "o", RAW_NOTICE, rng=rng, pattern=pattern)
        StreamMonitor(dut, "o", keep=False)
        self.settled: dict[int, tuple[int, int]] = {}
        dut.attach.value = dut.connection_read.value = 0

    async def note(self, connection: int, octets: int, *, begin: bool = False, **some: int) -> None:
        """So many octets more, or a connection that begins; when it was taken."""
        rng = self.rng
        number, fin = self.settled.get(connection, (0, 0))
        number = rng.choice([SPACE - 5, rng.getrandbits(32)]) if begin else number + octets
        fin = 0 if begin else some.get("fin", fin)
        note = {"connection": connection, "number": number % SPACE, "fin": fin, "begin": begin}
        note["edge"] = rng.getrandbits(32)
        await self.notes.send({"failed": some.get("failed", 0), "note": note})
        if not some.get("failed"):
            self.settled[connection] = number % SPACE, fin

    async def attach(self, connection: int, attached: int) -> None:
        dut = self.dut
        fields = {"lane": self.rng.getrandbits(self.bits), "connection": connection}
        dut.attachment.value = pack(attachment_layout(self.bits), {**fields, "attached": attached})
        dut.attach.value = 1
        await RisingEdge(dut.clk)
        dut.attach.value = 0

    def end(self, connection: int, kind: NoticeKind) -> dict[str, int]:
        notice = {"connection": connection, "kind": kind.value, "number": self.rng.getrandbits(32)}
        self.notices.put(notice)
        return notice

    def told(self, connection: int, notice: dict[str, int] | None = None) -> dict[str, int]:
        """What has to be said of it now."""
        number, fin = self.settled[connection]
        kind = notice["kind"] if notice else NetworkKind.READABLE.value
        said = {"kind": kind, "connection": connection, "acknowledgment": number, "fin": fin}
        return said | {"sequence": notice["number"] if notice else 0}

    async def quiet(self) -> list[dict[str, int]]:
        """All that was said, when nothing more comes."""
        await self.notices.wait_idle()
        said: list[dict[str, int]] = []
        while True:
            await cycles(self.dut, QUIET)
            more = self.sink.take_all()
            if not more and not self.dut.waits.value:
                return said
            said += more


async def start(dut: Any) -> Bench:
    pattern = parameter("PATTERN")
    bench = Bench(dut, seeded_random(pattern, parameter("CONNECTIONS", "")), pattern)
    await start_clock_and_reset(dut)
    await cycles(dut, bench.connections + 2)
    return bench


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_octets_that_came_are_told(dut: Any) -> None:
    """And a FIN; not an edge that moved, a beginning, nor what failed."""
    bench = await start(dut)
    for connection in (0, bench.connections - 1):
        await bench.note(connection, 0, begin=True)
        assert not await bench.quiet()
        for octets, fin in ((100, 0), (1, 0), (1, 1)):
            await bench.note(connection, octets, fin=fin)
            assert await bench.quiet() == [bench.told(connection)]
            await bench.note(connection, 0)
            assert not await bench.quiet()
        await bench.note(connection, 70, failed=1)
        assert not await bench.quiet()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_octets_of_a_lane_are_not_told(dut: Any) -> None:
    """Until it is detached, or the number begins anew."""
    bench = await start(dut)
    other = bench.connections - 1
    for connection in (0, other):
        await bench.note(connection, 0, begin=True)
    for how in ("detach", "begin"):
        await bench.attach(0, 1)
        await bench.note(0, 50)
        await bench.note(other, 50)
        assert await bench.quiet() == [bench.told(other)]
        if how == "detach":
            await bench.attach(0, 0)
        else:
            await bench.note(0, 0, begin=True)
        await bench.note(0, 50)
        assert await bench.quiet() == [bench.told(0)]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_attachment_while_another_one_begins(dut: Any) -> None:
    """Whichever comes first."""
    bench = await start(dut)
    other = bench.connections - 1
    for delay in range(6):
        await bench.note(0, 0, begin=True)
        begins = cocotb.start_soon(bench.note(other, 0, begin=True))
        await cycles(dut, delay)
        await bench.attach(0, 1)
        await begins
        for connection in (0, other):
            await bench.note(connection, 9)
        assert await bench.quiet() == [bench.told(other)], delay


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_the_last_of_each_is_told(dut: Any) -> None:
    """While nobody takes notices, notes are taken, and each connection is told of."""
    bench = await start(dut)
    rng = bench.rng
    some = range(bench.connections)
    for connection in some:
        await bench.note(connection, 0, begin=True)
    bench.sink.paused = True
    await cycles(dut, 3)
    await bench.note(0, 1)
    await cycles(dut, QUIET)
    first = bench.told(0)
    told: dict[int, None] = {}
    taken = bench.notes.sent
    begin = now = 0

    def count(in_reset: bool) -> None:
        nonlocal now
        now += 1

    every_cycle(dut, count)
    for _ in range(2 * bench.connections):
        connection = rng.choice(some)
        begin = now
        await bench.note(connection, rng.randint(1, 5000))
        assert now - begin <= NOTE_TAKEN
        told[connection] = None
    assert bench.notes.sent == taken + 2 * bench.connections
    bench.sink.paused = False
    said = await bench.quiet()
    assert said[0] == first
    # The next one to leave may be told of once more.
    again = [each["connection"] for each in said[1:]]
    assert [*dict.fromkeys(again)] == [*told]
    assert said[1:] == [bench.told(each) for each in again] and len(again) <= len(told) + 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_ends_are_told_and_nothing_after_them(dut: Any) -> None:
    """With what was settled then; a suspect is none; a number that begins anew is told of."""
    bench = await start(dut)
    ends = [kind for kind in NoticeKind if kind is not NoticeKind.SUSPECT]
    for turn, kind in enumerate(ends):
        connection = turn % bench.connections
        await bench.note(connection, 0, begin=True)
        await bench.note(connection, 77)
        assert await bench.quiet() == [bench.told(connection)]
        suspect = bench.end(connection, NoticeKind.SUSPECT)
        assert await bench.quiet() == [bench.told(connection, suspect)]
        await bench.note(connection, 1, fin=turn % 2)
        assert await bench.quiet() == [bench.told(connection)]
        end = bench.end(connection, kind)
        assert await bench.quiet() == [bench.told(connection, end)]
        await bench.note(connection, 5)
        assert not await bench.quiet()
    # One that waits is forgotten, if the end is told first; or is of the number that begins.
    for begins in (False, True):
        for connection in range(2):
            await bench.note(connection, 0, begin=True)
        await bench.quiet()
        bench.sink.paused = True
        await cycles(dut, 3)
        await bench.note(1, 3)
        await cycles(dut, QUIET)
        first = bench.told(1)
        end = bench.end(0, NoticeKind.RESET)
        await bench.note(0, 3)
        ended = bench.told(0, end)
        bench.sink.paused = False
        said = [await bench.sink.get() for _ in range(2)]
        assert said[0] == first
        if said[1] != ended:
            assert said[1] == bench.told(0)
            said.append(await bench.sink.get())
        assert said[-1] == ended
        if begins:
            await bench.note(0, 0, begin=True)
            assert await bench.quiet() in ([], [bench.told(0)])
        else:
            assert not await bench.quiet()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_notices_take_turns(dut: Any) -> None:
    """Neither kind waits for all of the other one."""
    bench = await start(dut)
    for connection in range(2):
        await bench.note(connection, 0, begin=True)
    bench.sink.paused = True
    await cycles(dut, 3)
    for _ in range(6):
        bench.end(0, NoticeKind.SUSPECT)
    for _ in range(2):
        for connection in range(2):
            await bench.note(connection, 1)
    await cycles(dut, QUIET)
    bench.sink.paused = False
    kinds = [each["kind"] for each in await bench.quiet()]
    readable = NetworkKind.READABLE.value
    assert kinds.count(readable) in (2, 3) and len(kinds) <= 9
    first = [kind == readable for kind in kinds[1:6]]
    assert first in ([True, False, True, False, True], [True, False, True, False, False])


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_what_is_settled_is_shown(dut: Any) -> None:
    """Of the connection that is asked for, whatever else goes on."""
    bench = await start(dut)
    rng = bench.rng
    some = (0, bench.connections - 1)
    for connection in some:
        await bench.note(connection, 0, begin=True)
    for _ in range(20):
        connection = rng.choice(some)
        dut.connection_read.value = connection
        await bench.note(rng.choice(some), rng.randint(0, 9))
        await cycles(dut, SHOWN)
        assert int(dut.settled.value) == bench.settled[connection][0]
    # And of no other one in any cycle.
    asked, other = some
    dut.connection_read.value = asked
    await cycles(dut, SHOWN)

    def look(_: bool) -> None:
        assert int(dut.settled.value) == bench.settled[asked][0]

    every_cycle(dut, look)
    for _ in range(20):
        await bench.note(other, 1)
    await bench.quiet()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_cycles(dut: Any) -> None:
    bench = await start(dut)
    for stream in (bench.notices, bench.sink):
        stream.set_pattern("always")
    for connection in range(2):
        await bench.note(connection, 0, begin=True)
    await bench.quiet()

    async def until(signal: Any) -> int:
        count = 0
        while not signal.value:
            await RisingEdge(dut.clk)
            count += 1
        return count

    noted = cocotb.start_soon(bench.note(0, 5))
    await until(dut.note__valid)
    assert await until(dut.o__valid) == READABLE_AFTER
    await noted
    await bench.quiet()
    bench.end(1, NoticeKind.SUSPECT)
    await until(dut.notice__valid)
    assert await until(dut.o__valid) == NOTICE_AFTER
    await bench.quiet()
    times: list[int] = []
    now = 0

    def watch(in_reset: bool) -> None:
        nonlocal now
        now += 1
        if dut.o__valid.value and dut.o__ready.value:
            times.append(now)

    every_cycle(dut, watch)
    for _ in range(5):
        bench.end(1, NoticeKind.SUSPECT)
    await bench.quiet()
    assert [after - before for before, after in pairwise(times)] == [EACH] * 4


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    return simulate(tmp_path_factory, DriverNotices(LARGEST), __name__, request.param, PATTERNS)


@each_check(globals())
def test_driver_notices(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)


def test_driver_notices_of_the_smallest_size() -> None:
    parameters = {"PATTERN": "random", "CONNECTIONS": str(SMALLEST)}
    run_cocotb(DriverNotices(SMALLEST), __name__, parameters=parameters)


@pytest.mark.parametrize("connections", [1, 257])
def test_sizes_that_are_not_allowed(connections: int) -> None:
    with pytest.raises(ValueError, match="2 to 256"):
        DriverNotices(connections)
