"""The driver's transport over a serial port, against a board of Python at a pseudo-terminal."""

import ctypes
import random
import socket
import threading
import time

import pytest
import serial

from stagecoach.host_driver.hostlink.memory import DECERR, OKAY
from stagecoach.host_driver.hostlink.serial_device import SerialDevice
from stagecoach.host_driver.locate import DeviceNameError, Locator, parse_device
from stagecoach.host_driver.transport.base import (
    DeviceClosed,
    Transport,
    TransportError,
    TransportTimeout,
)
from stagecoach.host_driver.transport.records import RecordKind
from stagecoach.host_driver.transport.sockets import SocketStream
from stagecoach.hw.interface.hostlink import Kind
from tests.host_driver.hostlink.fake_board import CLOCK_HZ, FakeBoard
from tests.hostlink.faults import Faults

TX_WINDOW, RX_AVAILABLE, CLOSED = 1, 0, 3


def wide(*fields: tuple[int, int]) -> bytes:
    return b"".join(value.to_bytes(octets, "little") for value, octets in fields)


@pytest.fixture
def board():
    with FakeBoard() as board:
        yield board


@pytest.fixture
def device(board):
    with SerialDevice(board.port, 115200, retry_seconds=0.1, give_up_seconds=1.0) as device:
        yield device


def test_registers(board, device):
    assert isinstance(device, Transport)
    device.write_register(0x40, 0x12345678)
    assert device.read_register(0x40) == 0x12345678
    with pytest.raises(TransportError, match=r"read of register 0x44: .* error response"):
        device.read_register(0x44)
    with pytest.raises(ValueError, match="0x1002; allowed: multiples of 4 below 0x1000"):
        device.read_register(0x1002)
    with pytest.raises(ValueError, match="0x100000000; allowed: 0 to 0xffffffff"):
        device.write_register(0x40, 1 << 32)
    info = device.info
    assert (info["kind"], info["port"], info["baud"]) == ("serial", board.port, 115200)
    assert info["clock_hz"] == CLOCK_HZ
    assert info["link"]["messages_received"] == 3


def test_calls_of_many_threads_are_all_answered(board, device):
    def use(number: int) -> None:
        for value in range(20):
            device.write_register(4 * number, value)
            assert device.read_register(4 * number) == value
        done.append(number)

    done: list[int] = []
    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [0, 1, 2, 3]


def test_a_bad_line_loses_nothing():
    rng = random.Random("serial")
    faults = Faults(rng, 0.005, 0.005, 0.005)
    with FakeBoard(spoil=faults.apply) as board:
        with SerialDevice(board.port, retry_seconds=0.05) as device:
            for number in range(200):
                device.write_register(4 * (number % 16), number)
                assert device.read_register(4 * (number % 16)) == number
            link = device.info["link"]
        assert faults.count and link["broken"] and link["rejects_sent"]


def test_no_port_and_no_board_are_told(board):
    with pytest.raises(
        TransportError, match="cannot open /dev/no-such-port: No such file or directory"
    ):
        SerialDevice("/dev/no-such-port")
    board.silent = True
    with pytest.raises(TransportTimeout, match=r"no device answers at .*, 9600 baud, within 0.3 s"):
        SerialDevice(board.port, 9600, open_seconds=0.3)


def test_a_board_with_another_baud_rate_is_told_of():
    with FakeBoard(spoil=lambda octets: bytes(octet & 0xCC for octet in octets)) as board:
        with pytest.raises(TransportTimeout, match=r"no device answers at .*, 9600 baud"):
            SerialDevice(board.port, 9600, open_seconds=0.5)
        assert board.nonces  # it was asked, and what it answered was not understood


def test_what_is_no_serial_port_or_in_use_is_told(board, device):
    with pytest.raises(TransportError, match="cannot open /dev/null: not a serial port"):
        SerialDevice("/dev/null")
    with pytest.raises(TransportError, match=f"cannot open {board.port}: another program uses it"):
        SerialDevice(board.port)
    device.write_register(0, 7)  # and goes on
    assert device.read_register(0) == 7


@pytest.mark.parametrize("waiting", [False, True])
def test_a_board_that_is_unplugged_is_told_of(board, device, waiting):
    device.write_register(0, 1)
    if waiting:
        board.silent = True
        threading.Timer(0.1, board.unplug).start()
    else:
        board.unplug()
    with pytest.raises(DeviceClosed, match=f"{board.port} was lost"):
        device.read_register(0)
    with pytest.raises(DeviceClosed, match="was lost"):
        device.wait_interrupt(5.0)


