"""A board at a serial port as a device of the driver, with a network of its own."""

import contextlib
import time
from dataclasses import replace
from typing import Any

from stagecoach.host_driver import memory_registers
from stagecoach.host_driver.board_memory.levelling import Progress
from stagecoach.host_driver.board_memory.margins import Margins
from stagecoach.host_driver.board_memory.memory import BoardMemory, no_progress
from stagecoach.host_driver.hostlink.endpoint import Endpoint
from stagecoach.host_driver.hostlink.link_host import LinkHost
from stagecoach.host_driver.hostlink.nic import LinkedNic
from stagecoach.host_driver.hostlink.serial_link import (
    DEFAULT_BAUD,
    Hello,
    LinkTimes,
    SerialLink,
)
from stagecoach.host_driver.network.address_claim import RFC_5227, ProbeTimes
from stagecoach.host_driver.network.hardware.frame_queues import QueueSizes
from stagecoach.host_driver.network.hardware.start import HardwareSettings
from stagecoach.host_driver.network.hardware_port import HardwarePort
from stagecoach.host_driver.network.network import Network
from stagecoach.host_driver.network.settings import NetworkSettings
from stagecoach.host_driver.network.streams import NetworkStreams
from stagecoach.host_driver.registers import Register
from stagecoach.host_driver.transport.base import DeviceClosed, TransportError, TransportTimeout
from stagecoach.host_driver.transport.network import NetworkPort
from stagecoach.hw.interface.device_memory import LEAST_MEMORY

NETWORK_IRQ = 1
"""Bit of INTERRUPT."""

QUEUES = QueueSizes(queue_log2=8, slots_log2=7, frames_log2=5)
"""Of a board: what it has for the driver is read over the link."""


class _Registers:
    """Registers of a device by name."""

    def __init__(self, link: SerialLink):
        self._link = link

    def read(self, register: Register) -> dict[str, int]:
        return register.unpack(self._link.read_register(register.address))

    def write(self, register: Register, **fields: int) -> None:
        self._link.write_register(register.address, register.pack(**fields))


class SerialNic(NetworkStreams, SerialLink):
    """A `NetworkTransport` and `MemoryTransport` to a board with Ethernet at a serial port.

    Registers and the memory of programs are at the other end of the link; rings of connections and
    the driver's frames are in the board's memory, at its end. `DeviceMemory` is what is before them
    if all connections are open. The board's device is reset when it is opened, its memory is not. A
    thread serves the port. A memory that has a controller and was not started since the
    FPGA was configured is started (`BoardMemory`).

    Parameters
    ----------
    port, baud, link_times: see `SerialLink`.
    settings: address, MAC address and gateway of the interface. Its MTU is that of the device.
    times: of the probes for the address (RFC 5227).
    memory_progress: is told of the steps of a memory's start.

    The constructor returns when the address is claimed. Raises `TransportTimeout` if no board
    answers, `TransportError` if there is no such port or the board has no network of its own,
    `DuplicateAddress` if another interface has the address, and what `BoardMemory` raises.

    Attributes
    ----------
    stack: the driver's network on it. margins: of the memory, if it was started now, or `None`.
    """

    _device: LinkedNic

    def __init__(
        self,
        port: str,
        settings: NetworkSettings,
        baud: int = DEFAULT_BAUD,
        *,
        link_times: LinkTimes | None = None,
        times: ProbeTimes = RFC_5227,
        memory_progress: Progress = no_progress,
    ):
        self._is_open = False
        super().__init__(port, baud, LinkTimes() if link_times is None else link_times)
        with contextlib.ExitStack() as undo:
            undo.callback(super().close)
            self.margins = self._start_memory(memory_progress)
            host = LinkHost(self, 1 << self._hello.memory_log2)
            rings = HardwareSettings(settings.mac, queues=QUEUES)
            self._port_of_network = HardwarePort(host, rings)
            undo.callback(self._port_of_network.close, "the device is closed")
            # The rings of a connection are made when its number is used for the first time.
            connections = self._port_of_network.maximum_connections
            left = host.free - connections * (rings.rx_ring + rings.tx_ring)
            self._memory_octets = max(0, left // LEAST_MEMORY * LEAST_MEMORY)
            mtu = min(settings.mtu, self._port_of_network.mtu)
            self.settings = replace(settings, mtu=mtu, receive_buffer=rings.rx_ring)
            self.stack = Network(self._port_of_network, self.settings, times)
            undo.pop_all()
        self._is_open = True

    def _make_device(self, hello: Hello, endpoint: Endpoint, access_seconds: float) -> LinkedNic:
        if not hello.is_nic:
            raise TransportError(
                f"the board at {self._name} has no network of its own; allowed: a device without "
                f"ip=, serial://{self._name}"
            )
        return LinkedNic(endpoint, self._memory, self._take_interrupt, access_seconds)

    def _start_memory(self, progress: Progress) -> Margins | None:
        """Rings are in it, so it is there before the network."""
        try:
            self.read_register(memory_registers.MEMORY_ID.address)
        except (DeviceClosed, TransportTimeout):
            raise
        except TransportError:  # no register: there is no controller
            return None
        memory = BoardMemory(_Registers(self))
        return None if memory.is_ready else memory.start(progress)

    @property
    def network(self) -> NetworkPort:
        """Frames and connections of the engine."""
        return self._port_of_network

    @property
    def info(self) -> dict[str, Any]:
        """Those of every board, and what the interface is."""
        settings = self.settings
        return {
            **super().info,
            "kind": "serial NIC",
            "board_memory": 1 << self._hello.memory_log2,
            "tcp": self._port_of_network.engine,
            "ip": str(settings.address),
            "gateway": "none" if settings.gateway is None else str(settings.gateway),
            "mac": settings.mac.hex(":"),
            "mtu": settings.mtu,
        }

    # The board's memory, for programs.

    @property
    def memory_octets(self) -> int:
        """Bytes of it that the network does not need."""
        return self._memory_octets

    def read_memory(self, offset: int, octets: int) -> bytes:
        """See `MemoryTransport`. It takes as long as `read_board`."""
        return self.read_board(offset, octets)

    def write_memory(self, offset: int, data: memoryview) -> None:
        """See `MemoryTransport`."""
        self.write_board(offset, bytes(data))

    # The same for the network, and what `LinkHost` needs beside.

    def read_board(self, address: int, octets: int) -> bytes:
        """Bytes of the board's memory: 256 an access, 4 accesses at a time."""
        found: bytes = self._submit(
            lambda result: self._device.read_board(address, octets, time.monotonic(), result)
        )
        return found

    def write_board(self, address: int, data: bytes) -> None:
        """Write bytes of the board's memory; they are visible when this returns."""
        self._submit(
            lambda result: self._device.write_board(address, data, time.monotonic(), result)
        )

    def wait_network(self, seconds: float | None) -> None:
        """Wait for the interrupt of the network, `wake_network`, or so long."""
        self._wait_interrupt(NETWORK_IRQ, seconds)

    def wake_network(self) -> None:
        """End a `wait_network`, also the next one."""
        with self._changed:
            if self._ended is not None:
                raise DeviceClosed(self._ended)
            self._irq_rose |= 1 << NETWORK_IRQ
            self._changed.notify_all()

    def close(self) -> None:
        """End the network, reset the device, close the port; may be called again."""
        if self._is_open:
            self._is_open = False
            self.stack.close()
            self._port_of_network.close("the device is closed")
        super().close()
