"""Keep-alive: off at first; probes only what is idle; ends only what does not answer."""

import pytest

from stagecoach.sim.model.tcp.state import Cause, Settings, State
from tests.sim.model.tcp.script import S, Script, established

requirement = pytest.mark.requirement
HOURS = 3600 * S


@requirement("TCP-MUST-25")
def test_off_unless_asked_for():
    script = established()
    assert script.connection.next_deadline() is None
    script.at(100 * HOURS)
    assert (script.state, script.sent()) == (State.ESTABLISHED, [])


@requirement("IP-1122-4.2.3.6-01")
@requirement("TCP-MUST-24", "TCP-MUST-27", "TCP-SHLD-12", "TCP-MAY-5", "TCP-MUST-29")
def test_probes_of_an_idle_connection_until_it_is_given_up():
    script = established(keep_alive=10 * S, keep_alive_interval=2 * S, keep_alive_probes=3)
    script.send(5)
    script.arrive("A", 1, 6, data=7)
    script.sent()
    script.at(10 * S - 1)
    assert script.sent() == ["A 6 ack 8"]
    script.at(14 * S)
    # The byte before SND.NXT, without data: one probe without an answer ends nothing.
    assert script.timed() == [(t * S, "A 5 ack 8") for t in (10, 12, 14)]
    script.at(16 * S)
    assert script.timed() == [(16 * S, "RA 6 ack 8")]
    assert script.connection.cause is Cause.KEEP_ALIVE


@requirement("TCP-MUST-26")
def test_anything_that_is_heard_puts_the_probes_off():
    script = established(keep_alive=10 * S, keep_alive_interval=2 * S, keep_alive_probes=3)
    script.at(8 * S)
    script.arrive("A", 1, 1)
    script.at(13 * S)
    assert script.sent() == []
    script.at(20 * S)
    assert script.timed() == [(18 * S, "A 0 ack 1"), (20 * S, "A 0 ack 1")]
    script.arrive("A", 1, 1)
    script.at(30 * S - 1)
    assert script.sent() == []
    script.at(34 * S)
    assert [at // S for at, _ in script.timed()] == [30, 32, 34]
    script.arrive("A", 1, 1)
    assert script.state is State.ESTABLISHED


@requirement("TCP-MUST-26")
def test_no_probe_while_something_is_outstanding():
    script = established(keep_alive=10 * S)
    script.send(5)
    script.at(30 * S)
    assert {line for _, line in script.timed()} == {"PA 1+5 ack 1"}
    script.arrive("A", 1, 6)
    script.at(40 * S - 1)
    assert script.sent() == []
    script.at(40 * S)
    assert script.sent() == ["A 5 ack 1"]


@requirement("TCP-MUST-28")
def test_interval_by_default_is_not_shorter_than_two_hours():
    # There is no default interval but the one that is asked for.
    assert Settings().keep_alive is None


def test_probes_go_on_after_the_peer_closed_and_end_with_our_close():
    script = established(keep_alive=10 * S)
    script.arrive("FA", 1, 1)
    script.sent()
    script.at(10 * S)
    assert script.sent() == ["A 0 ack 2"]
    script = established(keep_alive=10 * S)
    script.close()
    script.arrive("A", 1, 2)
    script.sent()
    script.at(100 * S)
    assert (script.state, script.sent()) == (State.FIN_WAIT_2, [])


@requirement("TCP-MUST-26")
def test_idle_time_begins_with_the_answer_to_the_syn():
    script = Script(keep_alive=10 * S)
    script.open()
    script.at(5 * S)
    script.arrive("SA", 0, 1, mss=1460)
    script.sent()
    script.at(15 * S - 1)
    assert script.sent() == []
    script.at(15 * S)
    assert script.sent() == ["A 0 ack 1"]
