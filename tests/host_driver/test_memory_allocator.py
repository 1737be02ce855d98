"""Which parts of a device's own memory are handed out."""

import random

import pytest

from stagecoach.host_driver import DeviceMemoryExhausted, NoDeviceMemory
from stagecoach.host_driver.memory_allocator import ALIGNMENT, MemoryAllocator
from stagecoach.hw.interface.device_memory import LEAST_MEMORY, MOST_MEMORY


@pytest.mark.parametrize("size", [LEAST_MEMORY, LEAST_MEMORY + 1, MOST_MEMORY])
def test_the_whole_memory_can_be_one_buffer(size):
    allocator = MemoryAllocator(size)
    assert allocator.take(size) == 0
    with pytest.raises(DeviceMemoryExhausted) as caught:
        allocator.take(1)
    error = caught.value
    assert (error.demand, error.free, error.longest, error.size) == (1, 0, 0, size)
    allocator.give(0)
    assert allocator.take(size) == 0


@pytest.mark.parametrize("size", [LEAST_MEMORY, LEAST_MEMORY + 1])
def test_a_byte_more_than_there_is_is_refused_and_takes_nothing(size):
    allocator = MemoryAllocator(size)
    with pytest.raises(
        DeviceMemoryExhausted,
        match=rf"^device memory of {size + 1} bytes; allowed: up to {size}, the longest part that "
        rf"is free \({size} of {size} bytes are\)$",
    ):
        allocator.take(size + 1)
    assert allocator.take(size) == 0


def test_the_smallest_buffers_are_apart_until_none_is_left():
    allocator = MemoryAllocator(4 * ALIGNMENT)
    assert [allocator.take(1) for _ in range(4)] == [n * ALIGNMENT for n in range(4)]
    with pytest.raises(DeviceMemoryExhausted):
        allocator.take(1)


def test_the_first_gap_that_is_long_enough_is_taken():
    allocator = MemoryAllocator(8 * ALIGNMENT)
    begins = [allocator.take(2 * ALIGNMENT) for _ in range(4)]
    allocator.give(begins[0])
    allocator.give(begins[2])
    assert allocator.take(ALIGNMENT) == begins[0]
    assert allocator.take(2 * ALIGNMENT) == begins[2]
    with pytest.raises(DeviceMemoryExhausted) as caught:
        allocator.take(2 * ALIGNMENT)
    assert (caught.value.longest, caught.value.free) == (ALIGNMENT, ALIGNMENT)


def test_what_is_free_in_pieces_is_told_and_grows_together_again():
    allocator = MemoryAllocator(4 * ALIGNMENT)
    begins = [allocator.take(ALIGNMENT) for _ in range(4)]
    allocator.give(begins[1])
    allocator.give(begins[3])
    with pytest.raises(DeviceMemoryExhausted, match=r"up to 64, .* \(128 of 256 bytes are\)"):
        allocator.take(ALIGNMENT + 1)
    allocator.give(begins[2])
    assert allocator.take(3 * ALIGNMENT) == begins[1]


def test_a_device_without_memory_says_so():
    with pytest.raises(NoDeviceMemory, match="the device has no memory of its own; allowed: a boa"):
        MemoryAllocator(0).take(1)


def test_buffers_never_overlap_and_all_comes_back():
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng, size = random.Random(seed), 64 * ALIGNMENT + 5
    allocator, taken = MemoryAllocator(size), {}
    for _ in range(2000):
        if taken and rng.random() < 0.5:
            begin = rng.choice(list(taken))
            allocator.give(begin)
            del taken[begin]
            continue
        octets = rng.randint(1, 8 * ALIGNMENT)
        try:
            begin = allocator.take(octets)
        except DeviceMemoryExhausted as error:
            assert error.longest < octets and error.free <= size
            continue
        assert begin % ALIGNMENT == 0 and begin + octets <= size
        assert all(
            begin + octets <= other or other + length <= begin for other, length in taken.items()
        )
        taken[begin] = octets
    for begin in taken:
        allocator.give(begin)
    assert allocator.take(size) == 0
