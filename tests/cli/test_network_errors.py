"""What a network can do to a command: one line, with the name of what is wrong, and status 1."""

import contextlib
import ctypes
import dataclasses
import ipaddress
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stagecoach.cli.main import main
from stagecoach.cli.perf.operations import Remote
from stagecoach.cli.perf.settings import pack_remote
from stagecoach.host_driver.network.errors import ConnectionRefused, NoNeighbour
from stagecoach.host_driver.network.stream import NetworkListener, NetworkStream
from stagecoach.host_driver.transport.base import TransportError, TransportTimeout
from stagecoach.sim.model.startup import EnhancedData, StartupFrame
from stagecoach.sim.network.engine import Engine, EngineSettings
from stagecoach.sim.network.nic import SimulatedNic
from stagecoach.sim.wire.errors import WireError
from stagecoach.sim.wire.tap_setup import set_up_tap
from stagecoach.ulp.rping.ends import Server
from tests.linux.namespace import in_namespace

pytestmark = [pytest.mark.usefixtures("compiled_device"), pytest.mark.timeout(240)]

PEER = "192.0.2.1"
_SEGMENT_WITHOUT_DATA = 60  # octets of its frame at most
COMMANDS: dict[str, Callable[[str, str], list[str]]] = {
    "rping": lambda host, port: ["rping", "-c", "-a", host, "-p", port, "-C", "1"],
    "perf": lambda host, port: ["perf", "write", "-c", "-a", host, "-p", port],
    "nfs": lambda host, port: ["nfs", "ls", f"nfs+rdma://{host}:{port}/data"],
}


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[SimulatedNic]:
    with SimulatedNic(f"sim://?wire=unix-listen:{tmp_path}/wire&ip={PEER}/24&tcp=reference") as nic:
        yield nic


def run(command: str, tmp_path: Path, host: str, port: int, *options: str) -> int:
    device = f"sim://?wire=unix:{tmp_path}/wire&ip=192.0.2.2/24&tcp=reference"
    return main([*COMMANDS[command](host, str(port)), *options, "--device", device])


