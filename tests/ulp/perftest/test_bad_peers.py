"""Peers that do not keep to the exchange, or fall silent: named, in time, and nothing is left."""

import contextlib
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from threading import Event

import pytest

from stagecoach.host_driver import (
    QP,
    AsyncEvent,
    Context,
    ListenerClosed,
    StartupError,
    StreamEnd,
    WaitTimeout,
    WROpcode,
    connect,
    listen,
)
from stagecoach.sim.model.startup import EnhancedData, StartupFrame
from stagecoach.sim.transport import SimulatedDevice
from stagecoach.ulp.perftest import ends, link, runs
from stagecoach.ulp.perftest.errors import PeerClosed, PerftestError, WrongPerftestVersion
from stagecoach.ulp.perftest.link import Link
from stagecoach.ulp.perftest.results import Latency
from tests.ulp.perftest.foreign import (
    HANDSHAKES,
    LINE,
    MTU,
    PAGE,
    VERSION,
    Foreign,
    dest,
    doubles,
    parse,
)
from tests.ulp.perftest.rig import SECONDS, Devices, Scripted, Serving, settings

pytestmark = pytest.mark.usefixtures("compiled_device")

SHORT = 3.0
"""Our patience with peers that fall silent."""

OTHER = b"5.96" + bytes(12)


def check_patience(error: Exception, seconds: float, patience: float) -> None:
    """None is given up sooner than the patience says.

    seconds: from before the last that the peer said to the end of our side.
    """
    assert not isinstance(error, WaitTimeout) or seconds >= patience


def client_against(
    devices: Devices, tool: str, script: Callable, rx: int = 1, **options
) -> Exception:
    """What our client makes of a server with a script, and so many receives for the test."""
    with listen(devices.theirs) as listener, Foreign(devices.theirs, rx=rx) as end:
        asked = settings(tool, host="127.0.0.1", port=listener.port, **options)
        with Scripted(lambda: script(end, listener)):
            with pytest.raises((PerftestError, WaitTimeout, StartupError)) as caught:
                ends.ask(devices.ours, asked)
            check_patience(caught.value, time.monotonic() - end.spoke_at, asked.timeout)
    devices.check_clean()
    return caught.value


def server_against(devices: Devices, tool: str, script: Callable, **options) -> Exception:
    """What our server makes of a client with a script."""
    given = settings(tool, **options)
    with Serving(devices.ours, given) as server:
        with Foreign(devices.theirs) as end:
            end.call(server.port)
            script(end, server.port)
    devices.check_clean()
    assert server.error is not None
    check_patience(server.error, server.ended_at - end.spoke_at, given.timeout)
    return server.error


def begin(end: Foreign, port: int, peer_to_peer: bool = False) -> None:
    """A client up to the second connection."""
    for octets in (VERSION, PAGE, LINE, MTU, dest()):
        end.tell(octets)
    end.call_again(port, peer_to_peer=peer_to_peer)
    end.tell(dest())


def answer_begin(end: Foreign, listener) -> None:
    """A server up to the second connection."""
    end.answer(listener)
    for octets in (VERSION, PAGE, LINE, MTU, dest()):
        end.reply(octets)
    end.answer_again(listener)
    end.reply(dest())


def test_what_goes_wrong_in_a_script_is_what_fails(devices):
    def script(end: Foreign, listener) -> None:
        end.answer(listener)
        end.reply(OTHER)
        raise KeyError("wrong")

    with pytest.raises(KeyError, match="wrong"):
        client_against(devices, "ib_read_lat", script)
    devices.check_clean()


# Another version


def test_a_client_of_another_version_is_refused_by_name(devices):
    def script(end: Foreign, port: int) -> None:
        # It hears which version is here.
        assert end.tell(OTHER) == VERSION

    error = server_against(devices, "ib_write_bw", script)
    assert isinstance(error, WrongPerftestVersion)
    assert "'5.96'; allowed: '6.06', that of perftest 4.5+0.17" in str(error)


