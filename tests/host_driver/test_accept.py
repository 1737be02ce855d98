"""MPA startup as Responder: answers to Requests, and what keeps a Request from being answered."""

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from stagecoach.host_driver import (
    RTR,
    ConnectionRequest,
    InsufficientIRD,
    MalformedFrame,
    QPState,
    QPStateError,
    StartupError,
    listen,
)
from stagecoach.host_driver.device import CommandOpcode
from stagecoach.host_driver.errors import DeviceError
from stagecoach.host_driver.mpa_startup import NOT_NEGOTIATED, StartupFrame
from stagecoach.sim.capture.connections import read_connections
from stagecoach.sim.model import startup as model
from tests.host_driver.startup_rig import (
    PATIENCE,
    Side,
    raw_initiator,
    receive_all,
    receive_frame,
    to_driver,
    to_model,
)
from tests.host_driver.test_startup_frames import CAPTURES

REQUEST = StartupFrame(reply=False, ird=8, ord=8, private_data=b"who")


@contextlib.contextmanager
def asked(
    side: Side, frame: StartupFrame | model.StartupFrame = REQUEST
) -> Iterator[tuple[socket.socket, ConnectionRequest]]:
    """A raw Initiator that has sent a Request, and the Request as it came."""
    with listen(side.context) as listener:
        with raw_initiator(listener.port, frame.encode()) as peer:
            yield peer, listener.get_request()


@pytest.mark.requirement("MPA-1.2-02", "MPA-4.4-03", "MPA-7.1-04", "MPA-7.1.1-13", "MPA-7.1.2-08")
@pytest.mark.requirement("MPA2-6-05", "MPA2-9.1-02", "MPA2-9.1-04", "MPA2-9.1-09", "MPA2-10-01")
@pytest.mark.requirement("MPA2-10-02")
@pytest.mark.parametrize(
    ("frame", "options", "expected"),
    [
        (REQUEST, {}, StartupFrame(reply=True, ird=8, ord=8)),
        (
            StartupFrame(reply=False, ird=3, ord=2, crc=False),
            {"crc": False, "private_data": b"me"},
            StartupFrame(reply=True, ird=8, ord=3, crc=False, private_data=b"me"),
        ),
        (
            StartupFrame(reply=False, ird=NOT_NEGOTIATED, ord=2),
            {"ird": 4},
            StartupFrame(reply=True, ird=4, ord=NOT_NEGOTIATED),
        ),
        (
            StartupFrame(reply=False, ird=2, ord=NOT_NEGOTIATED),
            {"ird": 4},
            StartupFrame(reply=True, ird=NOT_NEGOTIATED, ord=2),
        ),
        (
            StartupFrame(reply=False, revision=1),
            {"private_data": bytes(512)},
            StartupFrame(reply=True, revision=1, private_data=bytes(512)),
        ),
        (
            StartupFrame(reply=False, revision=2),
            {"crc": False},
            StartupFrame(reply=True, revision=2),
        ),
    ],
    ids=["default", "values", "IRD not negotiated", "ORD not negotiated", "revision 1", "plain"],
)
def test_the_reply_is_that_of_the_reference_model(passive, frame, options, expected):
    with asked(passive, frame) as (peer, request):
        request.accept(passive.qp, **options)
        reply = receive_frame(peer, reply=True)
        assert reply == to_model(expected)
        assert model.reply_faults(to_model(frame), reply) == []
    assert passive.qp.connection.revision == frame.revision


@pytest.mark.requirement("MPA-7.1.1-03", "MPA-7.1.2-08", "MPA2-10-01")
@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_the_replies_of_captures_are_made_again(capture):
    for connection in read_connections(capture):
        side = Side()
        reply = to_driver(connection.reply)
        if (reply.ird is not None and reply.ird > 8) or reply.peer_to_peer:
            side.context.close()
            continue
        options = {"ird": reply.ird, "ord": reply.ord, "crc": reply.crc}
        with asked(side, connection.request) as (peer, request):
            request.accept(side.qp, private_data=reply.private_data, **options)
            assert receive_frame(peer, reply=True) == connection.reply
        assert side.told()["crc"] == connection.negotiated.crc
        side.context.close()


