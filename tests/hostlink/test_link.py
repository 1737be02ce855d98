"""The link carries every message whole, once and in order, whatever the line does to octets."""

import random
from collections import deque
from collections.abc import Callable

import cocotb
import pytest
from cocotb.triggers import RisingEdge, with_timeout
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteRam, AxiMaster, AxiResp

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.hostlink.link import HostLink
from stagecoach.hw.interface.hostlink import EVENTS, Kind
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.hostlink.faults import Faults
from tests.hostlink.line import CLOCK_HZ, HELLO_FIELDS, RETRY_CYCLES, Host
from tests.support.runner import parameter, run_cocotb

pytestmark = pytest.mark.slow

CONFIG = RnicConfig(qps=8, cqs=8, stags=64)
BASE = 0x7F12_3456_7000
SIZE = 1 << 13
BAD = BASE + SIZE
"""An address that the host does not know."""


def link(max_burst_beats: int = 32) -> HostLink:
    config = RnicConfig(qps=8, cqs=8, stags=64, max_burst_beats=max_burst_beats)
    return HostLink(config, CLOCK_HZ, RETRY_CYCLES)


@pytest.mark.parametrize(("pattern", "faults"), [("always", "none"), ("random", "some")])
def test_link(pattern, faults):
    parameters = {"PATTERN": pattern, "FAULTS": faults}
    run_cocotb(link(), __name__, parameters=parameters)


def test_longer_bursts_than_a_frame_holds_are_refused():
    with pytest.raises(
        ValueError, match="max_burst_beats is 64; allowed with a host link: up to 3"
    ):
        link(64)


def test_ports_of_another_width_are_refused():
    with pytest.raises(ValueError, match="data_width is 32; allowed with a host link: 64"):
        HostLink(RnicConfig(data_width=32), CLOCK_HZ, RETRY_CYCLES)


SHARES = {"none": 0.0, "some": 0.0005}


class DevicePorts:
    """The LLP port as a device drives it, and a memory of the host."""

    def __init__(self, dut, rng: random.Random):
        self.dut = dut
        self.rng = rng
        self.memory = bytearray(rng.randbytes(SIZE))
        self.received = {n: rng.randbytes(4096) for n in range(CONFIG.qps)}
        self.sent: dict[int, list[tuple[bytes, int]]] = {n: [] for n in range(CONFIG.qps)}
        self.parts: dict[int, bytes] = dict.fromkeys(range(CONFIG.qps), b"")
        self.released: list[tuple[int, int]] = []
        self.registers: list[bytes] = []
        self.interrupts: list[int] = []
        self.events_taken = 0
        self.on_register: Callable[[], None] = lambda: None

    def answer(self, kind: int, payload: bytes) -> tuple[int, bytes] | None:
        match kind:
            case Kind.MEMORY_READ:
                at = int.from_bytes(payload[:8], "little") - BASE
                octets = int.from_bytes(payload[8:10], "little")
                if not 0 <= at <= SIZE - octets:
                    return Kind.READ_DATA, bytes([3])
                return Kind.READ_DATA, bytes(1) + self.memory[at : at + octets]
            case Kind.MEMORY_WRITE:
                at = int.from_bytes(payload[:8], "little") - BASE
                words = payload[8:]
                assert len(words) % 9 == 0
                if not 0 <= at < SIZE:
                    return Kind.WRITE_DONE, bytes([3])
                for word in range(0, len(words), 9):
                    for lane in range(8):
                        if words[word] >> lane & 1:
                            self.memory[at + lane] = words[word + 1 + lane]
                    at += 8
                return Kind.WRITE_DONE, bytes([0])
            case Kind.REGISTER_DONE:
                self.registers.append(payload)
                self.on_register()
            case Kind.INTERRUPT:
                self.interrupts.append(payload[0])
            case Kind.LLP_SEND:
                connection = int.from_bytes(payload[:2], "little")
                self.parts[connection] += payload[2:-1]
                if payload[-1]:
                    self.sent[connection].append((self.parts[connection], payload[-1]))
                    self.parts[connection] = b""
            case Kind.LLP_REQUEST:
                connection = int.from_bytes(payload[:2], "little")
                position = int.from_bytes(payload[2:6], "little")
                octets = int.from_bytes(payload[6:8], "little")
                assert 1 <= octets <= 256
                data = self.received[connection][position : position + octets]
                return Kind.LLP_DATA, data + bytes(-len(data) % 8)
            case Kind.LLP_RELEASE:
                connection = int.from_bytes(payload[:2], "little")
                self.released.append((connection, int.from_bytes(payload[2:6], "little")))
            case Kind.LLP_EVENTS_TAKEN:
                self.events_taken = payload[0]
            case _:
                raise AssertionError(f"message {kind:#x}")
        return None

    async def send_fpdu(self, connection: int, octets: bytes, close: int) -> None:
        """Offers an FPDU at the tx port, with pauses between its beats."""
        dut = self.dut
        beats = [octets[i : i + 8] for i in range(0, len(octets), 8)] or [b""]
        for number, beat in enumerate(beats):
            while self.rng.random() < 0.1:
                await RisingEdge(dut.clk)
            last = number == len(beats) - 1
            dut.llp__tx_valid.value = 1
            dut.llp__tx_connection.value = connection
            dut.llp__tx_data.value = int.from_bytes(beat, "little")
            dut.llp__tx_octets.value = len(beat)
            dut.llp__tx_first.value = number == 0
            dut.llp__tx_last.value = last
            dut.llp__tx_close.value = close and last
            await RisingEdge(dut.clk)
            while not dut.llp__tx_ready.value:
                await RisingEdge(dut.clk)
            dut.llp__tx_valid.value = 0

    async def request(self, connection: int, position: int, octets: int) -> bytes:
        """Asks for received octets; returns the beats."""
        dut = self.dut
        dut.llp__rx_request_valid.value = 1
        dut.llp__rx_request_connection.value = connection
        dut.llp__rx_request_position.value = position
        dut.llp__rx_request_octets.value = octets
        await RisingEdge(dut.clk)
        while not dut.llp__rx_request_ready.value:
            await RisingEdge(dut.clk)
        dut.llp__rx_request_valid.value = 0
        result = b""
        ready = 0
        while len(result) < octets:
            await RisingEdge(dut.clk)
            if ready and dut.llp__rx_valid.value:
                result += int(dut.llp__rx_data.value).to_bytes(8, "little")
            ready = int(self.rng.random() < 0.5)
            dut.llp__rx_ready.value = ready
        dut.llp__rx_ready.value = 0
        return result

    async def release(self, connection: int, position: int) -> None:
        dut = self.dut
        dut.llp__rx_release_valid.value = 1
        dut.llp__rx_release_connection.value = connection
        dut.llp__rx_release_position.value = position
        await RisingEdge(dut.clk)
        while not dut.llp__rx_release_ready.value:
            await RisingEdge(dut.clk)
        dut.llp__rx_release_valid.value = 0


