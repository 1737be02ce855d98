"""A simulated device's own memory: its AXI accesses go there by their address."""

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stagecoach.host_driver.transport.base import DeviceClosed
from stagecoach.host_driver.transport.memory import MemoryTransport
from stagecoach.hw.interface.device_memory import DEVICE_MEMORY_BASE, LEAST_MEMORY, MOST_MEMORY
from stagecoach.sim.transport import SimulatedDevice
from tests.sim.conftest import STUB_CONFIG
from tests.sim.test_device import copy

pytestmark = pytest.mark.timeout(120)

OCTETS = LEAST_MEMORY
END = DEVICE_MEMORY_BASE + OCTETS


@pytest.fixture
def device(stub_library: Path) -> Iterator[SimulatedDevice]:
    with SimulatedDevice(STUB_CONFIG, library=stub_library, memory=OCTETS) as opened:
        yield opened


def test_it_is_a_transport_with_memory(device):
    assert isinstance(device, MemoryTransport)
    assert device.memory_octets == OCTETS
    assert device.read_memory(0, OCTETS) == bytes(OCTETS)


@pytest.mark.parametrize("late_writes", [False, True])
def test_the_device_writes_it_and_reads_it_back(stub_library, late_writes):
    source, sink = np.zeros(OCTETS // 8, dtype=np.uint64), np.zeros(OCTETS // 8, dtype=np.uint64)
    content = random.Random(1).randbytes(OCTETS)
    source[:] = np.frombuffer(content, dtype=np.uint64)
    with SimulatedDevice(
        STUB_CONFIG, library=stub_library, memory=OCTETS, late_writes=late_writes
    ) as device:
        here, there = device.map_memory(source), device.map_memory(sink)
        assert copy(device, here, DEVICE_MEMORY_BASE, OCTETS) == 0
        assert device.read_memory(0, OCTETS) == content
        assert copy(device, DEVICE_MEMORY_BASE, there, OCTETS) == 0
        assert sink.tobytes() == content
        assert device.statistics()["faults"] == []


def test_it_finds_what_the_host_wrote(device):
    sink = np.zeros(2, dtype=np.uint64)
    address = device.map_memory(sink)
    device.write_memory(OCTETS - 16, memoryview(b"sixteen bytes it"))
    assert copy(device, END - 16, address, 16) == 0
    assert sink.tobytes() == b"sixteen bytes it"
    assert device.read_memory(0, OCTETS - 16) == bytes(OCTETS - 16)


@pytest.mark.parametrize("place", [DEVICE_MEMORY_BASE - 8, END])
def test_nothing_is_before_or_after_it(device, place):
    buffer = np.full(1, 7, dtype=np.uint64)
    address = device.map_memory(buffer)
    assert copy(device, address, place, 8) == 1
    assert copy(device, place, address, 8) >= 1
    assert device.read_memory(0, OCTETS) == bytes(OCTETS)


def test_a_device_without_has_an_error_there(stub_library):
    buffer = np.zeros(2, dtype=np.uint64)
    with SimulatedDevice(STUB_CONFIG, library=stub_library) as device:
        address = device.map_memory(buffer)
        assert device.memory_octets == 0
        assert copy(device, DEVICE_MEMORY_BASE, address, 16) == 2
        assert copy(device, address, DEVICE_MEMORY_BASE, 16) == 2


def test_host_memory_is_where_it_was(device):
    buffers = [np.full(2, value, dtype=np.uint64) for value in (1, 2)]
    addresses = [device.map_memory(each) for each in buffers]
    assert copy(device, *addresses, 16) == 0
    assert buffers[1].tolist() == [1, 1]
    device.unmap_memory(addresses[0])
    assert copy(device, addresses[0], DEVICE_MEMORY_BASE, 16) >= 1


def test_the_largest_costs_only_what_is_written(stub_library):
    with SimulatedDevice(STUB_CONFIG, library=stub_library, memory=MOST_MEMORY) as device:
        buffer = np.full(1, 3, dtype=np.uint64)
        address = device.map_memory(buffer)
        assert copy(device, address, DEVICE_MEMORY_BASE + MOST_MEMORY - 8, 8) == 0
        assert device.read_memory(MOST_MEMORY - 8, 8) == buffer.tobytes()


@pytest.mark.parametrize("octets", [-1, 1, LEAST_MEMORY - 1, MOST_MEMORY + 1])
def test_other_sizes_are_refused(stub_library, octets):
    with pytest.raises(ValueError, match=f"memory is {octets}; allowed: 0, or 4096 to 687"):
        SimulatedDevice(STUB_CONFIG, library=stub_library, memory=octets)


def test_a_closed_device_is_told_of(device):
    device.close()
    with pytest.raises(DeviceClosed):
        device.read_memory(0, 1)
    with pytest.raises(DeviceClosed):
        device.write_memory(0, memoryview(b"a"))