def test_a_request_says_what_the_peer_wants(passive):
    frame = StartupFrame(
        reply=False,
        markers=True,
        crc=False,
        ird=3,
        ord=NOT_NEGOTIATED,
        peer_to_peer=True,
        rtr=RTR.READ,
        private_data=b"x",
    )
    with asked(passive, frame) as (_, request), request:
        assert (request.markers, request.crc, request.revision) == (True, False, 2)
        assert (request.ird, request.ord) == (3, None)
        assert (request.peer_to_peer, request.rtr) == (True, RTR.READ)
        assert request.private_data == b"x"


@pytest.mark.requirement("MPA-7.1-04")
def test_nothing_is_sent_after_the_reply_before_the_first_fpdu(passive):
    with asked(passive) as (peer, request):
        request.accept(passive.qp)
        receive_frame(peer, reply=True)
        # The device holds back until it has received; it is told that it is the Responder.
        assert passive.told()["initiator"] == 0
        passive.qp.disconnect()
        assert receive_all(peer) == b""


# Refusing


@pytest.mark.requirement("MPA-7.1.1-11", "MPA-7.1.2-05", "MPA-7.1.2-17")
@pytest.mark.parametrize("revision", [1, 2])
def test_a_rejection_is_that_of_the_reference_model(passive, revision):
    depths = {"ird": 4, "ord": 4} if revision == 2 else {}
    frame = StartupFrame(reply=False, revision=revision, crc=False, **depths)
    with asked(passive, frame) as (peer, request):
        assert request.reject(b"no") is None
        reply = receive_frame(peer, reply=True)
        depths = {"ird": 8, "ord": 4} if revision == 2 else {}
        expected = StartupFrame(
            reply=True, reject=True, crc=False, revision=revision, private_data=b"no", **depths
        )
        assert reply == to_model(expected)
        assert receive_all(peer) == b""


@pytest.mark.requirement("MPA-7.1.1-18", "MPA2-7-02")
@pytest.mark.parametrize(("revision", "longest"), [(1, 512), (2, 508)])
def test_private_data_of_a_rejection_has_its_limits(passive, revision, longest):
    depths = {"ird": 4, "ord": 4} if revision == 2 else {}
    with asked(passive, StartupFrame(reply=False, revision=revision, **depths)) as (peer, request):
        with pytest.raises(ValueError, match=f"{longest + 1} bytes of private data; allowed: 0"):
            request.reject(bytes(longest + 1))
        with pytest.raises(TypeError, match="private_data is a str; allowed: bytes"):
            request.reject("no")
        request.reject(bytes(longest))
        assert receive_frame(peer, reply=True).private_data == bytes(longest)


@pytest.mark.requirement("MPA-7.1.2-07")
def test_a_rejected_connection_can_be_kept_for_other_purposes(passive):
    with asked(passive) as (peer, request):
        with request.reject(keep_open=True) as stream:
            assert receive_frame(peer, reply=True).reject
            peer.sendall(b"other purposes")
            assert stream.receive_exactly(14, PATIENCE) == b"other purposes"


def test_a_peer_with_too_few_inbound_reads_is_rejected_with_what_is_needed(passive):
    with asked(passive, StartupFrame(reply=False, ird=2, ord=8)) as (peer, request):
        message = "minimum_ord is 5; allowed: 0 to 2, the peer's IRD"
        with pytest.raises(InsufficientIRD, match=message) as caught:
            request.accept(passive.qp, minimum_ord=5)
        reply = receive_frame(peer, reply=True)
        assert (reply.reject, reply.enhanced.ord) == (True, 5)
        assert receive_all(peer) == b""
    assert (caught.value.required, caught.value.available) == (5, 2)
    assert passive.qp.state == QPState.INIT


def test_an_end_of_revision_1_closes_on_a_request_of_revision_2(passive):
    with asked(passive, StartupFrame(reply=False, ird=2, ord=2)) as (peer, request):
        message = "MPA revision 2 in the Request; allowed here: 1"
        with pytest.raises(StartupError, match=message):
            request.accept(passive.qp, revision=1)
        assert receive_all(peer) == b""
    assert passive.qp.state == QPState.INIT
    with asked(passive, StartupFrame(reply=False, revision=1)) as (peer, request):
        request.accept(passive.qp, revision=1)
        assert (reply := receive_frame(peer, reply=True)).revision == 1 and not reply.reject


