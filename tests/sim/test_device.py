"""The runtime around the device: registers, DMA, interrupts, idling, ending."""

import ctypes
import mmap
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stagecoach.host_driver.transport.base import (
    DeviceClosed,
    Transport,
    TransportError,
    TransportTimeout,
)
from stagecoach.sim.build import BuildError, compile_verilog
from stagecoach.sim.device import Device, DeviceCallError, Response
from stagecoach.sim.transport import SimulatedDevice
from tests.sim.conftest import STUB_CONFIG

IDENTITY, SCRATCH, SOURCE, DESTINATION, OCTETS, COPY = 0x0, 0x4, 0x8, 0x10, 0x18, 0x1C
IRQ, END, NO_ANSWER, ERROR_ANSWER = 0x20, 0x30, 0xFF8, 0xFFC

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def device(stub_library: Path) -> Iterator[SimulatedDevice]:
    with SimulatedDevice(STUB_CONFIG, library=stub_library) as opened:
        yield opened


def copy(device: SimulatedDevice | Device, source: int, destination: int, octets: int) -> int:
    """Let the stub copy memory; return how many error responses it got."""
    for register, value in ((SOURCE, source), (DESTINATION, destination)):
        device.write_register(register, value & 0xFFFFFFFF)
        device.write_register(register + 4, value >> 32)
    device.write_register(OCTETS, octets)
    device.write_register(COPY, 1)
    for _ in range(1000):
        status = device.read_register(COPY)
        if not status & 1:
            return status >> 16
        device.run_cycles(1000)
    raise AssertionError("the copy does not end")


