"""MPA startup as Initiator: what is asked for, what is agreed, and which arguments fit."""

import time

import pytest

from stagecoach.host_driver import (
    RTR,
    ConnectionRejected,
    QPState,
    QPStateError,
    StartupTimeout,
    connect,
    listen,
)
from stagecoach.host_driver.mpa_startup import NOT_NEGOTIATED, StartupFrame
from stagecoach.sim.capture.connections import read_connections
from stagecoach.sim.model import startup as model
from tests.host_driver.fake_device import RTS
from tests.host_driver.startup_rig import (
    GOOD_REPLY,
    PATIENCE,
    Background,
    RawResponder,
    Side,
    answer_with,
    changed,
    raw_initiator,
    receive_frame,
)
from tests.host_driver.test_startup_frames import CAPTURES

# Agreeing


@pytest.mark.requirement("RDMAP-6.1-02", "RDMAP-6.1-03", "RDMAP-6.1-04", "MPA-7.1.1-09")
@pytest.mark.requirement("MPA-7.1.1-10", "MPA-7.1.1-15", "MPA-7.1.2-13", "MPA2-9.1-01")
@pytest.mark.requirement("MPA2-9.1-02", "MPA2-9.1-04", "MPA2-9.1-07", "MPA2-9.1-08")
def test_two_ends_agree(sides):
    active, passive = sides

    def accept() -> bytes:
        request = listener.get_request()
        request.accept(passive.qp, private_data=b"come in", crc=False, emss=1000, ord=7, ird=2)
        return request.private_data

    with listen(passive.context) as listener, Background(accept) as accepting:
        answer = connect(
            active.qp, "127.0.0.1", listener.port, private_data=b"hello", emss=1460, ord=5, ird=6
        )
    assert accepting.result == b"hello"
    assert answer == b"come in"
    mine, its = active.told(), passive.told()
    # One side wants CRCs: both use them. No ORD is above the other side's IRD.
    assert (mine["crc"], its["crc"]) == (1, 1)
    assert (mine["ord"], mine["ird"]) == (2, 6)
    assert (its["ord"], its["ird"]) == (6, 2)
    assert (mine["emss"], its["emss"]) == (1460, 1000)
    assert (mine["initiator"], its["initiator"]) == (1, 0)
    assert (mine["transmit_markers"], mine["receive_markers"]) == (0, 0)
    assert (active.qp.state, passive.qp.state) == (QPState.RTS, QPState.RTS)
    # What the peer told reaches the user (RFC 6581, 9.1; RFC 5044, 7.1.1).
    one, other = active.qp.connection, passive.qp.connection
    assert (one.peer_ird, one.peer_ord, other.peer_ird, other.peer_ord) == (2, 6, 6, 5)
    assert (one.ord, one.ird, other.ord, other.ird) == (2, 6, 6, 2)
    assert (one.private_data, other.private_data) == (b"come in", b"hello")
    assert (one.revision, other.revision, one.crc, other.crc) == (2, 2, True, True)
    assert (one.initiator, other.initiator, one.peer_to_peer) == (True, False, False)


@pytest.mark.requirement("MPA-4.4-02", "MPA-4.4-04", "MPA-4.4-08", "MPA-7.1.1-08")
def test_crc_is_off_if_nobody_wants_it(sides):
    active, passive = sides
    with listen(passive.context) as listener:
        with Background(lambda: listener.get_request().accept(passive.qp, crc=False)):
            connect(active.qp, "127.0.0.1", listener.port, crc=False)
    assert (active.told()["crc"], passive.told()["crc"]) == (0, 0)


@pytest.mark.requirement("MPA-7.1.1-15", "MPA-7.1.1-16", "MPA-7.1.1-18", "MPA-7.1.2-22")
@pytest.mark.requirement("MPA2-6-05", "MPA2-7-02")
@pytest.mark.parametrize(("revision", "longest"), [(1, 512), (2, 508)])
def test_the_longest_private_data_arrives(sides, revision, longest):
    active, passive = sides
    mine, its = bytes(range(256)) * 2, bytes(reversed(range(256))) * 2
    with listen(passive.context) as listener:

        def accept() -> bytes:
            request = listener.get_request()
            request.accept(passive.qp, private_data=its[:longest])
            return request.private_data

        with Background(accept) as accepting:
            options = {"private_data": mine[:longest], "revision": revision}
            answer = connect(active.qp, "127.0.0.1", listener.port, **options)
    assert (accepting.result, answer) == (mine[:longest], its[:longest])
    assert passive.qp.connection.revision == revision


