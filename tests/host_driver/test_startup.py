"""MPA startup: frames against the reference model and captures, and what goes wrong in it."""

import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from host_driver import (
    CQ,
    PD,
    QP,
    ConnectionRejected,
    Context,
    QPInitAttr,
    QPState,
    QPStateError,
    StartupError,
    connect,
    listen,
    registers,
)
from host_driver.mpa_startup import (
    HEADER_OCTETS,
    NOT_NEGOTIATED,
    StartupFrame,
    decode,
    limit_reads,
    private_data_length,
)
from sim.captures import read_connections
from sim.model import startup as model
from sim.model.errors import MpaError
from tests.host_driver.fake_device import RESET, FakeDevice

CAPTURES = sorted((Path(__file__).parents[1] / "data" / "captures").glob("*.pcap"))


def parse(octets: bytes, *, reply: bool) -> StartupFrame:
    length = private_data_length(octets[:HEADER_OCTETS], reply=reply)
    assert len(octets) == HEADER_OCTETS + length
    return decode(octets[:HEADER_OCTETS], octets[HEADER_OCTETS:], reply=reply)


def to_model(frame: StartupFrame) -> model.StartupFrame:
    enhanced = None
    if frame.ird is not None and frame.ord is not None:
        enhanced = model.EnhancedData(
            frame.ird,
            frame.ord,
            *(bool(frame.control >> bit & 1) for bit in (3, 2, 1, 0)),
        )
    return model.StartupFrame(
        reply=frame.reply,
        markers=frame.markers,
        crc=frame.crc,
        reject=frame.reject,
        revision=frame.revision,
        private_data=frame.private_data,
        enhanced=enhanced,
    )


def test_frames_are_those_of_the_reference_model():
    rng = random.Random(5044)
    for _ in range(300):
        enhanced = rng.random() < 0.5
        frame = StartupFrame(
            reply=rng.random() < 0.5,
            markers=rng.random() < 0.5,
            crc=rng.random() < 0.5,
            reject=rng.random() < 0.5,
            revision=2 if enhanced else rng.choice([1, 2]),
            ird=rng.getrandbits(14) if enhanced else None,
            ord=rng.getrandbits(14) if enhanced else None,
            control=rng.getrandbits(4) if enhanced else 0,
            private_data=rng.randbytes(rng.choice([0, 1, 13, 508])),
        )
        octets = frame.encode()
        assert octets == to_model(frame).encode()
        assert parse(octets, reply=frame.reply) == frame


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_frames_of_captures_are_understood_and_made_again(capture):
    connections = read_connections(capture)
    assert connections
    for connection in connections:
        for captured in (connection.request, connection.reply):
            octets = captured.encode()
            frame = parse(octets, reply=captured.reply)
            assert to_model(frame) == captured
            assert frame.encode() == octets


def test_every_single_octet_of_garbage_is_judged_as_the_reference_model_does():
    octets = StartupFrame(reply=False, ird=3, ord=4, private_data=b"abc").encode()
    rng = random.Random(1)
    for position in range(HEADER_OCTETS):
        for _ in range(8):
            changed = bytearray(octets)
            changed[position] = rng.getrandbits(8)
            try:
                expected = model.StartupFrame.decode(bytes(changed))
            except MpaError:
                expected = None
            try:
                found = to_model(parse(bytes(changed), reply=False))
            except (StartupError, AssertionError):
                found = None
            assert found == expected, changed


def test_private_data_that_does_not_fit_is_named():
    with pytest.raises(ValueError, match="513 octets of private data; allowed: 0 to 512"):
        StartupFrame(reply=True, private_data=bytes(513)).encode()
    with pytest.raises(ValueError, match="509 octets of private data; allowed: 0 to 508"):
        StartupFrame(reply=True, ird=1, ord=1, private_data=bytes(509)).encode()


def test_reads_are_limited_by_both_sides():
    assert limit_reads(8, None) == 8
    assert limit_reads(8, 3) == 3
    assert limit_reads(2, 3) == 2
    assert limit_reads(8, NOT_NEGOTIATED) == 8


# Connecting


