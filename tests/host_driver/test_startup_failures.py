"""MPA startup as Initiator: rejection, and Replies that are wrong or do not help."""

import socket
import time

import pytest

from stagecoach.host_driver import (
    RTR,
    ConnectionRejected,
    InitiatorInitiatorError,
    InsufficientIRD,
    MalformedFrame,
    NoMatchingRTR,
    QPState,
    StartupError,
    StartupTimeout,
    connect,
    listen,
)
from stagecoach.host_driver.device import CommandOpcode
from stagecoach.host_driver.mpa_startup import StartupFrame
from stagecoach.sim.model import ddp, errors, rdmap
from stagecoach.sim.model.mpa import Framer
from tests.host_driver.startup_rig import (
    GOOD_REPLY,
    PATIENCE,
    Background,
    RawResponder,
    answer_with,
    changed,
    receive_all,
    receive_frame,
)


def terminate(error: errors.ErrorCode, *, markers: bool = False) -> bytes:
    """The reference model's Terminate as first FPDU."""
    segments = ddp.segment_untagged(
        rdmap.Terminate(error).encode(),
        qn=rdmap.QN_TERMINATE,
        msn=ddp.FIRST_MSN,
        mulpdu=128,
        rsvd_ulp=rdmap.control_octet(rdmap.Opcode.TERMINATE),
    )
    framer = Framer(markers=markers)
    return b"".join(map(framer.frame, segments))


# Rejection


@pytest.mark.requirement("MPA-7.1.1-11", "MPA2-9.1-08")
def test_rejection_carries_private_data_and_reads(sides):
    active, passive = sides
    with listen(passive.context) as listener:
        with Background(lambda: listener.get_request().reject(b"not you", ord=7)):
            with pytest.raises(ConnectionRejected, match="not you") as caught:
                connect(active.qp, "127.0.0.1", listener.port, ird=2)
    rejection = caught.value
    assert (rejection.private_data, rejection.ord, rejection.ird) == (b"not you", 7, 8)
    assert (rejection.revision, rejection.stream) == (2, None)
    assert active.qp.state == QPState.INIT
    assert not active.device.attached
    # The QP is as it was.
    with listen(passive.context) as listener:
        with Background(lambda: listener.get_request().accept(passive.qp)):
            connect(active.qp, "127.0.0.1", listener.port)


@pytest.mark.parametrize("revision", [1, 2])
def test_a_rejection_needs_no_enhanced_data(active, revision):
    rejection = StartupFrame(reply=True, reject=True, revision=revision, private_data=b"old")
    with RawResponder(answer_with(rejection.encode())) as responder:
        with pytest.raises(ConnectionRejected) as caught:
            connect(active.qp, "127.0.0.1", responder.port)
    assert (caught.value.private_data, caught.value.ird) == (b"old", None)
    assert caught.value.revision == revision


@pytest.mark.requirement("MPA-7.1.2-07", "MPA-7.1.2-12")
def test_a_rejected_connection_can_be_kept_for_other_purposes(sides):
    active, passive = sides
    with listen(passive.context) as listener:
        with Background(lambda: listener.get_request().reject(b"no", keep_open=True)) as rejecting:
            with pytest.raises(ConnectionRejected) as caught:
                connect(active.qp, "127.0.0.1", listener.port, keep_rejected=True)
        with caught.value.stream as mine, rejecting.result as its:
            its.sendall(b"other purposes")
            assert mine.receive_exactly(14, PATIENCE) == b"other purposes"


# Replies that are wrong


@pytest.mark.requirement("MPA-7.1.1-04", "MPA-7.1.1-14", "MPA-7.1.1-17", "MPA-7.1.2-10")
@pytest.mark.requirement("MPA-7.1.2-11", "MPA-7.1.2-15", "MPA-7.1.2-19", "MPA-7.1.2-23", "MPA-8-06")
@pytest.mark.parametrize(
    ("octets", "error", "message"),
    [
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            MalformedFrame,
            "no MPA Reply: it begins b'HTTP/1.1 400 Bad'; allowed: b'MPA ID Rep Frame'",
        ),
        (
            StartupFrame(reply=False).encode(),
            InitiatorInitiatorError,
            "Initiator/Initiator error: an MPA Request came instead of a Reply",
        ),
        (GOOD_REPLY.encode()[:17] + b"\0\0\0", MalformedFrame, "MPA revision 0 in the Reply"),
        (GOOD_REPLY.encode()[:17] + b"\x09\0\0", MalformedFrame, "MPA revision 9 in the Reply"),
        (
            GOOD_REPLY.encode()[:18] + b"\x02\x01",
            MalformedFrame,
            "private data length 513 in the Reply; allowed: 0 to 512",
        ),
        (
            GOOD_REPLY.encode()[:16] + b"\x50\x02\x00\x02ab",
            MalformedFrame,
            "private data length 2 in an enhanced Reply; allowed: 4 to 512",
        ),
        (
            changed(GOOD_REPLY, ird=None, ord=None),
            MalformedFrame,
            "a Reply without enhanced data; allowed: with, as the Request",
        ),
        (
            changed(GOOD_REPLY, ird=None, ord=None, revision=1),
            MalformedFrame,
            "a Reply without enhanced data; allowed: with, as the Request",
        ),
        (
            changed(GOOD_REPLY, peer_to_peer=True, rtr=RTR.WRITE),
            MalformedFrame,
            "flag A in the Reply to a client-server Request; allowed: A=0",
        ),
    ],
    ids=[
        "garbage",
        "request",
        "revision 0",
        "revision 9",
        "length",
        "enhanced",
        "not enhanced",
        "plain",
        "flag A",
    ],
)
def test_a_malformed_reply_closes_the_connection_without_a_terminate(
    active, octets, error, message
):
    with RawResponder(answer_with(octets)) as responder:
        with pytest.raises(error) as caught:
            connect(active.qp, "127.0.0.1", responder.port, timeout=PATIENCE)
        assert type(caught.value) is error
    assert message in str(caught.value)
    assert responder.result[1] == b""
    assert active.qp.state == QPState.INIT
    assert not active.device.attached