def test_reads_that_the_ulps_negotiate_are_those_they_gave(sides):
    active, passive = sides
    with listen(passive.context) as listener:
        with Background(lambda: listener.get_request().accept(passive.qp, ord=7, ird=6)):
            options = {"ord": 5, "ird": 4, "negotiate_reads": False}
            connect(active.qp, "127.0.0.1", listener.port, **options)
    mine, its = active.told(), passive.told()
    assert (mine["ord"], mine["ird"], its["ord"], its["ird"]) == (5, 4, 7, 6)
    assert (active.qp.connection.peer_ird, passive.qp.connection.peer_ird) == (None, None)


@pytest.mark.requirement("RDMAP-6.1-04", "MPA2-9.1-07")
def test_more_inbound_reads_than_offered_are_taken_over_if_the_device_has_them(active):
    reply = changed(GOOD_REPLY, ird=1, ord=7)
    with RawResponder(answer_with(reply)) as responder:
        connect(active.qp, "127.0.0.1", responder.port, ird=2, ord=2)
        active.context.close()
    assert (active.told()["ird"], active.told()["ord"]) == (7, 1)


@pytest.mark.requirement("MPA-7.1.1-05")
def test_markers_are_told_to_the_device(sides):
    active, passive = sides
    with listen(passive.context) as listener:
        with Background(lambda: listener.get_request().accept(passive.qp)):
            connect(active.qp, "127.0.0.1", listener.port, markers=True)
    mine, its = active.told(), passive.told()
    assert (mine["transmit_markers"], mine["receive_markers"]) == (0, 1)
    assert (its["transmit_markers"], its["receive_markers"]) == (1, 0)


@pytest.mark.requirement("MPA-1.2-02", "MPA-4.4-02", "MPA-4.4-03", "MPA-4.4-05", "MPA-7.1-04")
@pytest.mark.requirement("MPA-7.1.1-11", "MPA-7.1.1-13", "MPA-7.1.2-01", "MPA2-6-01", "MPA2-6-02")
@pytest.mark.requirement(
    "MPA2-6-03", "MPA2-6-04", "MPA2-10-03", "MPA2-9.2-01", "MPA2-9.2-10", "MPA2-9.2-12"
)
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, model.StartupFrame(reply=False, enhanced=model.EnhancedData(8, 8))),
        (
            {"crc": False, "ird": 3, "ord": 0, "private_data": b"abc"},
            model.StartupFrame(
                reply=False, crc=False, private_data=b"abc", enhanced=model.EnhancedData(3, 0)
            ),
        ),
        (
            {"negotiate_reads": False, "private_data": b"abc"},
            model.StartupFrame(reply=False, revision=1, private_data=b"abc"),
        ),
        (
            {"negotiate_reads": False, "peer_to_peer": True},
            model.StartupFrame(
                reply=False,
                enhanced=model.EnhancedData(
                    NOT_NEGOTIATED, NOT_NEGOTIATED, True, rtr_write=True, rtr_read=True
                ),
            ),
        ),
        (
            {"peer_to_peer": True},
            model.StartupFrame(
                reply=False,
                enhanced=model.EnhancedData(8, 8, True, rtr_write=True, rtr_read=True),
            ),
        ),
        (
            {"peer_to_peer": True, "rtr": RTR.SEND | RTR.READ},
            model.StartupFrame(
                reply=False,
                enhanced=model.EnhancedData(8, 8, True, rtr_send=True, rtr_read=True),
            ),
        ),
        (
            {"revision": 1, "private_data": bytes(512)},
            model.StartupFrame(reply=False, revision=1, private_data=bytes(512)),
        ),
    ],
    ids=[
        "default",
        "values",
        "nothing negotiated",
        "peer to peer alone",
        "peer to peer",
        "send or read",
        "revision 1",
    ],
)
def test_the_request_is_that_of_the_reference_model(active, arguments, expected):
    rejection = StartupFrame(reply=True, reject=True).encode()
    with RawResponder(answer_with(rejection)) as responder:
        with pytest.raises(ConnectionRejected):
            connect(active.qp, "127.0.0.1", responder.port, **arguments)
    assert responder.result == (expected, b"")