def test_an_end_that_wants_peer_to_peer_rejects_others(passive):
    with asked(passive, StartupFrame(reply=False, ird=2, ord=2)) as (peer, request):
        message = "the Request does not ask for a peer-to-peer connection; allowed: one that does"
        with pytest.raises(StartupError, match=message):
            request.accept(passive.qp, peer_to_peer=True)
        assert receive_frame(peer, reply=True).reject
        assert receive_all(peer) == b""
    assert passive.qp.state == QPState.INIT


@pytest.mark.requirement("MPA-7.1.1-05")
def test_a_peer_that_wants_markers_gets_them(passive):
    with asked(passive, StartupFrame(reply=False, markers=True)) as (peer, request):
        request.accept(passive.qp)
        assert not receive_frame(peer, reply=True).markers
    assert passive.told()["transmit_markers"] == 1
    assert passive.told()["receive_markers"] == 0


# What goes wrong between Request and Reply


@pytest.mark.requirement("MPA-7.1.1-17", "MPA-7.1.5-01")
def test_octets_between_request_and_reply_are_malformed(passive):
    with asked(passive) as (peer, request):
        peer.sendall(b"\0")
        time.sleep(0.01)
        with pytest.raises(MalformedFrame, match=r"sent b'\\x00' and maybe more between its Req"):
            request.accept(passive.qp)
        assert receive_all(peer) == b""
    assert passive.qp.state == QPState.INIT


def test_a_peer_that_has_gone_is_noticed_before_the_reply(passive):
    with asked(passive) as (peer, request):
        peer.close()
        time.sleep(0.01)
        with pytest.raises(StartupError, match="MPA Reply frame: the peer has gone"):
            request.accept(passive.qp)
    assert passive.qp.state == QPState.INIT


def test_a_rejection_does_not_mind_a_peer_that_has_gone(passive):
    with asked(passive) as (peer, request):
        peer.close()
        request.reject()


def test_a_request_is_answered_once(passive):
    with asked(passive) as (_, request):
        request.accept(passive.qp)
        other = passive.another_qp()
        for answer in (lambda: request.accept(other), request.reject):
            with pytest.raises(StartupError, match="the request was answered or closed; allowed:"):
                answer()
        request.close()
        assert passive.qp.state == QPState.RTS


def test_a_request_may_be_closed_without_an_answer(passive):
    with asked(passive) as (peer, request):
        with request:
            pass
        assert receive_all(peer) == b""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"emss": 100}, "EMSS 100; allowed: 128 to 65535"),
        ({"ord": 9}, "ORD 9; allowed: 0 to 8"),
        ({"ird": 9}, "IRD 9; allowed: 0 to 8"),
        ({"minimum_ord": 4, "ord": 3}, "minimum_ord 4; allowed: 0 to the ORD, 3"),
        ({"private_data": bytes(509)}, "509 bytes of private data; allowed: 0 to 508"),
        ({"rtr": 0}, "rtr is 0; allowed: one or more of"),
        ({"revision": 3}, "MPA revision 3; allowed: 1 or 2"),
        ({"revision": 1, "peer_to_peer": True}, "peer_to_peer with MPA revision 1; allowed: with"),
        ({"timeout": -1}, "timeout is -1 s; allowed: 0 to 1000000"),
        ({"timeout": None}, "timeout is None; allowed: a number of seconds"),
    ],
)
def test_a_wrong_argument_does_not_use_up_the_request(passive, arguments, message):
    with asked(passive) as (peer, request):
        with pytest.raises((TypeError, ValueError), match=message):
            request.accept(passive.qp, **arguments)
        request.accept(passive.qp)
        assert not receive_frame(peer, reply=True).reject


def test_a_qp_that_is_not_free_does_not_use_up_the_request(passive):
    closed = passive.another_qp()
    closed.close()
    with asked(passive) as (_, request):
        with pytest.raises(QPStateError, match="QP 1 is closed; allowed: an open QP"):
            request.accept(closed)
        with pytest.raises(TypeError, match="qp is a Side; allowed: QP"):
            request.accept(passive)
        request.accept(passive.qp)


def test_a_device_that_refuses_closes_the_connection_without_an_fpdu(passive):
    passive.device.refuse.add(CommandOpcode.QP_CONNECT)
    with asked(passive) as (peer, request):
        with pytest.raises(DeviceError, match="the device refused command"):
            request.accept(passive.qp)
        receive_frame(peer, reply=True)
        assert receive_all(peer) == b""
