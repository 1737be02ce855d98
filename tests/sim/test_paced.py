"""A device that runs in a call alone, and messages of a network engine in place of sockets."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagecoach.host_driver.transport.records import RecordKind
from stagecoach.sim.device import Device, DeviceCallError
from stagecoach.sim.llp_messages import HEADER, LlpMessage
from stagecoach.sim.status import Status
from tests.sim.conftest import STUB_CONFIG

IDENTITY, SCRATCH, IRQ, ANEW, SEEN, NEVER = 0x0, 0x4, 0x20, 0x24, 0x28, 0xFF8
RING = 1 << 17

pytestmark = pytest.mark.timeout(120)


class Bench:
    """The device, and the engine's end of its socket."""

    def __init__(self, library: Path):
        self.engine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.engine.setblocking(False)
        self.device = Device(
            library, STUB_CONFIG.qps, network=theirs.detach(), paced=True, record=True
        )

    def access(self, address: int, value: int | None = None) -> int:
        self.device.begin_access(address, value)
        while not (paced := self.device.pace(64)).access_done:
            pass
        self.device.require_access(address, paced.access_status)
        return paced.access_value

    def say(self, kind: LlpMessage, lane: int, value: int = 0, octets: bytes = b"") -> None:
        self.engine.send(HEADER.pack(kind, lane, value) + octets)

    def attach(self, lane: int) -> None:
        self.access(ANEW, lane)
        self.say(LlpMessage.ATTACH, lane, RING)

    def rest(self) -> int:
        """Until the device does nothing any more; returns the cycle."""
        while (paced := self.device.pace(64)).busy:
            pass
        return int(paced.cycle)

    def said(self) -> list[tuple[LlpMessage, int, int, bytes]]:
        found = []
        try:
            while message := self.engine.recv(1 << 18):
                kind, lane, value = HEADER.unpack_from(message)
                found.append((LlpMessage(kind), lane, value, message[16:]))
        except BlockingIOError:
            pass
        return found


@pytest.fixture
def bench(stub_library: Path) -> Iterator[Bench]:
    made = Bench(stub_library)
    yield made
    assert made.device.statistics()["faults"] == []
    made.device.close()
    made.engine.close()


def test_it_runs_as_many_cycles_as_it_is_told(bench):
    assert [bench.device.pace(cycles).cycle for cycles in (1, 64, 0, 999)] == [1, 65, 65, 1064]
    assert bench.device.cycles == 1064


def test_an_access_ends_in_the_cycles_that_it_is_given(bench):
    assert bench.access(IDENTITY) == 0x57A6EC0A
    bench.access(SCRATCH, 0xCAFE)
    assert bench.access(SCRATCH) == 0xCAFE
    with pytest.raises(DeviceCallError, match="error response"):
        bench.access(0xFFC)


def test_one_access_at_a_time(bench):
    bench.device.begin_access(SCRATCH)
    with pytest.raises(DeviceCallError, match="an access is under way"):
        bench.device.begin_access(SCRATCH)
    assert not bench.device.pace(1).access_done
    assert bench.device.pace(64).access_done


def test_the_interrupt_and_rest_are_told(bench):
    bench.access(IRQ, 1)
    assert bench.device.pace(1).irq
    bench.access(IRQ, 0)
    bench.device.pace(1)
    assert not bench.device.pace(1).irq
    bench.rest()
    assert not bench.device.pace(64).busy


def test_what_needs_a_thread_is_refused(bench):
    for call in (
        lambda: bench.device.run_cycles(5),
        lambda: bench.device.read_register(0),
    ):
        with pytest.raises(DeviceCallError, match="a paced device") as error:
            call()
        assert error.value.status is Status.INVALID


