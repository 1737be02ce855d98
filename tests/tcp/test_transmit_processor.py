"""Every decision of the sending side is that of the reference TCP."""

from collections import Counter, deque
from random import Random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.tcp.layouts import TransmitOperation
from stagecoach.gateware.tcp.transmit_grant import RESERVED_PLACES
from stagecoach.gateware.tcp.transmit_processor import SEND_JOBS, SEND_JOBS_SOME, TransmitProcessor
from stagecoach.gateware.tcp.transmit_state import SUSPECT_RETRIES
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.model.tcp.congestion import initial_window
from stagecoach.sim.model.tcp.segment import Flags
from stagecoach.sim.model.tcp.state import Settings, State
from tests.sim.model.tcp.vectors import VECTORS
from tests.support.runner import parameter, run_cocotb
from tests.support.verdicts import Verdicts, each_check, shows, simulate
from tests.tcp.receive_reference import SPACE
from tests.tcp.transmit_bench import LARGEST, Bench
from tests.tcp.transmit_reference import Reference, Setup

PATTERNS = ("always", "random")
SMALLEST = 2
SECOND = 1_000_000
MSS = 1460
CYCLES = {"due": 9, "fpdu": 22, "ack": 10, "info": 23}


async def start(dut: Any, begin: int = 0, **settings: int) -> Bench:
    pattern = parameter("PATTERN")
    bench = Bench(dut, seeded_random(pattern), pattern, begin)
    await bench.start(**settings)
    return bench


def some_setup(rng: Random) -> Setup:
    return Setup(
        number=rng.choice([rng.getrandbits(32), SPACE - rng.randint(1, 50_000), 0]),
        following=rng.choice([rng.getrandbits(32), SPACE - rng.randint(1, 5000)]),
        window=rng.choice([0, 1000, 20_000, 65_535, 65_535]),
        shift=rng.choice([0, 0, 2, 7]),
        smss=rng.choice([100, 536, 1460]),
        round_trip=rng.choice([None, 100, 10_000]),
        settings=Settings(rto_minimum=1000),
    )


def plain(number: int = SPACE - 1000, **fields: Any) -> Setup:
    """A round trip of 100 ms: RTO is SRTT + 4 RTTVAR, 100 + 4 * 50 ms (RFC 6298, 2.2)."""
    return Setup(number=number, round_trip=100_000, **fields)


RTO_US = 300_000


async def one(bench: Bench, connection: int, setup: Setup) -> Reference:
    """A connection that is attached."""
    known = bench.begin(connection, setup)
    await bench.settle()
    bench.attach(connection)
    await bench.settle()
    return known


def due_after(bench: Bench, connection: int, name: str = "resend") -> int | None:
    """Microseconds until a deadline, None if there is none."""
    at = bench.references[connection].deadlines[name]
    return None if at is None else (at - bench.now) % SPACE


