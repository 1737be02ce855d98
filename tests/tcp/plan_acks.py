"""Cases of ACKs, and what the plan has to say of them."""

from stagecoach.gateware.tcp.layouts import NoticeKind
from stagecoach.gateware.tcp.transmit_turn import TransmitKind
from tests.tcp.plan_bench import MOST_CHALLENGES, PERIOD_US, QUEUED, RESENT, SENT, SPACE, Case, case


def acknowledges(c: Case, position: int) -> None:
    """SND.UNA moves (RFC 9293, 3.10.7.4); the timer begins to count anew."""
    c.ack["acknowledgment"] = c.at(position)
    c.wants("newer works pushes")
    c.becomes(numbers__una=c.at(position), numbers__retries=0, numbers__probed=0)
    c.becomes(numbers__since=c.now)


@case(TransmitKind.ACK)
def ack_of_some(c: Case) -> None:
    acknowledges(c, 1)


@case(TransmitKind.ACK)
def ack_past_next(c: Case) -> None:
    """What is acknowledged is not sent again."""
    acknowledges(c, RESENT + 1)
    c.becomes(numbers__next=c.at(RESENT + 1))


@case(TransmitKind.ACK)
def ack_of_all(c: Case) -> None:
    """RFC 6298, 5.2: the timer is turned off."""
    acknowledges(c, SENT)
    c.becomes(numbers__next=c.at(SENT), times__deadlines__resend__armed=0)


@case(TransmitKind.ACK)
def ack_of_all_but_one(c: Case) -> None:
    acknowledges(c, SENT - 1)
    c.becomes(numbers__next=c.at(SENT - 1))


@case(TransmitKind.ACK)
def ack_of_a_probe(c: Case) -> None:
    """RFC 9293, 3.8.6.1: its byte was not counted until it is acknowledged."""
    c.numbers |= {"next": c.at(0), "max": c.at(0), "probed": 1}
    acknowledges(c, 1)
    c.becomes(numbers__next=c.at(1), numbers__max=c.at(1), times__deadlines__resend__armed=0)


@case(TransmitKind.ACK)
def ack_of_what_was_timed(c: Case) -> None:
    c.times |= {"timed": 1, "timed_number": c.at(500)}
    acknowledges(c, 500)
    c.wants("samples")
    c.becomes(times__timed=0)


@case(TransmitKind.ACK)
def ack_before_what_was_timed(c: Case) -> None:
    c.times |= {"timed": 1, "timed_number": c.at(500)}
    acknowledges(c, 499)


@case(TransmitKind.ACK)
def ack_of_our_fin(c: Case) -> None:
    c.numbers |= {"closing": 1, "next": c.at(QUEUED + 1), "max": c.at(QUEUED + 1)}
    acknowledges(c, QUEUED + 1)
    c.becomes(numbers__fin_acknowledged=1, times__deadlines__resend__armed=0)


@case(TransmitKind.ACK)
def ack_of_all_before_our_fin(c: Case) -> None:
    c.numbers |= {"closing": 1, "next": c.at(QUEUED + 1), "max": c.at(QUEUED + 1)}
    acknowledges(c, QUEUED)


@case(TransmitKind.ACK)
def ack_that_ends_closing(c: Case) -> None:
    """CLOSING: TIME-WAIT follows."""
    c.numbers["peer_fin"] = 1
    ack_of_our_fin(c)
    c.wants("", NoticeKind.TIME_WAIT)


@case(TransmitKind.ACK)
def ack_that_ends_last_ack(c: Case) -> None:
    c.numbers["passive"] = 1
    ack_that_ends_closing(c)
    c.cause = NoticeKind.CLOSED


@case(TransmitKind.ACK)
def duplicate(c: Case) -> None:
    """RFC 5681, 2: data is outstanding, the segment is empty, and the window the same."""
    c.ack["empty"] = 1
    c.wants("duplicates works pushes")


@case(TransmitKind.ACK)
def not_a_duplicate_with_data(c: Case) -> None:
    c.wants("pushes")


@case(TransmitKind.ACK)
def not_a_duplicate_without_outstanding_data(c: Case) -> None:
    c.ack["empty"] = 1
    c.numbers |= {"next": c.at(0), "max": c.at(0)}
    c.wants("pushes")