INPUTS = (
    *("tx_valid", "tx_connection", "tx_data", "tx_octets", "tx_first", "tx_last", "tx_close"),
    *("rx_request_valid", "rx_request_connection", "rx_request_position", "rx_request_octets"),
    *("rx_ready", "rx_release_valid", "rx_release_connection", "rx_release_position"),
    "event_ready",
)


class Bench:
    """The link between a host and a device that both are this test."""

    def __init__(self, dut, rng: random.Random):
        self.dut = dut
        self.rng = rng
        share = SHARES[parameter("FAULTS")]
        self.faults = Faults(random.Random(rng.random()), share, share, share)
        self.device = DevicePorts(dut, rng)
        pattern = parameter("PATTERN")
        self.host = Host(dut, rng, pattern, self.device.answer, self.faults)
        self.memory = AxiMaster(
            AxiBus.from_prefix(dut, "memory_"), dut.clk, dut.rst, max_burst_len=32
        )
        self.registers = AxiLiteRam(
            AxiLiteBus.from_prefix(dut, "registers_"), dut.clk, dut.rst, size=1 << 12
        )
        for name in INPUTS:
            getattr(dut, f"llp__{name}").value = 0
        dut.irq.value = 0

    async def start(self) -> None:
        await start_clock_and_reset(self.dut)
        await self.host.make_noise(self.rng.randbytes(200))  # as of another baud rate
        assert not self.dut.restart.value
        hello = await self.host.open()
        assert hello[4:] == HELLO_FIELDS
        cocotb.start_soon(self.host.run())

    async def until(self, done) -> None:
        async def wait() -> None:
            while not done():
                await RisingEdge(self.dut.clk)

        await with_timeout(wait(), 3, "ms")


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_registers(dut):
    rng = seeded_random(parameter("PATTERN"), parameter("FAULTS"))
    bench = Bench(dut, rng)
    await bench.start()
    values = {}
    for number in range(30):
        address = 4 * rng.randrange(1 << 10)
        if address in values and rng.random() < 0.7:
            bench.host.send(Kind.REGISTER_READ, address.to_bytes(2, "little"))
            value = values[address]
        else:
            values[address] = rng.getrandbits(32)
            word = values[address].to_bytes(4, "little")
            bench.host.send(Kind.REGISTER_WRITE, address.to_bytes(2, "little") + word)
            value = 0
        await bench.until(lambda number=number: len(bench.device.registers) > number)
        assert bench.device.registers[-1] == bytes(1) + value.to_bytes(4, "little")
    for address, value in values.items():
        assert bench.registers.read(address, 4) == value.to_bytes(4, "little")


