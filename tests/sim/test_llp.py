"""The LLP over sockets: echo by the stub, back-pressure, ends of connections, recording."""

import contextlib
import random
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagecoach.gateware.config import MAX_ULPDU_LENGTH
from stagecoach.host_driver.transport.base import StreamClosed, TransportError, TransportTimeout
from stagecoach.host_driver.transport.records import RecordKind
from stagecoach.host_driver.transport.sockets import SocketStream
from stagecoach.sim.device import Device
from stagecoach.sim.model.fpdu_sizes import fpdu_length
from stagecoach.sim.transport import SimulatedDevice
from tests.sim.conftest import STUB_CONFIG

LONGEST_FPDU = fpdu_length(MAX_ULPDU_LENGTH)
SCRATCH, ANEW, SEEN = 0x4, 0x24, 0x28

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def device(stub_library: Path) -> Iterator[SimulatedDevice]:
    with SimulatedDevice(STUB_CONFIG, library=stub_library, record=True) as opened:
        yield opened
        assert opened.statistics()["faults"] == []


def attach(device: SimulatedDevice, connection: int) -> socket.socket:
    """Attach one end of a socketpair, return the other."""
    ours, theirs = socket.socketpair()
    device.write_register(ANEW, connection)
    device.attach(connection, SocketStream(theirs, record=True))
    ours.settimeout(30)
    return ours


def exchange(peer: socket.socket, content: bytes, rng: random.Random, largest: int) -> bytes:
    """Send in chunks of odd sizes while receiving the echo."""
    echoed = bytearray()
    sent = 0
    peer.setblocking(False)
    while len(echoed) < len(content):
        readable, writable, _ = select.select([peer], [peer] if sent < len(content) else [], [], 30)
        assert readable or writable, f"{len(echoed)} of {len(content)} octets came back"
        if writable:
            sent += peer.send(content[sent : sent + rng.randint(1, largest)])
        if readable:
            echoed += peer.recv(rng.randint(1, largest))
    return bytes(echoed)


@pytest.mark.requirement("DDP-3-04", "DDP-3-13")
@pytest.mark.parametrize("largest", [7, 1000, 100000])
def test_octets_cross_in_both_directions(device: SimulatedDevice, largest: int) -> None:
    rng = random.Random(largest)
    content = rng.randbytes(4 * rng.randint(2000, 3000) * (1 if largest < 10 else 40))
    with attach(device, 1) as peer:
        assert exchange(peer, content, rng, largest) == content
    statistics = device.statistics()["connections"][0]
    assert statistics["connection"] == 1
    assert statistics["tx_octets"] == statistics["rx_octets"] == len(content)


def test_connections_do_not_mix(device: SimulatedDevice) -> None:
    peers = [attach(device, connection) for connection in range(4)]
    contents = [random.Random(n).randbytes(40000 + 4 * n) for n in range(4)]
    echoes: list[bytes] = [b""] * 4

    def run(number: int) -> None:
        echoes[number] = exchange(peers[number], contents[number], random.Random(number), 3000)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert echoes == contents
    for peer in peers:
        peer.close()


@pytest.mark.requirement("DDP-3-04")
def test_peer_that_does_not_read_gets_everything_later(device: SimulatedDevice) -> None:
    content = random.Random(5).randbytes(3 << 20)
    with attach(device, 0) as peer, attach(device, 2) as other:
        sender = threading.Thread(target=peer.sendall, args=(content,))
        sender.start()
        time.sleep(0.5)
        # Its window is used up, and another connection notices nothing
        other.sendall(b"ping")
        assert other.recv(4) == b"ping"
        time.sleep(0.2)
        cycles = device.cycles
        time.sleep(0.3)
        assert device.cycles == cycles
        echoed = bytearray()
        while len(echoed) < len(content):
            echoed += peer.recv(1 << 16)
        sender.join(30)
        assert bytes(echoed) == content


