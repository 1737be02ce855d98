"""Frames and notices through the rings of a `HardwarePort`, and how it begins."""

from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv4Address

import pytest

from stagecoach.host_driver import network_registers as registers
from stagecoach.host_driver.errors import DeviceError
from stagecoach.host_driver.network.hardware.frame_queues import QueueSizes
from stagecoach.host_driver.network.hardware.start import HardwareSettings
from stagecoach.host_driver.network.hardware_port import MAXIMUM_FRAMES, HardwarePort
from stagecoach.host_driver.network_registers import NetworkOpcode
from stagecoach.host_driver.registers import Register
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.transport.base import TransportError, TransportTimeout
from stagecoach.hw.interface.network_entries import FrameFate, NetworkFlags, NetworkKind
from tests.host_driver.network.fake_nic import FakeNic
from tests.host_driver.network.hardware_pair import FIRST, MACS, RING, established

SMALLEST = QueueSizes(0, 0, 0)
SMALL = QueueSizes(queue_log2=2, slots_log2=1, frames_log2=1)


@pytest.fixture
def nic() -> FakeNic:
    return FakeNic()


def started(nic: FakeNic, queues: QueueSizes = SMALL) -> HardwarePort:
    return HardwarePort(nic, HardwareSettings(MACS[0], RING, RING, queues=queues))


@pytest.fixture
def port(nic) -> Iterator[HardwarePort]:
    made = started(nic)
    yield made
    made.close("the test is over")


def frame(number: int, octets: int = 60) -> bytes:
    """One that no engine takes."""
    return (MACS[0] + MACS[1] + b"\x08\x06" + number.to_bytes(4)).ljust(octets, b"x")


@pytest.mark.parametrize("queues", [SMALLEST, SMALL, QueueSizes(1, 3, 2), QueueSizes()])
def test_frames_come_in_order_however_often_the_rings_turn(nic, queues):
    port = started(nic, queues)
    for number in range(3000):
        nic.frame(frame(number, 60 + number % 1455))
        assert port.receive_frame() == frame(number, 60 + number % 1455)
        assert port.receive_frame() is None
    assert port.dropped_frames == 0


def test_the_device_tells_what_became_of_frames(nic):
    port = started(nic)
    assert port.frame_fates == {}
    nic.fates += Counter({FrameFate.SEGMENT: 7, FrameFate.FULL: 1 << 31})
    assert port.frame_fates == {"segment": 7, "full": 1 << 31}
    nic.urgent = 3
    assert port.frame_fates == {"segment": 7, "full": 1 << 31, "urgent": 3}


def test_a_device_that_can_answers_requests(nic):
    """It is told the address, and goes on with all else."""
    port = started(nic)
    assert not port.answer(IPv4Address("192.0.2.2"))
    nic.answers = 1
    assert port.answer(IPv4Address("192.0.2.2"))
    assert nic.read_register(registers.NETWORK_ADDRESS.address) == 0xC0000202
    assert nic.read_register(registers.NETWORK_ENABLE.address) == 0b111
    nic.answered, nic.unanswered = 5, 1 << 31
    assert port.frame_fates == {"answered": 5, "unanswered": 1 << 31}
    port.close("the test is over")
    assert nic.read_register(registers.NETWORK_ENABLE.address) == 0


def test_numbers_of_16_bits_wrap(nic):
    """As if so many had come before; the queue is at the beginning of an even turn."""
    port = started(nic, QueueSizes(9, 1, 1))
    port._queue._consumer = nic._entry = 126 << 9
    port._queue._slot_consumer = nic._slot = 65_000
    port._queue.free(port._commands)
    port._sends._producer = port._sends._done = nic._done = 65_000
    for number in range(2000):
        nic.frame(frame(number))
        assert port.receive_frame() == frame(number)
        assert port.receive_frame() is None
        assert port.send_frame(frame(number))
        assert nic.sent[-1] == frame(number)
    assert nic._entry < 2000


def test_a_frame_without_a_slot_is_dropped_and_counted(nic, port):
    for number in range(5):
        nic.frame(frame(number))
    assert [port.receive_frame() for _ in range(3)] == [frame(0), frame(1), None]
    assert port.dropped_frames == 3
    nic.frame(frame(9))
    assert port.receive_frame() == frame(9)


def test_a_frame_without_a_place_in_the_queue_is_dropped(nic):
    port = started(nic, QueueSizes(1, 3, 1))
    for number in range(3):
        nic.frame(frame(number))
    assert [port.receive_frame() for _ in range(3)] == [frame(0), frame(1), None]
    assert port.dropped_frames == 1


def test_frames_that_nobody_takes_are_dropped_by_the_driver(nic):
    port = started(nic)
    for number in range(MAXIMUM_FRAMES + 3):
        nic.frame(frame(number))
        port.take_ended()
    assert port.dropped_frames == 3
    assert [port.receive_frame() for _ in range(MAXIMUM_FRAMES)] == [
        frame(number) for number in range(MAXIMUM_FRAMES)
    ]