@cocotb.test(timeout_time=60, timeout_unit="ms")
async def check_memory(dut):
    rng = seeded_random(parameter("PATTERN"), parameter("FAULTS"))
    bench = Bench(dut, rng)
    await bench.start()
    expected = bytearray(bench.device.memory)
    half = SIZE // 2
    reads, writes = [], []
    for _ in range(20):
        # Reads and writes are under way together, in different halves.
        at, octets = rng.randrange(half), rng.choice([1, 8, 64, rng.randrange(1, 600)])
        octets = min(octets, half - at)
        reads.append((at, bench.memory.init_read(BASE + at, octets)))
        assert octets == 0 or reads[-1] is not None
        at = half + rng.randrange(half)
        octets = min(rng.choice([1, 8, 32, rng.randrange(1, 600)]), SIZE - at)
        data = rng.randbytes(octets)
        expected[at : at + octets] = data
        writes.append(bench.memory.init_write(BASE + at, data))
    for at, operation in reads:
        await operation.wait()
        answer = operation.data
        assert answer.resp == AxiResp.OKAY
        assert answer.data == expected[at : at + len(answer.data)]
    for operation in writes:
        await operation.wait()
        assert operation.data.resp == AxiResp.OKAY
    assert bench.device.memory == expected

    answer = await bench.memory.read(BAD, 64)
    assert answer.resp == AxiResp.DECERR
    answer = await bench.memory.write(BAD, bytes(64))
    assert answer.resp == AxiResp.DECERR
    answer = await bench.memory.read(BASE, 256)
    assert (answer.resp, answer.data) == (AxiResp.OKAY, expected[:256])


