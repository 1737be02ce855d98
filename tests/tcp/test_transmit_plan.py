"""What an event means for the sending side, statement by statement of the RFCs."""

from collections.abc import Iterable

import pytest

from stagecoach.gateware.tcp.layouts import Due, NoticeKind, TransmitOperation
from stagecoach.gateware.tcp.transmit_turn import TransmitKind
from stagecoach.sim.cosim.streams import seeded_random
from tests.tcp import plan_acks  # noqa: F401 - it adds its cases
from tests.tcp.plan_bench import (
    CASES,
    DELAY_US,
    LAYOUTS,
    MSS,
    QUEUED,
    R1,
    R2_US,
    SENT,
    Case,
    anything,
    case,
    check,
)

BACKGROUNDS = 5
"""Connections for each case: what it does not name is random."""


@case(TransmitKind.NOTE)
def note_now(c: Case) -> None:
    c.note |= {"due": Due.NOW.value, "edge": c.at(1)}
    c.wants("acks insists")
    c.becomes(windows__edge=c.at(1))


@case(TransmitKind.NOTE)
def note_later(c: Case) -> None:
    """RFC 9293, 3.8.6.3: the first segment's ACK may wait."""
    c.note["due"] = Due.LATER.value
    c.becomes(numbers__unacknowledged=1, times__deadlines__acknowledge__armed=1)
    c.becomes(times__deadlines__acknowledge__at=c.ago(-DELAY_US))


@case(TransmitKind.NOTE)
def note_later_again(c: Case) -> None:
    """MUST-59, RFC 5681, 4.2: the second segment is acknowledged."""
    c.note["due"] = Due.LATER.value
    c.numbers["unacknowledged"] = 1
    c.wants("acks")
    c.becomes(times__deadlines__acknowledge__armed=None, times__deadlines__acknowledge__at=None)


def grows(c: Case, octets: int) -> None:
    c.note["edge"] = c.at(octets)
    c.becomes(windows__edge=c.at(octets))


@case(TransmitKind.NOTE)
def window_grows_too_little(c: Case) -> None:
    """RFC 9293, 3.8.6.2.2: no silly window is announced."""
    grows(c, 2 * MSS - 1)


@case(TransmitKind.NOTE)
def window_grows_by_two_segments(c: Case) -> None:
    grows(c, 2 * MSS)
    c.wants("acks")


@case(TransmitKind.NOTE)
def window_from_zero_grows_too_little(c: Case) -> None:
    c.note["number"] = c.windows["announced"]
    grows(c, MSS - 1)


@case(TransmitKind.NOTE)
def window_from_zero_grows_by_a_segment(c: Case) -> None:
    c.note["number"] = c.windows["announced"]
    grows(c, MSS)
    c.wants("acks")


@case(TransmitKind.NOTE)
def window_of_a_peer_that_sends_no_more(c: Case) -> None:
    c.numbers["peer_fin"] = 1
    grows(c, 4 * MSS)


@case(TransmitKind.NOTE)
def note_of_a_fin(c: Case) -> None:
    c.note |= {"due": Due.NOW.value, "fin": 1}
    c.wants("acks")
    c.becomes(numbers__peer_fin=1)


@case(TransmitKind.NOTE)
def note_of_a_fin_after_ours(c: Case) -> None:
    """FIN-WAIT-2: TIME-WAIT follows."""
    c.numbers |= {"closing": 1, "fin_acknowledged": 1}
    note_of_a_fin(c)
    c.wants("", NoticeKind.TIME_WAIT)


@case(TransmitKind.NOTE)
def note_of_a_fin_that_came_again(c: Case) -> None:
    c.numbers["peer_fin"] = 1
    c.note |= {"due": Due.NOW.value, "fin": 1}
    c.wants("acks insists")


@case(TransmitKind.NOTE)
def note_that_failed(c: Case) -> None:
    c.events["note"]["failed"] = 1
    c.wants("resets", NoticeKind.MEMORY)


@case(TransmitKind.FAILED)
def memory_that_failed(c: Case) -> None:
    c.wants("resets", NoticeKind.MEMORY)


