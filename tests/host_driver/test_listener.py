"""The listener: which peers get through, which are refused, and how long each may take."""

import socket
import struct
import threading
import time

import pytest

from stagecoach.host_driver import (
    ListenerClosed,
    MalformedFrame,
    QPState,
    StartupError,
    StartupStep,
    StartupTimeout,
    TransportError,
    connect,
    listen,
)
from stagecoach.host_driver.mpa_startup import StartupFrame
from stagecoach.host_driver.transport.base import DeviceClosed
from tests.host_driver.startup_rig import (
    PATIENCE,
    SHORT,
    Background,
    Side,
    raw_initiator,
    receive_all,
    receive_frame,
    to_model,
)

REQUEST = StartupFrame(reply=False, ird=8, ord=8, private_data=b"who")
OCTETS = REQUEST.encode()


# Requests that are wrong


@pytest.mark.requirement("MPA-7.1.1-02", "MPA-7.1.1-14", "MPA-7.1.1-17", "MPA-7.1.2-03")
@pytest.mark.requirement("MPA-7.1.2-04", "MPA-7.1.2-15", "MPA-7.1.2-23", "MPA-8-06")
@pytest.mark.parametrize(
    ("octets", "message"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "no MPA Request: it begins b'GET / HTTP/1.1\\r\\n'"),
        (
            StartupFrame(reply=True).encode(),
            "no MPA Request: it begins b'MPA ID Rep Frame'; allowed: b'MPA ID Req Frame'",
        ),
        (OCTETS[:17] + b"\x00" + OCTETS[18:], "MPA revision 0 in the Request; allowed: 1 and 2"),
        (OCTETS[:17] + b"\x03" + OCTETS[18:], "MPA revision 3 in the Request; allowed: 1 and 2"),
        (OCTETS[:18] + b"\x02\x01" + bytes(513), "private data length 513 in the Request"),
        (OCTETS[:18] + b"\xff\xff" + bytes(600), "private data length 65535 in the Request"),
        (OCTETS[:18] + b"\x00\x03abc", "private data length 3 in an enhanced Request"),
    ],
    ids=["garbage", "reply", "revision 0", "revision 3", "513 octets", "65535", "enhanced"],
)
def test_a_malformed_request_closes_the_connection_without_a_reply(passive, octets, message):
    with listen(passive.context) as listener:
        with raw_initiator(listener.port, octets) as peer:
            with pytest.raises(MalformedFrame) as caught:
                listener.get_request()
            assert message in str(caught.value)
            assert receive_all(peer) == b""
        # The listener goes on.
        with raw_initiator(listener.port, OCTETS):
            assert listener.get_request().private_data == b"who"


@pytest.mark.parametrize("octets", [b"G", OCTETS[:15] + b"x", OCTETS[:17] + b"\x07"])
def test_a_wrong_request_is_found_by_its_first_wrong_octet(passive, octets):
    with listen(passive.context) as listener, raw_initiator(listener.port, octets) as peer:
        begun = time.monotonic()
        with pytest.raises(MalformedFrame):
            listener.get_request()
        assert receive_all(peer) == b""
        assert time.monotonic() - begun < PATIENCE / 2


@pytest.mark.requirement("MPA-7.1.1-17", "MPA-7.1.2-03", "MPA-7.1.2-04", "MPA-7.1.2-21")
@pytest.mark.parametrize("count", [0, 1, 19, 20, 26])
def test_a_request_that_is_cut_off_is_an_error(passive, count):
    error = MalformedFrame if count else StartupError
    with listen(passive.context) as listener:
        with raw_initiator(listener.port, OCTETS[:count]) as peer:
            peer.shutdown(socket.SHUT_WR)
            with pytest.raises(error, match=f"the stream ended: {count} bytes came"):
                listener.get_request()
            assert receive_all(peer) == b""


@pytest.mark.requirement("MPA-7.1.1-11", "MPA-7.1.1-12", "MPA2-6-02")
def test_bits_that_mean_nothing_in_a_request_are_not_checked(passive):
    octets = bytearray(OCTETS)
    octets[16] |= 0x2F  # R and the reserved bits
    with listen(passive.context) as listener, raw_initiator(listener.port, bytes(octets)) as peer:
        request = listener.get_request()
        assert (request.private_data, request.ird) == (b"who", 8)
        request.accept(passive.qp)
        assert not receive_frame(peer, reply=True).reject


def test_a_request_may_come_in_any_pieces(passive):
    with listen(passive.context) as listener:
        for cut in range(1, len(OCTETS)):
            with raw_initiator(listener.port, OCTETS[:cut]) as peer:
                with Background(listener.get_request) as getting:
                    time.sleep(0.002)
                    peer.sendall(OCTETS[cut:])
                with getting.result as request:
                    assert request.private_data == b"who"