class Peer:
    """What happens to a connection by chance, in phases of some liking."""

    def __init__(self, bench: Bench, connection: int) -> None:
        self.bench, self.rng, self.connection = bench, bench.rng, connection
        self.known = bench.references[connection]
        self.sender = self.known.sender
        self.duplicates = self.left = 0
        self.sends = self.narrow = 0.0

    def step(self, *, alone: bool) -> None:
        """Tell an event; several FPDUs at once unless it has to be `alone`."""
        rng, sender, bench = self.rng, self.sender, self.bench
        if not self.left:
            self.left = rng.randrange(10, 60)
            self.sends, self.narrow = rng.choice([0.1, 0.4, 0.7]), rng.choice([0.0, 0.02, 0.3])
        self.left -= 1
        if self.duplicates and sender.outstanding:
            self.duplicates -= 1
            bench.acknowledge(self.connection, sender.una)
            return
        self.duplicates = rng.randint(1, 6) if rng.random() < 0.04 else 0
        if rng.random() < self.sends:
            self._send(1 if alone else rng.choice([1, 1, 2, 6]))
            return
        kind = rng.random()
        if kind < 0.6:
            self._acknowledge()
        elif kind < 0.7:
            bench.expire(self.connection)
        elif kind < 0.9:
            self._receive()
        elif kind < 0.93:
            bench.challenge(self.connection)
        elif kind < 0.95 and not sender.closing and sender.free() > 1:
            bench.send(self.connection, rng.choice([1, 20, 2000]), whole=False)
        elif kind < 0.955:
            bench.resize(self.connection, rng.choice([100, 536, 1460]))
        elif kind < 0.96:
            bench.detach(self.connection)
        elif kind < 0.97:
            ends = bench.close, bench.close, bench.close, self._finish, self._end
            rng.choice(ends)(self.connection)
        elif kind < 0.98:
            bench.command(self.connection, TransmitOperation.INFO)

    def is_due(self) -> bool:
        """Whether a deadline has come."""
        at = (self.sender.retransmit_at, self.sender.persist_at, self.known.receiver.ack_at)
        return any(each is not None and each <= self.bench.now for each in at)

    def _end(self, connection: int) -> None:
        ends = self.bench.abort, self.bench.reset, self.bench.fail, self._lose
        self.rng.choice(ends)(connection)

    def _lose(self, connection: int) -> None:
        if not self.known.receiver.fin_taken:
            self.bench.acknowledge(connection, self.sender.una, empty=False, lost=True)

    def _finish(self, connection: int) -> None:
        """The peer's FIN, or ours out of the store's last FPDU."""
        octets = min(20, self.known.allowed())
        if self.rng.random() < 0.5 and not self.known.gap and not self.known.ended:
            if not self.known.receiver.fin_taken:
                self.bench.receive(connection, "fin")
        elif self.known.attached and not self.sender.closing and octets > 0:
            octets = self.rng.choice([0, octets])
            self.bench.send(connection, octets, close=True)

    def _send(self, count: int) -> None:
        """As many octets as the LLP may send, at most."""
        rng, smss = self.rng, self.sender.smss
        if not self.known.attached:
            self.bench.attach(self.connection)
            return
        for _ in range(count):
            octets = rng.choice([20, smss, smss, smss, rng.randint(1, smss)])
            octets = min(octets, self.known.allowed())
            if octets > 0:
                self.bench.send(self.connection, octets)

    def _acknowledge(self) -> None:
        """Something that the peer may acknowledge, with some window."""
        rng, sender = self.rng, self.sender
        una, highest = sender.una, sender.highest
        edges = [end for _, end, _ in sender.segments if una < end <= sender.max]
        anywhere = rng.randint(una, highest)
        position = rng.choice([una, *edges[:2], *edges[:1], anywhere, highest, highest])
        position = position if rng.random() < 0.97 else max(una - rng.randint(0, 2000), 0)
        window: int | None = 65_535 if sender.window < 3000 and rng.random() < 0.5 else None
        if rng.random() < self.narrow:
            window = rng.choice([0, 1, 300, 20_000, 65_535]) >> rng.choice([0, sender.shift])
            position = rng.choice([position, highest])  # nothing is outstanding: it is probed
        self.bench.acknowledge(
            self.connection,
            position,
            window=window,
            older=rng.choice([0, 0, 0, 0, 1, 100]),
            empty=rng.random() < 0.9,
            challenge=rng.random() < 0.02,
        )

    def _receive(self) -> None:
        rng, known = self.rng, self.known
        if known.receiver.fin_taken or known.ended:
            return
        unread = len(known.receiver.unread) // known.mss
        if unread and rng.random() < 0.2:
            self.bench.read(self.connection, rng.randint(1, unread) * known.mss)
        elif unread < 80:
            what = "order" if known.gap else rng.choice(["order", "order", "ahead"])
            self.bench.receive(self.connection, what)


SEEN = (
    *("limited", "reopened", "expired", "probed", "joined", "stored", "waited", "go back", "fin"),
    "visited",
)
"""What has to happen by chance."""


