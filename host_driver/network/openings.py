"""Handshakes under way: connections that this end opens, and those of listeners."""

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from stagecoach.host_driver.network.errors import ConnectionRefused, NoNeighbour
from stagecoach.host_driver.network.established import EngineConnections
from stagecoach.host_driver.network.ethernet import EtherType, Frame
from stagecoach.host_driver.network.handshake import Action, Handshake, State
from stagecoach.host_driver.network.ip_fields import IpFields
from stagecoach.host_driver.network.ipv4 import Datagram, Protocol
from stagecoach.host_driver.network.isn import SequenceNumbers
from stagecoach.host_driver.network.output import Output
from stagecoach.host_driver.network.sequence import advance, before
from stagecoach.host_driver.network.settings import SECOND_US, NetworkSettings
from stagecoach.host_driver.network.stream import NetworkListener, NetworkStream
from stagecoach.host_driver.network.tcp import Flag, Segment
from stagecoach.host_driver.network.time_wait import Ends
from stagecoach.host_driver.transport.base import TransportError, TransportTimeout

R1 = 3
"""Retransmissions of a SYN after which the neighbour is asked for anew (RFC 9293, 3.8.3)."""


@dataclass
class Opening:
    """A connection that this end opens: `stream` or `error` at the end.

    Attributes
    ----------
    seconds: until it is given up. soft_error: the last ICMP error that told of it, in words.
    """

    handshake: Handshake
    next_hop: IPv4Address
    seconds: float
    stream: NetworkStream | None = None
    error: TransportError | None = None
    soft_error: str | None = None

    @property
    def done(self) -> bool:
        """Whether it is over."""
        return self.stream is not None or self.error is not None

    @property
    def peer(self) -> str:
        """As errors name it."""
        address, port = self.handshake.remote
        return f"{address}:{port}"


@dataclass
class _Listening:
    listener: NetworkListener
    half_open: OrderedDict[Ends, Handshake] = field(default_factory=OrderedDict)