def line(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of an error."""
    told = capsys.readouterr().err
    assert told.count("\n") == 1, told
    return told


@contextlib.contextmanager
def meanwhile(body: Callable[[], object]) -> Iterator[None]:
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("command", COMMANDS)
def test_refused(peer, tmp_path, capsys, command):
    assert run(command, tmp_path, PEER, 99) == 1
    assert f"{PEER}:99 refused the connection" in line(capsys)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_route(peer, tmp_path, capsys, command):
    assert run(command, tmp_path, "198.51.100.7", 99) == 1
    assert "no route to 198.51.100.7: it is outside 192.0.2.0/24" in line(capsys)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_no_neighbour(peer, tmp_path, capsys, command):
    assert run(command, tmp_path, "192.0.2.77", 99) == 1
    assert "192.0.2.77 does not answer ARP requests" in line(capsys)


@pytest.mark.parametrize("command", COMMANDS)
def test_reset(peer, tmp_path, capsys, command):
    with peer.listen("", 99) as listener:

        def take() -> None:
            stream = listener.accept(60)
            stream.wait_readable(60)
            peer.network.abort(stream.handle)

        with meanwhile(take):
            assert run(command, tmp_path, PEER, 99) == 1
    assert f"the stream to {PEER}:99 ended: the peer reset the connection" in line(capsys)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_timed_out(peer, tmp_path, capsys, command):
    # A listener that has no room answers no SYN.
    other = f"sim://?wire=unix:{tmp_path}/wire&ip=192.0.2.3/24&tcp=reference"
    with peer.stack.listen("", 99, 1), SimulatedNic(other) as first:
        first.connect(PEER, 99, 20)
        first.close()
        assert run(command, tmp_path, PEER, 99, "--timeout", "1.5") == 1
    assert f"{PEER}:99 does not answer in 1." in line(capsys)


# What ends a connection that is established.


def startup_frame(stream: NetworkStream) -> StartupFrame:
    """The Request or Reply that comes; nothing beyond it is taken."""
    head = stream.receive_exactly(20, 60)
    found = StartupFrame.parse(head + stream.receive_exactly(int.from_bytes(head[18:]), 60))
    assert found is not None
    return found[0]


def reply_to(request: StartupFrame) -> bytes:
    """Accepts it; with the memory that `perf` asks for."""
    enhanced = None if request.enhanced is None else EnhancedData(ird=16, ord=1)
    private = pack_remote(Remote(0, 1)) if request.private_data else b""
    changes = {"reply": True, "enhanced": enhanced, "private_data": private}
    return dataclasses.replace(request, **changes).encode()


def reset(peer: SimulatedNic, stream: NetworkStream) -> None:
    peer.network.abort(stream.handle)


def close(peer: SimulatedNic, stream: NetworkStream) -> None:
    peer.network.shutdown(stream.handle)


ENDS = {
    reset: "the peer reset the connection",
    close: "the peer closed the connection",
}


def serve_no_more_than_startup(
    peer: SimulatedNic, listener: NetworkListener, connections: int, end: Callable[..., None]
) -> None:
    """A server whose first connection ends once the client's device has it.

    That is when its first FPDU comes, or when there is a second connection.
    """
    streams = []
    for _ in range(connections):
        streams.append(listener.accept(60))
        streams[-1].sendall(reply_to(startup_frame(streams[-1])), 60)
    if connections == 1:
        streams[0].wait_readable(60)
    end(peer, streams[0])


@pytest.mark.requirement("TCP-MUST-12")
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_lost_when_it_is_established(peer, tmp_path, capsys, command, end):
    number = 2 if command == "perf" else 1
    with (
        peer.listen("", 99) as listener,
        meanwhile(lambda: serve_no_more_than_startup(peer, listener, number, end)),
    ):
        assert run(command, tmp_path, PEER, 99) == 1
    told = line(capsys)
    assert ENDS[end] in told
    assert command != "rping" or "it still owed the go-ahead" in told


@pytest.mark.slow
@pytest.mark.requirement("TCP-MUST-20")
@pytest.mark.parametrize("command", ["rping", "nfs"])
def test_timed_out_when_it_is_established(peer, tmp_path, capsys, monkeypatch, command):
    """The cable is pulled when the first FPDU comes; the limit R2 of the client is 3 s.

    Then the wire ends: that is told, too.
    """
    plain = EngineSettings.tcp.fget  # type: ignore[attr-defined]
    short = property(lambda settings: dataclasses.replace(plain(settings), r2=3_000_000))
    monkeypatch.setattr(EngineSettings, "tcp", short)
    card, pulled = peer._card, threading.Event()

    def take_frame(now: int, frame: bytes) -> None:
        if len(frame) > _SEGMENT_WITHOUT_DATA:
            card.unplugged = WireError("the cable was pulled")
            pulled.set()
        if not pulled.is_set():
            Engine.take_frame(card.engine, now, frame)

    def serve() -> None:
        stream = listener.accept(60)
        request = startup_frame(stream)
        monkeypatch.setattr(card.engine, "take_frame", take_frame)
        stream.sendall(reply_to(request), 60)
        assert pulled.wait(60)
        with peer._time.lock:
            peer._wire.close()

    with peer.listen("", 99) as listener, meanwhile(serve):
        assert run(command, tmp_path, PEER, 99) == 1
    told = line(capsys)
    assert "the connection timed out, the peer acknowledges nothing" in told
    assert told.endswith("the peer closed the stream)\n")
    assert told.count("(carrier lost: ") == 1


@pytest.mark.parametrize(("end", "status"), [(reset, 1), (close, 0)])
def test_a_client_that_is_lost_between_two_pings_is_no_end_of_the_server(
    tmp_path, capsys, monkeypatch, end, status
):
    device = f"sim://?wire=unix-listen:{tmp_path}/wire&ip={PEER}/24&tcp=reference"

    def connect(nic: SimulatedNic) -> NetworkStream:
        while True:
            with contextlib.suppress(ConnectionRefused, TransportTimeout, NoNeighbour):
                return nic.connect(PEER, 99, 10)

    def ask() -> None:
        while not (tmp_path / "wire").exists():
            time.sleep(0.05)
        with SimulatedNic(f"sim://?wire=unix:{tmp_path}/wire&ip=192.0.2.2/24&tcp=reference") as nic:
            stream = connect(nic)
            depths = EnhancedData(ird=1, ord=1)
            stream.sendall(StartupFrame(reply=False, revision=2, enhanced=depths).encode(), 60)
            assert not startup_frame(stream).reject
            assert connected.wait(60)
            end(nic, stream)
            ended.wait(60)

    def begin(server: Server) -> int:
        connected.set()
        return plain(server)

    connected, ended = threading.Event(), threading.Event()
    plain = Server.run
    monkeypatch.setattr(Server, "run", begin)
    with meanwhile(ask):
        try:
            assert main(["rping", "-s", "-p", "99", "--device", device]) == status
        finally:
            ended.set()
    told = capsys.readouterr().err
    lost = "the peer reset the connection; it still owed an advertisement\n"
    assert told.endswith(lost) if status else told == ""


@pytest.mark.parametrize(
    "command",
    [
        ["rping", "-s", "-p", "{port}"],
        ["perf", "write", "-s", "-p", "{port}"],
        ["nfs", "serve", "{folder}", "--no-tcp", "--rdma-port", "{port}"],
        ["nfs", "serve", "{folder}", "--no-rdma", "--tcp-port", "{port}"],
    ],
    ids=["rping", "perf", "nfs", "nfs over TCP"],
)
def test_port_in_use(tmp_path, capfd, command):
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as taken:
        port = taken.getsockname()[1]
        words = [word.format(port=port, folder=tmp_path) for word in command]
        assert main(words) == 1
    told = [each for each in capfd.readouterr().err.splitlines() if "warning" not in each]
    assert len(told) == 1 and "ddress already in use" in told[0] and str(port) in told[0]


def test_a_port_of_a_card_that_a_listener_has_already(peer):
    with peer.listen("", 99), pytest.raises(TransportError) as refused:
        peer.listen("", 99)
    assert str(refused.value) == f"port 99 of {PEER} has a listener; allowed: another port"


_NO_NETWORK_ADMINISTRATION = 24, 12, 0, 0, 0  # PR_CAPBSET_DROP of prctl(2), CAP_NET_ADMIN


def test_a_tap_that_is_not_permitted():
    def drop() -> None:
        if ctypes.CDLL(None, use_errno=True).prctl(*_NO_NETWORK_ADMINISTRATION) != 0:
            os._exit(99)

    def body() -> None:
        set_up_tap("tap0", ipaddress.IPv4Interface("192.0.2.1/24"), 1500, os.getuid() + 1)
        device = "sim://?wire=tap:tap0&ip=192.0.2.2/24&tcp=reference"
        done = subprocess.run(
            [sys.executable, "-m", "stagecoach.cli", "info", "--device", device],
            preexec_fn=drop,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1 and done.stdout == ""
        assert done.stderr.count("\n") == 1
        assert "tap:tap0: this user may not open it; `stagecoach wire tap0 --user" in done.stderr

    in_namespace(body)