@pytest.mark.requirement("DDP-3-11", "MPA-7.2-02")
def test_closed_peer_is_announced_after_its_octets(device: SimulatedDevice) -> None:
    peer = attach(device, 3)
    peer.sendall(b"the last octets.")
    assert peer.recv(100) == b"the last octets."
    peer.shutdown(socket.SHUT_WR)
    for _ in range(100):
        if device.read_register(SEEN) >> 16:
            break
        time.sleep(0.02)
    assert device.read_register(SEEN) >> 16 == 1 << 3
    device.detach(3)
    assert peer.recv(100) == b""
    peer.close()
    kinds = [record.kind for record in device.take_records()]
    assert kinds == [
        RecordKind.ATTACH,
        RecordKind.RECEIVE,
        RecordKind.TRANSMIT,
        RecordKind.CLOSED,
        RecordKind.DETACH,
    ]


def test_emss_is_announced_if_it_is_given(stub_library: Path) -> None:
    with Device(stub_library, STUB_CONFIG.qps) as device:
        for connection, emss in ((1, 0), (2, 1460)):
            ours, theirs = socket.socketpair()
            device.attach(connection, theirs.detach(), emss)
            device.run_cycles(1000)
            assert device.read_register(SEEN) & 0xFFFF == emss
            ours.close()


@pytest.mark.requirement("MPA-7.2-01")
def test_detached_connection_is_flushed_and_free_again(device: SimulatedDevice) -> None:
    rng = random.Random(9)
    for _ in range(3):
        with attach(device, 0) as peer:
            assert exchange(peer, rng.randbytes(4000), rng, 900)
            device.detach(0)
            assert peer.recv(1) == b""


def test_detach_sends_what_the_peer_has_not_read_yet(device: SimulatedDevice) -> None:
    content = random.Random(2).randbytes(1 << 20)
    peer = attach(device, 0)
    sender = threading.Thread(target=peer.sendall, args=(content,))
    sender.start()
    for _ in range(300):
        cycles = device.cycles
        time.sleep(0.05)
        if device.cycles == cycles:
            break
    sent = device.statistics()["connections"][0]["tx_octets"]
    echoed = bytearray()

    def read_all() -> None:
        while part := peer.recv(1 << 16):
            echoed.extend(part)

    reader = threading.Timer(0.3, read_all)
    reader.start()
    device.detach(0, timeout=20)
    reader.join(30)
    sender.join(30)
    assert len(echoed) >= sent
    assert bytes(echoed) == content[: len(echoed)]
    peer.close()


def test_detach_from_a_peer_that_never_reads_ends_in_time(device: SimulatedDevice) -> None:
    peer = attach(device, 0)
    peer.setblocking(False)
    filled = 0
    while filled < 3 << 20:
        if not select.select([], [peer], [], 0.5)[1]:
            break
        filled += peer.send(bytes(1 << 16))
    begin = time.monotonic()
    with pytest.raises(TransportTimeout):
        device.detach(0, timeout=0.3)
    assert time.monotonic() - begin < 5
    peer.close()


@pytest.mark.requirement("DDP-A-01", "MPA-A.5.2-01")
def test_a_peer_may_be_far_ahead_of_the_device(device: SimulatedDevice) -> None:
    """More is taken than what waits in the kernel and on the way back: some longest FPDUs."""
    peer = attach(device, 0)
    peer.setblocking(False)
    way_back = 256 << 10
    kernel = 2 * peer.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    taken = 0
    while select.select([], [peer], [], 1)[1]:
        taken += peer.send(bytes(1 << 16))
    assert taken > kernel + way_back + 4 * LONGEST_FPDU
    with contextlib.suppress(TransportTimeout):
        device.detach(0, timeout=0.1)
    peer.close()