MESSAGES_THAT_NO_DEVICE_SENDS = [
    (Kind.REGISTER_DONE, bytes(2), "REGISTER_DONE with 2 bytes of payload"),
    (Kind.MEMORY_READ, bytes(9), "MEMORY_READ with 9 bytes of payload"),
    (Kind.MEMORY_READ, wide((0, 8), (264, 2)), "MEMORY_READ for 264 bytes; allowed: 1 to 256"),
    (Kind.MEMORY_READ, wide((20, 8), (8, 2)), "MEMORY_READ at 0x14; allowed: multiples of 8"),
    (Kind.MEMORY_READ, wide((0, 8), (12, 2)), "MEMORY_READ for 12 bytes; allowed: multiples of 8"),
    (Kind.MEMORY_WRITE, wide((33, 8)) + bytes(9), "MEMORY_WRITE at 0x21; allowed: multiples of 8"),
    (Kind.MEMORY_WRITE, bytes(16), "MEMORY_WRITE with 16 bytes of payload"),
    (Kind.INTERRUPT, b"", "INTERRUPT with 0 bytes of payload"),
    (Kind.LLP_SEND, bytes(2), "LLP_SEND with 2 bytes of payload"),
    (Kind.LLP_REQUEST, bytes(8), "LLP_REQUEST for 0 bytes; allowed: 1 to 256"),
    (Kind.LLP_RELEASE, bytes(5), "LLP_RELEASE with 5 bytes of payload"),
    (Kind.LLP_EVENTS_TAKEN, bytes([1]), "taken 1 events; allowed: 0, as many as are on their way"),
]


@pytest.mark.parametrize(("kind", "payload", "message"), MESSAGES_THAT_NO_DEVICE_SENDS)
def test_a_message_that_no_device_sends_ends_the_device(board, device, kind, payload, message):
    board.to_send.append((kind, payload))
    with pytest.raises(DeviceClosed, match=message):
        device.wait_interrupt(10.0)


def test_a_device_that_takes_no_message_is_refused():
    with FakeBoard(window=0) as board:
        with pytest.raises(TransportError, match="a window of 0; allowed: 1 and more, 1 to 127"):
            SerialDevice(board.port)


def test_a_board_with_a_network_is_refused():
    with FakeBoard(events=0, memory_log2=20) as board:
        with pytest.raises(TransportError, match=r"has a network of its own, .* allowed: serial:"):
            SerialDevice(board.port)


@pytest.mark.parametrize(("events", "memory_log2"), [(0, 0), (1, 20)])
def test_a_device_of_both_kinds_or_none_is_refused(events, memory_log2):
    allowed = "0 of a NIC" if memory_log2 else "1 and more"
    with FakeBoard(events=events, memory_log2=memory_log2) as board:
        with pytest.raises(TransportError, match=f"has room for {events} events.*: {allowed}"):
            SerialDevice(board.port)


@pytest.mark.parametrize("has_it", [True, False])
def test_a_port_is_asked_for_low_latency(board, monkeypatch, has_it):
    asked = []

    def ask(port: serial.Serial, wanted: bool) -> None:
        asked.append(wanted)
        if not has_it:
            raise ValueError("Failed to update ASYNC_LOW_LATENCY flag")

    monkeypatch.setattr(serial.Serial, "set_low_latency_mode", ask)
    with SerialDevice(board.port) as device:
        device.write_register(0, 1)
    assert asked == [True]


def test_another_version_is_refused():
    with FakeBoard(version=7) as board:
        with pytest.raises(TransportError, match="speaks version 7 of the host link; allowed: 1"):
            SerialDevice(board.port)


def test_each_opening_is_a_session_of_its_own(board):
    for count in (1, 2):
        with SerialDevice(board.port) as device:
            device.write_register(0, count)
        # The last one leaves a device that is reset.
        board.wait(lambda count=count: len(board.nonces) == 2 * count)
    assert len(set(board.nonces)) == 4


def test_a_board_that_falls_silent_is_told_of(board, device):
    device.write_register(0, 1)
    board.silent = True
    begin = time.monotonic()
    with pytest.raises(DeviceClosed, match="is lost: the device acknowledges nothing"):
        device.read_register(0)
    assert time.monotonic() - begin < 5
    with pytest.raises(DeviceClosed, match="is lost"):
        device.wait_interrupt(1.0)
    with pytest.raises(DeviceClosed, match="is lost"):
        device.map_memory(bytearray(8))


