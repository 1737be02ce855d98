"""What a stranger who does not know the numbers can do (RFC 5961), and how often he is answered."""

import pytest

from stagecoach.sim.model.tcp.state import Cause, State
from tests.sim.model.tcp.script import MS, S, accepted, established

requirement = pytest.mark.requirement


@requirement("TCPSEC-3.2-01", "TCP-SHLD-2", "TCP-MUST-12")
@pytest.mark.parametrize("flags", ["R", "RA"])
@pytest.mark.parametrize("data", [0, 10])
def test_reset_at_the_expected_number_resets(flags, data):
    script = established()
    script.arrive("A", 1, 1, data=10)
    script.arrive(flags, 11, 1, data=data)
    assert (script.state, script.sent()) == (State.CLOSED, [])
    assert script.connection.cause is Cause.RESET
    assert script.connection.next_deadline() is None
    # What came before it can still be taken.
    assert len(script.receive()) == 10


@requirement("TCPSEC-3.2-02")
@pytest.mark.parametrize("seq", [2, 1000, 128 << 10])
def test_reset_elsewhere_in_the_window_is_challenged(seq):
    script = established(syn={"mss": 1460, "window_scale": 0})
    script.arrive("R", seq)
    assert (script.state, script.sent()) == (State.ESTABLISHED, ["A 1 ack 1"])


@requirement("TCPSEC-3.2-03")
@pytest.mark.parametrize("seq", [0, -100, (128 << 10) + 1, 1 << 30, -(1 << 30)])
def test_reset_outside_the_window_is_ignored(seq):
    script = established(syn={"mss": 1460, "window_scale": 0})
    script.arrive("R", seq)
    assert (script.state, script.sent()) == (State.ESTABLISHED, [])


@requirement("TCPSEC-4.2-01")
@pytest.mark.parametrize("seq", [0, 1, 1000, -1, 1 << 30])
@pytest.mark.parametrize("flags", ["S", "SA", "SF"])
def test_syn_is_challenged_whatever_its_number_is(seq, flags):
    script = established()
    script.arrive(flags, seq, 1)
    assert (script.state, script.sent()) == (State.ESTABLISHED, ["A 1 ack 1"])


@requirement("TCP-MAY-12", "TCPSEC-5.2-01", "TCPSEC-5.2-02")
@pytest.mark.parametrize(
    ("ack", "taken"),
    [(2001, True), (2002, False), (1, True), (1 - 4000, True), (-4000, False), (1 << 30, False)],
)
def test_ack_out_of_range_is_challenged_and_its_data_dropped(ack, taken):
    script = established(win=4000)
    script.send(2000)
    script.sent()
    script.arrive("A", 1, ack, data=10)
    assert script.sent() == ([] if taken else ["A 2001 ack 1"])
    assert len(script.receive()) == (10 if taken else 0)


@requirement("TCPSEC-7-01")
@pytest.mark.parametrize("flags", ["S", "R", "A"])
def test_challenges_are_limited_in_any_period(flags):
    script = established(challenge_limit=3, challenge_period=S)
    seq = 5 if flags == "R" else -5
    for _ in range(10):
        script.arrive(flags, seq)
    assert script.sent() == ["A 1 ack 1"] * 3
    script.at(S - 1)
    script.arrive(flags, seq)
    assert script.sent() == []
    script.at(S)
    script.arrive(flags, seq)
    assert script.sent() == ["A 1 ack 1"]


@requirement("TCPSEC-7-01")
def test_limit_is_ten_in_five_seconds():
    script = established()
    for _ in range(20):
        script.arrive("S", 1)
    assert len(script.sent()) == 10
    script.at(5 * S - 1)
    script.arrive("S", 1)
    assert script.sent() == []
    script.at(5 * S)
    script.arrive("S", 1)
    assert len(script.sent()) == 1


@requirement("TCP-3.10.7.4-02")
def test_old_data_is_acknowledged_without_a_limit():
    script = established()
    for _ in range(20):
        script.arrive("A", -99, 1, data=100)
    assert script.sent() == ["A 1 ack 1"] * 20


@requirement("TCPSEC-3.2-01", "TCP-MUST-11")
@pytest.mark.parametrize("made", [established, accepted])
def test_reset_is_told_however_the_connection_was_opened(made):
    script = made()
    script.arrive("R", 1)
    assert (script.state, script.connection.cause) == (State.CLOSED, Cause.RESET)


@requirement("TCP-3.5.3-01")
@pytest.mark.parametrize("state", ["FIN_WAIT_1", "FIN_WAIT_2", "CLOSE_WAIT", "CLOSING", "LAST_ACK"])
def test_reset_ends_each_state(state):
    script = established()
    if state in ("CLOSE_WAIT", "LAST_ACK"):
        script.arrive("FA", 1, 1)
    if state != "CLOSE_WAIT":
        script.close()
    if state == "FIN_WAIT_2":
        script.arrive("A", 1, 2)
    if state == "CLOSING":
        script.arrive("FA", 1, 1)
    assert script.state is State[state]
    heard = state in ("CLOSE_WAIT", "LAST_ACK", "CLOSING")
    script.arrive("R", 1 + heard)
    assert (script.state, script.connection.cause) == (State.CLOSED, Cause.RESET)
    script.after(1000 * S)
    assert script.connection.next_deadline() is None


def test_reset_in_time_wait_is_no_failure():
    script = established()
    script.close()
    script.arrive("FA", 1, 2)
    script.after(10 * MS)
    script.arrive("R", 2)
    assert (script.state, script.connection.cause) == (State.CLOSED, Cause.CLOSED)
