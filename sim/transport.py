"""The compiled simulation as a device of the driver, with real TCP connections as its LLP."""

import ctypes
import mmap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stagecoach.host_driver.extras import extra_named
from stagecoach.host_driver.transport.base import (
    ByteStream,
    DeviceClosed,
    TransportError,
    TransportTimeout,
)
from stagecoach.host_driver.transport.buffers import Exported, export
from stagecoach.host_driver.transport.lending import SocketLender
from stagecoach.host_driver.transport.sockets import SocketStream

if TYPE_CHECKING:
    from stagecoach.gateware.config import RnicConfig
    from stagecoach.host_driver.transport.records import Record
    from stagecoach.sim.device import Device


class SimulatedDevice(SocketLender):
    """A `Transport` over the compiled device, which runs in a thread of this process.

    Parameters
    ----------
    config: sizes of the device; `RnicConfig()` if None.
    trace_path: write an FST waveform there (slow; another build of the device).
    record: keep the bytes of all streams, for `take_records` and `recorded_streams`.
    library: a built device instead of `sim.build.build_device(config)`.
    read_latency, write_latency: of the host memory, in cycles.
    late_writes: what the device writes is visible only with its write response.
    memory: bytes of its own memory, for `DeviceMemory`; 0 for none. It takes from the machine what
        is written.
    progress: called with a few words before each long step of a build, and before it waits for
        another that builds the same. Without it the steps are told on standard error;
        `progress=lambda step: None` keeps silent. A device in the cache has no steps.

    Raises `MissingExtra` if what it takes to build a device is not installed.

    Attributes
    ----------
    runs_in_step: whether `run_in_step` is possible.
    """

    runs_in_step = True

    def __init__(
        self,
        config: "RnicConfig | None" = None,
        trace_path: Path | str | None = None,
        record: bool = False,
        *,
        library: Path | None = None,
        read_latency: int | None = None,
        write_latency: int | None = None,
        late_writes: bool = False,
        memory: int = 0,
        progress: Callable[[str], None] | None = None,
    ):
        # Only this transport needs the simulation, and only a build needs Amaranth.
        from stagecoach.gateware.config import RnicConfig
        from stagecoach.sim import device as sim_device

        self._sim = sim_device
        self.config = RnicConfig() if config is None else config
        if library is None:
            from stagecoach.sim.build_report import told

            with extra_named(), told(progress) as report:
                library = self._build(trace_path is not None, report)
        latencies = {"read_latency": read_latency, "write_latency": write_latency}
        self._device = self._start(
            library,
            late_writes=late_writes,
            record=record,
            trace_path=trace_path,
            memory=memory,
            **{name: value for name, value in latencies.items() if value is not None},
        )
        super().__init__(record)
        self._lock = threading.Lock()
        # Address to the buffers mapped there, oldest first.
        self._mapped: dict[int, list[Exported]] = {}
        self._closed = False

    def _build(self, trace: bool, progress: Callable[[str], None] | None) -> Path:
        """The library of the device."""
        from stagecoach.sim.build import build_device

        return build_device(self.config, trace=trace, progress=progress)

    def _start(self, library: Path, **options: Any) -> "Device":
        """The compiled device."""
        return self._sim.Device(library, self.config.qps, **options)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._about}{', closed' if self._closed else ''}>"

    @property
    def _about(self) -> str:
        """What its repr says of it."""
        return f"of {self.config.qps} QPs: {self.cycles} cycles"

    @property
    def info(self) -> dict[str, Any]:
        """`kind`, `config`, and the cycles simulated so far."""
        return {"kind": "simulation", "config": self.config, "cycles": self._device.cycles}

    def _translate(self, error: Exception) -> TransportError:
        status = getattr(error, "status", None)
        statuses = self._sim.Status
        if status in (statuses.CLOSED, statuses.FAILED):
            return DeviceClosed(str(error))
        if status in (statuses.TIMEOUT, statuses.NOT_FLUSHED):
            return TransportTimeout(str(error))
        return TransportError(str(error))

    def read_register(self, address: int) -> int:
        """Return the 32-bit register at a byte address."""
        try:
            return self._device.read_register(address)
        except self._sim.DeviceCallError as error:
            raise self._translate(error) from error

    def write_register(self, address: int, value: int) -> None:
        """Write a 32-bit register; returns when the device has answered."""
        try:
            self._device.write_register(address, value)
        except self._sim.DeviceCallError as error:
            raise self._translate(error) from error

    def map_memory(self, buffer: Any) -> int:
        """Let the device reach a writable, contiguous buffer; returns its address."""
        exported = export(buffer)
        address = ctypes.addressof(exported)
        with self._lock:
            try:
                self._device.map(address, len(exported))
            except self._sim.DeviceCallError as error:
                raise self._translate(error) from error
            self._mapped.setdefault(address, []).append(exported)
        return address

    def unmap_memory(self, address: int) -> None:
        """Take back the buffer mapped last at `address`."""
        with self._lock:
            buffers = self._mapped.get(address)
            if not buffers:
                raise TransportError(f"nothing is mapped at {address:#x}")
            try:
                self._device.unmap(address, len(buffers[-1]))
            except self._sim.DeviceCallError as error:
                # Without a thread nobody touches the memory.
                if not isinstance(self._translate(error), DeviceClosed):
                    raise self._translate(error) from error
            buffers.pop()
            if not buffers:
                del self._mapped[address]

    @property
    def memory_octets(self) -> int:
        """Bytes of the device's own memory."""
        return 0 if self._device.memory is None else len(self._device.memory)

    def read_memory(self, offset: int, octets: int) -> bytes:
        """A copy of so many bytes of it."""
        return self._own_memory[offset : offset + octets]

    def write_memory(self, offset: int, data: memoryview) -> None:
        """Write bytes of it."""
        self._own_memory[offset : offset + data.nbytes] = data

    @property
    def _own_memory(self) -> mmap.mmap:
        if self._closed or self._device.memory is None:
            raise DeviceClosed("the device is closed, or has no memory of its own")
        return self._device.memory

    def attach(self, connection: int, stream: ByteStream) -> None:
        """Hand the socket of a `SocketStream` to the device's LLP."""
        try:
            # No EMSS is announced: QP CONNECT gave the device the one that holds.
            self._lend(connection, stream, lambda fd: self._device.attach(connection, fd))
        except self._sim.DeviceCallError as error:
            raise self._translate(error) from error

    def detach(self, connection: int, timeout: float = 2.0) -> None:
        """Send what the device has sent, close the socket, free the connection."""
        try:
            self._device.detach(connection, timeout=timeout)
        except self._sim.DeviceCallError as error:
            raise self._translate(error) from error

    def wait_interrupt(self, timeout: float | None = None) -> bool:
        """Wait for the irq output; False after the time."""
        try:
            return self._device.wait_irq(timeout)
        except self._sim.DeviceCallError as error:
            raise self._translate(error) from error

    @property
    def cycles(self) -> int:
        """Cycles simulated so far."""
        return self._device.cycles

    def run_cycles(self, cycles: int) -> None:
        """Run at least this many cycles."""
        try:
            self._device.run_cycles(cycles)
        except self._sim.DeviceCallError as error:
            raise self._translate(error) from error

    def run_in_step(self, stream: SocketStream) -> None:
        """Keep in step with the device at the other end; see `sim.device.Device.run_in_step`.

        Raises TransportError if it does already.
        """
        try:
            stream.give_away(self._device.run_in_step)
        except self._sim.DeviceCallError as error:
            raise self._translate(error) from error

    def run_freely(self) -> None:
        """End `run_in_step`, here and soon at the other end."""
        try:
            self._device.run_freely()
        except self._sim.DeviceCallError as error:
            raise self._translate(error) from error

    def statistics(self) -> dict[str, Any]:
        """Return the counters of `sim.device.Device.statistics`."""
        return self._device.statistics()

    def take_records(self) -> "list[Record]":
        """Return what crossed the LLP port since the last call; needs `record=True`."""
        return self._device.take_records()

    def close(self) -> None:
        """End the device; buffers are free when this returns."""
        self._closed = True
        self._device.close()
        with self._lock:
            self._mapped.clear()