def test_peer_that_resets_ends_in_closed(device: SimulatedDevice) -> None:
    with device.listen("127.0.0.1", 0) as listener:
        peer = device.connect(*listener.address, timeout=5)
        stream = listener.accept(5)
    device.write_register(ANEW, 2)
    device.attach(2, stream)
    peer.sendall(bytes(8000))
    time.sleep(0.2)
    # Closing with unread octets resets a TCP connection
    peer.close()
    for _ in range(100):
        if device.read_register(SEEN) >> 16:
            break
        time.sleep(0.02)
    assert device.read_register(SEEN) >> 16 == 1 << 2
    # What the device sent was lost with the connection
    with contextlib.suppress(TransportTimeout):
        device.detach(2)


@pytest.mark.requirement("MPA-7.1-01", "MPA-7.1.2-08", "MPA-7.1.5-03")
def test_octets_behind_the_startup_go_to_the_device(stub_library: Path) -> None:
    with SimulatedDevice(STUB_CONFIG, library=stub_library, record=True) as device:
        with device.listen("127.0.0.1", 0) as listener:
            peer = device.connect(*listener.address, timeout=5)
            stream = listener.accept(5)
        assert peer.peer_address == stream.local_address
        assert 500 < stream.maximum_segment_size <= 65535
        peer.sendall(b"startup!and FPDUs to be echoed..")
        assert stream.receive_exactly(8, 5) == b"startup!"
        device.attach(0, stream)
        assert peer.receive_exactly(24, 10) == b"and FPDUs to be echoed.."
        with pytest.raises(StreamClosed):
            stream.sendall(b"x")
        ours, theirs = socket.socketpair()
        with ours, SocketStream(theirs) as second:
            with pytest.raises(TransportError, match="already"):
                device.attach(0, second)
        recorded = device.recorded_streams[0]
        assert [(part.sent, part.data) for part in recorded.startup] == [(False, b"startup!")]
        assert recorded.peer_address == peer.local_address
        device.detach(0)
        with pytest.raises(StreamClosed):
            peer.receive_exactly(1, 5)
        peer.close()


def test_startup_stream_names_what_went_wrong(device: SimulatedDevice) -> None:
    with device.listen("127.0.0.1", 0) as listener:
        with pytest.raises(TransportTimeout, match="no peer"):
            listener.accept(0.05)
        peer = device.connect(*listener.address, timeout=5)
        stream = listener.accept(5)
        address = listener.address
    peer.sendall(b"123")
    with pytest.raises(TransportTimeout, match="3 of 4"):
        stream.receive_exactly(4, 0.05)
    peer.close()
    with pytest.raises(StreamClosed, match="3 of 4"):  # they were kept
        stream.receive_exactly(4, 5)
    stream.close()
    with pytest.raises(TransportError, match="cannot connect"):
        device.connect(*address, timeout=5)


@pytest.mark.parametrize("connection", [4, 1000])
def test_connection_outside_the_device_is_refused(device: SimulatedDevice, connection: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, SocketStream(theirs) as stream:
        with pytest.raises(TransportError, match="allowed: 0 to 3"):
            device.attach(connection, stream)
        # The stream still belongs to the caller
        stream.sendall(b"x")
        assert ours.recv(1) == b"x"


def test_closing_the_device_flushes_its_streams(stub_library: Path) -> None:
    device = SimulatedDevice(STUB_CONFIG, library=stub_library)
    peer = attach(device, 0)
    peer.sendall(bytes(2000))
    received = b""
    while len(received) < 2000:
        received += peer.recv(2000)
    begin = time.monotonic()
    device.close()
    assert time.monotonic() - begin < 5
    assert peer.recv(1) == b""


@pytest.mark.requirement("DDP-3-04")
def test_fpdu_that_the_kernel_takes_in_parts_stays_whole(device: SimulatedDevice) -> None:
    content = random.Random(3).randbytes(1 << 20)
    peer, theirs = socket.socketpair()
    # Less than an FPDU of the stub
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
    device.write_register(ANEW, 0)
    device.attach(0, SocketStream(theirs))
    with peer:
        assert exchange(peer, content, random.Random(4), 30000) == content
