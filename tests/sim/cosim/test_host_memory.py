"""Host memory of cocotb tests: which buffer an address is in."""

import pytest

from stagecoach.sim.cosim.host_memory import HostMemory

SIZES = (1, 8, 100, 4096, 5000)


@pytest.fixture
def memory():
    return HostMemory()


def test_each_buffer_is_found_at_all_of_its_octets_and_nowhere_else(memory):
    buffers = [bytearray([number]) * size for number, size in enumerate(SIZES)]
    addresses = [memory.map(buffer) for buffer in buffers]
    for number, (address, size) in enumerate(zip(addresses, SIZES, strict=True)):
        for offset in (0, size - 1):
            view, found = memory.find(address + offset, 1)
            assert (view[0], found) == (number, offset)
        assert memory.find(address - 1, 1) is None
        assert memory.find(address + size, 1) is None
        assert memory.find(address, size + 1) is None


def test_buffer_that_is_unmapped_is_not_found_and_its_neighbours_are(memory):
    addresses = [memory.map(bytearray(8)) for _ in range(3)]
    memory.unmap(addresses[1])
    assert [memory.find(address, 8) is not None for address in addresses] == [True, False, True]
    with pytest.raises(KeyError):
        memory.unmap(addresses[1])


def test_nothing_is_found_without_a_buffer(memory):
    assert memory.find(HostMemory.FIRST, 1) is None