def test_a_server_of_another_version_is_refused_by_name(devices):
    def script(end: Foreign, listener) -> None:
        end.answer(listener)
        assert end.reply(OTHER) == VERSION

    error = client_against(devices, "ib_read_lat", script)
    assert isinstance(error, WrongPerftestVersion) and "'5.96'" in str(error)


# Garbage


@pytest.mark.parametrize(
    ("before", "octets", "message"),
    [
        ([], b"hello", "the peer's version has 5 bytes (68 65 6c 6c 6f); allowed: 16"),
        ([], bytes(56), "the peer's version has 56 bytes (00 00 00"),
        ([VERSION], bytes(4), "the peer's page size is 0; allowed: 1 to"),
        ([VERSION], bytes(3), "the peer's page size has 3 bytes (00 00 00); allowed: 4"),
        ([VERSION, PAGE], b"\xff" * 4, "the peer's cache line size is 4294967295"),
        ([VERSION, PAGE, LINE], b"xx", "the peer's MTU is b'xx'; allowed"),
        ([VERSION, PAGE, LINE, MTU], bytes(8), "before the second connection has 8 bytes"),
    ],
)
@pytest.mark.parametrize("side", ["client", "server"])
def test_garbage_is_named(devices, side, before, octets, message):
    def as_client(end: Foreign, port: int) -> None:
        for each in before:
            end.tell(each)
        end.say(octets)
        end.await_closed()

    def as_server(end: Foreign, listener) -> None:
        end.answer(listener)
        for each in before:
            end.reply(each)
        end.reply(octets)
        end.await_closed()

    if side == "client":
        error = server_against(devices, "ib_write_bw", as_client)
    else:
        error = client_against(devices, "ib_write_bw", as_server)
    assert isinstance(error, PerftestError) and message in str(error)


def test_a_handshake_of_another_length_is_named(devices):
    def script(end: Foreign, port: int) -> None:
        begin(end, port)
        end.say(dest()[:-1])
        end.await_closed()

    error = server_against(devices, "ib_send_lat", script)
    assert "the peer's handshake 1 of 4 has 55 bytes" in str(error)
    assert "allowed: 56. Both ends need the same test" in str(error)


def test_an_address_without_room_is_named(devices):
    def script(end: Foreign, listener) -> None:
        answer_begin(end, listener)
        for _ in range(HANDSHAKES["ib_write_bw"]):
            end.reply(dest(1, 2**64 - 4095))

    error = client_against(devices, "ib_write_bw", script, size=100)
    assert "0xfffffffffffff001; allowed: up to 2^64 - 4096" in str(error)


def test_a_server_that_speaks_first_is_named(devices, monkeypatch):
    spoke = Event()
    read = runs.read_one_by_one

    def read_until_it_has_spoken(link: Link, *arguments) -> Latency:
        result = read(link, *arguments)
        assert spoke.wait(SECONDS)
        link.wait(lambda: link.peer_went_on, "what came too early")
        return result

    monkeypatch.setattr(runs, "read_one_by_one", read_until_it_has_spoken)

    def script(end: Foreign, listener) -> None:
        end.answer(listener)
        for octets in (VERSION, PAGE, LINE, MTU):
            end.reply(octets)
        end.reply(dest())
        end.answer_again(listener)
        end.reply(dest())
        for _ in range(HANDSHAKES["ib_read_lat"]):
            end.reply(dest(end.mr.rkey, end.mr.addr))
        end.say(dest())  # that of the end, before the client's
        spoke.set()
        end.await_closed()

    error = client_against(devices, "ib_read_lat", script, size=1)
    assert "the peer's last handshake came before that of this end" in str(error)


# Silence