@shows("TCP-MUST-34", "TCP-3.4-01", "TCP-3.10.7.4-01", "CC-3-01", "CC-3.1-08")
@shows("RTO-3-01", "RTO-3-02")
@cocotb.test(timeout_time=60, timeout_unit="ms")
async def check_random_events_do_what_the_reference_does(dut: Any) -> None:
    """Rounds of a few connections at once; sequence numbers and time wrap."""
    bench = await start(dut, SPACE - 3_000_000)
    rng = bench.rng
    seen: Counter[str] = Counter()
    for _ in range(int(parameter("ROUNDS", "4"))):
        some = sorted({0, bench.connections - 1, rng.randrange(bench.connections)})
        bench.references.clear()
        # One more has ACKs alone, which fill the queue of segments.
        unused = [each for each in range(bench.connections) if each not in some][:1]
        for connection in some + unused:
            bench.begin(connection, some_setup(rng))
        await bench.settle()
        peers = [Peer(bench, connection) for connection in some]
        for _ in range(int(parameter("STEPS", "150"))):
            # One event of each of them at a time, or several of one kind; if segments leave late,
            # what one event makes possible is sent in several turns.
            late = rng.random() < 0.4
            if late:
                bench.sinks["send"].paused = True
                for connection in unused * (SEND_JOBS_SOME + 1):
                    bench.receive(connection, "ahead")
                await ClockCycles(dut.clk, 100)
            for peer in rng.sample(peers, rng.randint(1, len(peers))):
                if peer.is_due() and rng.random() < 0.8:
                    bench.expire(peer.connection)
                else:
                    peer.step(alone=late)
            if late:
                await ClockCycles(dut.clk, 150)
                bench.sinks["send"].paused = False
            await bench.settle()
            bench.advance(rng.choice([0, 1, 100, 1000, 1000]))
            if rng.random() < 0.1:
                bench.advance(rng.choice([5000, 40_000, 300_000]))
            if all(bench.references[connection].ended for connection in some):
                break
        for known in bench.references.values():
            seen += known.seen
    seen += bench.seen
    seen["visited"] = bench.pulses - bench.events
    missing = [what for what in SEEN if not seen[what]]
    assert not missing or bench.connections < LARGEST, (missing, seen)


@shows("NR-3.2-01", "NR-3.2-02", "NR-3.2-03", "NR-3.2-04", "NR-3.2-05", "LT-2-01")
@shows("CC-3.1-07", "CC-3.2-08", "CC-3.2-10")
@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_losses_are_recovered(dut: Any) -> None:
    """A wire that loses segments, and a peer that acknowledges each that comes."""
    bench = await start(dut, SPACE - 100_000)
    rng = bench.rng
    seen: Counter[str] = Counter()
    for connection, loss in ((2, 0.04), (3, 0.12)):
        known = await one(bench, connection, plain(number=SPACE - 20_000, window=65_535, shift=7))
        sender = known.sender
        sender.rto.minimum = 1000
        held: set[int] = set()  # octets that came out of order
        following = 0
        wire: deque[tuple[int, int]] = deque()
        while following < 60 * MSS:
            sent = (await bench.settle())[connection]
            while sender.end - sender.una < 25 * MSS and known.allowed() >= MSS:
                bench.send(connection, MSS)
            for job in sent + (await bench.settle())[connection]:
                position = (job["sequence"] - known.number(0)) % SPACE
                if rng.random() >= loss:
                    wire.append((position, job["octets"]))
            bench.advance(50)
            if not wire:
                bench.advance(due_after(bench, connection) or 0)
                bench.expire(connection)
                continue
            position, octets = wire.popleft()
            held.update(range(position, position + octets))
            while following in held:
                following += 1
            bench.acknowledge(connection, following)
        seen += known.seen
    assert min(seen[what] for what in ("recovery", "recovered", "partial")) > 1, seen


