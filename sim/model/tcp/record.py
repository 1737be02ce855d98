"""The record of one connection (RFC 9293, 3.3.1): its state and its parts."""

from ipaddress import IPv4Address

from stagecoach.sim.model.tcp import sequence
from stagecoach.sim.model.tcp.challenge import ChallengeLimit
from stagecoach.sim.model.tcp.keep_alive import KeepAlive
from stagecoach.sim.model.tcp.options import Options
from stagecoach.sim.model.tcp.path_mtu import PathMtu
from stagecoach.sim.model.tcp.receiver import Receiver
from stagecoach.sim.model.tcp.segment import Flags, Segment
from stagecoach.sim.model.tcp.sender import Sender
from stagecoach.sim.model.tcp.state import Cause, Report, Settings, State

Endpoint = tuple[IPv4Address, int]

OPENING = (State.SYN_SENT, State.SYN_RECEIVED)
SENDING = (State.ESTABLISHED, State.CLOSE_WAIT)
RECEIVING = (State.ESTABLISHED, State.FIN_WAIT_1, State.FIN_WAIT_2)


def reset_for(segment: Segment) -> Segment | None:
    """What a host answers to a segment that belongs to no connection (RFC 9293, 3.10.7.1)."""
    ports = segment.destination_port, segment.source_port
    if Flags.RST in segment.flags:
        return None
    if Flags.ACK in segment.flags:
        return Segment(*ports, segment.acknowledgment, flags=Flags.RST)
    acknowledgment = sequence.add(segment.sequence, segment.length)
    return Segment(*ports, 0, acknowledgment, Flags.RST | Flags.ACK)


class Record:
    """What the steps of opening, arrival and closing work on.

    ``output`` and ``reports`` are the lists that the user empties. ``passive`` says whether a
    passive OPEN led here (MUST-11). ``previous`` is the record in TIME-WAIT that a new SYN
    reopened, until that is known to be no old duplicate.
    """

    def __init__(
        self,
        local: Endpoint,
        remote: Endpoint | None,
        settings: Settings,
        output: list[Segment],
        reports: list[Report],
    ) -> None:
        self.local = local
        self.remote = remote
        self.settings = settings
        self.output = output
        self.reports = reports
        self.state = State.CLOSED
        self.cause: Cause | None = None
        self.passive = False
        self.previous: Record | None = None
        self.receiver = Receiver(settings)
        self.sender = Sender(settings, self.emit)
        self.keep_alive = KeepAlive(settings)
        self.challenges = ChallengeLimit(settings.challenge_limit, settings.challenge_period)
        self.path_mtu = PathMtu(settings.mtu, min(settings.path_mtu_floor, settings.mtu))
        # What the peer announced, None until its SYN or without the option.
        self.peer_mss: int | None = None
        # The handshake: when SYN is sent again, how often it was, since when; a measurement.
        self.syn_at: int | None = None
        self.syn_losses = 0
        self.syn_since = 0
        self.syn_timed: int | None = None
        self.scaling = settings.window_scaling
        # Whether what the peer still sends is lost (MAY-1).
        self.discarding = False
        # The end of TIME-WAIT.
        self.wait_at: int | None = None
        self.urgent_segments = 0

    # Segments that are sent.

    def emit(
        self,
        now: int,
        position: int,
        flags: Flags,
        payload: bytes = b"",
        options: Options | None = None,
    ) -> None:
        """Put out a segment at a position of ours; an ACK that was due goes with it."""
        assert self.remote
        acknowledgment = self.receiver.next_sequence if Flags.ACK in flags else 0
        window = self.receiver.announce(syn=Flags.SYN in flags)
        ports = self.local[1], self.remote[1]
        numbers = self.sender.number(position), acknowledgment
        self.output.append(Segment(*ports, *numbers, flags, window, payload, options or Options()))

    def send_ack(self, now: int) -> None:
        """An ACK without data, with SACK blocks if data is held after a gap."""
        self.emit(now, self.sender.max, Flags.ACK, options=Options(sack=self.receiver.blocks()))

    def challenge(self, now: int) -> None:
        """RFC 5961: an ACK that lets a true peer prove itself."""
        if self.challenges.allow(now):
            self.send_ack(now)

    def refuse(self, segment: Segment) -> None:
        """Answer as for a segment of no connection."""
        answer = reset_for(segment)
        if answer:
            self.output.append(answer)

    def send_reset(self, now: int) -> None:
        """Tell the peer that the connection is gone."""
        self.emit(now, self.sender.max, Flags.RST | Flags.ACK)

    # The user.

    def report(self, report: Report) -> None:
        """Tell the user, if he wants to be told."""
        if self.settings.reports:
            self.reports.append(report)

    # The end.

    def end(self, cause: Cause) -> None:
        """CLOSED; what was received can still be taken."""
        self.state, self.cause = State.CLOSED, cause
        self.stop_timers()

    def stop_timers(self) -> None:
        """No timer runs any more."""
        self.sender.stop()
        self.syn_at = self.receiver.ack_at = self.wait_at = self.path_mtu.raise_at = None
