"""A card with the stub as its device, and the TCP of Linux at the other end of a TAP."""

import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Interface
from pathlib import Path

import pytest

from stagecoach.host_driver.network.errors import ConnectionRefused, ConnectionReset
from stagecoach.host_driver.transport.base import StreamClosed
from stagecoach.sim.network.nic import SimulatedNic
from stagecoach.sim.wire.tap_setup import set_up_tap
from tests.linux.namespace import in_namespace
from tests.sim.conftest import STUB_CONFIG

ANEW = 0x24
LINUX, CARD = "192.0.2.1", "192.0.2.2"
LOSS = "&loss=0.02&reorder=0.02&duplicate=0.02&seed=5"

pytestmark = pytest.mark.timeout(120)


@contextmanager
def opened(library: Path, options: str = "") -> Iterator[SimulatedNic]:
    set_up_tap("tap0", IPv4Interface(f"{LINUX}/24"), 1500, os.geteuid())
    address = f"sim://?wire=tap:tap0&ip={CARD}/24&tcp=reference{options}"
    with SimulatedNic(address, STUB_CONFIG, library=library) as nic:
        for connection in range(STUB_CONFIG.qps):
            nic.write_register(ANEW, connection)
        until = time.monotonic() + 20
        while not nic.carrier:
            assert time.monotonic() < until
            time.sleep(0.01)  # Linux begins a little later
        yield nic
        assert nic.statistics()["faults"] == []


def on_linux(library: Path, body: Callable[[SimulatedNic], None], options: str = "") -> None:
    def run() -> None:
        with opened(library, options) as nic:
            body(nic)

    in_namespace(run)


@pytest.mark.parametrize("options", ["", LOSS], ids=["clean", "lossy"])
def test_linux_connects_and_a_device_echoes(stub_library, options):
    content = random.Random(options).randbytes(300_000)

    def body(nic: SimulatedNic) -> None:
        with nic.listen("", 7) as listener:
            peer = socket.create_connection((CARD, 7), 60)
            stream = listener.accept(60)
        nic.attach(1, stream)
        peer.settimeout(60)
        sending = threading.Thread(target=peer.sendall, args=(content,))
        sending.start()
        found = b""
        while len(found) < len(content):
            part = peer.recv(1 << 16)
            assert part
            found += part
        sending.join()
        assert found == content
        nic.detach(1)
        assert peer.recv(1) == b""
        peer.close()

    on_linux(stub_library, body, options)


@pytest.mark.parametrize("options", ["", LOSS], ids=["clean", "lossy"])
def test_the_card_connects_to_linux(stub_library, options):
    content = random.Random(options).randbytes(200_000)

    def body(nic: SimulatedNic) -> None:
        with socket.create_server((LINUX, 9)) as server:
            stream = nic.connect(LINUX, 9, 60)
            peer, _ = server.accept()
        peer.settimeout(60)
        sending = threading.Thread(target=stream.sendall, args=(content, 60))
        sending.start()
        found = b""
        while len(found) < len(content):
            part = peer.recv(1 << 16)
            assert part
            found += part
        sending.join()
        assert found == content
        peer.sendall(b"bye")
        peer.shutdown(socket.SHUT_WR)
        assert stream.receive_exactly(3, 60) == b"bye"
        with pytest.raises(StreamClosed):
            stream.receive_exactly(1, 60)
        stream.close()
        assert peer.recv(1) == b""
        peer.close()

    on_linux(stub_library, body, options)


def test_linux_refuses_and_resets(stub_library):
    def body(nic: SimulatedNic) -> None:
        with pytest.raises(ConnectionRefused, match=r"192\.0\.2\.1:9 refused"):
            nic.connect(LINUX, 9, 20)
        with socket.create_server((LINUX, 9)) as server:
            stream = nic.connect(LINUX, 9, 20)
            peer, _ = server.accept()
        # Without lingering it is ended by a reset.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
        peer.close()
        with pytest.raises(ConnectionReset):
            stream.receive_exactly(1, 20)

    on_linux(stub_library, body)


def test_linux_answers_a_ping(stub_library):
    def body(nic: SimulatedNic) -> None:
        assert nic.stack.ping(LINUX, 20) < 20_000_000
        (neighbour,) = nic.stack.neighbours()
        assert str(neighbour.address) == LINUX

    on_linux(stub_library, body)