class Side:
    """An open fake device with a QP."""

    def __init__(self) -> None:
        self.device = FakeDevice()
        self.context = Context(self.device)
        pd, cq = PD(self.context), CQ(self.context)
        self.qp = QP(pd, QPInitAttr(cq, cq))

    def told(self) -> dict[str, int]:
        """What the device was told of the connection."""
        found: dict[str, int] = {}
        for register in (registers.QP_READS, registers.QP_EMSS, registers.QP_MODE):
            found |= register.unpack(self.device.words[register.address])
        return found


@pytest.fixture
def sides() -> Iterator[tuple[Side, Side]]:
    active, passive = Side(), Side()
    yield active, passive
    active.context.close()
    passive.context.close()


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_two_ends_agree(sides):
    active, passive = sides
    seen = []

    def accept() -> None:
        request = listener.get_request()
        seen.append(request.private_data)
        request.accept(passive.qp, private_data=b"come in", crc=False, emss=1000, ord=7, ird=2)

    with listen(passive.context) as listener:
        thread = in_thread(accept)
        answer = connect(
            active.qp, "127.0.0.1", listener.port, private_data=b"hello", emss=1460, ord=5, ird=6
        )
        thread.join()
    assert seen == [b"hello"]
    assert answer == b"come in"
    mine, its = active.told(), passive.told()
    # One side wants CRCs: both use them. No ORD is above the other side's IRD.
    assert (mine["crc"], its["crc"]) == (1, 1)
    assert (mine["ord"], mine["ird"]) == (2, 6)
    assert (its["ord"], its["ird"]) == (6, 2)
    assert (mine["emss"], its["emss"]) == (1460, 1000)
    assert (mine["initiator"], its["initiator"]) == (1, 0)
    assert (active.qp.state, passive.qp.state) == (QPState.RTS, QPState.RTS)


def test_crc_is_off_if_nobody_wants_it(sides):
    active, passive = sides
    with listen(passive.context) as listener:
        thread = in_thread(lambda: listener.get_request().accept(passive.qp, crc=False))
        connect(active.qp, "127.0.0.1", listener.port, crc=False)
        thread.join()
    assert (active.told()["crc"], passive.told()["crc"]) == (0, 0)


def test_rejection_carries_private_data(sides):
    active, passive = sides
    with listen(passive.context) as listener:
        thread = in_thread(lambda: listener.get_request().reject(b"not you"))
        with pytest.raises(ConnectionRejected, match="not you") as caught:
            connect(active.qp, "127.0.0.1", listener.port)
        thread.join()
    assert caught.value.private_data == b"not you"
    assert active.qp.state == QPState.INIT
    assert not active.device.attached


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"emss": 127}, "EMSS 127; allowed: 128 to 65535"),
        ({"emss": 65536}, "EMSS 65536; allowed: 128 to 65535"),
        ({"ord": 9}, "ORD 9; allowed: 0 to 8"),
        ({"ird": -1}, "IRD -1; allowed: 0 to 8"),
        ({"private_data": bytes(509)}, "509 octets of private data; allowed: 0 to 508"),
    ],
)
def test_arguments_that_do_not_fit_are_named(sides, arguments, message):
    active, _ = sides
    with RawPeer(lambda peer: None) as port, pytest.raises(ValueError, match=message):
        connect(active.qp, "127.0.0.1", port, **arguments)
    assert active.qp.state == QPState.INIT


def test_a_connected_qp_is_not_connected_again(sides):
    active, passive = sides
    with listen(passive.context) as listener:
        thread = in_thread(lambda: listener.get_request().accept(passive.qp))
        connect(active.qp, "127.0.0.1", listener.port)
        thread.join()
        with pytest.raises(QPStateError, match="in state RTS; allowed: INIT"):
            connect(active.qp, "127.0.0.1", listener.port)


class RawPeer:
    """A listening socket; what it accepts is handled in a thread, then closed."""

    def __init__(self, handle: Callable[[socket.socket], None]):
        self._handle = handle
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return
        with peer:
            self._handle(peer)

    def __enter__(self) -> int:
        self._thread.start()
        return self._listener.getsockname()[1]

    def __exit__(self, *_: object) -> None:
        # Wakes up a thread that nobody connected to.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()


def answer_with(octets: bytes) -> Callable[[socket.socket], None]:
    def handle(peer: socket.socket) -> None:
        peer.recv(1024)
        peer.sendall(octets)
        peer.settimeout(5)
        # Until the other side closes: with a reset if it did not read everything.
        with contextlib.suppress(ConnectionResetError):
            peer.recv(1024)

    return handle