def test_fpdus_cross_whole_and_octets_are_released(bench):
    bench.attach(2)
    content = bytes(range(256)) * 16
    for start in range(0, len(content), 100):
        bench.say(LlpMessage.DATA, 2, octets=content[start : start + 100])
    bench.rest()
    said = bench.said()
    assert b"".join(octets for kind, _, _, octets in said if kind is LlpMessage.FPDU) == content
    assert {lane for _, lane, _, _ in said} == {2}
    released = [value for kind, _, value, _ in said if kind is LlpMessage.RELEASED]
    assert released[-1] == len(content)
    records = bench.device.take_records()
    received = b"".join(each.data for each in records if each.kind is RecordKind.RECEIVE)
    assert received == content


def test_the_window_is_the_ring_until_octets_are_acknowledged(bench):
    bench.attach(1)
    sent = 0
    for number in range(40):  # 8 KiB each; the stub wants room for as much
        bench.say(LlpMessage.DATA, 1, octets=bytes([number]) * 8192)
        bench.rest()
        sent += sum(len(octets) for _, _, _, octets in bench.said())
    assert sent == RING
    bench.say(LlpMessage.ACKNOWLEDGED, 1, 5 * 8192)
    bench.rest()
    assert sum(len(octets) for _, _, _, octets in bench.said()) == 5 * 8192


def test_emss_and_the_end_are_events(bench):
    bench.attach(3)
    bench.say(LlpMessage.EMSS, 3, 1234)
    bench.rest()
    assert bench.access(SEEN) & 0xFFFF == 1234
    assert bench.access(SEEN) >> 16 == 0
    bench.say(LlpMessage.ENDED, 3)
    bench.rest()
    assert bench.access(SEEN) >> 16 == 1 << 3


def test_a_stream_that_leaves_is_followed_by_another(bench):
    bench.attach(0)
    bench.say(LlpMessage.DATA, 0, octets=b"12345678")
    bench.rest()
    bench.said()
    bench.say(LlpMessage.DETACH, 0)
    bench.rest()
    assert bench.said() == [(LlpMessage.DETACHED, 0, 0, b"")]
    # What was under way for it is of no use.
    bench.say(LlpMessage.DATA, 0, octets=b"nobody's")
    bench.say(LlpMessage.ACKNOWLEDGED, 0, 8)
    bench.attach(0)
    bench.say(LlpMessage.DATA, 0, octets=b"abcdefgh")
    bench.rest()
    assert [octets for kind, _, _, octets in bench.said() if octets] == [b"abcdefgh"]


def test_messages_wait_for_an_engine_that_takes_none(bench):
    bench.attach(2)
    count = 60
    for number in range(count):
        bench.say(LlpMessage.DATA, 2, octets=bytes([number]) * 8192)
        bench.rest()
        bench.say(LlpMessage.ACKNOWLEDGED, 2, number * 8192)
    octets = b""
    for _ in range(20):
        octets += b"".join(part for _, _, _, part in bench.said())
        bench.rest()
    assert octets == b"".join(bytes([number]) * 8192 for number in range(count))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"\0" * 5, "half a message"),
        (HEADER.pack(LlpMessage.DATA, 4, 0), "a message for connection 4"),
        (HEADER.pack(LlpMessage.FPDU, 1, 0), "a message of kind 6"),
        (HEADER.pack(LlpMessage.ATTACH, 1, RING), "attached connection 1 twice"),
    ],
)
def test_an_engine_that_errs_ends_the_device(stub_library, message, words):
    bench = Bench(stub_library)
    bench.attach(1)
    bench.rest()
    bench.engine.send(message)
    with pytest.raises(DeviceCallError, match=words) as error:
        bench.rest()
    assert error.value.status is Status.FAILED
    bench.device.close()
    bench.engine.close()


def test_it_ends_with_its_engine(stub_library):
    bench = Bench(stub_library)
    bench.engine.close()
    with pytest.raises(DeviceCallError, match="the network engine has gone"):
        bench.rest()
    bench.device.close()
    with pytest.raises(DeviceCallError, match="has gone"):
        bench.device.pace(1)
