"""A board is opened as a NIC if it is one, and has a network then, over its serial line."""

from collections.abc import Iterator
from random import Random

import pytest

from stagecoach.host_driver import memory_registers, network_registers
from stagecoach.host_driver.board_memory.errors import MemoryNotLevelled, NoBoardMemory
from stagecoach.host_driver.errors import DeviceError
from stagecoach.host_driver.hostlink.serial_link import LinkTimes
from stagecoach.host_driver.hostlink.serial_nic import SerialNic
from stagecoach.host_driver.locate import parse_device
from stagecoach.host_driver.network.address_claim import SHORT
from stagecoach.host_driver.network.errors import DuplicateAddress
from stagecoach.host_driver.network.settings import NetworkSettings
from stagecoach.host_driver.transport.base import DeviceClosed, TransportError
from stagecoach.host_driver.transport.memory import MemoryTransport
from stagecoach.host_driver.transport.network import NetworkTransport
from stagecoach.sim.litedram.core import LiteDram, ReadsRight
from stagecoach.sim.litedram.ddr3 import Ddr3
from tests.host_driver.hostlink.fake_board import CLOCK_HZ, FakeBoard
from tests.host_driver.hostlink.fake_nic_board import MEMORY_LOG2, Controller, FakeNicBoard, join

TIMES = LinkTimes(retry_seconds=0.5, open_seconds=10.0)
SECONDS = 60.0

Boards = tuple[FakeNicBoard, FakeNicBoard]
Pair = tuple[SerialNic, SerialNic]


def settings(number: int) -> NetworkSettings:
    return NetworkSettings.parse(f"192.0.2.{number}/24", bytes([2, 0, 192, 0, 2, number]))


def opened(board: FakeNicBoard, number: int) -> SerialNic:
    return SerialNic(board.port, settings(number), 115200, link_times=TIMES, times=SHORT)


@pytest.fixture
def boards() -> Iterator[Boards]:
    with FakeNicBoard() as first, FakeNicBoard() as second:
        join(first, second)
        yield first, second


@pytest.fixture
def pair(boards: Boards) -> Iterator[Pair]:
    with opened(boards[0], 1) as first, opened(boards[1], 2) as second:
        yield first, second


def test_a_board_without_a_network_is_refused() -> None:
    with FakeBoard() as board:
        message = f"{board.port} has no network of its own; allowed: a device without ip="
        with pytest.raises(TransportError, match=message):
            SerialNic(board.port, settings(1), link_times=TIMES)
        with pytest.raises(TransportError, match=message):
            parse_device(f"serial://{board.port}?ip=192.0.2.10/24").open()


def test_a_network_that_the_driver_does_not_know_is_refused_and_the_port_is_free_again() -> None:
    with FakeBoard(events=0, memory_log2=20) as board:
        board.registers[network_registers.NETWORK_ID.address] = 7
        for _ in range(2):
            with pytest.raises(DeviceError, match="NETWORK_ID 0x00000007; allowed: 0x"):
                SerialNic(board.port, settings(1), link_times=TIMES)


def test_it_tells_what_it_is(boards: Boards) -> None:
    with opened(boards[0], 1) as nic:
        assert isinstance(nic, NetworkTransport)
        info = nic.info
        assert (info["kind"], info["tcp"], info["mtu"]) == ("serial NIC", "gateware", 1500)
        assert (info["ip"], info["gateway"]) == ("192.0.2.1/24", "none")
        assert info["mac"] == "02:00:c0:00:02:01" and info["clock_hz"] == CLOCK_HZ
        assert info["board_memory"] == 1 << MEMORY_LOG2
        assert repr(nic) == f"<SerialNic at {boards[0].port}: 115200 baud>"
        assert not nic.wait_interrupt(0.0), "the interrupt of the network is another one"
    with pytest.raises(DeviceClosed):
        nic.read_register(0)
    nic.close()


