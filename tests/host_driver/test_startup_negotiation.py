"""What the ends of a connection agree on, judged by the reference model's reading of RFC 6581."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecoach.host_driver import RTR, InsufficientIRD, MalformedFrame, NoMatchingRTR
from stagecoach.host_driver.mpa_negotiation import (
    accepting_reply,
    check_reply,
    check_request,
    limit_reads,
    rejecting_reply,
    request_frame,
    settle,
)
from stagecoach.host_driver.mpa_startup import NOT_NEGOTIATED, StartupFrame
from stagecoach.host_driver.mpa_terms import DEFAULT_RTR, Terms
from stagecoach.sim.model import startup as model
from tests.host_driver.startup_rig import to_model
from tests.host_driver.test_startup_frames import frames

LIMIT = 8
OPTIONS = [RTR(number) for number in range(8)]


def terms(**changes) -> Terms:
    return Terms(**{"limit": LIMIT, "ord": LIMIT, "ird": LIMIT, **changes})


@st.composite
def any_terms(draw: st.DrawFn) -> Terms:
    limit = draw(st.sampled_from([1, 2, LIMIT]))
    return terms(
        limit=limit,
        ord=draw(st.integers(0, limit)),
        ird=draw(st.integers(0, limit)),
        crc=draw(st.booleans()),
        markers=draw(st.booleans()),
        rtr=draw(st.sampled_from(OPTIONS[1:])),
        private_data=draw(st.binary(max_size=8)),
    )


@st.composite
def requests(draw: st.DrawFn) -> tuple[Terms, StartupFrame]:
    """Requests of this driver, with the terms that they were made from."""
    own = draw(any_terms())
    revision = draw(st.sampled_from([1, 2, 2, 2]))
    frame = request_frame(
        own,
        revision=revision,
        negotiate_reads=draw(st.booleans()),
        peer_to_peer=revision == 2 and draw(st.booleans()),
    )
    return own, frame


def of(options: RTR, **depths: int) -> StartupFrame:
    """A peer-to-peer Request or Reply with these options."""
    depths = {"ird": LIMIT, "ord": LIMIT, **depths}
    return StartupFrame(reply=False, peer_to_peer=True, rtr=options, **depths)


def answer(request: StartupFrame, own: Terms | None = None, posted: bool = False) -> StartupFrame:
    return accepting_reply(own or terms(), request, receives_posted=posted)[0]


# Any two ends


@pytest.mark.requirement("MPA2-9.1-04", "MPA2-9.1-09", "MPA2-9.2-03", "MPA2-9.2-11", "MPA2-9.2-12")
@pytest.mark.requirement("MPA2-10-01", "MPA2-10-02")
@given(any_terms(), frames(), st.booleans())
def test_no_reply_breaks_a_rule(own, request, posted):
    request = StartupFrame(**{**vars(request), "reply": False})
    if posted and not own.rtr & DEFAULT_RTR and request.peer_to_peer:
        with pytest.raises(ValueError, match=r"allowed: <RTR\.WRITE: 2> with them"):
            accepting_reply(own, request, receives_posted=posted)
        return
    reply, connection = accepting_reply(own, request, receives_posted=posted)
    asked, answered = to_model(request), to_model(reply)
    assert reply.encode() == answered.encode()
    assert model.reply_faults(asked, answered) == []
    settled = model.negotiate(asked, answered)
    assert connection.crc == settled.crc
    assert connection.markers_tx == settled.responder_sends_markers
    assert connection.markers_rx == settled.initiator_sends_markers
    rejection = rejecting_reply(request, b"no", ird=LIMIT, ord=LIMIT)
    assert model.reply_faults(asked, to_model(rejection)) == []


@pytest.mark.requirement("MPA2-9.1-02", "MPA2-9.1-07", "MPA2-9.2-08")
@given(requests(), any_terms(), st.booleans())
def test_two_ends_agree(mine, other, posted):
    own, request = mine
    if posted:
        other = Terms(**{**vars(other), "rtr": other.rtr | RTR.WRITE})
    reply, passive = accepting_reply(other, request, receives_posted=posted)
    check_reply(request, reply)
    try:
        active = settle(own, request, reply)
    except InsufficientIRD as error:
        assert error.required == reply.ord > error.available == own.limit
        return
    except NoMatchingRTR:
        able = other.rtr & ~RTR.SEND if posted else other.rtr
        assert request.peer_to_peer and not own.rtr & able
        return
    assert model.initiator_faults(to_model(reply), ird=active.ird, ord=active.ord) == []
    assert (active.crc, active.revision) == (passive.crc, passive.revision)
    assert (active.markers_tx, active.markers_rx) == (passive.markers_rx, passive.markers_tx)
    if request.enhanced and request.ird != NOT_NEGOTIATED:
        assert passive.ord <= active.ird <= own.limit
        assert active.ord <= passive.ird <= other.limit
    else:
        extra = int(active.rtr == RTR.READ)
        assert (active.ord, active.ird) == (max(own.ord, extra), own.ird)
        assert passive.ord == other.ord
    assert bool(active.rtr) == request.peer_to_peer == active.peer_to_peer == passive.peer_to_peer
    assert active.rtr in passive.rtr
    if active.rtr == RTR.READ:
        assert active.ord >= 1 and passive.ird >= 1


@pytest.mark.requirement("MPA2-9.1-07")
@given(requests(), frames())
def test_any_reply_is_agreed_to_or_refused_by_name(mine, reply):
    own, request = mine
    reply = StartupFrame(**{**vars(reply), "reply": True, "reject": False})
    try:
        check_reply(request, reply)
        connection = settle(own, request, reply)
    except (MalformedFrame, InsufficientIRD, NoMatchingRTR):
        return
    settled = model.negotiate(to_model(request), to_model(reply))
    assert connection.crc == settled.crc
    assert connection.markers_tx == settled.initiator_sends_markers
    assert connection.markers_rx == settled.responder_sends_markers
    assert connection.ord <= own.limit and connection.ird <= own.limit
    if request.ird != NOT_NEGOTIATED:
        asked = to_model(reply)
        assert model.initiator_faults(asked, ird=connection.ird, ord=connection.ord) == []


# IRD and ORD


def test_no_number_of_reads_means_that_they_are_not_negotiated():
    options = {"crc": True, "markers": False, "rtr": DEFAULT_RTR, "private_data": b""}
    own = Terms.check(1 << 15, ord=None, ird=None, **options)
    assert (own.ord, own.ird) == (NOT_NEGOTIATED - 1, NOT_NEGOTIATED - 1)
    with pytest.raises(ValueError, match="IRD 16383; allowed: 0 to 16382"):
        Terms.check(1 << 15, ord=None, ird=NOT_NEGOTIATED, **options)


@pytest.mark.requirement("MPA2-9.1-07")
def test_reads_are_limited_by_both_sides():
    assert limit_reads(8, None) == 8
    assert limit_reads(8, 3) == 3
    assert limit_reads(2, 3) == 2
    assert limit_reads(8, NOT_NEGOTIATED) == 8


@pytest.mark.requirement("MPA2-9.1-09")
@pytest.mark.parametrize(
    ("ird", "ord"),
    [(NOT_NEGOTIATED, 2), (2, NOT_NEGOTIATED), (NOT_NEGOTIATED, NOT_NEGOTIATED)],
)
def test_the_responder_leaves_alone_what_is_not_to_be_negotiated(ird, ord):
    request = StartupFrame(reply=False, ird=ird, ord=ord)
    reply, connection = accepting_reply(terms(ird=5, ord=6), request, receives_posted=False)
    assert reply.ird == (NOT_NEGOTIATED if ord == NOT_NEGOTIATED else 5)
    assert reply.ord == (NOT_NEGOTIATED if ird == NOT_NEGOTIATED else 2)
    assert (connection.ird, connection.ord) == (5, 6 if ird == NOT_NEGOTIATED else 2)
    assert connection.peer_ird == (None if ird == NOT_NEGOTIATED else 2)
    assert connection.peer_ord == (None if ord == NOT_NEGOTIATED else 2)


@pytest.mark.requirement("MPA2-9.1-07", "MPA2-9.1-10")
@pytest.mark.parametrize(
    ("ird", "ord", "expected"),
    [
        (NOT_NEGOTIATED, 7, (5, 7)),
        (3, NOT_NEGOTIATED, (3, 4)),
        (NOT_NEGOTIATED, NOT_NEGOTIATED, (5, 4)),
        (3, 2, (3, 4)),
        (8, 8, (5, 8)),
    ],
)
def test_the_initiator_takes_over_what_the_responder_told(ird, ord, expected):
    own = terms(ord=5, ird=4)
    request = request_frame(own, revision=2, negotiate_reads=True, peer_to_peer=False)
    assert (request.ird, request.ord) == (4, 5)
    connection = settle(own, request, StartupFrame(reply=True, ird=ird, ord=ord))
    assert (connection.ord, connection.ird) == expected


def test_an_initiator_that_negotiates_nothing_keeps_its_own():
    own = terms(ord=5, ird=4)
    request = request_frame(own, revision=2, negotiate_reads=False, peer_to_peer=True)
    assert (request.ird, request.ord) == (NOT_NEGOTIATED, NOT_NEGOTIATED)
    # Also if the responder does not do as it must.
    reply = StartupFrame(reply=True, peer_to_peer=True, rtr=RTR.WRITE, ird=1, ord=8)
    connection = settle(own, request, reply)
    assert (connection.ord, connection.ird) == (5, 4)


@pytest.mark.requirement("MPA2-6-04", "MPA2-10-03")
def test_a_request_that_wants_nothing_of_rfc_6581_is_one_of_rfc_5044():
    own = terms(ord=5, ird=4)
    request = request_frame(own, revision=2, negotiate_reads=False, peer_to_peer=False)
    assert request == request_frame(own, revision=1, negotiate_reads=True, peer_to_peer=False)
    assert (request.revision, request.enhanced) == (1, False)
    connection = settle(own, request, StartupFrame(reply=True, revision=1))
    assert (connection.ord, connection.ird, connection.peer_ird) == (5, 4, None)


@pytest.mark.requirement("MPA2-9.1-06")
def test_more_reads_than_the_device_has_are_refused():
    own = terms(ird=2)
    request = request_frame(own, revision=2, negotiate_reads=True, peer_to_peer=False)
    with pytest.raises(
        InsufficientIRD, match="peer's ORD is 9; allowed: 0 to 8, the dev"
    ) as caught:
        settle(own, request, StartupFrame(reply=True, ird=1, ord=9))
    assert (caught.value.required, caught.value.available) == (9, 8)


@pytest.mark.parametrize(("ird", "fits"), [(0, False), (3, False), (4, True), (0x3FFF, True)])
def test_a_responder_may_need_reads(ird, fits):
    request = StartupFrame(reply=False, ird=ird, ord=0)
    if fits:
        check_request(request, minimum_ord=4)
        return
    with pytest.raises(InsufficientIRD, match=f"minimum_ord is 4; allowed: 0 to {ird}, the peer's"):
        check_request(request, minimum_ord=4)


# Revisions, CRC and Markers


@pytest.mark.parametrize(("asked", "answered"), [(2, 1), (1, 2)])
def test_without_enhanced_data_a_reply_may_have_the_other_revision(asked, answered):
    """The frames are the same then; the connection knows which one came."""
    own = terms()
    request = StartupFrame(reply=False, revision=asked)
    reply = StartupFrame(reply=True, revision=answered)
    check_reply(request, reply)
    assert settle(own, request, reply).revision == answered
    seen = [
        model.StartupFrame(reply=each.reply, revision=each.revision) for each in (request, reply)
    ]
    assert model.reply_faults(*seen) == []


@pytest.mark.requirement("MPA-7.1.1-13", "MPA2-6-02", "MPA2-6-05", "MPA2-10-01", "MPA2-10-02")
@pytest.mark.parametrize("enhanced", [False, True])
@pytest.mark.parametrize("revision", [1, 2])
def test_revision_and_enhanced_data_are_those_of_the_request(revision, enhanced):
    depths = {"ird": 1, "ord": 1} if enhanced else {}
    reply = answer(StartupFrame(reply=False, revision=revision, **depths))
    assert (reply.revision, reply.enhanced) == (revision, enhanced)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ird": None, "ord": None}, "a Reply without enhanced data; allowed: with, as the Req"),
        ({"revision": 1, "ird": None, "ord": None}, "a Reply without enhanced data"),
        ({"revision": 1}, "MPA revision 1 in the Reply; allowed: 2, as in the Request"),
    ],
)
def test_a_reply_that_does_not_fit_its_request_is_refused(changes, message):
    request = StartupFrame(reply=False, ird=1, ord=1)
    reply = StartupFrame(**{"reply": True, "ird": 1, "ord": 1, **changes})
    with pytest.raises(MalformedFrame, match=message):
        check_reply(request, reply)
    with pytest.raises(MalformedFrame):
        check_reply(StartupFrame(reply=False, revision=1), StartupFrame(reply=True, ird=1, ord=1))


@pytest.mark.requirement("MPA-4.4-02", "MPA-4.4-04", "MPA-7.1.1-05", "MPA-7.1.1-06", "MPA-7.1.1-07")
@pytest.mark.requirement("MPA-7.1.1-08", "MPA-7.1.1-09", "MPA-7.1.1-10")
@pytest.mark.parametrize("wanted", list(itertools.product([False, True], repeat=4)))
def test_crc_and_markers(wanted):
    own = terms(crc=wanted[0], markers=wanted[1])
    request = request_frame(own, revision=1, negotiate_reads=True, peer_to_peer=False)
    reply, passive = accepting_reply(
        terms(crc=wanted[2], markers=wanted[3]), request, receives_posted=False
    )
    active = settle(own, request, reply)
    assert active.crc == passive.crc == (wanted[0] or wanted[2])
    assert active.markers_rx == passive.markers_tx == wanted[1]
    assert active.markers_tx == passive.markers_rx == wanted[3]
