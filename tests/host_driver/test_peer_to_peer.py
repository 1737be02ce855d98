"""The peer-to-peer model: RTR frames that nobody sees, and Responders that wait for them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagecoach.host_driver import (
    RTR,
    Cause,
    QPState,
    RecvWR,
    SendWR,
    StartupError,
    StartupStep,
    StartupTimeout,
    WCStatus,
    connect,
    listen,
)
from stagecoach.host_driver.mpa_startup import StartupFrame
from stagecoach.hw.interface.queue_entries import CompletionOpcode
from stagecoach.sim.capture.connections import Direction, read_connections
from tests.host_driver.startup_rig import (
    PATIENCE,
    SHORT,
    Background,
    RawResponder,
    RtrDevice,
    Side,
    answer_with,
    raw_initiator,
    receive_all,
    receive_frame,
    to_driver,
)

CAPTURE = Path(__file__).parents[1] / "data" / "captures" / "crc1-p2p-rping-64.pcap"
EVERY = RTR.SEND | RTR.WRITE | RTR.READ
REQUEST = StartupFrame(reply=False, ird=8, ord=8, peer_to_peer=True, rtr=RTR.WRITE | RTR.READ)


@pytest.fixture
def sides() -> Iterator[tuple[Side, Side]]:
    active, passive = Side(RtrDevice()), Side(RtrDevice())
    yield active, passive
    active.context.close()
    passive.context.close()


def join(sides: tuple[Side, Side], mine: RTR, its: RTR) -> None:
    active, passive = sides
    with listen(passive.context) as listener:
        with Background(lambda: listener.get_request().accept(passive.qp, rtr=its)):
            connect(active.qp, "127.0.0.1", listener.port, peer_to_peer=True, rtr=mine)


# ULPDUs of tables.md 2.4 and RFC 5040, 4.4, with the length before them.
FRAMES = {
    RTR.WRITE: "000e c140 00000001 0000000000000000",
    RTR.READ: (
        "002e 4141 00000000 00000001 00000001 00000000"
        "00000000 0000000000000000 00000000 00000001 0000000000000000"
    ),
    RTR.SEND: "0012 4143 00000000 00000000 00000001 00000000",
}


@pytest.mark.requirement("MPA2-5-01", "MPA2-9.2-08")
@pytest.mark.parametrize("option", list(RTR))
def test_the_first_fpdu_is_the_rtr_frame_and_no_cq_tells_of_it(sides, option):
    active, passive = sides
    join(sides, option, EVERY)
    assert [fpdu[:-4] for fpdu in active.device.sent] == [bytes.fromhex(FRAMES[option])]
    assert passive.device.sent == []
    for side in sides:
        assert side.qp.connection.peer_to_peer
        assert side.qp.connection.rtr == option
        assert side.qp.state == QPState.RTS
        assert side.cq.poll() == []
    # All of the queues is the user's.
    active.qp.post_send(*(SendWR(number) for number in range(64)))
    passive.qp.post_recv(*(RecvWR(number) for number in range(64)))


@pytest.mark.requirement("MPA2-9.2-01", "MPA2-9.2-04")
def test_a_write_is_preferred_and_a_send_is_not_offered(sides):
    active, passive = sides
    with listen(passive.context) as listener:
        asked = []

        def accept() -> None:
            request = listener.get_request()
            asked.append(request.rtr)
            request.accept(passive.qp)

        with Background(accept):
            connect(active.qp, "127.0.0.1", listener.port, peer_to_peer=True)
    assert asked == [RTR.WRITE | RTR.READ]
    assert active.qp.connection.rtr == RTR.WRITE
    assert passive.qp.connection.rtr == RTR.WRITE | RTR.READ


@pytest.mark.requirement("MPA2-5-01", "MPA2-9.2-01", "MPA2-9.2-08")
def test_the_frames_are_those_of_the_capture(sides):
    active, _ = sides
    (captured,) = read_connections(CAPTURE)
    ird, ord = captured.request.enhanced.ird, captured.request.enhanced.ord
    with RawResponder(answer_with(captured.reply.encode())) as responder:
        answer = connect(
            active.qp,
            "127.0.0.1",
            responder.port,
            private_data=captured.request.private_data,
            crc=captured.request.crc,
            ird=ird,
            ord=ord,
            peer_to_peer=True,
        )
        active.context.close()
    request, first = responder.result
    assert request == captured.request
    assert captured.stream(Direction.TO_RESPONDER).startswith(first)
    assert len(first) == 20
    assert answer == captured.reply.private_data


def test_the_captured_initiator_gets_the_captured_reply(sides):
    _, passive = sides
    (captured,) = read_connections(CAPTURE)
    reply = to_driver(captured.reply)
    rtr_frame = captured.stream(Direction.TO_RESPONDER)[:20]
    with listen(passive.context) as listener:
        with raw_initiator(listener.port, captured.request.encode()) as peer:
            request = listener.get_request()

            def accept() -> None:
                options = {"private_data": reply.private_data, "rtr": reply.rtr, "crc": reply.crc}
                request.accept(passive.qp, ird=reply.ird, ord=reply.ord, **options)

            with Background(accept):
                assert receive_frame(peer, reply=True) == captured.reply
                peer.sendall(rtr_frame)
            # The FPDU is the device's.
            stream = passive.device.attached[passive.qp.qp_num]
            assert stream.receive_exactly(20, PATIENCE) == rtr_frame
    assert passive.qp.state == QPState.RTS


def test_accept_returns_when_the_rtr_frame_comes(sides):
    _, passive = sides
    with listen(passive.context) as listener:
        with raw_initiator(listener.port, REQUEST.encode()) as peer:
            request = listener.get_request()
            with Background(lambda: request.accept(passive.qp)):
                receive_frame(peer, reply=True)
                time.sleep(SHORT)
                assert passive.qp.state == QPState.INIT
                peer.sendall(b"\0")
            assert passive.qp.state == QPState.RTS


# Sends as RTR frames


def test_a_send_is_not_accepted_from_a_qp_with_receives(sides):
    active, passive = sides
    passive.qp.post_recv(RecvWR(77))
    with pytest.raises(StartupError, match=r"<RTR.READ\|WRITE: 3> in the Reply"):
        join(sides, RTR.SEND, EVERY)
    assert active.qp.state == QPState.INIT


def test_receives_posted_behind_a_send_are_the_users(sides):
    _, passive = sides
    join(sides, RTR.SEND, EVERY)
    passive.qp.post_recv(RecvWR(77))
    device = passive.device
    device.complete(passive.cq.number, passive.qp.qp_num, 1, CompletionOpcode.RECEIVE, 5)
    (completion,) = passive.cq.poll()
    assert (completion.wr_id, completion.byte_len) == (77, 5)


def test_receives_posted_while_a_send_is_waited_for_are_refused(sides):
    _, passive = sides
    request_frame = StartupFrame(reply=False, ird=8, ord=8, peer_to_peer=True, rtr=RTR.SEND)
    with listen(passive.context) as listener:
        with raw_initiator(listener.port, request_frame.encode()) as peer:
            request = listener.get_request()
            with pytest.raises(StartupError, match="1 receives were posted while the RTR frame"):
                with Background(lambda: request.accept(passive.qp, rtr=EVERY)):
                    assert receive_frame(peer, reply=True).enhanced.rtr_send
                    passive.qp.post_recv(RecvWR(1))
                    peer.sendall(b"\0")
            receive_all(peer)
    assert passive.qp.state == QPState.INIT


def test_only_a_send_with_receives_posted_is_a_wrong_argument(sides):
    _, passive = sides
    passive.qp.post_recv(RecvWR(1))
    with listen(passive.context) as listener:
        with raw_initiator(listener.port, REQUEST.encode()):
            with listener.get_request() as request:
                with pytest.raises(ValueError, match=r"rtr is <RTR.SEND: 4> for a QP with receive"):
                    request.accept(passive.qp, rtr=RTR.SEND)


# Timers and failures


def test_an_initiator_does_not_come_too_late_with_its_rtr_frame(sides):
    active, passive = sides
    active.device.completes = False
    with listen(passive.context) as listener:
        with Background(lambda: listener.get_request().accept(passive.qp)):
            with pytest.raises(StartupTimeout, match="RTR frame: not within") as caught:
                connect(active.qp, "127.0.0.1", listener.port, peer_to_peer=True, timeout=3 * SHORT)
    assert caught.value.step == StartupStep.FIRST_FPDU
    assert active.qp.state == QPState.ERR
    assert not active.device.attached
    # The flushed RTR frame is hidden, too.
    assert active.cq.poll() == []


def test_a_responder_does_not_wait_for_ever_for_the_rtr_frame(sides):
    _, passive = sides
    with listen(passive.context) as listener:
        with raw_initiator(listener.port, REQUEST.encode()) as peer:
            request = listener.get_request()
            with pytest.raises(StartupTimeout, match="RTR frame: not within") as caught:
                request.accept(passive.qp, timeout=SHORT)
            receive_frame(peer, reply=True)
            # Nothing may be sent before the first FPDU, so there is no Terminate.
            assert receive_all(peer) == b""
    assert caught.value.step == StartupStep.FIRST_FPDU
    assert passive.qp.state == QPState.INIT


def test_a_send_that_does_not_come_is_an_error_in_time():
    passive = Side()  # its device receives nothing
    frame = StartupFrame(reply=False, ird=8, ord=8, peer_to_peer=True, rtr=RTR.SEND)
    with listen(passive.context) as listener, raw_initiator(listener.port, frame.encode()) as peer:
        request = listener.get_request()
        with pytest.raises(StartupTimeout, match=r"RTR frame: not within .* QP 0 has not"):
            with Background(lambda: request.accept(passive.qp, rtr=EVERY, timeout=3 * SHORT)):
                receive_frame(peer, reply=True)
                peer.sendall(b"\0")
    assert passive.qp.state == QPState.ERR
    # The flushed receive is hidden, too.
    assert passive.cq.poll() == []
    passive.context.close()


def test_a_responder_whose_initiator_goes_after_the_reply_is_free_again(sides):
    _, passive = sides
    with listen(passive.context) as listener:
        with raw_initiator(listener.port, REQUEST.encode()) as peer:
            request = listener.get_request()
            with pytest.raises(StartupError, match="RTR frame: the peer closed the stream"):
                with Background(lambda: request.accept(passive.qp)):
                    receive_frame(peer, reply=True)
                    peer.close()
    assert passive.qp.state == QPState.INIT


def test_a_qp_that_stops_at_its_rtr_frame_is_an_error_with_its_cause(sides):
    active, passive = sides
    active.device.completes = False

    def stop() -> None:
        deadline = time.monotonic() + PATIENCE
        while not active.device.sent and time.monotonic() < deadline:
            time.sleep(0.001)
        active.device.event(active.qp.qp_num, Cause.TERMINATE_RECEIVED)

    with listen(passive.context) as listener:
        with Background(lambda: listener.get_request().accept(passive.qp)), Background(stop):
            message = "QP 0 stopped at the RTR frame: the peer sent a Terminate message"
            with pytest.raises(StartupError, match=message):
                connect(active.qp, "127.0.0.1", listener.port, peer_to_peer=True)
    assert active.qp.state == QPState.ERR


def test_completions_of_others_are_not_lost_while_the_rtr_frame_is_waited_for(sides):
    active, passive = sides
    other = active.another_qp()
    with listen(passive.context) as listener:
        with Background(lambda: listener.get_request().accept(passive.another_qp())):
            connect(other, "127.0.0.1", listener.port)
        other.post_recv(RecvWR(5))
        active.device.complete(
            active.cq.number, other.qp_num, 0, CompletionOpcode.RECEIVE, length=9
        )
        with Background(lambda: listener.get_request().accept(passive.qp)):
            connect(active.qp, "127.0.0.1", listener.port, peer_to_peer=True)
    assert [(wc.wr_id, wc.status) for wc in active.cq.poll()] == [(5, WCStatus.SUCCESS)]