class Endless:
    """A connection with whole segments of endless data, beside no reference: vectors say more."""

    def __init__(self, bench: Bench, connection: int, setup: dict[str, Any], base: int) -> None:
        self.bench, self.connection, self.base = bench, connection, base
        self.smss = smss = setup["smss"]
        cwnd = smss if setup.get("lost_syn") else setup.get("iw") or initial_window(smss)
        self.shift = 7 if setup["rwnd"] > 65_535 else 0
        self.window = setup["rwnd"] >> self.shift
        self.una = self.end = self.max = 0
        rto = {"sampled": 0, "srtt8": 8 * SECOND, "rttvar4": 0, "timeout": SECOND}
        bench.command(
            connection,
            TransmitOperation.BEGIN,
            number=base,
            window=setup["rwnd"],
            cwnd=cwnd,
            rto=rto,
            shift=self.shift,
            emss=smss,
        )

    async def event(self, name: str, position: int = 0) -> list[list[Any]]:
        """What is sent then, after what is queued ahead of it."""
        bench = self.bench
        ahead = 20 if name == "start" else 40
        while self.end < self.max + ahead * self.smss:
            bench.put_fpdu(self.connection, self.smss)
            self.end += self.smss
            await bench.rest()
        if name == "ack":
            bench.put_ack(self.connection, (self.base + position) % SPACE, self.window)
            self.una = max(self.una, position)
        elif name == "timeout":
            at = bench.deadlines[self.connection]["resend"]["at"]
            bench.advance((at - bench.now) % SPACE)
            bench.put_due(self.connection)
        await bench.rest()
        sent = []
        for job in bench.sinks["send"].take_all():
            assert job["octets"] == self.smss
            at = (job["sequence"] - self.base) % SPACE
            sent.append(["new" if at == self.max else "retransmit", at])
            self.max = max(self.max, at + self.smss)
        return sent


@shows("CC-3.1-01", "CC-3.1-09", "CC-3.2-06", "CC-3.2-07", "NR-3.2-01", "NR-3.2-02", "LT-2-01")
@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_vectors(dut: Any) -> None:
    """What is sent, and what becomes of the timer, in the steps of the vectors."""
    bench = await start(dut, 5, rto_minimum=SECOND)
    rng = bench.rng
    # Two begin, or go on, as no connection of the engine does.
    taken = [
        vector
        for vector in VECTORS["congestion"]
        if "ssthresh" not in vector["setup"] and "idle" not in vector["name"]
    ]
    assert len(taken) == len(VECTORS["congestion"]) - 2
    for number, vector in enumerate(taken):
        base = rng.choice([rng.getrandbits(32), SPACE - 20_000])
        sender = Endless(bench, 2 + number, vector["setup"], base)
        for place, step in enumerate(vector["steps"]):
            where = f"{vector['name']}, step {place}: {step['event']}"
            deadline = bench.deadlines.get(sender.connection)
            bench.advance(1)
            assert await sender.event(*step["event"]) == step["sent"], where
            resend = bench.deadlines[sender.connection]["resend"]
            if step["timer"] == "restart":
                # It is doubled until a new round trip was measured.
                doubled = [event for event in vector["steps"][:place] if event["timer"] == "double"]
                ahead = (resend["at"] - bench.now) % SPACE
                assert ahead in (SECOND, SECOND << len(doubled)), where
            elif not step["timer"] and deadline:
                assert resend == deadline["resend"] or step["sent"], where
            assert resend["armed"] == (step["max"] > step["una"]), where


@shows("RTO-5-01", "RTO-5.1-01", "RTO-5.5-01", "TCP-MUST-20", "TCP-SHLD-9", "TCP-SHLD-10")
@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_the_timeout_doubles_until_the_connection_is_given_up(dut: Any) -> None:
    """RFC 6298, 5.4 to 5.6; the driver hears of R1 once; time goes round."""
    bench = await start(dut, SPACE - 1_000_000, r2=10 * SECOND)
    settings = Settings(rto_minimum=1000, r2=10 * SECOND)
    known = await one(bench, 2, plain(settings=settings))
    for octets in (1000, 500):
        bench.send(2, octets)
    sent = await bench.settle()
    assert [(job["sequence"], job["octets"]) for job in sent[2]] == [(SPACE - 1000, 1000), (0, 500)]
    bench.advance(RTO_US - 1)
    bench.expire(2)
    assert not (await bench.settle())[2]
    bench.advance(1)
    for doubled in range(1, 6):
        bench.expire(2)
        assert len((await bench.settle())[2]) == 1
        assert due_after(bench, 2) == RTO_US << doubled
        assert bench.seen["SUSPECT"] == (doubled >= SUSPECT_RETRIES)
        bench.advance(RTO_US << doubled)
    bench.expire(2)
    assert not (await bench.settle())[2]
    assert known.ended == "TIMED_OUT"
    # What comes then changes nothing.
    bench.acknowledge(2, known.sender.max)
    bench.send(2, 20)
    bench.expire(2)
    bench.close(2)
    bench.challenge(2)
    bench.put_note(2, 0, 0)
    assert not (await bench.settle())[2]