def comes(c: Case, late: int = 0) -> None:
    c.due["resend"] = 1
    c.deadlines["resend"]["at"] = c.ago(late)


@case(TransmitKind.DUE)
def timeout(c: Case) -> None:
    """RFC 6298, 5.4 to 5.6."""
    comes(c)
    c.wants("works arms resends rewinds")
    c.becomes(numbers__retries=2)


@case(TransmitKind.DUE)
def timeout_that_is_suspect(c: Case) -> None:
    """RFC 9293, 3.8.3: R1."""
    comes(c, (1 << 31) - 1)
    c.numbers["retries"] = R1 - 1
    c.wants("works arms resends rewinds suspects")
    c.becomes(numbers__retries=R1)


@case(TransmitKind.DUE)
def timeout_after_that(c: Case) -> None:
    comes(c)
    c.numbers["retries"] = R1
    c.wants("works arms resends rewinds")


@case(TransmitKind.DUE)
def timeout_that_gives_up(c: Case) -> None:
    """RFC 9293, 3.8.3: R2; no ACK goes then."""
    comes(c)
    c.due["acknowledge"] = c.deadlines["acknowledge"]["armed"] = 1
    c.numbers["since"] = c.ago(R2_US)
    c.wants("", NoticeKind.TIMED_OUT)


@case(TransmitKind.DUE)
def timeout_that_was_set_anew(c: Case) -> None:
    comes(c, -1)


@case(TransmitKind.DUE)
def timeout_that_is_off(c: Case) -> None:
    comes(c)
    c.deadlines["resend"]["armed"] = 0


@case(TransmitKind.DUE)
def persist_timer(c: Case) -> None:
    comes(c)
    c.numbers["persists"] = 1
    c.wants("probes")


@case(TransmitKind.DUE)
def persist_timer_that_gives_up(c: Case) -> None:
    comes(c)
    c.numbers |= {"persists": 1, "since": c.ago(R2_US)}
    c.wants("", NoticeKind.TIMED_OUT)


@case(TransmitKind.DUE)
def delayed_ack(c: Case) -> None:
    c.due["acknowledge"] = c.deadlines["acknowledge"]["armed"] = 1
    c.wants("acks_late")


@case(TransmitKind.DUE)
def delayed_ack_that_went(c: Case) -> None:
    c.due["acknowledge"] = 1


@case(TransmitKind.FPDU)
def fpdu(c: Case) -> None:
    c.wants("stores pushes")


@case(TransmitKind.FPDU)
def longest_fpdu_that_closes(c: Case) -> None:
    c.fpdu |= {"octets": (1 << 14) - 1, "close": 1}
    c.wants("stores pushes works")
    c.becomes(numbers__closing=1)


@case(TransmitKind.FPDU)
def close_alone(c: Case) -> None:
    """CLOSE-WAIT: LAST-ACK follows."""
    c.fpdu |= {"octets": 0, "close": 1}
    c.numbers["peer_fin"] = 1
    c.wants("pushes works")
    c.becomes(numbers__closing=1, numbers__passive=1)


@case(TransmitKind.FPDU)
def fpdu_after_close(c: Case) -> None:
    c.numbers["closing"] = 1
    c.fpdu["close"] = 1
    c.wants("stores drops")


@case(TransmitKind.FPDU)
def close_after_close(c: Case) -> None:
    c.numbers["closing"] = 1
    c.fpdu |= {"octets": 0, "close": 1}


@case(TransmitKind.FPDU)
def fpdu_after_the_end(c: Case) -> None:
    c.numbers["alive"] = 0
    c.wants("stores drops")


def command(c: Case, operation: TransmitOperation) -> None:
    c.command["operation"] = operation.value


@case(TransmitKind.COMMAND)
def begin(c: Case) -> None:
    command(c, TransmitOperation.BEGIN)
    c.wants("stores")


@case(TransmitKind.COMMAND)
def send(c: Case) -> None:
    command(c, TransmitOperation.SEND)
    c.wants("stores pushes")


