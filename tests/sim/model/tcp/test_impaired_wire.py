"""Two hosts over a wire that loses, doubles, reorders and corrupts frames, in simulated time."""

import random
from ipaddress import IPv4Interface

import pytest

from stagecoach.sim.model.tcp.connection import Connection
from stagecoach.sim.model.tcp.host import Host
from stagecoach.sim.model.tcp.malformed import Reason
from stagecoach.sim.model.tcp.state import Cause, Settings, State
from stagecoach.sim.wire.impairments import PS_PER_US, Direction, Impairments
from stagecoach.sim.wire.line import Line
from tests.sim.model.tcp.script import KEY

A, B = IPv4Interface("192.0.2.1/24"), IPv4Interface("192.0.2.2/24")
PORT = 4420
BAD = {"loss": 0.03, "duplicate": 0.03, "reorder": 0.05, "corrupt": 0.03}
# Who closes first, and how many of all bytes each end has by then.
ORDERS = ["client", "server", "both", "client at once", "after all was read"]


class Wire:
    """Two hosts, a line each way; ``now`` is in picoseconds."""

    def __init__(self, settings: tuple[Settings, Settings], impairments: Impairments) -> None:
        self.now = 0
        self.hosts = [Host(at, KEY, one) for at, one in zip((A, B), settings, strict=True)]
        self.lines = [Line(impairments, direction) for direction in Direction]

    @property
    def microseconds(self) -> int:
        return self.now // PS_PER_US

    def step(self) -> bool:
        """Go on to what happens next; False if nothing ever will."""
        for host, line in zip(self.hosts, self.lines, strict=True):
            for packet in host.take_packets():
                line.push(packet, self.now)
        times = [line.next_arrival_ps for line in self.lines]
        deadlines = [host.next_deadline() for host in self.hosts]
        times += [None if at is None else at * PS_PER_US for at in deadlines]
        coming = [at for at in times if at is not None]
        if not coming:
            return False
        self.now = max(self.now, min(coming))
        for index, line in enumerate(self.lines):
            while arrived := line.first(self.now):
                line.pop()
                self.hosts[1 - index].packet_arrives(self.microseconds, arrived[1])
        for host in self.hosts:
            host.timer(self.microseconds)
        return True


class End:
    """A user of a connection: sends a stream in pieces, reads now and then, closes in its turn."""

    def __init__(self, connection: Connection, stream: bytes, chosen: random.Random) -> None:
        self.connection = connection
        self.stream = stream
        self.chosen = chosen
        self.sent = 0
        self.got = b""
        self.closed = False

    def act(self, now: int, may_close: bool) -> None:
        sending = self.connection.state in (State.ESTABLISHED, State.CLOSE_WAIT)
        if sending and self.sent < len(self.stream):
            count = self.chosen.randrange(1, 6000)
            self.connection.send(now, self.stream[self.sent : self.sent + count])
            self.sent += count
        elif sending and may_close and not self.closed:
            self.connection.close(now)
            self.closed = True
        if self.chosen.random() < 0.4:
            self.read(now, self.chosen.randrange(1, 40_000))

    def read(self, now: int, maximum: int | None = None) -> None:
        self.got += self.connection.receive(now, maximum)