@pytest.mark.requirement("MPA-7.1.1-01", "MPA-7.1.2-01", "MPA-7.1.2-13")
@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_the_requests_of_captures_are_sent_and_their_replies_understood(capture):
    for connection in read_connections(capture):
        side = Side()
        captured, reply = connection.request, connection.reply
        enhanced = captured.enhanced
        options = {"private_data": captured.private_data, "crc": captured.crc}
        if enhanced is None:
            options["revision"] = captured.revision
        elif enhanced.ird <= 8 and not enhanced.peer_to_peer:  # the fake device has 8
            options |= {"ird": enhanced.ird, "ord": enhanced.ord}
        else:
            continue
        with RawResponder(answer_with(reply.encode())) as responder:
            answer = connect(side.qp, "127.0.0.1", responder.port, **options)
            side.context.close()
        assert responder.result == (captured, b"")
        assert answer == reply.private_data
        assert side.told()["crc"] == connection.negotiated.crc


@pytest.mark.requirement("DDP-6.1-01", "MPA-7.1-01")
@pytest.mark.parametrize("length", [0, 1, 3, 4, 255, 508])
def test_full_operation_begins_right_behind_the_startup_frames(sides, length):
    active, passive = sides
    data = bytes(range(1, 256)) * 2
    reply = changed(GOOD_REPLY, private_data=data[:length])
    with RawResponder(answer_with(reply + b"first FPDU")) as responder:
        connect(active.qp, "127.0.0.1", responder.port, private_data=data[:length])
        stream = active.device.attached[active.qp.qp_num]
        assert stream.receive_exactly(10, PATIENCE) == b"first FPDU"
        active.context.close()
    request = changed(GOOD_REPLY, reply=False, private_data=data[:length])
    with listen(passive.context) as listener, raw_initiator(listener.port, request) as peer:
        listener.get_request().accept(passive.qp)
        receive_frame(peer, reply=True)
        peer.sendall(b"first FPDU")
        stream = passive.device.attached[passive.qp.qp_num]
        assert stream.receive_exactly(10, PATIENCE) == b"first FPDU"


@pytest.mark.requirement("MPA-7.1-05")
def test_the_device_gets_a_stream_only_for_a_qp_that_is_connected(sides):
    states = []
    for side in sides:

        def attach(connection, stream, device=side.device, attach=side.device.attach):
            states.append(device.states[connection])
            attach(connection, stream)

        side.device.attach = attach
    active, passive = sides
    with listen(passive.context) as listener:
        with Background(lambda: listener.get_request().accept(passive.qp)):
            connect(active.qp, "127.0.0.1", listener.port)
    assert states == [RTS, RTS]


def test_the_first_fpdu_does_not_follow_the_reply_at_once(sides):
    active, passive = sides
    with listen(passive.context) as listener:
        with Background(lambda: listener.get_request().accept(passive.qp)):
            begun = time.monotonic()
            connect(active.qp, "127.0.0.1", listener.port, first_fpdu_delay=0.25)
    assert time.monotonic() - begun >= 0.25


def test_a_first_fpdu_that_would_come_too_late_is_not_waited_for(active):
    with RawResponder(answer_with(GOOD_REPLY.encode())) as responder:
        with pytest.raises(StartupTimeout, match=r"not within 3 s: first_fpdu_delay is 60 s"):
            connect(active.qp, "127.0.0.1", responder.port, first_fpdu_delay=60, timeout=3)


