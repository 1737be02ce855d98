"""Hosts of the reference TCP after a wire that loses, delays and reorders what passes it."""

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

from cocotb.triggers import ClockCycles

from stagecoach.gateware.tcp.layouts import Due
from stagecoach.sim.cosim.signals import every_cycle
from stagecoach.sim.model.tcp.adoption import Adoption
from stagecoach.sim.model.tcp.connection import Connection
from stagecoach.sim.model.tcp.segment import Flags, Segment
from stagecoach.sim.model.tcp.state import Settings, State
from tests.tcp.path_bench import OUR_WINDOW, Bench, Flow
from tests.tcp.receive_reference import LOCAL, SPACE

CYCLES_OF_US = 16
QUIET_CYCLES = 200
"""After which, and after a sweep of the timers, time jumps to what happens next."""

LONGEST_DELAY_US = 300

SLOW_US = (0, 500, 8000, 30_000)
"""Until a slow program reads on."""


class Host:
    """The peer of a connection, and its program, which reads at once or slowly."""

    def __init__(self, number: int, flow: Flow, mss: int, buffer: int, *, slow: bool) -> None:
        known = flow.ends_of
        adoption = Adoption(
            remote=known.local,
            next_sent=known.number,
            next_received=flow.number,
            window=OUR_WINDOW,
            window_from=flow.number,
            send_shift=0,
            receive_shift=flow.shift,
            receive_window=flow.window << flow.shift,
            smss=mss,
            sack=True,
            round_trip=None,
            syn_losses=0,
        )
        settings = Settings(mss=mss, receive_buffer=buffer, rto_minimum=1000, delayed_ack=2000)
        self.number, self.flow, self.slow = number, flow, slow
        self.connection = Connection.adopted(0, known.remote, adoption, settings)
        self.reads = False  # and some later
        self.received = bytearray()
        self.highest = 0  # that came, as a position

    def read(self, now: int, most: int | None) -> None:
        """And no more to send, if the stream has ended."""
        self.received += self.connection.receive(now, most)
        if self.connection.state is State.CLOSE_WAIT and self.connection.finished:
            self.connection.close(now)


class Wire:
    """Carries segments both ways, and moves time on."""

    def __init__(self, bench: Bench, rng: Random, loss: float) -> None:
        self.bench, self.rng, self.loss = bench, rng, loss
        self.hosts: dict[int, Host] = {}
        self.seen: Counter[str] = Counter()
        self._order = 0
        self._events: list[tuple[int, int, Host, Callable[[Host], None]]] = []
        bench.sent = self._leaves
        every_cycle(bench.dut, self._step)

    def add(self, connection: int, buffer: int, *, slow: bool) -> None:
        """A peer for it; what is on the way to one before it, or from that, is lost."""
        flow = self.bench.flows[connection]
        self.hosts[connection] = Host(connection, flow, self.bench.mss, buffer, slow=slow)

    def _step(self, in_reset: bool) -> None:
        bench = self.bench
        if not self.hosts:
            return
        if bench.cycle - bench.active > QUIET_CYCLES + bench.connections and not bench.is_busy:
            bench.advance(self._next())
            bench.active = bench.cycle
        elif bench.cycle % CYCLES_OF_US == 0:
            bench.advance(1)
        else:
            return
        while self._events and self._events[0][0] <= bench.now:
            _, _, host, event = heappop(self._events)
            if self.hosts.get(host.number) is host:
                event(host)
        for host in self.hosts.values():
            due = host.connection.next_deadline()
            if due is not None and due <= bench.now:
                host.connection.timer(bench.now)
                self._answers(host)

    def _next(self) -> int:
        """Microseconds until something happens."""
        bench = self.bench
        dues = [self._events[0][0]] if self._events else []
        deadlines = (host.connection.next_deadline() for host in self.hosts.values())
        dues += [at for at in deadlines if at is not None]
        waits = [max(at - bench.now, 0) for at in dues]
        if bench.deadline:
            waits.append(bench.deadline)
        return min(waits, default=0)

    def _later(self, microseconds: int, host: Host, event: Callable[[Host], None]) -> None:
        self._order += 1
        heappush(self._events, (self.bench.now + microseconds, self._order, host, event))

    def _carry(self, segment: Segment, host: Host, event: Callable[[Host, Segment], None]) -> None:
        if self.rng.random() < self.loss:
            self.seen["lost"] += 1
            return
        self._later(self.rng.randrange(LONGEST_DELAY_US), host, lambda host: event(host, segment))

    # From the engine to the host, and back.

    def _leaves(self, connection: int, segment: Segment) -> None:
        host = self.hosts.get(connection)
        if host is None:
            return
        if segment.payload:
            position = host.flow.position(segment.sequence)
            self.seen["again"] += position < host.highest
            host.highest = max(host.highest, position + len(segment.payload))
        self._carry(segment, host, self._arrives)

    def _arrives(self, host: Host, segment: Segment) -> None:
        if host.connection.state is State.CLOSED:
            return
        host.connection.segment_arrives(self.bench.now, segment, LOCAL[0])
        self._answers(host)
        if not host.slow:
            self._reads(host)
        elif not host.reads:
            host.reads = True
            self._later(self.rng.choice(SLOW_US), host, self._reads)

    def _reads(self, host: Host) -> None:
        host.read(self.bench.now, self.rng.randint(1, 2000) if host.slow else None)
        self._answers(host)
        host.reads = host.connection.unread > 0
        if host.reads:
            self._later(self.rng.choice(SLOW_US), host, self._reads)

    def _answers(self, host: Host) -> None:
        """What the host has to say."""
        for segment in host.connection.output:
            assert Flags.RST not in segment.flags
            self.seen["shut"] += not segment.window
            self.seen["reports a gap"] += bool(segment.options.sack)
            self._carry(segment, host, self._acknowledges)
        host.connection.output.clear()

    def _acknowledges(self, host: Host, segment: Segment) -> None:
        """What the receive processor makes of it."""
        bench, flow, limits = self.bench, host.flow, self.bench.limits[host.number]
        if limits["ended"]:
            return
        room = (limits["highest"] - limits["oldest"]) % SPACE
        number = segment.acknowledgment
        assert (limits["highest"] - number) % SPACE < SPACE // 2, "more than was sent"
        fin = Flags.FIN in segment.flags
        if (number - limits["oldest"]) % SPACE > room:
            self.seen["too old"] += 1
        elif fin and flow.peer_fin:
            bench.put_note(host.number, Due.NOW)
        else:
            position = flow.position(number)
            fields = {"empty": int(not fin), "fin": int(fin)}
            bench.put_ack(host.number, position, segment.window, segment.sequence, **fields)
            if fin:
                bench.put_fin(host.number)

    async def ended(self, connections: set[int]) -> None:
        """Wait until they are; what is still on the wire is lost."""
        while connections:
            await ClockCycles(self.bench.dut.clk, 10)
            for connection in list(connections):
                if "TIME_WAIT" in self.bench.flows[connection].notices:
                    connections.discard(connection)
                    self._check(connection)

    def _check(self, connection: int) -> None:
        host = self.hosts.pop(connection)
        assert host.received == host.flow.stream
        assert host.flow.said[-1] == "CLOSED"
