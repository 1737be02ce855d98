"""Which RTR frame two ends choose, for every pair of their options (RFC 6581, 9.2)."""

import itertools

import pytest

from stagecoach.host_driver import RTR, MalformedFrame, NoMatchingRTR
from stagecoach.host_driver.mpa_negotiation import (
    accepting_reply,
    check_reply,
    request_frame,
    settle,
)
from stagecoach.host_driver.mpa_startup import StartupFrame
from stagecoach.host_driver.mpa_terms import DEFAULT_RTR
from tests.host_driver.test_startup_negotiation import OPTIONS, answer, of, terms


@pytest.mark.requirement("MPA2-9.2-02", "MPA2-9.2-03", "MPA2-9.2-04", "MPA2-9.2-05", "MPA2-9.2-07")
@pytest.mark.parametrize(("asked", "able"), list(itertools.product(OPTIONS, OPTIONS[1:])))
def test_every_pair_of_rtr_options(asked, able):
    reply = answer(of(asked), terms(rtr=able))
    assert reply.peer_to_peer and reply.rtr
    common = asked & able & DEFAULT_RTR
    if common:
        assert reply.rtr == common
    elif asked & able:
        assert reply.rtr == RTR.SEND
    else:
        # What is possible at all is told, though it does not help.
        assert reply.rtr in able and not reply.rtr & asked


@pytest.mark.requirement("MPA2-9.2-05", "MPA2-9.2-07")
@pytest.mark.parametrize(("asked", "able"), list(itertools.product(OPTIONS, OPTIONS[1:])))
def test_every_pair_of_rtr_options_of_a_responder_that_wants_no_reads(asked, able):
    reply = answer(of(asked), terms(rtr=able, ird=0))
    # What both can do is found even if it takes an inbound Read.
    assert bool(reply.rtr & asked) == bool(asked & able)
    assert reply.ird == int(reply.rtr == RTR.READ)
    assert RTR.READ not in reply.rtr or reply.rtr == RTR.READ
    assert RTR.READ not in reply.rtr or RTR.WRITE not in asked & able


@pytest.mark.requirement("MPA2-9.2-08", "MPA2-9.2-09")
@pytest.mark.parametrize(("mine", "told"), list(itertools.product(OPTIONS[1:], OPTIONS)))
def test_the_initiator_sends_one_of_the_options_that_both_have(mine, told):
    own, request = terms(rtr=mine), of(mine)
    reply = StartupFrame(**{**vars(of(told)), "reply": True})
    if not mine & told:
        with pytest.raises(NoMatchingRTR, match=r"in the Reply, IRD 8; allowed: <RTR"):
            settle(own, request, reply)
        return
    chosen = settle(own, request, reply).rtr
    assert chosen in mine & told
    assert chosen.bit_count() == 1
    assert chosen == RTR.WRITE or RTR.WRITE not in mine & told


def test_a_responder_without_inbound_reads_prefers_another_rtr_frame_than_a_read():
    assert answer(of(DEFAULT_RTR), terms(ird=0)).rtr == RTR.WRITE
    reply, connection = accepting_reply(terms(ird=0), of(RTR.READ), receives_posted=False)
    assert (reply.rtr, reply.ird, connection.ird) == (RTR.READ, 1, 1)


def test_an_initiator_without_reads_has_one_for_the_rtr_frame():
    own, request = terms(ord=0), of(RTR.READ, ord=0)
    reply = StartupFrame(**{**vars(of(RTR.READ, ird=1)), "reply": True})
    assert settle(own, request, reply).ord == 1
    with pytest.raises(NoMatchingRTR, match="IRD 0"):
        settle(own, request, StartupFrame(**{**vars(reply), "ird": 0}))


def test_a_send_is_accepted_only_without_posted_receives_and_if_nothing_else_is_possible():
    every = RTR.SEND | RTR.WRITE | RTR.READ
    assert answer(of(every), terms(rtr=every)).rtr == DEFAULT_RTR
    assert answer(of(RTR.SEND), terms(rtr=every)).rtr == RTR.SEND
    assert answer(of(RTR.SEND), terms(rtr=every), posted=True).rtr == DEFAULT_RTR
    assert answer(of(RTR.SEND)).rtr == DEFAULT_RTR


@pytest.mark.requirement("MPA2-9.2-03", "MPA2-9.2-10", "MPA2-9.2-11", "MPA2-9.2-12", "MPA2-9.2-13")
def test_flag_a_is_that_of_the_request():
    own = terms()
    plain = request_frame(own, revision=2, negotiate_reads=True, peer_to_peer=False)
    assert (plain.peer_to_peer, plain.rtr) == (False, RTR(0))
    ignored = StartupFrame(**{**vars(plain), "rtr": RTR.WRITE})
    assert (answer(ignored).peer_to_peer, answer(ignored).rtr) == (False, RTR(0))
    # Options of a Reply without A are ignored, too.
    reply = StartupFrame(**{**vars(plain), "reply": True, "rtr": RTR.WRITE})
    check_reply(plain, reply)
    assert settle(own, plain, reply).rtr == RTR(0)
    with pytest.raises(NoMatchingRTR, match="flag A is not set in the Reply; allowed: A=1"):
        settle(own, of(DEFAULT_RTR), reply)
    with pytest.raises(MalformedFrame, match="flag A in the Reply to a client-server Request"):
        check_reply(plain, StartupFrame(**{**vars(reply), "peer_to_peer": True}))
