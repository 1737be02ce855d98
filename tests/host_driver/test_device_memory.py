"""Buffers in a device's own memory, and regions on them."""

import gc
import itertools
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    Context,
    DeviceMemory,
    DeviceMemoryExhausted,
    FastMR,
    NoDeviceMemory,
    QPCap,
    QPInitAttr,
    Quota,
    QuotaExceeded,
    SendFlags,
    SendWR,
    registers,
)
from stagecoach.host_driver.device import CommandOpcode
from stagecoach.host_driver.hostlink.serial_device import SerialDevice
from stagecoach.host_driver.transport.memory import MemoryTransport, memory_of
from stagecoach.hw.interface.device_memory import DEVICE_MEMORY_BASE
from tests.host_driver.fake_device import FakeDevice, NoStream

OCTETS = 4096


class BoardDevice(FakeDevice):
    """A device with memory of its own.

    Attributes
    ----------
    own: that memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self.own = bytearray(OCTETS)

    @property
    def memory_octets(self) -> int:
        return len(self.own)

    def read_memory(self, offset: int, octets: int) -> bytes:
        assert 0 <= offset <= offset + octets <= OCTETS
        return bytes(self.own[offset : offset + octets])

    def write_memory(self, offset: int, data: memoryview) -> None:
        assert 0 <= offset <= offset + data.nbytes <= OCTETS
        self.own[offset : offset + data.nbytes] = data


@pytest.fixture
def rig() -> Iterator[SimpleNamespace]:
    device = BoardDevice()
    with Context(device) as context:
        yield SimpleNamespace(device=device, context=context, pd=PD(context))


def test_the_transport_is_one_with_memory():
    assert isinstance(BoardDevice(), MemoryTransport)
    assert not isinstance(FakeDevice(), MemoryTransport)


def test_attributes_tell_how_much_there_is(rig, context):
    assert rig.context.attr.max_dm_size == OCTETS
    assert context.attr.max_dm_size == 0


def test_a_device_without_memory_has_one_clear_error(context):
    with pytest.raises(NoDeviceMemory, match=r"^the device has no memory of its own; allowed: "):
        DeviceMemory(context, 1)


def test_a_board_at_a_serial_port_has_none_today():
    assert memory_of(object.__new__(SerialDevice)) == 0


@pytest.mark.parametrize("octets", [1, OCTETS])
def test_what_is_written_is_read_and_nothing_beside_it_changes(rig, octets):
    memory = DeviceMemory(rig.context, octets)
    assert (memory.address, memory.length) == (DEVICE_MEMORY_BASE, octets)
    content = bytes(n % 251 + 1 for n in range(octets))
    memory.write(0, content)
    assert memory.read(0, octets) == content
    assert rig.device.own == content + bytes(OCTETS - octets)
    memory.write(octets - 1, b"\xff")
    assert memory.read(octets - 1, 1) == b"\xff"
    assert memory.read(octets, 0) == b""


def test_a_second_buffer_has_bytes_of_its_own(rig):
    first, second = (DeviceMemory(rig.context, 100) for _ in range(2))
    assert second.address - first.address == 128
    second.write(1, memoryview(b"abc"))
    assert first.read(0, 100) == bytes(100)
    assert rig.device.own[129:132] == b"abc"


@pytest.mark.parametrize(("offset", "octets"), [(0, 65), (64, 1), (-1, 1), (0, -1), (1 << 64, 0)])
def test_what_is_outside_is_refused(rig, offset, octets):
    memory = DeviceMemory(rig.context, 64)
    with pytest.raises(ValueError, match="of device memory of 64; allowed: offset and length"):
        memory.read(offset, octets)
    if octets > 0:
        with pytest.raises(ValueError, match="of device memory of 64; allowed: offset and length"):
            memory.write(offset, bytes(octets))
    assert not any(rig.device.own)


@pytest.mark.parametrize(
    ("octets", "error"), [(0, ValueError), (-1, ValueError), ("4096", TypeError), (1.5, TypeError)]
)
def test_sizes_that_are_none_are_refused(rig, octets, error):
    with pytest.raises(error, match="allowed"):
        DeviceMemory(rig.context, octets)
    assert DeviceMemory(rig.context, OCTETS).length == OCTETS


def test_only_bytes_are_written(rig):
    with pytest.raises(TypeError, match="data is 'text'; allowed: a C-contiguous buffer"):
        DeviceMemory(rig.context, 64).write(0, "text")


def test_too_much_says_what_is_free(rig):
    first = DeviceMemory(rig.context, 4000)
    with pytest.raises(DeviceMemoryExhausted, match="device memory of 65 bytes; allowed: up to 64"):
        DeviceMemory(rig.context, 65)
    first.close()
    DeviceMemory(rig.context, OCTETS)


def test_a_region_has_the_address_of_the_device(rig):
    DeviceMemory(rig.context, 1).close()
    kept = DeviceMemory(rig.context, 1)
    memory = DeviceMemory(rig.context, 256)
    mapped = dict(rig.device.mapped)
    region = MR(rig.pd, memory, AccessFlags.REMOTE_WRITE)
    assert rig.device.mapped == mapped, "nothing of the host is mapped"
    assert region.buf is memory and region.length == 256
    assert region.host_address == region.addr == memory.address == kept.address + 64
    wide = rig.device.wide
    assert wide(registers.STAG_ADDRESS_LOW, registers.STAG_ADDRESS_HIGH) == memory.address
    assert wide(registers.STAG_BASE_LOW, registers.STAG_BASE_HIGH) == memory.address
    assert wide(registers.STAG_LENGTH_LOW, registers.STAG_LENGTH_HIGH) == 256


def test_a_region_can_have_offsets_from_0_on(rig):
    memory = DeviceMemory(rig.context, 256)
    region = MR(rig.pd, memory, addr=0)
    assert (region.addr, region.host_address) == (0, memory.address)


def test_a_region_reads_and_writes_it(rig):
    memory = DeviceMemory(rig.context, 256)
    region = MR(rig.pd, memory)
    region.write(b"hello", offset=8)
    assert memory.read(8, 5) == region.read(5, offset=8) == b"hello"
    with pytest.raises(ValueError, match="allowed: offset and length"):
        region.write(b"hello", offset=252)


def test_an_inline_send_takes_its_message_from_it(rig):
    cq = CQ(rig.context, 8)
    qp = QP(rig.pd, QPInitAttr(cq, cq, QPCap(2, 1, max_inline_data=8)))
    qp.connect(NoStream(), initiator=True, crc=True, ord=1, ird=1, emss=1460)
    region = MR(rig.pd, DeviceMemory(rig.context, 64))
    region.write(b"message!")
    element = SGE(region.addr, 8, region.lkey)
    qp.post_send(SendWR(sg=[element], send_flags=SendFlags.INLINE))
    assert any(b"message!" in bytes(each) for each in rig.device.mapped.values())


def test_a_fast_region_is_made_of_it_too(rig):
    memory = DeviceMemory(rig.context, 64)
    assert FastMR(rig.pd, memory).host_address == memory.address


def test_memory_of_another_device_is_refused_and_nothing_stays(rig):
    other = BoardDevice()
    with Context(other) as context:
        memory = DeviceMemory(context, 64)
        with pytest.raises(ValueError, match="of another device; allowed: one of the region's PD"):
            MR(rig.pd, memory)
        assert not rig.context.mrs and not memory.children


def test_regions_count_against_the_quotas():
    with Context(BoardDevice(), Quota(octets=100)) as context:
        pd, memory = PD(context), DeviceMemory(context, 101)
        with pytest.raises(QuotaExceeded):
            MR(pd, memory)


@pytest.mark.parametrize("order", list(itertools.permutations(["memory", "region", "pd"])))
def test_it_is_closed_in_any_order(rig, order):
    memory = DeviceMemory(rig.context, OCTETS)
    opened = {"memory": memory, "region": MR(rig.pd, memory), "pd": rig.pd}
    for name in order:
        opened[name].close()
        opened[name].close()
    assert rig.device.commands.count(CommandOpcode.STAG_INVALIDATE) == 1
    assert not rig.device.stags
    DeviceMemory(rig.context, OCTETS)


def test_closing_it_closes_its_regions_first(rig):
    memory = DeviceMemory(rig.context, 64)
    regions = [MR(rig.pd, memory) for _ in range(2)]
    memory.close()
    assert rig.device.commands.count(CommandOpcode.STAG_INVALIDATE) == 2
    for region in regions:
        assert repr(region).endswith(", closed>")
        with pytest.raises(ValueError, match="closed"):
            region.read()


def test_what_is_closed_is_of_no_use(rig):
    memory = DeviceMemory(rig.context, 64)
    with memory:
        pass
    assert repr(memory) == f"<DeviceMemory: 64 bytes at {DEVICE_MEMORY_BASE:#x}, closed>"
    for use in (
        lambda: memory.read(0, 1),
        lambda: memory.write(0, b"a"),
        lambda: MR(rig.pd, memory),
    ):
        with pytest.raises(ValueError, match="closed>; allowed: one that is open"):
            use()
    assert not rig.device.stags


def test_the_context_closes_it(rig):
    memory = DeviceMemory(rig.context, 64)
    region = MR(rig.pd, memory)
    rig.context.close()
    assert "closed" in repr(memory) and "closed" in repr(region)


def test_a_reset_frees_it(rig):
    DeviceMemory(rig.context, OCTETS).close()
    memory = DeviceMemory(rig.context, OCTETS)
    rig.context.reset()
    assert "closed" in repr(memory)
    DeviceMemory(rig.context, OCTETS)


def test_one_that_is_dropped_is_told_of_and_freed(rig):
    memory = DeviceMemory(rig.context, OCTETS)
    with pytest.warns(ResourceWarning, match="dropped open: <DeviceMemory: 4096 bytes"):
        del memory
        gc.collect()
    DeviceMemory(rig.context, OCTETS)


def test_a_region_keeps_it(rig):
    region = MR(rig.pd, DeviceMemory(rig.context, OCTETS))
    gc.collect()
    with pytest.raises(DeviceMemoryExhausted):
        DeviceMemory(rig.context, 1)
    region.write(b"kept")