@pytest.mark.slow
@pytest.mark.parametrize("told", [0, 1, 3, 5])
def test_a_silent_client_is_given_up(devices, told):
    def script(end: Foreign, port: int) -> None:
        for octets in (VERSION, PAGE, LINE, MTU, dest())[:told]:
            time.sleep(SHORT / 5)  # none of it counts
            end.tell(octets)
        end.await_closed()

    error = server_against(devices, "ib_write_bw", script, timeout=SHORT)
    missing = {0: "version", 1: "page size", 3: "MTU", 5: "second connection"}[told]
    assert isinstance(error, WaitTimeout)
    assert str(error).startswith(f"the peer's {missing}: nothing")


@pytest.mark.slow
def test_a_silent_server_is_given_up(devices):
    def script(end: Foreign, listener) -> None:
        end.answer(listener)
        time.sleep(SHORT / 2)  # does not count
        end.reply(VERSION)
        end.await_closed()

    error = client_against(devices, "ib_write_bw", script, timeout=SHORT)
    assert isinstance(error, WaitTimeout)
    assert str(error) == "the peer's page size: nothing from the peer in 3 s"


def test_a_server_that_never_listens_again_is_given_up(devices):
    def script(end: Foreign, listener) -> None:
        end.answer(listener)
        for octets in (VERSION, PAGE, LINE, MTU):
            end.reply(octets)
        listener.close()
        end.reply(dest())

    error = client_against(devices, "ib_write_bw", script)
    assert isinstance(error, StartupError) and "refused" in str(error)


def test_a_server_that_listens_again_a_little_later_is_met(devices, monkeypatch):
    """As the tools do: they listen once for each of the two connections."""
    closed = []
    refused = Event()

    def connect_(*arguments, **options) -> None:
        try:
            connect(*arguments, **options)
        except StartupError:
            refused.set()
            raise

    monkeypatch.setattr(ends, "connect", connect_)
    monkeypatch.setattr(ends, "_TRIES", 100)

    def script(end: Foreign, listener) -> None:
        end.answer(listener)
        for octets in (VERSION, PAGE, LINE, MTU):
            end.reply(octets)
        listener.close()
        end.reply(dest())
        assert refused.wait(SECONDS)
        with listen(devices.theirs, port=listener.port) as again:
            end.answer_again(again)
        end.reply(dest())
        closed.append(end.hear())  # the first handshake: the client was there
        end.control.disconnect()

    error = client_against(devices, "ib_read_lat", script)
    assert isinstance(error, PeerClosed) and len(closed) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ("ib_write_lat", "its Write 1 of 7"),
        ("ib_send_lat", "message 1 of 7"),
        ("ib_send_bw", "its credit for message 7 of 7"),
    ],
)
def test_a_server_that_does_nothing_in_the_test_is_given_up(devices, tool, message):
    def script(end: Foreign, listener) -> None:
        answer_begin(end, listener)
        end.receive(7, 64)
        for _ in range(HANDSHAKES[tool]):
            end.reply(dest(end.mr.rkey, end.mr.addr))
        end.await_closed()

    error = client_against(devices, tool, script, rx=7, size=64, iters=7, timeout=SHORT)
    assert isinstance(error, WaitTimeout)
    assert str(error) == f"{message}: nothing from the peer in 3 s"


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["ib_write_lat", "ib_send_lat", "ib_send_bw"])
def test_a_client_that_does_nothing_in_the_test_is_given_up(devices, tool):
    def script(end: Foreign, port: int) -> None:
        begin(end, port, peer_to_peer=tool == "ib_write_lat")
        for _ in range(HANDSHAKES[tool]):
            end.tell(dest(end.mr.rkey, end.mr.addr))
        end.await_closed()

    error = server_against(devices, tool, script, size=64, iters=7, timeout=SHORT)
    assert isinstance(error, WaitTimeout)
    assert "1 of 7: nothing from the peer in 3 s" in str(error)