def test_an_access_that_is_not_answered_ends_and_those_behind_it_do_not_wait(board):
    """The link itself is alive: the board acknowledges, and never says REGISTER_DONE."""
    board.mute.add(8)
    board.registers[0] = 5
    errors: list[str] = []

    def read() -> None:
        with pytest.raises(TransportTimeout) as failed:
            device.read_register(8)
        errors.append(str(failed.value))

    with SerialDevice(board.port, access_seconds=0.3) as device:
        begin = time.monotonic()
        threads = [threading.Thread(target=read, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert errors == ["read of register 0x8: the device does not answer within 0.3 s"] * 3
        message = "register 0x0: the device has still to answer the read of register 0x8"
        with pytest.raises(TransportTimeout, match=message):
            device.read_register(0)
        assert time.monotonic() - begin < 5
        # Its answer, when it comes, is not taken for that of another access.
        board.mute.clear()
        board.to_send.append((Kind.REGISTER_DONE, wide((0, 1), (77, 4))))
        while True:
            try:
                assert device.read_register(0) == 5
                break
            except TransportTimeout:
                assert time.monotonic() - begin < 10


def test_an_unaligned_write_changes_nothing(board, device):
    area = bytearray(64)
    address = device.map_memory(area)
    board.to_send.append((Kind.MEMORY_WRITE, wide((address + 4, 8)) + b"\xff" * 9))
    with pytest.raises(DeviceClosed, match=r"MEMORY_WRITE at .*; allowed: multiples of 8"):
        device.wait_interrupt(10.0)
    assert area == bytes(64)


def test_closed_is_closed(board):
    device = SerialDevice(board.port)
    address = device.map_memory(bytearray(16))
    device.close()
    device.close()
    with pytest.raises(DeviceClosed, match="the device is closed"):
        device.read_register(0)
    with pytest.raises(TransportError):
        device.unmap_memory(address)


def test_memory_is_reached_where_it_is_mapped_and_nowhere_else(board, device):
    area = bytearray(range(128))
    start = -ctypes.addressof(ctypes.c_char.from_buffer(area)) % 8 + 12
    buffer = memoryview(area)[start : start + 64]
    address = device.map_memory(buffer)
    assert address % 8 == 4
    before = bytes(area)
    base = address - 4

    def ask(kind: int, payload: bytes) -> bytes:
        count = len(board.came)
        board.to_send.append((kind, payload))
        board.wait(lambda: len(board.came) > count)
        return board.came[-1][1]

    # Octets that are not mapped are not shown.
    read = ask(Kind.MEMORY_READ, wide((base, 8), (72, 2)))
    assert read == bytes(5) + before[start : start + 64] + bytes(4)
    assert ask(Kind.MEMORY_READ, wide((base - 8, 8), (8, 2))) == bytes([DECERR])
    assert ask(Kind.MEMORY_READ, wide((base + 64, 8), (16, 2))) == bytes([DECERR])

    words = b"\xffstagecoa" + b"\x0fch..xxxx"
    assert ask(Kind.MEMORY_WRITE, wide((base + 8, 8)) + words) == bytes([OKAY])
    expected = before[:start] + before[start:][:4] + b"stagecoach.." + before[start + 16 :]
    assert area == expected
    # A word of which one octet is not mapped is not written, others of the burst are.
    words = b"\xf0....abcd" + b"\xff12345678"
    assert ask(Kind.MEMORY_WRITE, wide((base, 8)) + words) == bytes([OKAY])
    words = b"\xfc..345678" + b"\xf0....abcd"
    assert ask(Kind.MEMORY_WRITE, wide((base, 8)) + words) == bytes([DECERR])
    expected = before[:start] + b"abcd1234abcd" + expected[start + 12 :]
    assert area == expected
    assert ask(Kind.MEMORY_WRITE, wide((base + 80, 8)) + bytes(9)) == bytes([OKAY])

    device.unmap_memory(address)
    assert ask(Kind.MEMORY_READ, wide((base + 8, 8), (8, 2))) == bytes([DECERR])
    with pytest.raises(TransportError, match="nothing is mapped"):
        device.unmap_memory(address)
    assert area == expected


def test_a_mapped_buffer_stays_where_it_is(device):
    buffer = bytearray(16)
    address = device.map_memory(buffer)
    assert device.map_memory(buffer) == address
    for _ in range(2):
        with pytest.raises(BufferError):
            buffer.append(1)
        device.unmap_memory(address)
    buffer.append(1)
    for bad in (b"read-only", bytearray(), memoryview(bytearray(16))[::2]):
        with pytest.raises(TransportError, match="allowed: at least 1 byte, writable and C-con"):
            device.map_memory(bad)


def test_the_interrupt_is_waited_for(board, device):
    assert not device.wait_interrupt(0.0)
    board.to_send += [(Kind.INTERRUPT, bytes([1])), (Kind.INTERRUPT, bytes([0]))]
    assert device.wait_interrupt(5.0)
    assert not device.wait_interrupt(0.05)
    board.to_send.append((Kind.INTERRUPT, bytes([1])))
    assert device.wait_interrupt(None) and device.wait_interrupt(0.0)


class TestStreams:
    """The sockets that the driver lends."""

    @pytest.fixture
    def peer(self, device):
        ours, theirs = socket.socketpair()
        device.attach(3, SocketStream(ours))
        theirs.settimeout(5)
        with theirs:
            yield theirs

    def events(self, board, count: int) -> list[tuple[int, int, int]]:
        board.wait(lambda: len(board.came) >= count)
        events = []
        for kind, payload in board.came:
            assert kind == Kind.LLP_EVENT
            events.append((payload[0], payload[2], int.from_bytes(payload[3:], "little")))
        board.came.clear()
        return events

    def test_octets_go_both_ways(self, board, device, peer):
        assert self.events(board, 1) == [(3, TX_WINDOW, 256 << 10)]
        peer.sendall(b"hello, device")
        assert self.events(board, 1) == [(3, RX_AVAILABLE, 13)]
        board.to_send.append((Kind.LLP_REQUEST, wide((3, 2), (4, 4), (9, 2))))
        board.wait(lambda: bool(board.came))
        assert board.came.pop() == (Kind.LLP_DATA, b"o, device" + bytes(7))
        board.to_send.append((Kind.LLP_RELEASE, wide((3, 2), (8, 4))))
        peer.sendall(b"!")
        assert self.events(board, 1) == [(3, RX_AVAILABLE, 14)]
        # What was released, or did not come, is answered too.
        board.to_send.append((Kind.LLP_REQUEST, wide((3, 2), (8, 4), (16, 2))))
        board.wait(lambda: bool(board.came))
        assert board.came.pop() == (Kind.LLP_DATA, b"evice!" + bytes(10))

        board.to_send.append((Kind.LLP_SEND, wide((3, 2)) + b"one FPDU " + bytes([0])))
        board.to_send.append((Kind.LLP_SEND, wide((3, 2)) + b"in parts" + bytes([1])))
        assert peer.recv(100) == b"one FPDU in parts"
        board.to_send.append((Kind.LLP_SEND, wide((3, 2)) + b"last" + bytes([3])))
        assert peer.recv(100) == b"last" and peer.recv(100) == b""
        peer.shutdown(socket.SHUT_WR)
        assert self.events(board, 1) == [(3, CLOSED, 0)]
        board.to_send.append((Kind.LLP_EVENTS_TAKEN, bytes([4])))
        device.detach(3, 1.0)
        with pytest.raises(TransportError, match="connection 3 has no stream"):
            device.detach(3)

    def test_no_event_goes_past_what_the_device_has_room_for(self, board, device, peer):
        self.events(board, 1)
        for number in range(15):
            peer.sendall(b"x")
            assert self.events(board, 1) == [(3, RX_AVAILABLE, number + 1)]
        peer.sendall(b"yz")
        time.sleep(0.1)
        assert board.came == []
        board.to_send.append((Kind.LLP_EVENTS_TAKEN, bytes([1])))
        assert self.events(board, 1) == [(3, RX_AVAILABLE, 17)]

    def test_a_connection_ends_when_its_events_are_taken_or_in_time(self, board, device, peer):
        self.events(board, 1)
        with pytest.raises(TransportError, match="connection 3 has a stream already"):
            ours, theirs = socket.socketpair()
            with ours, theirs:
                device.attach(3, SocketStream(ours))
        begin = time.monotonic()
        device.detach(3, 0.2)
        assert 0.2 <= time.monotonic() - begin < 2
        assert peer.recv(10) == b""

    def test_what_cannot_be_sent_in_time_is_told(self, board, device, peer):
        self.events(board, 1)
        part = wide((3, 2)) + bytes(256) + bytes([1])
        board.to_send += [(Kind.LLP_SEND, part)] * 1024  # all that the window allows
        board.wait(lambda: not board.to_send)
        time.sleep(0.3)
        with pytest.raises(TransportTimeout, match="connection 3: not everything could be sent"):
            device.detach(3, 0.1)

    def test_octets_are_recorded(self, board):
        with SerialDevice(board.port, record=True) as device:
            ours, theirs = socket.socketpair()
            device.attach(1, SocketStream(ours, True))
            with theirs:
                theirs.sendall(b"there")
                board.wait(lambda: len(board.came) == 2)
                board.to_send.append((Kind.LLP_SEND, wide((1, 2)) + b"back" + bytes([1])))
                theirs.settimeout(5)
                assert theirs.recv(10) == b"back"
            (stream,) = device.recorded_streams
            assert (stream.number, stream.connection) == (1, 1)
            records = device.take_records()
        kinds = [RecordKind.ATTACH, RecordKind.RECEIVE, RecordKind.TRANSMIT]
        assert [record.kind for record in records][:3] == kinds
        assert (records[1].data, records[2].data) == (b"there", b"back")


class TestNames:
    """How devices are named."""

    def test_what_is_allowed(self):
        assert parse_device("simulation") == Locator()
        assert parse_device("simulation").is_simulated
        found = parse_device("serial:///dev/ttyUSB0?baud=3000000&retry=0.5")
        assert found.port == "/dev/ttyUSB0" and not found.is_simulated
        assert dict(found.options) == {"baud": 3000000, "retry_seconds": 0.5}
        assert not found.has_network

    def test_a_board_with_a_network_has_an_address(self):
        found = parse_device("serial:///dev/ttyUSB0?ip=192.0.2.10/24&gw=192.0.2.1")
        assert found.has_network and not found.is_card and found.interface is not None
        assert str(found.interface.address) == "192.0.2.10/24"
        assert str(found.interface.gateway) == "192.0.2.1"
        assert found.interface.mac == bytes([2, 0, 192, 0, 2, 10])
        found = parse_device("serial:///dev/ttyUSB0?mac=02:00:00:00:00:07&ip=192.0.2.10/24")
        assert found.interface is not None and found.interface.mac == bytes([2, 0, 0, 0, 0, 7])

    @pytest.mark.parametrize(
        ("option", "message"),
        [
            ("gw=192.0.2.1", "gw without ip .* allowed: ip=192.0.2.10/24"),
            ("ip=192.0.2.10", "has no prefix; allowed: as in 192.0.2.2/24"),
            ("ip=here/24", "allowed: an IPv4 address"),
            ("ip=192.0.2.10/24&gw=10.0.0.1", "gateway 10.0.0.1; allowed: another address in"),
            ("ip=192.0.2.10/24&mac=01:00:00:00:00:07", "MAC address"),
            ("ip=192.0.2.10/24&mac=x", "device 'serial"),
            (
                "ip=192.0.2.10/24&ip=192.0.2.11/24",
                "ip=192.0.2.11/24 in device .*; ip, gw, mac, once each",
            ),
        ],
    )
    def test_an_address_that_is_none(self, option, message):
        with pytest.raises(DeviceNameError, match=message):
            parse_device(f"serial:///dev/ttyUSB0?{option}")

    @pytest.mark.parametrize(
        "text", ["", "simulated", "serial:", "serial://ttyUSB0", "tcp://host:1", "/dev/ttyUSB0"]
    )
    def test_other_names(self, text):
        with pytest.raises(
            DeviceNameError, match=r"allowed: simulation, sim://.*, or serial:///dev/tty"
        ):
            parse_device(text)

    @pytest.mark.parametrize(
        "option", ["baud=0", "baud=100000001", "baud=fast", "retry=-1", "colour=red", "baud="]
    )
    def test_other_options(self, option):
        with pytest.raises(DeviceNameError, match="allowed: baud, 1 to 100000000, and retr"):
            parse_device(f"serial:///dev/ttyUSB0?{option}")


def test_it_tells_where_it_is_and_how_it_ended(board):
    with SerialDevice(board.port, 115200) as device:
        assert repr(device) == f"<SerialDevice at {board.port}: 115200 baud>"
    assert repr(device).startswith(f"<SerialDevice at {board.port}: 115200 baud, closed: ")