@pytest.mark.parametrize(
    ("octets", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no MPA Reply frame: it begins b'HTTP/1.1 400 Bad'"),
        (StartupFrame(reply=False).encode(), "the peer took the same side of MPA startup"),
        (StartupFrame(reply=True, revision=9).encode(), "MPA revision 9 in the Reply"),
        (
            StartupFrame(reply=True).encode()[:18] + b"\x02\x01",
            "private data length 513 in the Reply; allowed: 0 to 512",
        ),
        (
            StartupFrame(reply=True).encode()[:16] + b"\x50\x02\x00\x02ab",
            "enhanced frame with 2 octets; allowed: 4 or more",
        ),
        (StartupFrame(reply=True, markers=True).encode(), "the peer wants Markers"),
    ],
    ids=["garbage", "request", "revision", "length", "enhanced", "markers"],
)
def test_a_wrong_reply_is_an_error_with_its_reason(sides, octets, message):
    active, _ = sides
    with RawPeer(answer_with(octets)) as port, pytest.raises(StartupError) as caught:
        connect(active.qp, "127.0.0.1", port, timeout=5)
    assert message in str(caught.value)
    assert active.qp.state == QPState.INIT
    assert not active.device.attached


def test_a_peer_that_closes_is_an_error(sides):
    active, _ = sides
    with RawPeer(lambda peer: peer.recv(5)) as port:
        with pytest.raises(StartupError, match="no MPA Reply frame"):
            connect(active.qp, "127.0.0.1", port, timeout=5)


def test_a_peer_that_says_nothing_is_an_error_in_time(sides):
    active, _ = sides
    with RawPeer(answer_with(b"MPA")) as port:
        begun = time.monotonic()
        with pytest.raises(StartupError, match="no MPA Reply frame from the peer: 3 of 20 octets"):
            connect(active.qp, "127.0.0.1", port, timeout=0.3)
        assert time.monotonic() - begun < 3


def test_nobody_listening_is_an_error(sides):
    active, _ = sides
    free = socket.create_server(("127.0.0.1", 0))
    port = free.getsockname()[1]
    free.close()
    with pytest.raises(StartupError, match=f"no connection to 127.0.0.1:{port}"):
        connect(active.qp, "127.0.0.1", port, timeout=2)


def test_a_listener_survives_garbage(sides):
    active, passive = sides
    with listen(passive.context) as listener:
        with pytest.raises(StartupError, match="no connection on port"):
            listener.get_request(timeout=0.05)
        with socket.create_connection(("127.0.0.1", listener.port)) as garbage:
            garbage.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            with pytest.raises(StartupError, match="no MPA Request frame"):
                listener.get_request(timeout=5)
        with socket.create_connection(("127.0.0.1", listener.port)):
            with pytest.raises(StartupError, match="0 of 20 octets"):
                listener.get_request(timeout=0.1)
        thread = in_thread(lambda: listener.get_request().accept(passive.qp))
        connect(active.qp, "127.0.0.1", listener.port)
        thread.join()
    assert passive.qp.state == QPState.RTS


def test_a_peer_that_wants_markers_is_refused(sides):
    _, passive = sides
    with listen(passive.context) as listener:
        with socket.create_connection(("127.0.0.1", listener.port)) as peer:
            peer.sendall(StartupFrame(reply=False, markers=True).encode())
            request = listener.get_request()
            with pytest.raises(StartupError, match="Markers"):
                request.accept(passive.qp)
            peer.settimeout(5)
            assert parse(peer.recv(1024), reply=True).reject
    assert passive.qp.state == QPState.INIT


def test_a_peer_without_enhanced_data_gets_none(sides):
    _, passive = sides
    with listen(passive.context) as listener:
        with socket.create_connection(("127.0.0.1", listener.port)) as peer:
            peer.sendall(StartupFrame(reply=False, revision=1, private_data=b"x").encode())
            listener.get_request().accept(passive.qp, private_data=b"y")
            peer.settimeout(5)
            reply = parse(peer.recv(1024), reply=True)
    assert (reply.revision, reply.ird, reply.private_data) == (1, None, b"y")


def test_qps_are_free_after_a_failed_startup(sides):
    active, _ = sides
    active.qp.close()
    assert active.device.states[0] == RESET