class Openings:
    """All handshakes: one for each call of `connect`, and as many as its backlog for a listener.

    When one more SYN comes, the oldest handshake of its listener goes.

    Parameters
    ----------
    take_early: takes frames of a connection that the port still holds. explain: adds to the text
        of an error that no answer came what the wire has to do with it.
    """

    def __init__(
        self,
        settings: NetworkSettings,
        output: Output,
        engine: EngineConnections,
        counters: Counter[str],
        take_early: Callable[[Ends], tuple[bytes, ...]],
        explain: Callable[[str], str],
        numbers: SequenceNumbers | None = None,
    ):
        self._settings = settings
        self._output = output
        self._engine = engine
        self._counters = counters
        self._take_early = take_early
        self._explain = explain
        self._numbers = numbers or SequenceNumbers()
        self._active: dict[Ends, Opening] = {}
        self._listening: dict[int, _Listening] = {}

    def __contains__(self, ends: Ends) -> bool:
        return ends in self._active or self._half_open(ends) is not None

    @property
    def handshakes(self) -> list[Handshake]:
        """All of them."""
        passive = (each.half_open.values() for each in self._listening.values())
        active = (opening.handshake for opening in self._active.values())
        return [*active, *(handshake for each in passive for handshake in each)]

    @property
    def listeners(self) -> list[NetworkListener]:
        """All of them."""
        return [each.listener for each in self._listening.values()]

    def listens(self, port: int) -> bool:
        """Whether a listener has it."""
        return port in self._listening

    def _half_open(self, ends: Ends) -> Handshake | None:
        listening = self._listening.get(ends[0][1])
        return None if listening is None else listening.half_open.get(ends)

    def listen(self, listener: NetworkListener) -> None:
        """Answer SYNs to its port."""
        self._listening[listener.address[1]] = _Listening(listener)

    def unlisten(self, listener: NetworkListener) -> None:
        """Forget it and its handshakes."""
        self._listening.pop(listener.address[1], None)

    def connect(self, ends: Ends, seconds: float, now_us: int, fields: IpFields) -> Opening:
        """Send a SYN. Raises `NoRoute`."""
        next_hop = self._settings.next_hop(ends[1][0])
        handshake = self._handshake(ends, now_us, seconds, fields)
        opening = Opening(handshake, next_hop, seconds)
        self._active[ends] = opening
        self._output.segment(handshake.syn(), None, fields)
        return opening

    def abandon(self, opening: Opening) -> None:
        """Nobody waits for it any more."""
        self._active.pop((opening.handshake.local, opening.handshake.remote), None)

    def _handshake(
        self, ends: Ends, now_us: int, seconds: float, fields: IpFields, *, passive: bool = False
    ) -> Handshake:
        give_up = now_us + round(seconds * SECOND_US)
        iss = self._numbers.choose(*ends, now_us)
        sizes = self._settings.segment_size, self._settings.receive_buffer
        return Handshake(*ends, iss, passive, now_us, give_up, *sizes, fields)

    def take_syn(
        self, ends: Ends, segment: Segment, mac: bytes, now_us: int, least: int | None = None
    ) -> bool:
        """A segment for a listener (RFC 9293, 3.10.7.2); `False` if there is none, or it has ACK.

        `least`: a sequence number that ISS has to be ahead of, after a connection of these ends.
        """
        listening = self._listening.get(ends[0][1])
        if listening is None or segment.flags & (Flag.ACK | Flag.RST) == Flag.ACK:
            return False
        if segment.flags & (Flag.SYN | Flag.RST | Flag.FIN) != Flag.SYN:
            self._counters["listen_no_syn"] += 1
            return True
        if listening.listener.full or self._engine.full:
            self._counters["syn_no_room"] += 1
            return True
        how = self._settings.syn_timeout, listening.listener.fields
        handshake = self._handshake(ends, now_us, *how, passive=True)
        if least is not None and not before(least, handshake.iss):
            handshake.iss = advance(least, 1)
        handshake.take_syn(segment)
        handshake.mac = mac
        self._count_syn(segment, handshake)
        if len(listening.half_open) >= listening.listener.backlog:
            listening.half_open.popitem(last=False)
            self._counters["half_open_dropped"] += 1
        listening.half_open[ends] = handshake
        self._output.segment(handshake.syn(), mac, handshake.fields)
        return True

    def _count_syn(self, segment: Segment, handshake: Handshake) -> None:
        """What of a SYN is not used: its data comes again, as it is not acknowledged."""
        if segment.data:
            self._counters["syn_data"] += 1
        if handshake.options is not None and handshake.options.illegal:
            self._counters["tcp_option_length"] += 1

    def receive(self, ends: Ends, segment: Segment, mac: bytes, octets: bytes, now_us: int) -> None:
        """Take a segment of a handshake; `octets` is its frame."""
        opening = self._active.get(ends)
        handshake = opening.handshake if opening else self._half_open(ends)
        if handshake is None:
            return
        action = handshake.receive(segment, now_us)
        if segment.flags & Flag.SYN and action in (Action.ANSWER, Action.ESTABLISHED):
            handshake.mac = mac
            self._count_syn(segment, handshake)
        match action:
            case Action.RESET:
                self._counters["handshake_resets"] += 1
                reset = Segment(*ends, segment.acknowledgment, 0, Flag.RST)
                self._output.segment(reset, mac, handshake.fields)
            case Action.ACKNOWLEDGE if handshake.may_challenge(now_us):
                self._counters["challenge_acks"] += 1
                self._output.segment(handshake.acknowledgment(), mac, handshake.fields)
            case Action.ANSWER:
                self._output.segment(handshake.syn(), mac, handshake.fields)
            case Action.REFUSED if opening is not None:
                self._fail(opening, ConnectionRefused(f"{opening.peer} refused the connection"))
            case Action.REFUSED:
                self._forget(ends)
            case Action.ESTABLISHED:
                self._establish(ends, handshake, opening, segment, octets)

    def _establish(
        self,
        ends: Ends,
        handshake: Handshake,
        opening: Opening | None,
        segment: Segment,
        octets: bytes,
    ) -> None:
        # ARP says where frames go; that of a frame which came only where ARP has said nothing.
        handshake.mac = self._output.next_mac(handshake.remote[0]) or handshake.mac
        assert handshake.mac is not None
        listening = self._listening.get(ends[0][1])
        if opening is None and (listening is None or listening.listener.full or self._engine.full):
            # The peer sends again what it has to say, and then there may be room.
            self._counters["accept_no_room"] += 1
            return
        early = self._early(handshake, segment, octets) + self._take_early(ends)
        try:
            connection = self._engine.establish(handshake, handshake.mac, early)
        except TransportError as error:
            self._counters["establish_failed"] += 1
            numbers = handshake.next_sent, handshake.next_received
            reset = Segment(*ends, *numbers, Flag.RST | Flag.ACK)
            self._output.segment(reset, handshake.mac, handshake.fields)
            if opening is None:
                self._forget(ends)
            else:
                self._fail(opening, error)
            return
        if opening is not None:
            del self._active[ends]
            opening.stream = connection.stream
            self._output.segment(handshake.acknowledgment(), handshake.mac, handshake.fields)
        elif listening is not None:
            del listening.half_open[ends]
            listening.listener.add(connection.stream)

    def _early(self, handshake: Handshake, segment: Segment, octets: bytes) -> tuple[bytes, ...]:
        """The segment that ended the handshake, if the engine has to take data or FIN of it."""
        if not segment.data and not segment.flags & Flag.FIN:
            return ()
        if not segment.flags & Flag.SYN:
            return (octets,)
        rest = Segment(
            *(segment.source, segment.destination, handshake.next_received),
            *(segment.acknowledgment, segment.flags & ~Flag.SYN),
            # As it was, and not to be scaled: no more than the peer announced.
            segment.window >> handshake.shifts[0],
            data=segment.data,
        )
        packet = Datagram(segment.source[0], segment.destination[0], Protocol.TCP, rest.encode())
        assert handshake.mac is not None
        macs = self._settings.mac, handshake.mac
        return (Frame(*macs, EtherType.IPV4, packet.encode()).encode(),)

    def _forget(self, ends: Ends) -> None:
        listening = self._listening.get(ends[0][1])
        if listening is not None:
            listening.half_open.pop(ends, None)

    def _fail(self, opening: Opening, error: TransportError) -> None:
        self.abandon(opening)
        opening.error = error

    def sent(self, ends: Ends, sequence: int) -> bool:
        """Whether a handshake has this sequence number under way (RFC 5927, 4.1)."""
        opening = self._active.get(ends)
        handshake = opening.handshake if opening else self._half_open(ends)
        return handshake is not None and handshake.sent(sequence)

    def hard_error(self, ends: Ends, words: str) -> None:
        """An ICMP error that ends a handshake (RFC 9293, 3.9.2.2)."""
        opening = self._active.get(ends)
        if opening is None:
            self._forget(ends)
        else:
            text = f"{opening.peer} refused the connection: {words}"
            self._fail(opening, ConnectionRefused(text))

    def soft_error(self, ends: Ends, words: str) -> None:
        """An ICMP error that may pass."""
        if opening := self._active.get(ends):
            opening.soft_error = words

    def unreachable(self, next_hop: IPv4Address) -> None:
        """A neighbour does not answer ARP requests."""
        for opening in [each for each in self._active.values() if each.next_hop == next_hop]:
            self._no_neighbour(opening)

    def _no_neighbour(self, opening: Opening) -> None:
        text = f"{opening.next_hop} does not answer ARP requests"
        if opening.next_hop != opening.handshake.remote[0]:
            text += f": it is the gateway to {opening.peer}"
        self._fail(opening, NoNeighbour(self._explain(text)))

    def _timed_out(self, opening: Opening) -> None:
        if not self._output.reaches(opening.next_hop):
            self._no_neighbour(opening)
            return
        # What is left of a caller's time has many digits.
        text = f"{opening.peer} does not answer in {round(opening.seconds, 3):g} s"
        if opening.soft_error:
            text += f" (an ICMP error says: {opening.soft_error})"
        self._fail(opening, TransportTimeout(self._explain(text)))

    @property
    def next_us(self) -> int | None:
        """When `tick` has something to do."""
        return min((each.due_us for each in self.handshakes), default=None)

    def tick(self, now_us: int) -> None:
        """Send SYNs again, or give up (RFC 6298; RFC 9293, MUST-22 and MUST-23)."""
        for opening in list(self._active.values()):
            handshake = opening.handshake
            if now_us >= handshake.give_up_us:
                self._timed_out(opening)
            elif handshake.tick(now_us):
                self._again(handshake)
                if handshake.retransmissions == R1:
                    self._output.doubt(opening.next_hop)
        for listening in self._listening.values():
            for ends, handshake in list(listening.half_open.items()):
                if now_us >= handshake.give_up_us:
                    del listening.half_open[ends]
                    self._counters["half_open_timeouts"] += 1
                elif handshake.tick(now_us):
                    self._again(handshake)

    def _again(self, handshake: Handshake) -> None:
        self._counters["syn_retransmissions"] += 1
        received = handshake.state is State.SYN_RECEIVED
        mac = handshake.mac if received else None
        self._output.segment(handshake.syn(), mac, handshake.fields)