@pytest.mark.parametrize("tool", HANDSHAKES)
def test_a_client_that_closes_in_the_test_is_named(devices, tool):
    def script(end: Foreign, port: int) -> None:
        begin(end, port, peer_to_peer=tool == "ib_write_lat")
        for _ in range(HANDSHAKES[tool]):
            end.tell(dest(end.mr.rkey, end.mr.addr))
        end.data.disconnect()  # before its memory goes

    error = server_against(devices, tool, script, size=64, iters=7)
    assert isinstance(error, PeerClosed) and "it still owed" in str(error)


@pytest.mark.parametrize("how", [StreamEnd.RESET, StreamEnd.TIMED_OUT, StreamEnd.CLOSED])
def test_a_connection_that_is_lost_in_the_test_says_how(devices, monkeypatch, how):
    """As a device with a network of its own tells it."""
    plain = QP._stopped

    def stopped(qp: QP, event: AsyncEvent) -> None:
        plain(qp, replace(event, stream_end=how))

    monkeypatch.setattr(QP, "_stopped", stopped)

    def script(end: Foreign, port: int) -> None:
        begin(end, port)
        for _ in range(HANDSHAKES["ib_send_lat"]):
            end.tell(dest(end.mr.rkey, end.mr.addr))
        end.data.disconnect()

    error = server_against(devices, "ib_send_lat", script, size=64, iters=7)
    words = f"connection of the test: {how.words}"
    if how is StreamEnd.CLOSED:
        words = "the peer closed the connection of the test"
    assert isinstance(error, PeerClosed)
    assert str(error) == f"{words}; it still owed message 1 of 7"


# Other sizes and numbers


def test_a_shorter_send_is_named(devices):
    def script(end: Foreign, port: int) -> None:
        begin(end, port)
        for _ in range(HANDSHAKES["ib_send_bw"]):
            end.tell(dest(end.mr.rkey, end.mr.addr))
        end.post(WROpcode.SEND, 63)
        end.await_closed()

    error = server_against(devices, "ib_send_bw", script, size=64)
    assert str(error) == "a Send of 63 bytes; allowed: 64. Both ends need the same -s"


def test_a_longer_send_is_named(devices):
    def script(end: Foreign, port: int) -> None:
        begin(end, port)
        for _ in range(HANDSHAKES["ib_send_bw"]):
            end.tell(dest(end.mr.rkey, end.mr.addr))
        end.post(WROpcode.SEND, 65)
        end.await_closed()

    error = server_against(devices, "ib_send_bw", script, size=64)
    assert isinstance(error, PerftestError) and str(error).startswith("connection of the test: ")
    assert str(error).endswith("message too long for its buffer (layer 1, type 2, code 0x05)")


def test_a_write_beyond_the_memory_is_named(devices):
    def script(end: Foreign, port: int) -> None:
        begin(end, port)
        told = [end.tell(dest(end.mr.rkey, end.mr.addr)) for _ in range(HANDSHAKES["ib_write_bw"])]
        end.post(WROpcode.RDMA_WRITE, 4097, parse(told[-1]))
        end.await_closed()

    error = server_against(devices, "ib_write_bw", script, size=64)
    assert isinstance(error, PerftestError) and str(error).startswith("connection of the test: ")
    assert str(error).endswith(
        "tagged segment outside base and bounds (layer 1, type 1, code 0x01)"
    )


@pytest.mark.slow
def test_fewer_messages_are_named(devices, monkeypatch):
    monkeypatch.setattr(link, "_GRACE", SHORT)

    def script(end: Foreign, port: int) -> None:
        begin(end, port)
        for _ in range(HANDSHAKES["ib_send_bw"]):
            end.tell(dest(end.mr.rkey, end.mr.addr))
        for _ in range(6):
            end.post(WROpcode.SEND, 64)
        end.say(dest())
        end.await_closed()

    error = server_against(devices, "ib_send_bw", script, size=64, iters=7)
    assert str(error) == (
        "the peer went on with the exchange, and still owes message 7 of 7; both ends need the "
        "same test and -n"
    )