@case(TransmitKind.COMMAND)
def finish(c: Case) -> None:
    command(c, TransmitOperation.FINISH)
    c.wants("pushes works")
    c.becomes(numbers__closing=1)


@case(TransmitKind.COMMAND)
def finish_twice(c: Case) -> None:
    command(c, TransmitOperation.FINISH)
    c.numbers["closing"] = 1


@case(TransmitKind.COMMAND)
def abort(c: Case) -> None:
    """RFC 9293, 3.10.5: a reset in CLOSE-WAIT."""
    command(c, TransmitOperation.ABORT)
    c.numbers["peer_fin"] = 1
    c.wants("resets", NoticeKind.ABORTED)


@case(TransmitKind.COMMAND)
def abort_of_what_is_closed(c: Case) -> None:
    """RFC 9293, 3.10.5: none in CLOSING and LAST-ACK."""
    command(c, TransmitOperation.ABORT)
    c.numbers |= {"closing": 1, "peer_fin": 1}
    c.wants("", NoticeKind.ABORTED)


@case(TransmitKind.COMMAND)
def larger_segments(c: Case) -> None:
    command(c, TransmitOperation.RESIZE)
    c.command["emss"] = MSS + 1
    c.wants("tells works pushes")
    c.becomes(numbers__emss=MSS + 1)


@case(TransmitKind.COMMAND)
def smaller_segments(c: Case) -> None:
    """What is outstanding goes again; cwnd is that of a restart, and no loss is seen in it."""
    command(c, TransmitOperation.RESIZE)
    c.command["emss"] = 1
    c.wants("tells works pushes shrinks resends rewinds")
    c.becomes(numbers__emss=1, path__congestion__recover=c.at(SENT - 1))


@case(TransmitKind.COMMAND)
def smaller_segments_and_nothing_outstanding(c: Case) -> None:
    command(c, TransmitOperation.RESIZE)
    c.command["emss"] = MSS - 1
    c.numbers |= {"attached": 0, "next": c.at(0), "max": c.at(0)}
    c.wants("works pushes shrinks")
    c.becomes(numbers__emss=MSS - 1, path__congestion__recover=c.at(-1))


@case(TransmitKind.COMMAND)
def attach(c: Case) -> None:
    command(c, TransmitOperation.ATTACH)
    c.numbers["attached"] = 0
    c.wants("tells works")
    c.becomes(numbers__attached=1, numbers__base=c.at(QUEUED), numbers__granted=c.at(QUEUED))


@case(TransmitKind.COMMAND)
def detach(c: Case) -> None:
    command(c, TransmitOperation.DETACH)
    c.becomes(numbers__attached=0)


@case(TransmitKind.COMMAND)
def info(c: Case) -> None:
    command(c, TransmitOperation.INFO)


@case(TransmitKind.VISIT)
def visit(c: Case) -> None:
    c.numbers["visiting"] = 1
    c.wants("pushes")
    c.becomes(numbers__visiting=0)


@pytest.mark.parametrize("kind", list(TransmitKind))
def test_cases(kind: TransmitKind) -> None:
    rng = seeded_random(kind.name)

    def cases() -> Iterable[Case]:
        for name, of_kind, change in CASES:
            for _ in range(BACKGROUNDS if of_kind is kind else 0):
                each = Case(rng, kind)
                change(each)
                print(name, each.base, each.now)
                yield each

    check(cases(), rng)


def test_an_event_of_a_connection_that_is_not_alive_changes_nothing() -> None:
    """But an FPDU is dropped, and a visit is over."""
    rng = seeded_random()

    def cases() -> Iterable[Case]:
        for kind in TransmitKind:
            for _ in range(10):
                each = Case(rng, kind)
                each.events = {name: anything(rng, layout) for name, layout in LAYOUTS.items()}
                each.numbers["alive"] = 0
                if kind is TransmitKind.FPDU and each.events["fpdu"]["octets"]:
                    each.wants("stores drops")
                if kind is TransmitKind.VISIT:
                    each.becomes(numbers__visiting=0)
                yield each

    check(cases(), rng)