@shows("TCP-MUST-35", "TCP-MUST-36", "TCP-SHLD-29")
@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_a_zero_window_is_probed(dut: Any) -> None:
    """By one octet, at times that double; by FIN if none waits; by what fits, if something does."""
    bench = await start(dut, SPACE - 400_000)
    known = await one(bench, 2, plain(window=10_000))
    bench.acknowledge(2, 0, window=0)
    bench.send(2, 1000)
    assert not (await bench.settle())[2]
    for doubled in range(4):
        assert due_after(bench, 2) == RTO_US << doubled
        bench.advance(RTO_US << doubled)
        bench.expire(2)
        sent = (await bench.settle())[2]
        assert [(job["sequence"], job["octets"]) for job in sent] == [(SPACE - 1000, 1)]
        # The answer may come, and take the octet or not.
        if doubled == 1:
            bench.acknowledge(2, 0, window=0)
            await bench.settle()
    bench.acknowledge(2, 1, window=0)
    await bench.settle()
    bench.acknowledge(2, 1, window=400)
    assert not (await bench.settle())[2]
    bench.advance(due_after(bench, 2) or 0)
    bench.expire(2)
    assert [job["octets"] for job in (await bench.settle())[2]] == [400]
    bench.acknowledge(2, 401, window=10_000)
    assert [job["octets"] for job in (await bench.settle())[2]] == [599]
    bench.acknowledge(2, 1000, window=0)
    await bench.settle()
    bench.close(2)
    await bench.settle()
    bench.advance(due_after(bench, 2) or 0)
    bench.expire(2)
    assert [(job["sequence"], job["flags"]) for job in (await bench.settle())[2]] == [
        (0, Flags.FIN | Flags.ACK)
    ]
    bench.acknowledge(2, 1001, window=0)
    await bench.settle()
    assert known.record.state is State.FIN_WAIT_2


@shows("TCP-3.6-01", "TCP-3.4-02")
@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_both_ends_close(dut: Any) -> None:
    """The peer first, we first, and at once (RFC 9293, 3.6); FIN is sent again, and with data."""
    bench = await start(dut)
    for connection, order in enumerate(("peer", "ours", "both"), 2):
        known = await one(bench, connection, plain(number=SPACE - 10))
        if order == "peer":
            bench.receive(connection, "fin")
            await bench.settle()
        # FIN goes with the last FPDU.
        bench.send(connection, 9, close=True)
        sent = (await bench.settle())[connection]
        assert [(job["sequence"], job["octets"], job["flags"]) for job in sent] == [
            (SPACE - 10, 9, Flags.FIN | Flags.ACK | Flags.PSH)
        ]
        bench.send(connection, 20)
        bench.close(connection)
        await bench.settle()
        bench.advance(due_after(bench, connection) or 0)
        bench.expire(connection)
        assert (await bench.settle())[connection] == sent
        # All but the FIN; that is sent again alone.
        bench.acknowledge(connection, 9)
        await bench.settle()
        bench.advance(due_after(bench, connection) or 0)
        bench.expire(connection)
        sent = (await bench.settle())[connection]
        fin = {"sequence": SPACE - 1, "octets": 0, "flags": int(Flags.FIN | Flags.ACK), "blocks": 0}
        assert sent == [fin]
        if order == "both":
            bench.receive(connection, "fin")
            await bench.settle()
        bench.acknowledge(connection, 10)
        await bench.settle()
        if order == "ours":
            assert not known.ended
            bench.receive(connection, "fin")
            assert [job["flags"] for job in (await bench.settle())[connection]] == [Flags.ACK]
        assert known.ended == ("CLOSED" if order == "peer" else "TIME_WAIT")
        assert bench.limits[connection]["ended"]


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_a_smaller_segment_size_makes_cwnd_smaller(dut: Any) -> None:
    """Also if nothing waits to be sent: to that of a restart (RFC 5681, 4.1), ten segments."""
    bench = await start(dut)
    known = await one(bench, 2, plain(window=65_535, shift=7))
    bench.resize(2, 100)
    await bench.settle()
    sent = []
    while known.sender.end < 2000:
        bench.send(2, 100)
        sent += (await bench.settle())[2]
    assert len(sent) == 10


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_what_follows_the_end_changes_nothing(dut: Any) -> None:
    """Nor does it send what a timeout has left to be sent again."""
    bench = await start(dut)
    known = await one(bench, 2, plain())
    for octets in (1000, 400):
        bench.send(2, octets)
        await bench.settle()
    bench.close(2)
    await bench.settle()
    bench.advance(due_after(bench, 2) or 0)
    bench.expire(2)
    assert [job["octets"] for job in (await bench.settle())[2]] == [1000]
    # Both would fit in cwnd.
    assert known.sender.congestion.limit > 1400
    bench.send(2, 20)
    bench.send(2, 20, close=True)
    bench.send(2, 0, close=True)
    bench.close(2)
    assert not (await bench.settle())[2]
    bench.acknowledge(2, 0)
    assert [job["octets"] for job in (await bench.settle())[2]] == [400]