def test_a_frame_that_memory_did_not_take_frees_its_slot(nic, port):
    nic.fails = 1
    for number in range(8):
        nic.frame(frame(number))
        expected = None if number == 0 else frame(number)
        assert port.receive_frame() == expected
    port.wait(nic.now)
    assert port.dropped_frames == 0


def test_an_entry_that_is_lost_is_told(nic, port):
    nic.loses = 1
    nic.frame(frame(0))
    port.wait(nic.now)  # it may still come: nothing is after it
    nic.frame(frame(1))
    with pytest.raises(TransportError, match="an entry of the network queue is lost"):
        port.wait(nic.now)


def test_a_frame_is_sent_when_there_is_a_place(nic, port):
    nic.stopped = True
    assert [port.send_frame(frame(number)) for number in range(3)] == [True, True, False]
    nic.stopped = False
    nic._transmit()
    assert nic.sent == [frame(0), frame(1)]
    for number in range(10):
        assert port.send_frame(frame(number, 60 + number))
        assert nic.sent[-1] == frame(number, 60 + number)


@pytest.mark.parametrize("octets", [0, 13, 1515])
def test_a_frame_of_no_length_that_there_is_is_refused(port, octets):
    with pytest.raises(ValueError, match=f"frame of {octets} bytes; allowed: 14 to 1514"):
        port.send_frame(bytes(octets))
    assert port.send_frame(frame(0, 1514))


def test_frames_of_jumbo_size(nic):
    nic = FakeNic(mtu=9000)
    port = started(nic)
    nic.frame(frame(0, 9014))
    assert port.receive_frame() == frame(0, 9014)
    assert port.send_frame(frame(1, 9014))
    assert nic.sent == [frame(1, 9014)]


def test_an_end_is_there_before_the_frames_after_it(nic, port):
    """And while a command waits for its notice to find a place."""
    handle = port.establish(established(0))
    nic.frame(frame(0))
    nic.frame(frame(1))
    nic.notice(NetworkKind.RESET, 0, 7, FIRST[1], NetworkFlags(0))
    nic.engine[0].over = True
    assert port.receive_frame() == frame(0)
    ended = port.take_ended()
    assert ended is not None
    assert (ended.handle, ended.how, ended.next_sent) == (handle, StreamEnd.RESET, 7)


def test_a_full_queue_does_not_hold_up_a_command(nic, port):
    """FORGET ends when nothing waits for a place: the queue is read meanwhile."""
    port.establish(established(0))
    port.establish(established(0, 4001))
    for _ in range(20):
        nic.notice(NetworkKind.READABLE, 1, 0, FIRST[1], NetworkFlags(0))
    nic.engine[0].over = True
    nic.notice(NetworkKind.RESET, 0, 0, FIRST[1], NetworkFlags(0))
    for _ in range(20):
        nic.notice(NetworkKind.READABLE, 1, 0, FIRST[1], NetworkFlags(0))

    def as_long_as_notices_wait() -> None:
        nic._busy = int(bool(nic._notices))

    nic.busy_reads[NetworkOpcode.FORGET] = 1
    nic.while_busy[NetworkOpcode.FORGET] = as_long_as_notices_wait
    assert any(port.take_ended() for _ in range(20))
    assert nic.commands[-1] is NetworkOpcode.FORGET
    assert not nic._notices


def test_late_notices_of_a_number_say_nothing_of_its_next_connection(nic, port):
    handle = port.establish(established(0))
    port.abort(handle)
    assert port.take_ended() is not None
    nic.notice(NetworkKind.READABLE, 0, 0, (FIRST[1] + 100) % 2**32, NetworkFlags(0))
    port.take_ended()
    assert port.late_notices == 1
    for each in range(4):  # the last one has the number again
        handle = port.establish(established(0, 4001 + each, next_received=1 << 20))
    nic.notice(NetworkKind.READABLE, 0, 0, (FIRST[1] + 100) % 2**32, NetworkFlags.FIN)
    assert not port.readable(handle)
    assert port.late_notices == 2
    nic.notice(NetworkKind.READABLE, 77, 0, 0, NetworkFlags(0))
    port.take_ended()
    assert port.late_notices == 3


def test_a_notice_takes_nothing_back(nic, port):
    handle = port.establish(established(0))
    for octets, fin in ((5, 0), (3, 0), (6, 1), (5, 0), (6, 0)):
        number = (FIRST[1] + octets) % 2**32
        nic.notice(NetworkKind.READABLE, 0, 0, number, NetworkFlags(fin))
    for _ in range(2):  # the queue has four places
        assert port.readable(handle)
    assert port.late_notices == 3
    flow = port._flows[handle]
    assert (flow.unread, flow.fin) == (5, True)


def test_a_kind_that_there_is_not_is_told(nic, port):
    nic._put(bytes(12) + bytes((0, 10, 0)))
    with pytest.raises(TransportError, match="entry 0 of the network queue has kind 10"):
        port.take_ended()