@case(TransmitKind.ACK)
def not_a_duplicate_with_another_window(c: Case) -> None:
    c.ack |= {"empty": 1, "window": 101}
    c.wants("pushes")
    c.becomes(windows__window=101 << 7)


@case(TransmitKind.ACK)
def an_old_ack(c: Case) -> None:
    """RFC 9293, 3.10.7.4: one before SND.UNA is ignored, its window too."""
    c.ack |= {"empty": 1, "acknowledgment": c.at(-1), "window": 101}
    c.wants("pushes")


@case(TransmitKind.ACK)
def a_segment_without_ack(c: Case) -> None:
    c.ack |= {"acknowledges": 0, "empty": 1, "acknowledgment": c.at(1), "window": 0}
    c.wants("pushes")


@case(TransmitKind.ACK)
def the_largest_window(c: Case) -> None:
    """RFC 9293, 3.10.7.4: SND.WND and SND.WL1, and the largest SND.WND there was."""
    c.path["shift"] = 14
    c.ack |= {"window": 0xFFFF, "sequence": (c.windows["window_from"] + 1) % SPACE}
    c.wants("pushes")
    window = 0xFFFF << 14
    c.becomes(windows__window=window, windows__max_window=window)
    c.becomes(windows__window_from=c.ack["sequence"])


@case(TransmitKind.ACK)
def window_of_an_older_segment(c: Case) -> None:
    """It does not count (RFC 9293, 3.10.7.4), what it acknowledges does."""
    c.ack |= {"window": 101, "sequence": (c.windows["window_from"] - 1) % SPACE}
    acknowledges(c, 1)


@case(TransmitKind.ACK)
def window_that_opens(c: Case) -> None:
    """The persist timer ends, and its back-off."""
    c.numbers |= {"next": c.at(0), "max": c.at(0), "persists": 1}
    c.windows["window"] = 0
    c.wants("unbacks works pushes")
    c.becomes(windows__window=100 << 7, numbers__persists=0, times__deadlines__resend__armed=0)


@case(TransmitKind.ACK)
def window_that_stays_closed(c: Case) -> None:
    """RFC 9293, MUST-37: as long as the peer answers, the connection stays open."""
    c.numbers |= {"next": c.at(0), "max": c.at(0), "persists": 1}
    c.windows["window"] = c.ack["window"] = 0
    c.wants("pushes")
    c.becomes(numbers__since=c.now, numbers__persists=None, times__deadlines__resend__armed=None)


@case(TransmitKind.ACK)
def challenge(c: Case) -> None:
    c.ack |= {"acknowledges": 0, "challenge": 1}
    c.path["challenges"] = MOST_CHALLENGES - 1
    c.wants("acks insists pushes")
    c.becomes(path__challenges=MOST_CHALLENGES)


@case(TransmitKind.ACK)
def first_challenge_of_all(c: Case) -> None:
    challenge(c)
    c.path["challenges"] = 0
    c.becomes(path__challenges=1, times__challenged_at=c.now)


@case(TransmitKind.ACK)
def challenge_past_the_limit(c: Case) -> None:
    """RFC 5961, 7: no more in that time."""
    c.ack |= {"acknowledges": 0, "challenge": 1}
    c.path["challenges"] = MOST_CHALLENGES
    c.wants("pushes")


@case(TransmitKind.ACK)
def challenge_of_the_next_period(c: Case) -> None:
    challenge(c)
    c.path["challenges"] = MOST_CHALLENGES
    c.times["challenged_at"] = c.ago(PERIOD_US)
    c.becomes(path__challenges=1, times__challenged_at=c.now)


@case(TransmitKind.ACK)
def data_that_nobody_reads(c: Case) -> None:
    """RFC 9293, SHLD-3."""
    c.ack |= {"acknowledges": 0, "lost": 1}
    c.wants("resets pushes", NoticeKind.DATA_LOST)


@case(TransmitKind.ACK)
def reset(c: Case) -> None:
    c.ack |= {"reset": 1, "acknowledgment": c.at(1)}
    c.wants("", NoticeKind.RESET)