@pytest.mark.parametrize("octets", [b"S", b"MPA ID Ref"], ids=["first octet", "tenth octet"])
def test_a_wrong_reply_is_found_by_its_first_wrong_octet(active, octets):
    with RawResponder(answer_with(octets)) as responder:  # which then waits
        begun = time.monotonic()
        with pytest.raises(MalformedFrame, match="no MPA Reply"):
            connect(active.qp, "127.0.0.1", responder.port, timeout=PATIENCE)
    assert time.monotonic() - begun < PATIENCE / 2


@pytest.mark.requirement("MPA-7.1.1-17", "MPA-7.1.2-10", "MPA-7.1.2-11", "MPA-7.1.2-21")
@pytest.mark.parametrize("count", [0, 1, 19, 20, 23])
def test_a_reply_that_is_cut_off_is_an_error(active, count):
    def handle(peer: socket.socket) -> bytes:
        receive_frame(peer, reply=False)
        peer.sendall(GOOD_REPLY.encode()[:count])
        peer.shutdown(socket.SHUT_WR)
        return receive_all(peer)

    error = MalformedFrame if count else StartupError
    with RawResponder(handle) as responder:
        with pytest.raises(error, match=f"the stream ended: {count} bytes came") as caught:
            connect(active.qp, "127.0.0.1", responder.port, timeout=PATIENCE)
    assert not isinstance(caught.value, StartupTimeout)
    assert responder.result == b""


@pytest.mark.parametrize("revision", [1, 2])
def test_a_peer_that_ends_an_enhanced_request_may_want_revision_1(active, revision):
    """A Responder of RFC 5044 alone closes the connection (RFC 6581, 10)."""
    with RawResponder(lambda peer: receive_frame(peer, reply=False)) as responder:
        with pytest.raises(StartupError, match="the stream ended") as caught:
            connect(active.qp, "127.0.0.1", responder.port, timeout=PATIENCE, revision=revision)
    hint = "a peer without RFC 6581 takes a Request of revision 1 alone"
    assert str(caught.value).endswith(f"; perhaps because {hint}") == (revision == 2)


# Good replies that do not help: the Responder is told why


@pytest.mark.requirement("MPA2-8-01", "MPA2-9.1-06", "MPA2-9.2-09")
@pytest.mark.parametrize(
    ("reply", "options", "error", "code"),
    [
        (changed(GOOD_REPLY, ord=9), {}, InsufficientIRD, errors.MPA_INSUFFICIENT_IRD),
        (
            changed(GOOD_REPLY, peer_to_peer=True, rtr=RTR.SEND),
            {"peer_to_peer": True},
            NoMatchingRTR,
            errors.MPA_NO_MATCHING_RTR,
        ),
        (GOOD_REPLY.encode(), {"peer_to_peer": True}, NoMatchingRTR, errors.MPA_NO_MATCHING_RTR),
    ],
    ids=["ird", "rtr", "model"],
)
def test_an_initiator_that_gives_up_sends_a_terminate(active, reply, options, error, code):
    with RawResponder(answer_with(reply)) as responder:
        with pytest.raises(error):
            connect(active.qp, "127.0.0.1", responder.port, **options)
    assert responder.result[1] == terminate(code)
    assert active.qp.state == QPState.INIT
    assert not active.device.attached


@pytest.mark.requirement("MPA2-8-01", "MPA2-9.3-01")
def test_a_device_that_refuses_is_told_to_the_responder(active):
    active.device.refuse.add(CommandOpcode.QP_CONNECT)
    with RawResponder(answer_with(GOOD_REPLY.encode())) as responder:
        with pytest.raises(Exception, match="the device refused command"):
            connect(active.qp, "127.0.0.1", responder.port)
    assert responder.result[1] == terminate(errors.MPA_LOCAL_CATASTROPHIC)