@pytest.mark.parametrize(("octets", "text"), [(64, "'$"), (500, "' and 436 bytes more$")])
def test_the_text_of_a_rejection_shows_no_more_than_the_first_octets(active, octets, text):
    reply = StartupFrame(reply=True, reject=True, private_data=b"z" * octets)
    with RawResponder(answer_with(reply.encode())) as responder:
        with pytest.raises(ConnectionRejected, match="private data b'z{64}" + text) as caught:
            connect(active.qp, "127.0.0.1", responder.port)
    assert caught.value.private_data == b"z" * octets


def test_a_rejection_without_private_data_says_so(active):
    reply = StartupFrame(reply=True, reject=True)
    with RawResponder(answer_with(reply.encode())) as responder:
        with pytest.raises(ConnectionRejected, match=r"connection, without private data$"):
            connect(active.qp, "127.0.0.1", responder.port)


# Arguments


@pytest.mark.requirement("MPA-7.1.1-18", "MPA2-7-02", "MPA2-9.2-02")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"emss": 127}, "EMSS 127; allowed: 128 to 65535"),
        ({"emss": 65536}, "EMSS 65536; allowed: 128 to 65535"),
        ({"ord": 9}, "ORD 9; allowed: 0 to 8"),
        ({"ird": -1}, "IRD -1; allowed: 0 to 8"),
        ({"private_data": bytes(509)}, "509 bytes of private data; allowed: 0 to 508"),
        (
            {"private_data": bytes(513), "revision": 1},
            "513 bytes of private data; allowed: 0 to 512",
        ),
        ({"revision": 0}, "MPA revision 0; allowed: 1 or 2"),
        ({"revision": 3}, "MPA revision 3; allowed: 1 or 2"),
        (
            {"revision": 1, "peer_to_peer": True},
            "peer_to_peer with MPA revision 1; allowed: with 2",
        ),
        ({"rtr": RTR(0)}, "allowed: one or more of <RTR.READ|WRITE|SEND: 7>"),
        ({"timeout": -1}, "timeout is -1 s; allowed: 0 to 1000000"),
        ({"first_fpdu_delay": -1}, "first_fpdu_delay is -1 s; allowed: 0 to 1000000"),
        ({"timeout": float("inf")}, "timeout is inf s; allowed: 0 to 1000000"),
        ({"timeout": float("nan")}, "timeout is nan s; allowed: 0 to 1000000"),
    ],
)
def test_arguments_that_do_not_fit_are_named_before_anything_is_opened(active, arguments, message):
    opened = []
    active.device.connect = lambda *arguments: opened.append(arguments)
    with pytest.raises(ValueError) as caught:
        connect(active.qp, "127.0.0.1", 1, **arguments)
    assert message in str(caught.value)
    assert opened == []
    assert active.qp.state == QPState.INIT


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"private_data": "text"}, "private_data is a str; allowed: bytes"),
        ({"private_data": 4}, "private_data is a int; allowed: bytes"),
        ({"ord": "many"}, "ORD is 'many'; allowed: 0 to 8"),
    ],
)
def test_arguments_of_other_types_are_named(active, arguments, message):
    with pytest.raises(TypeError, match=message):
        connect(active.qp, "127.0.0.1", 1, **arguments)


def test_a_connected_qp_is_not_connected_again(sides):
    active, passive = sides
    with listen(passive.context) as listener:
        with Background(lambda: listener.get_request().accept(passive.qp)):
            connect(active.qp, "127.0.0.1", listener.port)
        with pytest.raises(QPStateError, match="in state RTS; allowed: INIT"):
            connect(active.qp, "127.0.0.1", listener.port)


@pytest.mark.requirement("MPA-4.5-05")
@pytest.mark.parametrize(("mss", "emss"), [(88, 128), (127, 128), (128, 128), (70_000, 65_535)])
def test_the_mulpdu_is_not_below_128_on_a_connection_with_small_segments(active, mss, emss):
    with RawResponder(answer_with(GOOD_REPLY.encode())) as responder:
        stream = active.device.connect("127.0.0.1", responder.port)
        stream.maximum_segment_size = mss
        active.device.connect = lambda *arguments: stream
        connect(active.qp, "127.0.0.1", responder.port)
        assert active.told()["emss"] == emss
        active.qp.close()
