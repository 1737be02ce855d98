"""The runtime around devices with ports of 32 and 128 bits; those of 64 have all other tests."""

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stagecoach.sim.build import compile_verilog
from stagecoach.sim.transport import SimulatedDevice
from tests.sim.conftest import STUB, STUB_CONFIG
from tests.sim.test_device import copy
from tests.sim.test_llp import attach, exchange

pytestmark = pytest.mark.timeout(240)

WIDTHS = (32, 128)


@pytest.fixture(scope="module", params=WIDTHS)
def width(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def library(width: int) -> Path:
    return compile_verilog(
        f"`define WIDTH {width}\n{STUB.read_text()}", STUB_CONFIG.qps, data_width=width
    )


@pytest.fixture(params=[False, True], ids=["at once", "late writes"])
def device(library: Path, request: pytest.FixtureRequest) -> Iterator[SimulatedDevice]:
    with SimulatedDevice(STUB_CONFIG, library=library, late_writes=request.param) as opened:
        yield opened
        assert opened.statistics()["faults"] == []


def area(octets: int, beat: int) -> np.ndarray:
    """Zeros that begin at a beat."""
    whole = np.zeros(octets + beat, dtype=np.uint8)
    begin = -whole.ctypes.data % beat
    return whole[begin : begin + octets]


def test_a_copy_is_whole_and_takes_as_many_beats_as_it_has(device, width):
    beat = width // 8
    source, target = area(4096, beat), area(4096, beat)
    source[:] = np.frombuffer(random.Random(width).randbytes(4096), dtype=np.uint8)
    addresses = device.map_memory(source), device.map_memory(target)
    assert copy(device, *addresses, 4096) == 0
    assert (target == source).all()
    statistics = device.statistics()
    assert statistics["read_beats"] == statistics["write_beats"] == 4096 // beat


def test_octets_beside_a_region_are_neither_read_nor_written(device, width):
    """Regions begin and end within a beat, at every octet of it."""
    beat = width // 8
    for begin in range(beat):
        for end in {2 * beat, 2 * beat + 1, 3 * beat - 1}:
            source, target = area(4 * beat, beat), area(4 * beat, beat)
            source[:] = range(1, 4 * beat + 1)
            read = device.map_memory(source[begin:end])
            written = device.map_memory(target)
            base = source.ctypes.data
            # A beat of which nothing is mapped is an error, and its data zero.
            assert copy(device, base, target.ctypes.data, 4 * beat) == (2 if end == 2 * beat else 1)
            expected = source.copy()
            expected[:begin], expected[end:] = 0, 0
            assert (target == expected).all(), (begin, end)
            device.unmap_memory(read)
            device.unmap_memory(written)

            target[:] = 0
            read = device.map_memory(source)
            written = device.map_memory(target[begin:end])
            whole = slice(-(-begin // beat) * beat, end // beat * beat)  # only whole beats
            failed = 4 - (whole.stop - whole.start) // beat
            assert copy(device, base, target.ctypes.data, 4 * beat) == failed
            expected = np.zeros_like(source)
            expected[whole] = source[whole]
            assert (target == expected).all(), (begin, end)
            device.unmap_memory(read)
            device.unmap_memory(written)


@pytest.mark.parametrize("write", [False, True])
def test_one_beat_can_be_made_to_fail(library, width, write):
    beat = width // 8
    with SimulatedDevice(STUB_CONFIG, library=library) as device:
        source, target = area(4 * beat, beat), area(4 * beat, beat)
        source[:] = 7
        addresses = device.map_memory(source), device.map_memory(target)
        device._device.fail_access(addresses[write] + beat, beat, write=write)
        assert copy(device, *addresses, 4 * beat) == 1
        assert target.tolist() == [7] * beat + [0] * beat + [7] * 2 * beat


@pytest.mark.parametrize("largest", [7, 3000])
def test_octets_cross_in_both_directions(device, largest):
    """Of every length that ends within a beat, and around the ring of the LLP."""
    rng = random.Random(largest)
    lengths = [*range(4, 68, 4), (1 << 20) + 4 if largest > 7 else 4000]
    with attach(device, 2) as peer:
        for octets in lengths:
            content = rng.randbytes(octets)
            assert exchange(peer, content, rng, largest) == content
    statistics = device.statistics()["connections"][0]
    assert statistics["tx_octets"] == statistics["rx_octets"] == sum(lengths)
