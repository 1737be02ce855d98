"""Frames are, octet by octet, those of the reference TCP and of the driver; scapy reads them."""

from ipaddress import IPv4Address
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge
from scapy.layers.inet import TCP
from scapy.layers.l2 import Ether

from stagecoach.gateware.ethernet.layouts import FRAME_BEAT, FRAME_WORD
from stagecoach.gateware.tcp.builder import Builder, HeaderRow
from stagecoach.gateware.tcp.layouts import SendKind, send_job
from stagecoach.gateware.tcp.ranges import RANGES, ranges_layout
from stagecoach.gateware.tcp.settle import SETTLED
from stagecoach.sim.cosim.signals import every_cycle
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    active_cycles,
    seeded_random,
    start_clock_and_reset,
)
from stagecoach.sim.model.tcp.checksum import ones_complement_sum
from stagecoach.sim.model.tcp.segment import Flags
from tests.support.runner import parameter, run_cocotb
from tests.support.verdicts import Verdicts, each_check, shows, simulate
from tests.tcp.asked_ranges import parts_of
from tests.tcp.receive_reference import SPACE
from tests.tcp.sent_frames import Connection, octets_of, read_by_scapy

SMALLEST, LARGEST = 2, 256
PATTERNS = ("always", "random")
LONGEST = 9000 - 40
FIRST_AFTER, BETWEEN, BLOCKS_ASK, BLOCKS_MORE = 3, 2, 1, 10