def aligned(address: int, octets: int) -> int:
    return -(-address // octets) * octets


def test_registers_are_read_and_written_in_order(device: SimulatedDevice) -> None:
    assert isinstance(device, Transport)
    assert device.read_register(IDENTITY) == 0x57A6EC0A
    for value in (0, 1, 0xFFFFFFFF, 0x12345678):
        device.write_register(SCRATCH, value)
        assert device.read_register(SCRATCH) == value


def test_register_access_with_error_response_raises(device: SimulatedDevice) -> None:
    with pytest.raises(TransportError, match="0xffc"):
        device.read_register(ERROR_ANSWER)
    with pytest.raises(TransportError, match="0xffc"):
        device.write_register(ERROR_ANSWER, 1)
    assert device.read_register(IDENTITY) == 0x57A6EC0A


def test_register_access_without_answer_raises(device: SimulatedDevice) -> None:
    with pytest.raises(TransportTimeout, match="0xff8"):
        device.read_register(NO_ANSWER)
    assert device.read_register(IDENTITY) == 0x57A6EC0A


@pytest.mark.parametrize("address", [-4, 2, 4096])
def test_register_address_outside_is_refused(device: SimulatedDevice, address: int) -> None:
    with pytest.raises(ValueError, match="multiples of 4"):
        device.read_register(address)


@pytest.mark.parametrize("kind", ["bytearray", "numpy", "mmap"])
def test_device_reads_and_writes_a_buffer(device: SimulatedDevice, kind: str) -> None:
    size = 4096
    buffers = {
        "bytearray": lambda: bytearray(size),
        "numpy": lambda: np.zeros((size // 8, 8), dtype=np.uint8),
        "mmap": lambda: mmap.mmap(-1, size),
    }
    source, destination = buffers[kind](), buffers[kind]()
    content = random.Random(1).randbytes(size)
    memoryview(source).cast("B")[:] = content
    # The stub copies whole words: begin at the first in each buffer
    from_address, to_address = device.map_memory(source), device.map_memory(destination)
    skip_from = aligned(from_address, 8) - from_address
    skip_to = aligned(to_address, 8) - to_address
    octets = size - 8
    assert copy(device, from_address + skip_from, to_address + skip_to, octets) == 0
    written = bytes(memoryview(destination).cast("B"))
    assert written[skip_to : skip_to + octets] == content[skip_from : skip_from + octets]
    device.unmap_memory(from_address)
    device.unmap_memory(to_address)
    assert device.statistics()["faults"] == []


def test_access_outside_every_region_gets_an_error_response(device: SimulatedDevice) -> None:
    buffer = np.zeros(64, dtype=np.uint64)
    address = device.map_memory(buffer)
    assert copy(device, 8, address, 16) == 2
    assert copy(device, address, 8, 16) == 2
    device.unmap_memory(address)
    assert copy(device, address, address + 256, 16) == 4
    assert not buffer.any()


def test_write_does_not_touch_octets_beside_the_region(device: SimulatedDevice) -> None:
    buffer = np.zeros(256, dtype=np.uint8)
    buffer[:64] = 0xFF
    whole = device.map_memory(buffer)
    device.unmap_memory(whole)
    source = device.map_memory(buffer[:64])
    target = device.map_memory(buffer[100:120])
    # The word at 96 reaches over the begin of the region, the one at 120 is after it
    assert copy(device, source, whole + 96, 32) == 2
    assert buffer[104:120].tolist() == [0xFF] * 16
    assert not buffer[64:104].any()
    assert not buffer[120:].any()
    device.unmap_memory(target)


def test_buffer_mapped_twice_stays_until_both_are_unmapped(device: SimulatedDevice) -> None:
    buffer = np.zeros(64, dtype=np.uint64)
    address = device.map_memory(buffer)
    assert device.map_memory(buffer[:32]) == address
    device.unmap_memory(address)
    assert copy(device, address + 256, address, 64) == 0
    device.unmap_memory(address)
    assert copy(device, address + 256, address, 8) == 2
    with pytest.raises(TransportError, match="nothing is mapped"):
        device.unmap_memory(address)


def test_mapped_bytearray_cannot_be_resized(device: SimulatedDevice) -> None:
    buffer = bytearray(100)
    address = device.map_memory(buffer)
    with pytest.raises(BufferError):
        buffer.extend(b"more")
    device.unmap_memory(address)
    buffer.extend(b"more")


@pytest.mark.parametrize("buffer", [b"read only", bytearray(), np.zeros((8, 8))[:, ::2]])
def test_buffer_that_cannot_be_mapped_is_refused(device: SimulatedDevice, buffer: object) -> None:
    with pytest.raises(TransportError, match="writable"):
        device.map_memory(buffer)


def test_interrupt_wakes_a_waiting_thread(device: SimulatedDevice) -> None:
    assert device.wait_interrupt(0.01) is False
    threading.Timer(0.1, device.write_register, (IRQ, 1)).start()
    begin = time.monotonic()
    assert device.wait_interrupt(30) is True
    assert time.monotonic() - begin >= 0.05
    device.write_register(IRQ, 0)
    device.wait_interrupt(0)
    assert device.wait_interrupt(0.01) is False


def test_idle_device_costs_no_cycles_and_wakes_at_once(device: SimulatedDevice) -> None:
    device.read_register(IDENTITY)
    time.sleep(0.2)
    cycles = device.cycles
    time.sleep(0.3)
    assert device.cycles == cycles
    device.write_register(SCRATCH, 5)
    time.sleep(0.1)
    assert 100 < device.cycles - cycles < 10000
    device.run_cycles(20000)
    assert device.cycles - cycles >= 20000


def test_closing_twice_and_calls_after_it(stub_library: Path) -> None:
    device = SimulatedDevice(STUB_CONFIG, library=stub_library)
    device.read_register(IDENTITY)
    device.close()
    device.close()
    for call in (
        lambda: device.read_register(IDENTITY),
        lambda: device.map_memory(bytearray(8)),
        lambda: device.wait_interrupt(1),
        lambda: device.detach(0),
    ):
        with pytest.raises(DeviceClosed, match="closed"):
            call()
    assert device.statistics()["cycles"] > 0


def test_closing_ends_calls_of_other_threads(stub_library: Path) -> None:
    device = SimulatedDevice(STUB_CONFIG, library=stub_library)
    raised: list[Exception] = []

    def wait() -> None:
        try:
            device.wait_interrupt()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    device.close()
    thread.join(10)
    assert [type(error) for error in raised] == [DeviceClosed]


def test_end_of_the_simulation_is_reported_as_an_exception(device: SimulatedDevice) -> None:
    with pytest.raises(DeviceClosed, match="finish"):
        device.write_register(END, 1)
        device.read_register(IDENTITY)
    with pytest.raises(DeviceClosed, match="finish"):
        device.wait_interrupt(1)
    device.close()


@pytest.fixture
def bare(stub_library: Path) -> Iterator[Device]:
    with Device(stub_library, STUB_CONFIG.qps) as opened:
        yield opened


def mapped(device: Device, buffer: bytearray) -> int:
    address = ctypes.addressof((ctypes.c_char * len(buffer)).from_buffer(buffer))
    device.map(address, len(buffer))
    return address


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("skip", [0, 1])
def test_one_access_can_be_made_to_fail(bare: Device, write: bool, skip: int) -> None:
    source, target = bytearray(range(1, 65)), bytearray(64)
    addresses = mapped(bare, source), mapped(bare, target)
    bare.fail_access(addresses[write], 64, write=write, skip=skip, response=Response.DECERR)
    assert copy(bare, *addresses, 64) == 1
    assert target != source
    assert copy(bare, *addresses, 64) == 0
    assert target == source
    assert bare.statistics()["write_errors" if write else "read_errors"] == 1


@pytest.mark.parametrize("held", ["reads", "writes"])
def test_host_memory_that_is_held_answers_nothing_until_it_goes_on(bare: Device, held: str) -> None:
    source, target = bytearray(range(1, 65)), bytearray(64)
    addresses = mapped(bare, source), mapped(bare, target)
    bare.hold(**{held: True})
    with pytest.raises(AssertionError, match="does not end"):
        copy(bare, *addresses, 64)
    assert target != source
    bare.hold()
    while bare.read_register(COPY) & 1:
        bare.run_cycles(1000)
    assert target == source


def test_disturbances_that_make_no_sense_are_refused(bare: Device) -> None:
    with pytest.raises(ValueError, match="octets is 0"):
        bare.fail_access(0, 0, write=True)
    with pytest.raises(ValueError, match="skip is -1"):
        bare.fail_access(0, 8, write=True, skip=-1)
    with pytest.raises(ValueError, match="connection is -1"):
        bare.lose_after(-1, 0)
    for connection in (0, 99):
        with pytest.raises(DeviceCallError, match=f"connection {connection} has no stream"):
            bare.lose_after(connection, 0)


def test_many_threads_share_a_device(device: SimulatedDevice) -> None:
    def use() -> None:
        for _ in range(50):
            assert device.read_register(IDENTITY) == 0x57A6EC0A

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_waveform_needs_the_variant_that_writes_one(stub_library: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="without waveforms"):
        SimulatedDevice(STUB_CONFIG, trace_path=tmp_path / "x.fst", library=stub_library)


def test_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(BuildError, match=r"no-such-compiler.*install g\+\+"):
        compile_verilog("module rnic; endmodule", 4)


def test_interpreter_that_exits_without_closing_ends_cleanly(stub_library: Path) -> None:
    script = f"""
import socket
from pathlib import Path
from stagecoach.gateware.config import RnicConfig
from stagecoach.sim.transport import SimulatedDevice
from stagecoach.host_driver.transport.sockets import SocketStream
device = SimulatedDevice(RnicConfig(qps=4), library=Path({str(stub_library)!r}))
buffer = bytearray(1000)
device.map_memory(buffer)
ours, theirs = socket.socketpair()
device.attach(0, SocketStream(theirs))
ours.sendall(bytes(1000))
print(device.read_register(0))
"""
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"{0x57A6EC0A}\n"