def test_a_peer_that_resets_at_once_does_no_harm(passive):
    with listen(passive.context) as listener:
        peer = raw_initiator(listener.port)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        with raw_initiator(listener.port, OCTETS):
            try:
                request = listener.get_request()
            except StartupError:  # the reset came after the connection was taken
                request = listener.get_request()
            assert request.private_data == b"who"


# Timers


def test_nobody_connects(passive):
    with listen(passive.context) as listener:
        message = f"peer that connects: not within 0.1 s: no whole .* at port {listener.port}, 0 "
        with pytest.raises(StartupTimeout, match=message) as caught:
            listener.get_request(timeout=SHORT)
    assert caught.value.step == StartupStep.PEER


@pytest.mark.requirement("MPA-7.1.2-03", "MPA-7.1.2-20", "MPA-7.1.2-24")
@pytest.mark.parametrize("count", [0, 3, 26])
def test_two_responders_wait_for_each_other_only_for_a_time(passive, count):
    with listen(passive.context, request_timeout=SHORT) as listener:
        with raw_initiator(listener.port, OCTETS[:count]) as peer:
            message = f"MPA Request frame: not within 0.1 s: {count} bytes came"
            with pytest.raises(StartupTimeout, match=message) as caught:
                listener.get_request()
            assert caught.value.step == StartupStep.REQUEST
            assert receive_all(peer) == b""


def test_a_request_that_takes_longer_than_one_call_is_got_by_the_next(passive):
    with listen(passive.context) as listener, raw_initiator(listener.port, OCTETS[:9]) as peer:
        with pytest.raises(StartupTimeout, match="1 begun"):
            listener.get_request(timeout=SHORT)
        peer.sendall(OCTETS[9:])
        assert listener.get_request().private_data == b"who"


def test_a_request_that_came_in_time_is_not_late_because_nobody_looked(passive):
    with listen(passive.context, request_timeout=SHORT) as listener:
        with raw_initiator(listener.port, OCTETS[:9]) as peer:
            with pytest.raises(StartupTimeout, match="1 begun"):
                listener.get_request(timeout=SHORT / 2)
            peer.sendall(OCTETS[9:])
            time.sleep(2 * SHORT)
            assert listener.get_request().private_data == b"who"


# Several peers


def test_slow_peers_do_not_hold_up_others(passive):
    with listen(passive.context) as listener:
        slow = [raw_initiator(listener.port, OCTETS[:count]) for count in (0, 1, 20)]
        with raw_initiator(listener.port, OCTETS):
            begun = time.monotonic()
            assert listener.get_request().private_data == b"who"
            assert time.monotonic() - begun < PATIENCE / 2
        for peer in slow:
            peer.close()


def test_peers_wait_in_the_backlog_and_are_taken_in_order(passive):
    frames = [StartupFrame(reply=False, private_data=bytes([number])) for number in range(12)]
    with listen(passive.context) as listener:
        peers = [raw_initiator(listener.port, frame.encode()) for frame in frames]
        found = [listener.get_request().private_data for _ in frames]
        assert found == [frame.private_data for frame in frames]
        for peer in peers:
            peer.close()


def test_silent_peers_in_a_full_backlog_give_way(passive):
    """They do not hold up others for the time that they have."""
    with listen(passive.context, backlog=2) as listener:
        silent = [raw_initiator(listener.port) for _ in range(3)]
        with raw_initiator(listener.port, OCTETS):
            begun = time.monotonic()
            for peer in silent[:2]:
                with pytest.raises(StartupError, match=r"turned away for another; allowed: 2 at"):
                    listener.get_request()
                assert receive_all(peer) == b""
            assert listener.get_request().private_data == b"who"
            assert time.monotonic() - begun < PATIENCE / 2
        for peer in silent:
            peer.close()


def test_who_has_most_silent_connections_gives_way(passive):
    with listen(passive.context, "", backlog=3) as listener:
        addresses = ("127.0.0.1", "127.0.0.2", "127.0.0.2", "127.0.0.2")
        silent = []
        for address in addresses:
            silent.append(socket.socket())
            silent[-1].bind((address, 0))
            silent[-1].connect(("127.0.0.1", listener.port))
        with pytest.raises(StartupError, match=r"a peer at (::ffff:)?127\.0\.0\.2 without"):
            listener.get_request()
        assert receive_all(silent[1]) == b""
        silent[0].sendall(OCTETS)
        assert listener.get_request().private_data == b"who"
        for peer in silent:
            peer.close()


@pytest.mark.parametrize("backlog", [0, -1])
def test_a_backlog_of_nothing_and_a_negative_time_are_refused(passive, backlog):
    with pytest.raises(ValueError, match=f"backlog is {backlog}; allowed: 1 or more"):
        listen(passive.context, backlog=backlog)
    with pytest.raises(ValueError, match="request_timeout is -1 s; allowed: 0 to 1000000"):
        listen(passive.context, request_timeout=-1)