@shows("TCP-MUST-40", "TCP-SHLD-18", "TCP-SHLD-19")
@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_acknowledgments_are_delayed(dut: Any) -> None:
    """By 40 ms, to the second segment, or until data leaves, which has one (RFC 9293, 3.8.6.3)."""
    bench = await start(dut, SPACE - 30_000)
    await one(bench, 2, plain())
    bare = int(Flags.ACK)
    bench.receive(2, "order")
    assert not (await bench.settle())[2]
    assert due_after(bench, 2, "acknowledge") == 40_000
    bench.advance(40_000)
    bench.expire(2)
    assert [(job["flags"], job["blocks"]) for job in (await bench.settle())[2]] == [(bare, 1)]
    assert not bench.needed
    assert due_after(bench, 2, "acknowledge") is None
    for _ in range(2):
        bench.receive(2, "order")
    assert [job["flags"] for job in (await bench.settle())[2]] == [bare]
    assert not bench.needed
    bench.receive(2, "order")
    await bench.settle()
    bench.send(2, 20)
    assert [job["octets"] for job in (await bench.settle())[2]] == [20]
    assert due_after(bench, 2, "acknowledge") is None
    # Out of order: at once.
    for what in ("ahead", "order"):
        bench.receive(2, what)
        assert [job["flags"] for job in (await bench.settle())[2]] == [bare]
        assert bench.needed
    # The peer is told of a window that has grown by two segments.
    for _ in range(8):
        bench.receive(2, "order")
        await bench.settle()
    bench.read(2, MSS)
    assert not (await bench.settle())[2]
    bench.read(2, MSS)
    assert [job["flags"] for job in (await bench.settle())[2]] == [bare]


@shows("TCP-MUST-58")
@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_a_fin_is_acknowledged_at_once_and_alike_only_if_it_comes_again(dut: Any) -> None:
    """A segment that left meanwhile, as our FIN, may have acknowledged it; not so the second."""
    bench = await start(dut)
    await one(bench, 2, plain())
    for needed in (False, True):
        bench.receive(2, "fin")
        sent = (await bench.settle())[2]
        assert [(job["flags"], job["blocks"]) for job in sent] == [(int(Flags.ACK), 1)]
        assert bench.needed == needed


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_a_window_that_opens_is_announced(dut: Any) -> None:
    """From zero by one segment, otherwise by two."""
    bench = await start(dut)
    bench.begin(3, plain(following=SPACE - 5))
    await bench.settle()
    edge = (SPACE - 5 + bench.references[3].edge) % SPACE
    # All of it came, and was acknowledged.
    for grown, number, says in ((MSS - 1, edge, 0), (MSS, edge, 1), (3 * MSS - 1, edge, 0)):
        bench.put_note(3, number, (edge + grown) % SPACE)
        await bench.rest()
        assert len(bench.sinks["send"].take_all()) == says
    bench.put_note(3, edge, (edge + 3 * MSS) % SPACE)
    await bench.rest()
    assert len(bench.sinks["send"].take_all()) == 1