def test_a_memory_with_a_controller_is_started_once(boards: Boards) -> None:
    board, steps = boards[0], []
    other = opened(boards[1], 2)
    board.controller = Controller(LiteDram([[ReadsRight(1, 2, 5)]] * 2, Ddr3()))
    for is_first in (True, False):
        with SerialNic(
            board.port,
            settings(1),
            115200,
            link_times=TIMES,
            times=SHORT,
            memory_progress=lambda *step: steps.append(step),
        ) as nic:
            assert (nic.margins is not None) == is_first
            assert nic.margins is None or nic.margins.least == 4
            # Frames go by way of the memory: it was there before the network.
            assert not is_first or nic.stack.ping("192.0.2.2", SECONDS) > 0
    assert steps[0] == ("initialisation", 0, 1)
    assert [step for step in steps if step[0] == "initialisation"] == steps[:2]
    other.close()


def test_a_memory_that_does_not_read_right_is_told_of_and_the_port_is_free_again(
    boards: Boards,
) -> None:
    board = boards[0]
    board.controller = Controller(LiteDram([[ReadsRight(1, 2, 5)], []], Ddr3()))
    with pytest.raises(MemoryNotLevelled, match="lane 1"):
        opened(board, 1)
    board.controller.core = LiteDram([[ReadsRight(1, 2, 5)]] * 2, Ddr3())
    with opened(board, 1) as nic:
        assert nic.margins is not None


def test_memory_of_programs_and_rings_are_apart(boards: Boards, pair: Pair) -> None:
    """All of the one is filled while all connections are open, whose bytes arrive."""
    nic, peer = pair
    assert isinstance(nic, MemoryTransport)
    content = bytes(range(256)) * 12
    filled = Random("filled").randbytes(nic.memory_octets)
    streams = []
    with peer.listen("", 0) as listener:
        for _ in range(nic.network.maximum_connections):
            active = nic.connect("192.0.2.2", listener.address[1], SECONDS)
            streams.append((active, listener.accept(SECONDS)))
        for active, passive in streams:
            active.sendall(content, SECONDS)
            passive.sendall(content[::-1], SECONDS)
        boards[0].octets[: len(filled)] = filled
        for active, passive in streams:
            assert passive.receive_exactly(len(content), SECONDS) == content
            assert active.receive_exactly(len(content), SECONDS) == content[::-1]
    assert boards[0].octets[: len(filled)] == filled
    rings = nic.network.maximum_connections << 19
    assert len(boards[0].octets) - rings - len(filled) < 1 << 20


def test_bytes_of_programs_are_read_and_written(boards: Boards, pair: Pair) -> None:
    content = Random("content").randbytes(5_000)
    pair[0].write_memory(3, memoryview(content))
    assert boards[0].octets[3:5_003] == content
    assert pair[0].read_memory(2, 5_002) == boards[0].octets[2:5_004]


def test_a_controller_that_the_driver_does_not_know_is_refused(boards: Boards) -> None:
    board = boards[0]
    board.registers[memory_registers.MEMORY_ID.address] = 7
    board.registers[memory_registers.MEMORY_INTERFACE.address] = 8
    with pytest.raises(NoBoardMemory, match="MEMORY_ID 0x00000007"):
        opened(board, 1)


def test_an_address_that_another_interface_has_is_refused(boards: Boards) -> None:
    with opened(boards[0], 1):
        with pytest.raises(DuplicateAddress):
            opened(boards[1], 1)
    opened(boards[1], 1).close()  # the port is free again


def test_streams_carry_bytes_both_ways_and_rings_are_in_the_memory_of_the_board(
    boards: Boards, pair: Pair
) -> None:
    content = bytes(range(256)) * 12
    assert pair[0].stack.ping("192.0.2.2", SECONDS) > 0
    with pair[1].listen("", 0) as listener:
        for _ in range(2):
            active = pair[0].connect("192.0.2.2", listener.address[1], SECONDS)
            passive = listener.accept(SECONDS)
            active.sendall(content, SECONDS)
            assert passive.receive_exactly(len(content), SECONDS) == content
            passive.sendall(content[::-1], SECONDS)
            assert active.receive_exactly(len(content), SECONDS) == content[::-1]
            active.close()
            passive.close()
    for board in boards:
        assert content in board.octets and content[::-1] in board.octets


def test_a_board_that_is_unplugged_is_told_of(boards: Boards, pair: Pair) -> None:
    boards[0].unplug()
    with pytest.raises(DeviceClosed, match="was lost"):
        pair[0].stack.ping("192.0.2.2", SECONDS)