class Bench:
    """Connections, what the builder reads of them, sources of payload, and frames."""

    def __init__(self, dut: Any) -> None:
        pattern = parameter("PATTERN")
        self.dut = dut
        connections = int(parameter("CONNECTIONS", str(LARGEST)))
        self.rng = rng = seeded_random(pattern, connections)
        self.bits = (connections - 1).bit_length()
        numbers = {0, 1, connections - 1, *(rng.randrange(connections) for _ in range(5))}
        self.connections = {number: Connection.random(rng) for number in sorted(numbers)}
        self.jobs = StreamSource(dut, "job", send_job(self.bits), rng=rng, pattern=pattern)
        # Their words come without a gap, once there are some.
        self.sources = {
            SendKind.STORE: StreamSource(dut, "store", FRAME_WORD),
            SendKind.RING: StreamSource(dut, "ring", FRAME_WORD),
        }
        self.frames = StreamSink(dut, "frame", FRAME_BEAT, rng=rng, pattern=pattern)
        self.monitor = StreamMonitor(dut, "frame", FRAME_BEAT)
        StreamMonitor(dut, "ask", keep=False)
        self.expected: list[bytes] = []
        self.told: list[tuple[int, int]] = []  # of segments that leave
        self.sent: list[tuple[int, int]] = []
        self.sequence = 0  # of the last job
        self.answers = True
        dut.write.value = 0
        dut.ask__ready.value = 0
        dut.out_of_order.value = 0
        dut.settled.value = 0
        every_cycle(dut, self._look)
        cocotb.start_soon(self._settled())
        cocotb.start_soon(self._ranges(active_cycles(pattern, rng)))

    def _look(self, in_reset: bool) -> None:
        dut = self.dut
        if not in_reset and dut.sent.value:
            self.sent.append((int(dut.sent_connection.value), int(dut.again.value)))

    async def _settled(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            known = self.connections.get(int(self.dut.connection_read.value))
            noise = self.rng.getrandbits(SETTLED.size)
            self.dut.settled.value = known.settled() if known else noise

    async def _ranges(self, willing: Any) -> None:
        dut, ready = self.dut, False
        parts: list[int] = []  # of the answer, one in a cycle
        while True:
            await RisingEdge(dut.clk)
            taken = ready and dut.ask__valid.value
            known = self.connections.get(int(dut.asked.value))
            dut.out_of_order.value = bool(known and known.ranges)
            if taken:
                asked = self.connections[int(dut.ask__payload.value)]
                parts = parts_of(asked.packed_ranges(self.rng), self.rng)
            noise = self.rng.getrandbits(ranges_layout().size)
            dut.ranges.value = parts.pop(0) if parts else noise
            ready = self.answers and next(willing)
            dut.ask__ready.value = ready

    async def write(self, number: int, rows: dict[HeaderRow, int]) -> None:
        for row, word in rows.items():
            self.dut.write.value, self.dut.connection.value = 1, number
            self.dut.row.value, self.dut.word.value = row.value, word
            await RisingEdge(self.dut.clk)
            # Without the pulse they mean nothing.
            self.dut.write.value, self.dut.word.value = 0, self.rng.getrandbits(64)
            self.dut.row.value = self.rng.getrandbits(3)
            await RisingEdge(self.dut.clk)

    def send(
        self,
        number: int,
        kind: SendKind = SendKind.NOTHING,
        octets: int = 0,
        flags: Flags = Flags.ACK,
        *,
        blocks: bool = False,
        needed: bool = True,
        sequence: int | None = None,
        says: bool = False,
    ) -> None:
        """A segment; of payload, what follows it means nothing. One that is not `needed` is not
        expected, unless it `says` something.
        """
        rng = self.rng
        if sequence is None:
            sequence = rng.choice([0, SPACE - 1, rng.getrandbits(32)])
        self.sequence = sequence
        payload = rng.randbytes(octets)
        for at in range(0, octets, 8):
            word = payload[at : at + 8] + rng.randbytes(8)
            data = int.from_bytes(word[:8], "little")
            self.sources[kind].put({"data": data, "last": at + 8 >= octets})
        # The sum of no payload means nothing.
        total = ones_complement_sum(payload) if octets else rng.getrandbits(16)
        job = {"sum": total, "octets": octets}
        job |= {"connection": number, "kind": kind.value, "sequence": sequence}
        again = rng.getrandbits(1)
        job |= {"flags": int(flags), "blocks": blocks, "needed": needed, "again": again}
        self.jobs.put(job)
        if needed or says:
            self.told.append((number, again))
        if not needed:
            return
        connection = self.connections[number]
        frame = connection.frame(sequence, flags, payload, blocks)
        if not blocks or not connection.sack or not connection.ranges:
            driver = connection.driver_frame(sequence, flags, payload)
            assert driver == frame.ljust(len(driver), b"\0")
        self.expected.append(frame)

    async def done(self) -> None:
        """All frames came, as they should be."""
        for expected in self.expected:
            words = octets_of(await self.frames.get_until())
            assert words == expected
            read_by_scapy(words)
        self.expected.clear()
        assert self.sent == self.told
        await ClockCycles(self.dut.clk, 20)
        assert not len(self.frames)


def halves(octets: bytes) -> list[int]:
    """16-bit words."""
    return [int.from_bytes(octets[at : at + 2], "big") for at in range(0, len(octets), 2)]


def missing(octets: bytes) -> int:
    """What makes the lower half of the sum of words all ones."""
    return (0xFFFF - sum(halves(octets))) % 0x10000


async def begin(dut: Any) -> Bench:
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    for number, connection in bench.connections.items():
        await bench.write(number, connection.rows())
    return bench


@shows("TCP-MUST-2", "TCP-MUST-65", "TCP-3.1-02", "IPV4-3.1-02", "IPV4-3.1-03", "IP-1122-2.3.3-01")
@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_segments_of_all_kinds(dut: Any) -> None:
    """With all lengths of payload up to some words, the longest, any flags, and SACK blocks."""
    bench = await begin(dut)
    rng = bench.rng
    numbers = list(bench.connections)
    sizes = [*range(1, 40), 64, 536, 1460, LONGEST - 1, LONGEST]
    for octets in sizes:
        kind = rng.choice([SendKind.STORE, SendKind.RING])
        bench.send(rng.choice(numbers), kind, octets, Flags.ACK | Flags.PSH)
        for _ in range(rng.randrange(3)):
            flags = rng.choice([Flags.ACK, Flags.ACK | Flags.FIN, Flags.RST, Flags(0xFF)])
            bench.send(rng.choice(numbers), flags=flags)
        if rng.random() < 0.5:
            bench.send(rng.choice(numbers), blocks=True)
    await bench.done()


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_blocks_of_each_number_of_ranges(dut: Any) -> None:
    """In the order in which they came; with none there is no option."""
    bench = await begin(dut)
    rng = bench.rng
    for count in range(RANGES + 1):
        for _ in range(6):
            connection = Connection.random(rng)
            at = rng.choice([SPACE - 5, rng.getrandbits(32)])
            ranges = [((at + 4 * each) % SPACE, (at + 4 * each + 3) % SPACE) for each in range(4)]
            connection.ranges = rng.sample(ranges, count)
            bench.connections[1] = connection
            await bench.write(1, connection.rows())
            bench.send(1, blocks=True)
            bench.send(1)
            await bench.done()
            options = dict(Ether(connection.frame(0, Flags.ACK, b"", True))[TCP].options)
            found = options.get("SAck", ())
            assert list(found) == [edge for block in connection.ranges for edge in block]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_no_blocks_for_a_peer_that_did_not_permit_them(dut: Any) -> None:
    """RFC 2018, 2; others get theirs before and after."""
    bench = await begin(dut)
    for count in range(1, RANGES + 1):
        for number, sack in ((0, False), (1, True)):
            connection = Connection.random(bench.rng)
            connection.ranges = [(8 * each, 8 * each + 4) for each in range(count)]
            connection.sack = sack
            bench.connections[number] = connection
            await bench.write(number, connection.rows())
        for number in (1, 0, 0, 1):
            bench.send(number, blocks=True)
        await bench.done()


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_checksums_that_carry(dut: Any) -> None:
    """Sums of many ones, and of none: each carry comes back (RFC 1071, 1)."""
    bench = await begin(dut)
    for value in (0, 1, 0xFFFF, 0xFFFE, 0xFFFFFFFF, 0xFFFF0000, 0xFFFE0001, 0x80008000):
        for port in (1, 0xFFFF):
            connection = Connection.random(bench.rng)
            connection.local = IPv4Address(value), port
            connection.remote = IPv4Address(value), port
            connection.number, connection.window, connection.shift = value, 0xFFFF, 0
            bench.connections[0] = connection
            await bench.write(0, connection.rows())
            bench.send(0, sequence=value, flags=Flags(0xFF))
            bench.send(0, SendKind.STORE, 3, sequence=value)
            await bench.done()
    # The first carry brings another one: all ones below it, in both sums.
    for count in range(1, RANGES + 1):
        for high in (0x1234, 0xFFFF):
            connection = Connection.random(bench.rng)
            connection.ranges = [(high << 16 | 0xFFFF, high << 16 | 0xFFFF)] * count
            connection.ranges[-1] = high << 16, connection.ranges[-1][1]
            first = high << 16 | missing(connection.option())
            connection.ranges[-1] = first, connection.ranges[-1][1]
            assert sum(halves(connection.option())) % 0x10000 == 0xFFFF
            bench.connections[0] = connection
            await bench.write(0, connection.rows())
            bench.send(0, blocks=True)
            sequence = high << 16
            sequence |= missing(connection.parts(sequence))
            bench.send(0, sequence=sequence)
            await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_frame_has_what_is_known_when_it_begins(dut: Any) -> None:
    """A number that moves while it waits to leave does not change it; the next one has it."""
    bench = await begin(dut)
    for _ in range(4):
        connection = bench.connections[0]
        bench.frames.paused = True
        bench.send(0, SendKind.STORE, 20)
        await ClockCycles(dut.clk, 30)
        connection.number = (connection.number + 1000) % SPACE
        connection.window = 5
        connection.ttl -= connection.ttl > 1
        connection.dscp ^= 1
        await bench.write(0, connection.rows())
        bench.send(0)
        bench.frames.paused = False
        await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_ack_that_says_nothing_new_is_dropped(dut: Any) -> None:
    """Not one whose number or window is new, nor one that is needed, nor one with SACK blocks."""
    bench = await begin(dut)

    def says(number: int, new: bool) -> None:
        bench.send(number, blocks=True, needed=False, says=new)
        if new:
            connection = bench.connections[number]
            bench.expected.append(connection.frame(bench.sequence, Flags.ACK, b"", True))

    for number in bench.connections:
        connection = Connection.random(bench.rng)
        connection.ranges, connection.window = [], 0xFFFF
        bench.connections[number] = connection
        await bench.write(number, connection.rows())
    first, second = list(bench.connections)[:2]
    connection = bench.connections[first]
    for new in (True, False, False):
        says(first, new)
    says(second, True)  # what another connection was told does not count
    says(first, False)
    await bench.done()
    for name, change in (("number", 1), ("number", 1 << 31), ("window", 1), ("window", 1 << 20)):
        setattr(connection, name, (getattr(connection, name) + change) % SPACE)
        for new in (True, False):
            says(first, new)
        await bench.done()
    # One edge, and another number: less is left of the window.
    connection.number, connection.window = (connection.number + 1) % SPACE, connection.window - 1
    says(first, True)
    bench.send(first, blocks=True)
    says(first, False)
    await bench.done()
    # Payload tells of it, too; a reset without ACK tells nothing.
    bench.send(first, flags=Flags.RST)
    says(first, False)
    await bench.done()
    connection.number = (connection.number + 1) % SPACE
    bench.send(first, flags=Flags.RST)
    says(first, True)
    await bench.done()
    connection.number = (connection.number + 1) % SPACE
    bench.send(first, SendKind.STORE, 20)
    says(first, False)
    bench.send(first, SendKind.RING, 1)
    await bench.done()
    connection.ranges = [((connection.number + 10) % SPACE, (connection.number + 20) % SPACE)]
    for _ in range(2):
        says(first, True)
    await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_job_waits_for_its_payload(dut: Any) -> None:
    """Nothing leaves until there is some; or until ranges are known."""
    bench = await begin(dut)
    for kind, source in bench.sources.items():
        words = list(source._items)
        assert not words
        bench.send(0, kind, 100)
        held = list(source._items)
        source._items.clear()
        await ClockCycles(dut.clk, 50)
        assert not dut.frame__valid.value
        source._items.extend(held)
        await bench.done()
    bench.answers = False
    await ClockCycles(dut.clk, 2)
    bench.send(1, blocks=True)
    await ClockCycles(dut.clk, 50)
    assert not dut.frame__valid.value
    bench.answers = True
    await bench.done()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_rate_and_latency(dut: Any) -> None:
    """Words follow each other, and frames with two cycles between them."""
    bench = await begin(dut)
    bench.jobs.set_pattern("always")
    bench.frames.set_pattern("always")
    await ClockCycles(dut.clk, 2)
    bench.send(0)
    while not dut.job__valid.value:
        await RisingEdge(dut.clk)
    cycles = 0
    while not dut.frame__valid.value:
        await RisingEdge(dut.clk)
        cycles += 1
    assert cycles == FIRST_AFTER
    await bench.done()
    for octets, words in ((0, 7), (1, 7), (2, 7), (3, 8), (64, 15), (1460, 190)):
        kind = SendKind.STORE if octets else SendKind.NOTHING
        for _ in range(10):
            bench.send(0, kind, octets)
        while not dut.frame__valid.value:
            await RisingEdge(dut.clk)
        cycles = 0
        valid = []
        while bench.jobs.pending or dut.frame__valid.value:
            valid.append(int(dut.frame__valid.value))
            await RisingEdge(dut.clk)
        assert valid == ([1] * words + [0] * BETWEEN) * 9 + [1] * words
        await bench.done()
    # SACK blocks take longer.
    for count in range(RANGES + 1):
        bench.connections[0].ranges = [(100 * each, 100 * each + 50) for each in range(count)]
        bench.send(0, blocks=True)
        while not dut.job__valid.value:
            await RisingEdge(dut.clk)
        cycles = 1
        while bench.jobs.pending:
            await RisingEdge(dut.clk)
            # Cycles in which nobody takes it are not the builder's.
            if not dut.ask__valid.value or dut.ask__ready.value:
                cycles += 1
        words = -(-(54 + (4 + 8 * count if count else 0)) // 8)
        more = BLOCKS_ASK + (BLOCKS_MORE if count else 0)
        assert cycles == words + BETWEEN + more
        await bench.done()


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    return simulate(tmp_path_factory, Builder(LARGEST), __name__, request.param, PATTERNS)


@each_check(globals())
def test_builder(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)


def test_builder_of_the_smallest_size() -> None:
    run_cocotb(
        Builder(SMALLEST),
        __name__,
        test_filter="check_segments",
        parameters={"PATTERN": "random", "CONNECTIONS": str(SMALLEST)},
    )


@pytest.mark.parametrize("connections", [1, 257])
def test_sizes_that_are_not_allowed(connections: int) -> None:
    with pytest.raises(ValueError, match="2 to 256"):
        Builder(connections)
