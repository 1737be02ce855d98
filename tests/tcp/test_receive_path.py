"""What is said to be stored is in memory then, whatever memory takes for it, and is in order."""

from collections import deque
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.ethernet.layouts import FRAME_WORD, RAW_WORD
from stagecoach.gateware.tcp.layouts import (
    LIMITS,
    Due,
    ReceiveOperation,
    ack_event,
    receive_command,
    received_segment,
    release_layout,
    settled_layout,
)
from stagecoach.gateware.tcp.receive_path import ReceivePath
from stagecoach.gateware.tcp.settle import SETTLED
from stagecoach.sim.cosim.streams import (
    StreamSink,
    StreamSource,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from stagecoach.sim.model.tcp.segment import Flags
from tests.support.runner import run_cocotb
from tests.tcp.asked_ranges import asked_ranges
from tests.tcp.receive_reference import SPACE, Reference
from tests.tcp.write_port import WritePort

FAST = False  # much of the engine, whose blocks have tests of their own

CONNECTIONS, BITS = 64, 6
SHIFT, MTU, RING = 2, 1500, 1 << 17


class Bench:
    """The blocks, a connection of the reference for each of some, and frames."""

    def __init__(self, dut: Any, rng: Random) -> None:
        self.dut, self.rng = dut, rng
        self.write = WritePort(dut, rng)
        self.segments = StreamSource(dut, "segment", received_segment(BITS), rng=rng)
        self.frames = StreamSource(dut, "frames", FRAME_WORD, rng=rng, pattern="bursty")
        self.releases = StreamSource(dut, "release", release_layout(BITS), rng=rng)
        self.commands = StreamSource(dut, "command", receive_command(BITS), rng=rng)
        self.asks = StreamSource(dut, "ask", rng=rng, pattern="random")
        self.events = StreamSink(dut, "event", ack_event(BITS), rng=rng)
        self.raw = StreamSink(dut, "raw", RAW_WORD, rng=rng, pattern="bursty")
        self.said = StreamSink(dut, "o", settled_layout(BITS), rng=rng, pattern="random")
        dut.limits_write.value = dut.connection_read.value = 0
        self.references: dict[int, Reference] = {}
        self.expected: deque[dict[str, Any]] = deque()
        self.settled: dict[int, int] = {}  # as positions
        self.edges: dict[int, int] = {}  # right ones
        self.driver: list[bytes] = []

    def ring(self, connection: int) -> int:
        return connection * RING + 0x7F00_0000_0010

    async def begin(self, connection: int) -> None:
        rng, dut = self.rng, self.dut
        following = rng.choice([rng.getrandbits(32), SPACE - 3000, RING - 3000])
        known = Reference(
            rng,
            following=following,
            window=0xFFFF,
            ring=RING,
            shift=SHIFT,
            mss=MTU - 40,
            unacknowledged=rng.getrandbits(32),
        )
        self.references[connection] = known
        self.settled[connection] = 0
        dut.limits_write.value, dut.limits_connection.value = 1, connection
        dut.limits.value = pack(LIMITS, known.limits)
        await RisingEdge(dut.clk)
        dut.limits_write.value = 0
        command = {"operation": ReceiveOperation.BEGIN.value, "connection": connection}
        command |= {"next": following, "edge": (following + 0xFFFF) % SPACE, "shift": SHIFT}
        self.commands.put({**command, "ring": self.ring(connection), "size": 0})
        self.expect(connection, known.note(Due.NONE, begin=True))
        await self.commands.wait_idle()

    def expect(self, connection: int, done: dict[str, Any]) -> None:
        if done["note"]:
            self.expected.append({"connection": connection, **done["note"]})

    def frame(self, octets: bytes) -> None:
        for at in range(0, len(octets), 8):
            word = octets[at : at + 8].ljust(8, b"\xff")
            last = at + 8 >= len(octets)
            self.frames.put({"data": int.from_bytes(word, "little"), "last": last})

    def put(self, connection: int, *, in_order: bool = False) -> None:
        """A segment of any kind, or one that is taken and does what it should."""
        rng, known = self.rng, self.references[connection]
        segment, _ = known.segment()
        if in_order:
            octets = rng.randint(1, MTU - 40)
            segment, _ = known.segment_at(known.receiver.next, octets, Flags.ACK)
        header = rng.choice([54, 66])
        frame = rng.randbytes(header) + segment.payload + rng.randbytes(rng.choice([0, 6]))
        self.frame(frame)
        fields = {
            "octets": len(frame),
            "header": header,
            "payload": len(segment.payload),
            "sequence": segment.sequence,
            "acknowledgment": segment.acknowledgment,
            "flags": int(segment.flags),
        }
        self.segments.put({"found": 1, "connection": connection, "segment": fields})
        self.expect(connection, known.arrives(segment))

    def put_raw(self) -> None:
        frame = self.rng.randbytes(self.rng.randrange(14, 200))
        self.frame(frame)
        self.driver.append(frame)
        self.segments.put({"segment": {"raw": 1, "octets": len(frame)}})

    async def blocks(self, connection: int) -> tuple[tuple[int, int], ...]:
        """Ranges out of order, the last one first."""
        return await asked_ranges(self.dut, self.asks, connection)

    async def note(self, *, failed: bool = False) -> None:
        """The next note is the one that is expected, and all before its number is in memory."""
        said, expected = await self.said.get(), self.expected.popleft()
        assert said == {"failed": int(failed), "note": expected}
        connection, known = expected["connection"], self.references[expected["connection"]]
        if failed:
            return
        before = self.settled[connection]
        first = known.number(before)
        count = (expected["number"] - expected["fin"] - first) % SPACE
        place = first % RING
        inside = min(count, RING - place)
        found = self.write.memory.read(self.ring(connection) + place, inside)
        found += self.write.memory.read(self.ring(connection), count - inside)
        assert found == known.octets(before, count)
        self.settled[connection] += count
        self.edges[connection] = expected["edge"]


async def start(dut: Any, connections: tuple[int, ...]) -> Bench:
    bench = Bench(dut, seeded_random())
    await start_clock_and_reset(dut)
    for connection in connections:
        await bench.begin(connection)
    return bench


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_what_is_acknowledged_is_stored(dut: Any) -> None:
    connections = 3, CONNECTIONS - 1
    bench = await start(dut, connections)
    rng, seen = bench.rng, set[int]()
    for _ in range(20):
        for _ in range(rng.randrange(12)):
            bench.put(rng.choice(connections), in_order=rng.random() < 0.5)
            if rng.random() < 0.2:
                bench.put_raw()
            for _ in range(rng.randrange(4)):
                bench.asks.put(rng.choice(connections))
        # A release is worked on after the segments before it, as it is here.
        await bench.segments.wait_idle()
        for connection in connections:
            blocks = await bench.blocks(connection)
            assert blocks == bench.references[connection].receiver.blocks()
            seen.add(len(blocks))
        while bench.expected and rng.random() < 0.9:
            await bench.note()
        connection = rng.choice(connections)
        known = bench.references[connection]
        count = bench.settled[connection] - known.released
        if count:
            value = {"connection": connection, "value": bench.settled[connection]}
            bench.releases.put(value)
            bench.expect(connection, known.release(count))
            await bench.releases.wait_idle()
        for connection in connections:
            if bench.references[connection].record.cause is not None and not bench.expected:
                await bench.begin(connection)
    while bench.expected:
        await bench.note()
    for connection in connections:
        receiver = bench.references[connection].receiver
        dut.connection_read.value = connection
        for _ in range(3):
            await RisingEdge(dut.clk)
        settled = unpack(SETTLED, dut.settled.value)
        wanted = {"number": receiver.next_sequence, "edge": bench.edges[connection]}
        assert settled == wanted | {"fin": int(receiver.fin_taken)}
    for frame in bench.driver:
        beats = await bench.raw.get_until("last")
        parts = [each["data"].to_bytes(8, "little")[: each["octets"]] for each in beats]
        assert b"".join(parts) == frame
    assert not len(bench.said)
    assert {0, 1, 2} <= seen


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_an_octet_that_memory_refused_is_never_acknowledged(dut: Any) -> None:
    bench = await start(dut, (1, 2))
    for connection in (1, 2):
        bench.put(connection, in_order=True)
    for _ in range(4):
        await bench.note()
    bench.write.failing = range(bench.ring(1), bench.ring(1) + RING)
    for connection in (1, 2, 1):
        bench.put(connection, in_order=True)
    await bench.note(failed=True)
    await bench.note()
    dut.connection_read.value = 1
    for _ in range(300):
        await RisingEdge(dut.clk)
    assert not len(bench.said)
    known = bench.references[1]
    assert unpack(SETTLED, dut.settled.value)["number"] == known.number(bench.settled[1])


def test_receive_path() -> None:
    run_cocotb(ReceivePath(CONNECTIONS, MTU), __name__)