@cocotb.test(timeout_time=60, timeout_unit="ms")
async def check_llp(dut):
    rng = seeded_random(parameter("PATTERN"), parameter("FAULTS"))
    bench = Bench(dut, rng)
    await bench.start()
    device = bench.device
    sent = {n: [] for n in range(CONFIG.qps)}

    async def send_all() -> None:
        for _ in range(12):
            connection = rng.randrange(CONFIG.qps)
            octets = rng.randbytes(4 * rng.choice([5, 7, 63, 64, 65, 130]))
            sent[connection].append((octets, 1))
            await device.send_fpdu(connection, octets, 0)
        for connection in range(CONFIG.qps):
            octets = rng.randbytes(92) if connection % 2 else b""
            sent[connection].append((octets, 3))
            await device.send_fpdu(connection, octets, 1)

    async def receive_all() -> None:
        for _ in range(12):
            connection = rng.randrange(CONFIG.qps)
            octets = rng.choice([8, 12, 256, 260, rng.randrange(1, 1500)])
            position = 4 * rng.randrange((4096 - octets) // 4)
            found = await device.request(connection, position, octets)
            assert found[:octets] == device.received[connection][position : position + octets]
            assert len(found) == -(-octets // 8) * 8
            await device.release(connection, position + octets)
            released.append((connection, position + octets))

    released: list[tuple[int, int]] = []
    tasks = [cocotb.start_soon(send_all()), cocotb.start_soon(receive_all())]
    for task in tasks:
        await task
    await bench.until(lambda: device.sent == sent)
    await bench.until(lambda: device.released == released)


@cocotb.test(timeout_time=60, timeout_unit="ms")
async def check_an_access_is_answered_behind_what_was_said_before(dut):
    rng = seeded_random(parameter("PATTERN"), parameter("FAULTS"))
    bench = Bench(dut, rng)
    await bench.start()
    device = bench.device
    said: list[bytes] = []

    def look() -> None:
        sent = [octets for octets, _ in device.sent[5]]
        assert sent == said and device.released == [(5, number) for number in range(len(said))]
        looked.append(len(said))

    looked: list[int] = []
    device.on_register = look
    for number in range(4):
        said.append(rng.randbytes(1300))
        await device.send_fpdu(5, said[-1], 0)
        await device.release(5, number)
        bench.host.send(Kind.REGISTER_READ, bytes(2))
        await bench.until(lambda number=number: len(device.registers) == number + 1)
    assert looked == [1, 2, 3, 4]


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_what_the_device_does_not_take_holds_nothing_up(dut):
    rng = seeded_random(parameter("PATTERN"), parameter("FAULTS"))
    bench = Bench(dut, rng)
    await bench.start()
    device = bench.device
    # More than there is room for, in either buffer.
    bench.memory.read_if.r_channel.pause = True
    reads = [bench.memory.init_read(BASE + 256 * number, 256) for number in range(14)]
    dut.llp__rx_request_valid.value = 1
    dut.llp__rx_request_octets.value = 4000
    await RisingEdge(dut.clk)
    while not dut.llp__rx_request_ready.value:
        await RisingEdge(dut.clk)
    dut.llp__rx_request_valid.value = 0
    for _ in range(12_000):
        await RisingEdge(dut.clk)
    answer = await bench.memory.write(BASE, b"passes by")
    assert answer.resp == AxiResp.OKAY
    # A register access is answered after the requests, and those have not all left.
    payload = bytes([3, 0, 1, 9, 0, 0, 0])
    bench.host.send(Kind.LLP_EVENT, payload)
    await bench.until(lambda: bool(dut.llp__event_valid.value))
    bench.memory.read_if.r_channel.pause = False
    for number, read in enumerate(reads):
        await read.wait()
        assert number == 0 or read.data.data == device.memory[256 * number : 256 * number + 256]


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_events_and_interrupt(dut):
    rng = seeded_random(parameter("PATTERN"), parameter("FAULTS"))
    bench = Bench(dut, rng)
    await bench.start()
    events = deque(
        (rng.randrange(CONFIG.qps), rng.randrange(4), rng.getrandbits(32)) for _ in range(60)
    )
    expected = list(events)
    found = []

    async def take() -> None:
        ready = 0
        while len(found) < len(expected):
            await RisingEdge(dut.clk)
            if ready and dut.llp__event_valid.value:
                found.append(
                    tuple(
                        int(getattr(dut, f"llp__event_{name}").value)
                        for name in ("connection", "kind", "value")
                    )
                )
            # At first the device takes nothing: all for which there is room wait in the link.
            ready = int(len(events) <= len(expected) - EVENTS and rng.random() < 0.5)
            dut.llp__event_ready.value = ready

    task = cocotb.start_soon(take())
    count = 0
    while events:
        await bench.until(lambda count=count: (count - bench.device.events_taken) & 0xFF < EVENTS)
        connection, kind, value = events.popleft()
        count += 1
        bench.host.send(
            Kind.LLP_EVENT,
            connection.to_bytes(2, "little") + bytes([kind]) + value.to_bytes(4, "little"),
        )
    await task
    assert found == expected
    for level in (1, 0, 1):
        dut.irq.value = level
        await bench.until(lambda level=level: bench.device.interrupts[-1:] == [level])
    assert bench.device.interrupts == [1, 0, 1]


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_a_new_session_forgets_the_old_one(dut):
    rng = seeded_random(parameter("PATTERN"), parameter("FAULTS"))
    bench = Bench(dut, rng)
    await bench.start()
    device = bench.device
    # Something is under way everywhere.
    cocotb.start_soon(device.send_fpdu(1, rng.randbytes(700), 0))
    dut.irq.value = 1
    for _ in range(rng.randrange(300)):
        await RisingEdge(dut.clk)
    dut.irq.value = 0
    restarts = 0

    async def count() -> None:
        nonlocal restarts
        before = 0
        while True:
            await RisingEdge(dut.clk)
            restarts += int(dut.restart.value) and not before
            before = int(dut.restart.value)

    cocotb.start_soon(count())
    for number in range(3):
        while dut.llp__tx_valid.value:
            await RisingEdge(dut.clk)
        assert (await bench.host.open(1000 + number))[4:] == HELLO_FIELDS
        assert restarts == number + 1
        device.registers.clear()
        bench.host.send(Kind.REGISTER_WRITE, bytes([4, 0, number, 0, 0, 0]))
        await bench.until(lambda: device.registers == [bytes(5)])
        # The host asks again: the session goes on.
        endpoint = bench.host.endpoint
        assert (await bench.host.open(1000 + number))[4:] == HELLO_FIELDS
        bench.host.endpoint = endpoint
        bench.host.send(Kind.REGISTER_READ, bytes([4, 0]))
        await bench.until(
            lambda number=number: device.registers[1:] == [bytes([0, number, 0, 0, 0])]
        )
        assert restarts == number + 1
