"""Every decision of the sending side is that of the reference TCP."""

from collections import Counter
from random import Random
from typing import Any

import cocotb
import pytest

from stagecoach.gateware.tcp.transmit_processor import TransmitProcessor
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.model.tcp.state import Settings
from tests.support.runner import parameter
from tests.support.verdicts import Verdicts, each_check, simulate
from tests.tcp.receive_reference import SPACE
from tests.tcp.transmit_bench import LARGEST, Bench
from tests.tcp.transmit_reference import Setup

PATTERNS = ("always", "random")


async def start(dut: Any, begin: int = 0, **settings: int) -> Bench:
    pattern = parameter("PATTERN")
    bench = Bench(dut, seeded_random(pattern), pattern, begin)
    await bench.start(**settings)
    return bench


def some_setup(rng: Random) -> Setup:
    return Setup(
        number=rng.choice([rng.getrandbits(32), SPACE - rng.randrange(50_000), 0]),
        following=rng.choice([rng.getrandbits(32), SPACE - rng.randrange(5000)]),
        window=rng.choice([0, 1000, 20_000, 65_535, 65_535]),
        shift=rng.choice([0, 0, 2, 7]),
        smss=rng.choice([100, 536, 1460]),
        round_trip=rng.choice([None, 100, 10_000]),
        settings=Settings(rto_minimum=1000),
    )


class Peer:
    """What happens to a connection by chance, in phases of some liking."""

    def __init__(self, bench: Bench, connection: int) -> None:
        self.bench, self.rng, self.connection = bench, bench.rng, connection
        self.known = bench.references[connection]
        self.sender = self.known.sender
        self.duplicates = self.left = 0
        self.sends = self.narrow = 0.0

    def step(self) -> None:
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
            self._send()
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

    def _send(self) -> None:
        """As many octets as the LLP may send, at most."""
        rng, smss = self.rng, self.sender.smss
        if not self.known.attached:
            self.bench.attach(self.connection)
            return
        for _ in range(rng.choice([1, 1, 2, 6])):
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
    *("recovery", "partial", "recovered", "limited", "reopened", "expired", "probed", "joined"),
    *("stored", "waited", "go back", "fin"),
)
"""What has to happen by chance."""


@cocotb.test(timeout_time=60, timeout_unit="ms")
async def check_random_events_do_what_the_reference_does(dut: Any) -> None:
    """Rounds of a few connections at once; sequence numbers and time wrap."""
    bench = await start(dut, SPACE - 3_000_000)
    rng = bench.rng
    seen: Counter[str] = Counter()
    for _ in range(int(parameter("ROUNDS", "6"))):
        some = sorted({0, bench.connections - 1, rng.randrange(bench.connections)})
        bench.references.clear()
        for connection in some:
            bench.begin(connection, some_setup(rng))
        await bench.settle()
        peers = [Peer(bench, connection) for connection in some]
        for _ in range(int(parameter("STEPS", "200"))):
            # One event of each of them at a time.
            for peer in rng.sample(peers, rng.randint(1, len(peers))):
                if peer.is_due() and rng.random() < 0.8:
                    bench.expire(peer.connection)
                else:
                    peer.step()
            await bench.settle()
            bench.advance(rng.choice([0, 1, 100, 1000, 1000]))
            if rng.random() < 0.1:
                bench.advance(rng.choice([5000, 40_000, 300_000]))
            if all(known.ended for known in bench.references.values()):
                break
        for known in bench.references.values():
            seen += known.seen
    seen += bench.seen
    missing = [what for what in SEEN if not seen[what]]
    print(seen)
    assert not missing, (missing, seen)


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    return simulate(tmp_path_factory, TransmitProcessor(LARGEST), __name__, request.param, PATTERNS)


@each_check(globals())
def test_transmit_processor(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)