@pytest.mark.parametrize(
    ("size", "iters", "message"),
    [(63, 7, "ran with -s 63, this end with 64"), (64, 8, "ran with -n 8, this end with 7")],
)
def test_the_report_of_another_test_is_named(devices, size, iters, message):
    def script(end: Foreign, port: int) -> None:
        begin(end, port)
        for _ in range(HANDSHAKES["ib_write_bw"]):
            end.tell(dest(end.mr.rkey, end.mr.addr))
        end.tell(dest())
        counts = [size.to_bytes(8, "big"), iters.to_bytes(8, "big")]
        for octets in [*counts, *doubles(1.0, 1.0, 1.0)]:
            end.tell(octets)

    assert message in str(server_against(devices, "ib_write_bw", script, size=64, iters=7))


@pytest.mark.slow
def test_another_tool_is_named(devices):
    """A client of ib_write_lat at a server of ib_write_bw: one handshake more."""

    def script(end: Foreign, port: int) -> None:
        begin(end, port)
        for _ in range(HANDSHAKES["ib_write_lat"]):
            end.tell(dest(end.mr.rkey, end.mr.addr))
        end.await_closed()

    error = server_against(devices, "ib_write_bw", script, timeout=SHORT)
    assert str(error) == "the peer's report (size): nothing from the peer in 3 s"


# Connections


def test_a_client_of_ib_write_lat_must_connect_peer_to_peer(devices):
    def script(end: Foreign, port: int) -> None:
        for octets in (VERSION, PAGE, LINE, MTU, dest()):
            end.tell(octets)
        with pytest.raises(StartupError, match="rejected"):
            end.call_again(port)

    error = server_against(devices, "ib_write_lat", script)
    assert str(error) == (
        "ib_write_lat: its server sends first, which RFC 5044 (7.1.2) forbids the MPA Responder; "
        "allowed: a client that connects peer-to-peer (RFC 6581, 9.2)"
    )


@pytest.mark.parametrize(("tool", "asks"), [("ib_write_lat", True), ("ib_read_bw", False)])
def test_only_the_client_of_ib_write_lat_asks_for_peer_to_peer(devices, tool, asks):
    seen = []

    def script(end: Foreign, listener) -> None:
        end.answer(listener)
        for octets in (VERSION, PAGE, LINE, MTU, dest()):
            end.reply(octets)
        request = listener.get_request(SECONDS)
        seen.append(request.peer_to_peer)
        request.reject()

    error = client_against(devices, tool, script)
    assert isinstance(error, StartupError)
    assert seen == [asks]


def test_a_peer_that_fails_in_mpa_startup_does_not_count(devices, capsys):
    options = settings("ib_read_lat")
    with Serving(devices.theirs, options) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as stream:
            stream.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                stream.recv(1)
        ends.ask(devices.ours, replace(options, host="127.0.0.1", port=server.port))
    assert server.error is None
    assert capsys.readouterr().err.startswith("perftest: MalformedFrame: ")
    devices.check_clean()


def test_a_server_whose_context_is_closed_ends(compiled_device):
    context = Context(SimulatedDevice())
    with Serving(context, settings("ib_read_lat")) as server:
        assert server.port
        context.close()
    assert isinstance(server.error, ListenerClosed)


def test_a_stranger_does_not_get_the_second_connection(devices):
    def script(end: Foreign, port: int) -> None:
        for octets in (VERSION, PAGE, LINE, MTU, dest()):
            end.tell(octets)
        request = StartupFrame(reply=False, revision=2, enhanced=EnhancedData(ird=1, ord=1))
        there, here = ("127.0.0.1", port), ("127.0.0.2", 0)
        with socket.create_connection(there, source_address=here) as stream:
            stream.sendall(request.encode())
            reply = stream.recv(100)
        assert reply.startswith(b"MPA ID Rep Frame") and reply[16] & 0x20  # rejected
        end.call_again(port)
        assert end.tell(dest()) == bytes(56)

    error = server_against(devices, "ib_write_bw", script)
    assert isinstance(error, PeerClosed)