def test_wait_ends_for_what_the_driver_waits_for(nic, port):
    port.wake()
    port.wait(None)
    nic.frame(frame(0))
    port.wait(None)
    assert port.receive_frame() == frame(0)
    handle = port.establish(established(0))
    nic.notice(NetworkKind.SUSPECT, 0, 0, FIRST[1], NetworkFlags(0))
    port.wait(None)
    assert port.take_doubtful() == handle
    nic.notice(NetworkKind.READABLE, 0, 0, FIRST[1] + 1, NetworkFlags(0))
    port.wait(None)
    assert port.readable(handle)
    assert nic.interrupt or not nic._values[registers.NETWORK_INTERRUPT_STATUS.address]
    before = nic.now
    port.wait(nic.now + 5000)
    port.wait(nic.now + 5000)
    assert nic.now >= before + 5000


@pytest.mark.parametrize(
    ("register", "value", "error"),
    [
        (registers.NETWORK_ID, 0, "NETWORK_ID 0x00000000; allowed: 0x50435469"),
        (registers.NETWORK_VERSION, 2 << 16, "interface 2.0 with digest"),
        (registers.NETWORK_INTERFACE, 5, "interface 1.1 with digest 0x00000005; allowed: 1.1 with"),
        (registers.NETWORK_SIZES, 1500 << 16 | 1, "NETWORK_SIZES.connections 1; allowed: 2 to 256"),
        (registers.NETWORK_SIZES, 575 << 16 | 4, "NETWORK_SIZES.mtu 575; allowed: 576 to 65535"),
    ],
)
def test_a_device_that_the_driver_does_not_know_is_refused(
    nic: FakeNic, register: Register, value: int, error: str
) -> None:
    nic._values[register.address] = value
    with pytest.raises(DeviceError, match=error):
        started(nic)
    assert not nic.mapped


def test_a_later_minor_version_is_known(nic):
    nic._values[registers.NETWORK_VERSION.address] += 1
    nic._values[registers.NETWORK_INTERFACE.address] = 5
    started(nic)


def test_what_the_engine_is_told_at_the_start(nic):
    port = started(nic)
    assert nic._mac() == MACS[0]
    read = nic._value
    assert read(registers.NETWORK_RTO_MINIMUM) == 200_000
    assert read(registers.NETWORK_RTO_MAXIMUM) == 60_000_000
    assert read(registers.NETWORK_R2) == 100_000_000
    assert read(registers.NETWORK_DELAYED_ACK) == 40_000
    secrets = [
        read(register)
        for register in (
            *(registers.NETWORK_SECRET_0, registers.NETWORK_SECRET_1),
            *(registers.NETWORK_SECRET_2, registers.NETWORK_SECRET_3),
        )
    ]
    assert all(secrets)
    assert port.frame_heads() == []
    port.send_frame(frame(0))
    assert port.frame_heads()[0].head == frame(0)
    with port.pause():
        pass
    quick = HardwareSettings(MACS[0], RING, RING, rto_minimum=1000)
    nic = FakeNic()
    HardwarePort(nic, quick)
    assert nic._value(registers.NETWORK_DELAYED_ACK) == 250


def test_memory_that_cannot_be_mapped_leaves_nothing(nic, monkeypatch):
    plain, calls = nic.map_memory, []

    def refuse(buffer):
        calls.append(buffer)
        if len(calls) == 3:
            raise TransportError("no room")
        return plain(buffer)

    monkeypatch.setattr(nic, "map_memory", refuse)
    with pytest.raises(TransportError, match="no room"):
        started(nic)
    assert not nic.mapped


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"rx_ring": 1 << 16}, "rx_ring is 65536 bytes; allowed: powers of two from 131072 to"),
        ({"tx_ring": 3 << 17}, "tx_ring is 393216 bytes"),
        ({"tx_ring": 1 << 31}, "tx_ring is 2147483648 bytes"),
        ({"rto_minimum": 3}, "rto_minimum is 3 microseconds; allowed: 4 to 60000000"),
        ({"rto_minimum": 60_000_001}, "rto_minimum is 60000001"),
        ({"mac": bytes(6)}, "MAC address 00:00:00:00:00:00"),
        ({"mac": b"\1" * 6}, "MAC address 01:01"),
    ],
)
def test_settings_that_there_are_not(changes, error):
    with pytest.raises(ValueError, match=error):
        HardwareSettings(**{"mac": MACS[0]} | changes)


@pytest.mark.parametrize("log2", [-1, 16])
def test_rings_that_there_are_not(log2):
    with pytest.raises(ValueError, match=f"slots_log2 is {log2}; allowed: 0 to 15"):
        QueueSizes(slots_log2=log2)


def test_a_command_that_does_not_end_is_told_and_no_other_one_is_begun(nic, monkeypatch):
    port = started(nic)
    handle = port.establish(established(0))
    monkeypatch.setattr(port._commands, "_seconds", 0.01)
    nic.busy_reads[NetworkOpcode.RESIZE] = 1 << 30
    with pytest.raises(TransportTimeout, match="command 10, RESIZE, is not finished"):
        port.set_segment_size(handle, 100)
    with pytest.raises(TransportTimeout, match="command 10, RESIZE, is not finished"):
        port.abort(handle)
    nic._busy = 0
    port.abort(handle)
    assert port.take_ended() is not None