def transfer(wire: Wire, order: str, chosen: random.Random, sizes: tuple[int, int]) -> list[End]:
    streams = [chosen.randbytes(size) for size in sizes]
    listener = wire.hosts[1].listen(PORT)
    ends = [End(wire.hosts[0].connect(0, (B.ip, PORT)), streams[0], chosen)]
    for _ in range(200_000):
        if len(ends) == 1 and (accepted := listener.accept()):
            ends.append(End(accepted, streams[1], chosen))
        for index, end in enumerate(ends):
            all_read = len(ends) == 2 and len(end.got) == sizes[1 - index]
            may_close = {
                "client": index == 0 or end.connection.finished,
                "server": index == 1 or end.connection.finished,
                "both": True,
                "client at once": index == 0 or end.connection.finished,
                "after all was read": all_read,
            }[order]
            if order == "client at once" and index == 0:
                end.sent = len(end.stream)
            end.act(wire.microseconds, may_close)
        # If nothing happens by itself, the next move is that of the users.
        if not wire.step() and all(end.connection.state is State.CLOSED for end in ends):
            break
    else:
        pytest.fail("it does not end")
    for end in ends:
        end.read(wire.microseconds)
    return ends


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("bad", [{}, BAD], ids=["clean", "bad"])
@pytest.mark.parametrize("round_trip_us", [2, 500])
@pytest.mark.requirement("TCP-3.6-01", "TCP-MUST-18", "TCP-MUST-3", "TCP-SHLD-31", "CC-3.2-03")
def test_both_streams_arrive_and_both_ends_close(order, bad, round_trip_us):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chosen = random.Random(seed)
    settings = tuple(
        Settings(
            mss=chosen.choice((536, 1460)),
            receive_buffer=chosen.choice((3_000, 20_000, 128 << 10)),
            sack=chosen.random() < 0.5,
            nagle=chosen.random() < 0.3,
            rto_minimum=10_000,
            r2=10**12,
        )
        for _ in range(2)
    )
    impairments = Impairments(**bad, delay_us=round_trip_us / 2, rate_gbps=1, seed=seed)
    wire = Wire((settings[0], settings[1]), impairments)
    sizes = chosen.randrange(60_000), chosen.randrange(60_000)
    ends = transfer(wire, order, chosen, sizes)
    assert len(ends) == 2
    if order == "client at once":
        assert ends[1].got == b""
    else:
        assert ends[1].got == ends[0].stream
    assert ends[0].got == ends[1].stream
    assert [end.connection.cause for end in ends] == [Cause.CLOSED] * 2
    assert all(end.connection.finished for end in ends)
    assert not any(host.connections for host in wire.hosts)


def test_the_same_seed_is_the_same_run_and_its_frames_are_impaired():
    runs = []
    for _ in range(2):
        wire = Wire((Settings(),) * 2, Impairments(**BAD, delay_us=50, seed=1))
        ends = transfer(wire, "both", random.Random(1), (100_000, 100_000))
        runs.append((wire.now, [host.discarded for host in wire.hosts], ends[0].got))
    assert runs[0] == runs[1]
    for discarded in runs[0][1]:
        assert discarded[Reason.TCP_CHECKSUM] > 0


@pytest.mark.requirement("TCP-MUST-10", "TCP-3.6-01")
@pytest.mark.parametrize("bad", [{}, BAD], ids=["clean", "bad"])
def test_simultaneous_open_over_a_wire(bad):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chosen = random.Random(seed)
    wire = Wire((Settings(r2=10**12),) * 2, Impairments(**bad, delay_us=50, seed=seed))
    ends = [
        End(wire.hosts[0].connect(0, (B.ip, 2), port=1), chosen.randbytes(20_000), chosen),
        End(wire.hosts[1].connect(0, (A.ip, 1), port=2), chosen.randbytes(20_000), chosen),
    ]
    for _ in range(100_000):
        for end in ends:
            end.act(wire.microseconds, True)
        if not wire.step() and all(end.connection.state is State.CLOSED for end in ends):
            break
    for end, other in zip(ends, reversed(ends), strict=True):
        end.read(wire.microseconds)
        assert end.got == other.stream
        assert end.connection.cause is Cause.CLOSED


def test_a_wire_that_fails_ends_both_connections():
    wire = Wire((Settings(), Settings()), Impairments(delay_us=50))
    listener = wire.hosts[1].listen(PORT)
    client = wire.hosts[0].connect(0, (B.ip, PORT))
    while not (server := listener.accept()):
        assert wire.step()
    wire.lines = [Line(Impairments(loss=1), direction) for direction in Direction]
    client.send(wire.microseconds, b"lost")
    server.send(wire.microseconds, b"lost")
    while wire.step():
        pass
    assert [client.cause, server.cause] == [Cause.TIMED_OUT] * 2
    assert 100_000_000 <= wire.microseconds < 200_000_000