@shows("TCPSEC-7-01")
@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_challenges_are_limited(dut: Any) -> None:
    """No more than 10 in any 5 s (RFC 5961, 7): 5 in each that begins with one."""
    bench = await start(dut, SPACE - 5 * SECOND)
    for connection in (2, 3):
        bench.begin(connection, plain())
    await bench.settle()
    sent = []
    for _ in range(30):
        bench.challenge(2)
        bench.challenge(3)
        found = await bench.settle()
        assert len(found[2]) == len(found[3])
        assert bench.needed
        sent += [bench.now] * len(found[2])
        bench.advance(SECOND // 2)
    assert len(sent) == 15
    assert all(later - first >= 5 * SECOND for first, later in zip(sent, sent[10:], strict=False))


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_an_abort_and_a_loss_are_told_to_the_peer(dut: Any) -> None:
    bench = await start(dut)
    ends = {"ABORTED": bench.abort, "RESET": bench.reset, "MEMORY": bench.fail}
    for connection, (name, end) in enumerate(ends.items(), 2):
        known = await one(bench, connection, plain())
        bench.send(connection, 1000)
        await bench.settle()
        end(connection)
        sent = (await bench.settle())[connection]
        told = [] if name == "RESET" else [(0, Flags.RST | Flags.ACK)]
        assert [(job["sequence"], job["flags"]) for job in sent] == told
        assert known.ended == name
        # An FPDU of it leaves the store all the same.
        bench.send(connection, 20)
        await bench.settle()
    known = await one(bench, 6, plain())
    bench.acknowledge(6, 0, empty=False, lost=True)
    assert [job["flags"] for job in (await bench.settle())[6]] == [Flags.RST | Flags.ACK]
    assert known.ended == "DATA_LOST"


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_a_crowded_list_has_a_place_for_all_that_was_granted(dut: Any) -> None:
    """Small FPDUs take all places but those that are reserved; then they wait, and share."""
    bench = await start(dut)
    known = await one(bench, 2, plain(window=65_535, shift=7, smss=536))
    sender = known.sender
    for _ in range(2):
        while known.allowed() >= 20:
            for _ in range(bench.rng.randint(1, 12)):
                if octets := min(known.allowed(), bench.rng.choice([20, 20, 20, 30])):
                    bench.send(2, octets)
            await bench.settle()
            # Duplicate ACKs let some of them go.
            if sender.free() < RESERVED_PLACES and bench.rng.random() < 0.2:
                bench.acknowledge(2, sender.una)
                await bench.settle()
        assert 0 < sender.free() < RESERVED_PLACES
        assert known.seen["crowded"] > 20
        bench.acknowledge(2, sender.max)
        await bench.settle()
        while sender.una < sender.end:
            bench.acknowledge(2, sender.max)
            await bench.settle()
    # As large as they may be.
    while sender.free() >= RESERVED_PLACES and known.allowed() > 0:
        bench.send(2, min(known.allowed(), 536))
        await bench.settle()


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_a_window_that_opens_does_not_hold_up_others(dut: Any) -> None:
    """Segments that wait leave in turns; another connection's is not behind them all."""
    bench = await start(dut)
    await one(bench, 2, plain(window=0, shift=7))
    await one(bench, 3, plain())
    for _ in range(5):
        bench.send(2, 1460)
    await bench.settle()
    jobs = bench.sinks["send"]
    jobs.paused = True
    bench.acknowledge(2, 0, window=1000)
    await ClockCycles(dut.clk, 300)
    bench.send(3, 20)
    await ClockCycles(dut.clk, 300)
    assert not bench.fpdus or bench.sources["fpdu"].pending == 0
    jobs.paused = False
    sent = await bench.settle()
    assert len(sent[2]) == 5 and len(sent[3]) == 1
    assert bench.order.index(3) < SEND_JOBS


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_all_connections_wait_for_their_turn(dut: Any) -> None:
    """None is forgotten when all of them have more to send, the one that is visited, too."""
    bench = await start(dut)
    last = bench.connections - 1
    for connection in (0, last):
        bench.begin(connection, plain(window=0, smss=100))
    await bench.settle()
    for connection in (0, last):
        bench.send(connection, 2000, whole=False)
    await bench.settle()
    for connection in (0, last):
        bench.acknowledge(connection, 0, window=20_000)
    # A few jobs at a time are taken, so that visits end before all is sent.
    for _ in range(20):
        bench.sinks["send"].paused = True
        await ClockCycles(dut.clk, 100)
        bench.sinks["send"].paused = False
        await ClockCycles(dut.clk, 2)
    sent = await bench.settle()
    assert [len(sent[connection]) for connection in (0, last)] == [10, 10]
    # The initial window; then all that is left.
    bench.acknowledge(0, 1000)
    bench.acknowledge(last, 1000)
    sent = await bench.settle()
    assert [len(sent[connection]) for connection in (0, last)] == [10, 10]


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_neighbours_that_take_nothing(dut: Any) -> None:
    """Events wait, and none is lost, however long that is; other streams stay as they are."""
    bench = await start(dut)
    for connection in (2, 3, 4):
        await one(bench, connection, plain())
    for name in bench.sinks:
        sink = bench.sinks[name]
        sink.paused = True
        await ClockCycles(dut.clk, 20)
        for connection in (2, 3):
            if name == "notice":
                bench.abort(connection)
                continue
            for _ in range(6):
                bench.send(connection, 1000)
        bench.receive(4, "order")
        await ClockCycles(dut.clk, 1500)
        assert any(source.pending for source in bench.sources.values()), name
        sink.paused = False
        await bench.settle()
        for connection in (2, 3):
            bench.acknowledge(connection, bench.references[connection].sender.max)
        await bench.settle()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_a_reset_forgets_connections(dut: Any) -> None:
    bench = await start(dut)
    await one(bench, 2, plain())
    bench.send(2, 1000)
    await bench.settle()
    dut.rst.value = 1
    await ClockCycles(dut.clk, 3)
    dut.rst.value = 0
    await ClockCycles(dut.clk, bench.connections)
    bench.put_ack(2, 0, 100)
    bench.put_due(2)
    bench.events -= 2
    await ClockCycles(dut.clk, 100)
    assert not len(bench.sinks["send"]) and not bench.deadlines[2]["resend"]["armed"]
    bench.references.clear()
    bench.events = bench.pulses
    await one(bench, 2, plain())
    bench.send(2, 1000)
    assert len((await bench.settle())[2]) == 1


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_cycles(dut: Any) -> None:
    """Of an event from one to the next, as long as all is taken."""
    if parameter("PATTERN") != "always":
        return
    bench = await start(dut)
    for connection in (2, 3):
        await one(bench, connection, plain(window=65_535, shift=7))
    counted = {}
    for name, count in (("due", 10), ("fpdu", 6), ("ack", 6), ("info", 6)):
        for number in range(count):
            for connection in (2, 3):
                if name == "due":
                    bench.expire(connection)
                elif name == "fpdu":
                    bench.send(connection, 1460)
                elif name == "info":
                    bench.command(connection, TransmitOperation.INFO)
                else:
                    bench.acknowledge(connection, 1460 * (number + 1))
        first, before = bench.pulses, bench.cycle
        while bench.pulses < first + 2:
            await RisingEdge(dut.clk)
        first, before = bench.pulses, bench.cycle
        while bench.pulses < first + 4:
            await RisingEdge(dut.clk)
        counted[name] = (bench.cycle - before) / 4
        await bench.settle()
    assert counted == CYCLES, counted


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    return simulate(tmp_path_factory, TransmitProcessor(LARGEST), __name__, request.param, PATTERNS)


@each_check(globals())
def test_transmit_processor(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)


def test_two_connections() -> None:
    """The smallest table."""
    run_cocotb(
        TransmitProcessor(SMALLEST),
        __name__,
        test_filter="check_(random|all)",
        parameters={"CONNECTIONS": str(SMALLEST), "ROUNDS": "2", "PATTERN": "always"},
    )


@pytest.mark.parametrize(
    ("sizes", "message"), [((1,), "2 to 256"), ((257,), "2 to 256"), ((2, 575), "576 to 16383")]
)
def test_sizes_that_are_not_allowed(sizes: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TransmitProcessor(*sizes)