def test_two_qps_on_one_listener(passive):
    active = Side()
    mine = [active.qp, active.another_qp()]
    its = [passive.qp, passive.another_qp()]
    with listen(passive.context) as listener:
        # Both wait at the same time; who gets whom is not known.
        accepting = [
            Background(lambda qp=qp: listener.get_request().accept(qp, private_data=b"qp"))
            for qp in its
        ]
        with accepting[0], accepting[1]:
            for number, qp in enumerate(mine):
                data = bytes([number])
                assert connect(qp, "127.0.0.1", listener.port, private_data=data) == b"qp"
    assert all(qp.state == QPState.RTS for qp in (*mine, *its))
    assert sorted(qp.connection.private_data for qp in its) == [b"\x00", b"\x01"]
    assert len(active.device.attached) == len(passive.device.attached) == 2
    active.context.close()


# Addresses


@pytest.mark.parametrize(
    ("host", "targets"),
    [("::1", ["::1"]), ("localhost", ["localhost"]), ("", ["127.0.0.1", "::1"])],
    ids=["IPv6", "a name", "all addresses"],
)
def test_addresses_of_both_families(passive, host, targets):
    active = Side()
    with listen(passive.context, host) as listener:
        for target in targets:
            mine, its = active.another_qp(), passive.another_qp()
            with Background(lambda qp=its: listener.get_request().accept(qp)):
                connect(mine, target, listener.port)
            assert (mine.state, its.state) == (QPState.RTS, QPState.RTS)
    active.context.close()


def test_a_request_knows_both_ends(passive):
    with listen(passive.context, "::1") as listener:
        with raw_initiator(listener.port, OCTETS, "::1") as peer, listener.get_request() as request:
            assert request.peer_address == peer.getsockname()[:2]
            assert request.local_address == ("::1", listener.port)


def test_a_port_in_use_is_an_error(passive):
    with listen(passive.context) as listener:
        with pytest.raises(TransportError, match=f"cannot listen at 127.0.0.1:{listener.port}"):
            listen(passive.context, port=listener.port)


def test_addresses_that_do_not_exist_are_errors(passive):
    with pytest.raises(TransportError, match="cannot listen at no such host:0"):
        listen(passive.context, "no such host")
    for port in (-1, 1 << 16):
        with pytest.raises(ValueError, match=f"port {port}; allowed: 0 to 65535"):
            listen(passive.context, port=port)
        with pytest.raises(ValueError, match=f"port {port}; allowed: 0 to 65535"):
            connect(passive.qp, "127.0.0.1", port)


# Closing


def test_a_listener_that_is_closed_while_it_waits_says_so_at_once(passive):
    listener = listen(passive.context)
    with pytest.raises(ListenerClosed, match=f"the listener at port {listener.port} was closed"):
        with Background(lambda: listener.get_request(timeout=100)):
            time.sleep(SHORT)
            begun = time.monotonic()
            listener.close()
    assert time.monotonic() - begun < PATIENCE / 2
    with pytest.raises(ListenerClosed, match="is closed; allowed: open"):
        listener.get_request()
    listener.close()


def test_closing_ends_what_has_no_whole_request_and_nothing_else(passive):
    with listen(passive.context) as listener:
        with raw_initiator(listener.port, OCTETS) as good:
            request = listener.get_request()
            begun = raw_initiator(listener.port, OCTETS[:9])
            with pytest.raises(StartupTimeout):
                listener.get_request(timeout=SHORT)
            listener.close()
            assert receive_all(begun) == b""
            begun.close()
            request.accept(passive.qp)
            assert not receive_frame(good, reply=True).reject


def test_a_closing_context_ends_listeners_and_requests(passive):
    listener = listen(passive.context)
    with raw_initiator(listener.port, OCTETS) as peer:
        request = listener.get_request()
        with pytest.raises(ListenerClosed):
            with Background(lambda: listener.get_request(timeout=100)):
                time.sleep(SHORT)
                passive.context.close()
        assert receive_all(peer) == b""
        with pytest.raises(StartupError, match="the request was answered or closed"):
            request.reject()
    with pytest.raises(DeviceClosed, match=r"the context of \w+ is closed"):
        listen(passive.context)


def test_no_thread_is_left_behind(passive):
    before = threading.active_count()
    with listen(passive.context) as listener, raw_initiator(listener.port, OCTETS[:9]):
        with pytest.raises(StartupTimeout):
            listener.get_request(timeout=SHORT)
        assert threading.active_count() == before


def test_a_request_is_read_as_the_reference_model_writes_it(passive):
    with listen(passive.context) as listener:
        with raw_initiator(listener.port, to_model(REQUEST).encode()):
            with listener.get_request() as request:
                found = (request.ird, request.ord, request.private_data, request.crc)
    assert found == (8, 8, b"who", True)
