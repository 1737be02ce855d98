"""The compiled device as a Python object: ctypes around `sim/runtime/api.cpp`.

The device runs in a thread of its own. Every call blocks until the device has done it, and may be
made from any thread; ctypes releases the GIL meanwhile.
"""

import ctypes
import enum
import json
import math
import mmap
import os
import struct
import weakref
from pathlib import Path
from typing import Any

from stagecoach.host_driver.transport.base import check_access
from stagecoach.host_driver.transport.buffers import export
from stagecoach.host_driver.transport.records import Record, RecordKind
from stagecoach.hw.interface.device_memory import LEAST_MEMORY, MOST_MEMORY
from stagecoach.sim.irq import Irq
from stagecoach.sim.status import Status

DEFAULT_READ_LATENCY = 250
"""Cycles from an AXI read address to its first data: that of a PCIe host."""

DEFAULT_WRITE_LATENCY = 50
"""Cycles from the last write data to the write response."""

DEFAULT_RECORD_LIMIT = 1 << 30
"""Bytes that a recording may take before it stops."""

_ERROR_SIZE = 1024
_RECORD_HEADER = struct.Struct("<IIIIQQQ")


class Response(enum.IntEnum):
    """The error responses of AXI."""

    SLVERR = 2
    DECERR = 3


NEVER = (1 << 64) - 1
"""Of `Paced.due_us`: nothing is due."""


class DeviceCallError(RuntimeError):
    """A call of the simulated device failed; `status` says how."""

    def __init__(self, message: str, status: Status):
        super().__init__(message)
        self.status = status


class Paced(ctypes.Structure):
    """What a paced device did, as `sim/runtime/device.h` lays it out.

    Attributes
    ----------
    access_done: the access that was begun has ended: `access_status`, `access_value`. irq,
        network_irq: it is high, or rose. busy: more would happen without anything from outside.
        cycle: of the device. due_us: when it has something to do by itself, or `NEVER`.
    """

    _fields_ = [
        ("access_done", ctypes.c_uint32),
        ("access_status", ctypes.c_uint32),
        ("access_value", ctypes.c_uint32),
        ("irq", ctypes.c_uint32),
        ("network_irq", ctypes.c_uint32),
        ("busy", ctypes.c_uint32),
        ("cycle", ctypes.c_uint64),
        ("due_us", ctypes.c_uint64),
    ]


def parse_records(raw: bytes) -> list[Record]:
    """Return the entries of a recording as `sim/runtime/recorder.h` lays them out."""
    records = []
    at = 0
    while at < len(raw):
        kind, connection, stream, octets, cycle, time_ns, position = _RECORD_HEADER.unpack_from(
            raw, at
        )
        at += _RECORD_HEADER.size
        data = raw[at : at + octets]
        at += octets
        records.append(Record(RecordKind(kind), connection, stream, cycle, time_ns, position, data))
    return records


def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    device = ctypes.c_void_p
    u32, u64, double = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_double
    text, size = ctypes.c_char_p, ctypes.c_size_t
    functions: dict[str, tuple[Any, list[Any]]] = {
        "create": (
            device,
            [
                *[ctypes.c_uint] * 3,
                *[ctypes.c_int] * 2,
                u64,
                text,
                *[ctypes.c_int] * 2,
                ctypes.c_int64,
                *[u64] * 2,
                text,
                size,
            ],
        ),
        "close": (None, [device, double]),
        "destroy": (None, [device]),
        "error": (None, [device, text, size]),
        "read_register": (ctypes.c_int, [device, u32, ctypes.POINTER(u32)]),
        "write_register": (ctypes.c_int, [device, u32, u32]),
        "map": (ctypes.c_int, [device, u64, u64]),
        "unmap": (ctypes.c_int, [device, u64, u64]),
        "attach": (ctypes.c_int, [device, ctypes.c_uint, ctypes.c_int, ctypes.c_uint]),
        "detach": (
            ctypes.c_int,
            [device, ctypes.c_uint, double, ctypes.c_int, ctypes.POINTER(ctypes.c_int)],
        ),
        "pace": (ctypes.c_int, [device, u64, u64, ctypes.POINTER(Paced)]),
        "begin_access": (ctypes.c_int, [device, ctypes.c_int, u32, u32]),
        "run_cycles": (ctypes.c_int, [device, u64]),
        "run_in_step": (ctypes.c_int, [device, ctypes.c_int]),
        "run_freely": (ctypes.c_int, [device]),
        "hold": (ctypes.c_int, [device, ctypes.c_uint, ctypes.c_int]),
        "lose_after": (ctypes.c_int, [device, ctypes.c_uint, u64]),
        "fail_access": (ctypes.c_int, [device, ctypes.c_int, u64, u64, u64, ctypes.c_uint]),
        "wait_irq": (ctypes.c_int, [device, ctypes.c_uint, double]),
        "wake_irq": (None, [device, ctypes.c_uint]),
        "cycles": (u64, [device]),
        "statistics": (device, [device]),
        "take_record": (device, [device, ctypes.POINTER(u64)]),
        "free": (None, [device]),
    }
    for name, (result, arguments) in functions.items():
        function = getattr(library, f"stagecoach_{name}")
        function.restype = result
        function.argtypes = arguments
    return library


def _end(library: ctypes.CDLL, handle: int, process: int, _memory: object) -> None:
    """Ends the device, whose memory is there until then."""
    if os.getpid() != process:
        return  # forked from it: the thread is not there, and nobody would answer
    library.stagecoach_close(handle, 1.0)
    library.stagecoach_destroy(handle)


def _sparse(octets: int) -> mmap.mmap:
    """Memory that is zero, and takes from the machine what is written to it."""
    descriptor = os.memfd_create("device memory")  # one of its kind is not reserved beforehand
    try:
        os.ftruncate(descriptor, octets)
        return mmap.mmap(descriptor, octets)
    finally:
        os.close(descriptor)


class Device:
    """A running simulated device.

    Parameters
    ----------
    library: what `sim.build.build_device` returned.
    connections: LLP connections of the device, `RnicConfig.qps`.
    read_latency, write_latency: of the host memory, in cycles.
    late_writes: what the device writes is visible, to it and to the host, only with the write
        response; else with its last beat.
    record: keep every byte that crosses the LLP port for `take_records`.
    trace_path: FST waveform to write; the library must be built with `trace=True`.
    network: descriptor of a SOCK_SEQPACKET socket, which belongs to the device then: to a network
        engine behind the LLP port, which takes and sends the messages of `sim/llp_messages.py`; or
        of a NIC to its wire, whose messages are frames without FCS.
    clock_offset_ns: the time of a NIC that is not paced is CLOCK_MONOTONIC and this.
    paced: the device has no thread, and runs in `pace` alone; only `begin_access`, `map`, `unmap`
        and what looks at it may be called.
    memory: bytes of its own memory, at `DEVICE_MEMORY_BASE`; 0 for none. It costs what is written.

    Attributes
    ----------
    memory: its own memory, zero at first, or `None`.
    """

    def __init__(
        self,
        library: Path,
        connections: int,
        *,
        read_latency: int = DEFAULT_READ_LATENCY,
        write_latency: int = DEFAULT_WRITE_LATENCY,
        late_writes: bool = False,
        record: bool = False,
        record_limit: int = DEFAULT_RECORD_LIMIT,
        trace_path: Path | str | None = None,
        network: int = -1,
        paced: bool = False,
        clock_offset_ns: int = 0,
        memory: int = 0,
    ):
        for name, value in (("read_latency", read_latency), ("write_latency", write_latency)):
            if not 1 <= value <= 100000:
                raise ValueError(f"{name} is {value!r}; allowed: 1 to 100000 cycles")
        if memory and not LEAST_MEMORY <= memory <= MOST_MEMORY:
            raise ValueError(
                f"memory is {memory!r}; allowed: 0, or {LEAST_MEMORY} to {MOST_MEMORY} bytes"
            )
        self.memory = _sparse(memory) if memory else None
        exported = None if self.memory is None else export(self.memory)
        self._library = _load(library)
        error = ctypes.create_string_buffer(_ERROR_SIZE)
        path = None if trace_path is None else str(trace_path).encode()
        handle = self._library.stagecoach_create(
            connections,
            read_latency,
            write_latency,
            int(late_writes),
            int(record),
            record_limit,
            path,
            network,
            int(paced),
            clock_offset_ns,
            0 if exported is None else ctypes.addressof(exported),
            memory,
            error,
            _ERROR_SIZE,
        )
        if not handle:
            raise DeviceCallError(
                f"the device does not start: {error.value.decode(errors='replace')}", Status.FAILED
            )
        self._handle = handle
        self._device = ctypes.c_void_p(handle)
        # Also at interpreter exit: the thread must not outlive the memory that it writes to.
        self._finalizer = weakref.finalize(self, _end, self._library, handle, os.getpid(), exported)

    def _check(self, status: int, what: str) -> None:
        if status == Status.OKAY:
            return
        reason = {
            Status.BUS_ERROR: "the device answers with an error response",
            Status.TIMEOUT: "the device does not answer",
            Status.NOT_FLUSHED: "not everything could be sent in time",
        }.get(Status(status))
        if reason is None:
            buffer = ctypes.create_string_buffer(_ERROR_SIZE)
            self._library.stagecoach_error(self._device, buffer, _ERROR_SIZE)
            reason = buffer.value.decode(errors="replace")
        raise DeviceCallError(f"{what}: {reason}", Status(status))

    def read_register(self, address: int) -> int:
        """Return a 32-bit register."""
        check_access(address)
        value = ctypes.c_uint32()
        status = self._library.stagecoach_read_register(self._device, address, ctypes.byref(value))
        self._check(status, f"read of register {address:#05x}")
        return value.value

    def write_register(self, address: int, value: int) -> None:
        """Write a 32-bit register; returns when the device has answered."""
        check_access(address, value)
        status = self._library.stagecoach_write_register(self._device, address, value)
        self._check(status, f"write of register {address:#05x}")

    def map(self, address: int, octets: int) -> None:
        """Let the device reach `octets` bytes of this process's memory from `address` on.

        AXI reads are words: the bytes beside the region in its first and last word read as 0.
        Other accesses outside get a decode error.
        """
        if octets <= 0 or address <= 0 or address + octets >= 1 << 64:
            raise ValueError(f"region is {octets} bytes at {address:#x}; allowed: at least 1")
        status = self._library.stagecoach_map(self._device, address, octets)
        self._check(status, f"map of {octets} bytes at {address:#x}")

    def unmap(self, address: int, octets: int) -> None:
        """Take a region back; when this returns, the device does not touch it any more."""
        status = self._library.stagecoach_unmap(self._device, address, octets)
        self._check(status, f"unmap of {octets} bytes at {address:#x}")

    def attach(self, connection: int, descriptor: int, emss: int = 0) -> None:
        """Give a connected stream socket to the LLP; its descriptor belongs to the device now.

        `emss`: bytes, announced to the device; 0 announces nothing.
        """
        if not 0 <= emss < 1 << 16:
            raise ValueError(f"emss is {emss}; allowed: 0 to 65535")
        if connection < 0:
            raise ValueError(f"connection is {connection}; allowed: 0 or more")
        status = self._library.stagecoach_attach(self._device, connection, descriptor, emss)
        self._check(status, f"attach of connection {connection}")

    def detach(
        self, connection: int, *, timeout: float = 2.0, give_back: bool = False
    ) -> int | None:
        """End a connection: what the device sent is flushed for at most `timeout` seconds.

        Then the socket is closed after a FIN, or its descriptor returned if `give_back`. Raises
        DeviceCallError with NOT_FLUSHED if the time was too short or the connection was lost; it is
        detached even so.
        """
        if connection < 0:
            raise ValueError(f"connection is {connection}; allowed: 0 or more")
        descriptor = ctypes.c_int(-1)
        status = self._library.stagecoach_detach(
            self._device, connection, timeout, int(give_back), ctypes.byref(descriptor)
        )
        if status == Status.NOT_FLUSHED and give_back:
            return descriptor.value
        self._check(status, f"detach of connection {connection}")
        return descriptor.value if give_back else None

    def pace(self, cycles: int, time_ps: int = 0) -> Paced:
        """Let a paced device take what the network sent, then run so many cycles.

        `time_ps`: the time of a NIC in the first of them.
        """
        paced = Paced()
        status = self._library.stagecoach_pace(self._device, time_ps, cycles, ctypes.byref(paced))
        self._check(status, "pace")
        return paced

    def begin_access(self, address: int, value: int | None = None) -> None:
        """Begin a read, or a write of a value; `pace` tells of its end. One at a time."""
        check_access(address, value or 0)
        status = self._library.stagecoach_begin_access(
            self._device, int(value is not None), address, value or 0
        )
        self._check(status, f"access to register {address:#05x}")

    def require_access(self, address: int, status: int) -> None:
        """Raises `DeviceCallError` unless an access, by its status, went well."""
        self._check(status, f"access to register {address:#05x}")

    def run_cycles(self, cycles: int) -> None:
        """Run at least this many cycles even if the device is idle."""
        self._check(self._library.stagecoach_run_cycles(self._device, cycles), "run_cycles")

    def run_in_step(self, descriptor: int) -> None:
        """Keep in step with the device at the other end of a connected stream socket.

        The descriptor belongs to the device then. Both run the same number of cycles, 32 at a
        time, and what one sends in them is there for the other in the next 32. No cycle passes
        while no call waits for one, so what programs do takes no time; register accesses,
        `run_cycles` and `wait_irq` wait. It ends with `run_freely`, a `detach` or the end of the
        device, at either side.
        """
        status = self._library.stagecoach_run_in_step(self._device, descriptor)
        self._check(status, "run_in_step")

    def run_freely(self) -> None:
        """End `run_in_step`; nothing to do if it has ended."""
        self._check(self._library.stagecoach_run_freely(self._device), "run_freely")

    def hold(self, *, reads: bool = False, writes: bool = False, transmit: bool = False) -> None:
        """Let host memory answer no reads or writes, or the LLP take nothing, until called again.

        Without arguments everything goes on.
        """
        self._check(
            self._library.stagecoach_hold(self._device, reads | writes << 1, transmit), "hold"
        )

    def lose_after(self, connection: int, octets: int) -> None:
        """Lose an attached connection as soon as the device has sent so many bytes on it."""
        for name, value in (("connection", connection), ("octets", octets)):
            if value < 0:
                raise ValueError(f"{name} is {value}; allowed: 0 or more")
        status = self._library.stagecoach_lose_after(self._device, connection, octets)
        self._check(status, f"loss of connection {connection}")

    def fail_access(
        self,
        address: int,
        octets: int,
        *,
        write: bool,
        skip: int = 0,
        response: Response = Response.SLVERR,
    ) -> None:
        """Let one access to these bytes end with an error response.

        It is the one after `skip` others: of reads, words are counted; of writes, bursts. Nothing
        of the burst is written. What was armed before for reads, or for writes, is forgotten.
        """
        if octets < 1 or skip < 0:
            raise ValueError(
                f"octets is {octets}, skip is {skip}; allowed: octets from 1, skip from 0 on"
            )
        status = self._library.stagecoach_fail_access(
            self._device, write, address, octets, skip, response
        )
        self._check(status, f"failure of an access to {octets} bytes at {address:#x}")

    def wait_irq(self, timeout: float | None = None, irq: Irq = Irq.RNIC) -> bool:
        """Wait until `irq` is high, or rose since the last call; False if it is not in time."""
        seconds = -1.0 if timeout is None else float(timeout)
        if math.isnan(seconds) or (timeout is not None and seconds < 0):
            raise ValueError(f"timeout is {timeout!r}; allowed: None or seconds from 0 on")
        result = self._library.stagecoach_wait_irq(self._device, irq, seconds)
        if result < 0:
            # Any call says why there is no device.
            self._check(self._library.stagecoach_run_cycles(self._device, 0), "wait_irq")
        return bool(result > 0)

    def wake_irq(self, irq: Irq) -> None:
        """End a `wait_irq` as if the interrupt had risen, also the next one."""
        self._library.stagecoach_wake_irq(self._device, irq)

    @property
    def cycles(self) -> int:
        """Cycles simulated so far, in step exactly, else to within some dozens while it runs."""
        return int(self._library.stagecoach_cycles(self._device))

    def statistics(self) -> dict[str, Any]:
        """Return counters of the ports, also of a closed device.

        `faults` are breaches of a port's contract by the device; `connections` lists those that
        were ever attached, each with the counts of its last attachment. `rx_fpdus` is right
        without Markers only.
        """
        memory = self._library.stagecoach_statistics(self._device)
        try:
            text = ctypes.string_at(memory).decode(errors="replace")
        finally:
            self._library.stagecoach_free(memory)
        result: dict[str, Any] = json.loads(text)
        running = result["running_seconds"]
        result["cycles_per_second"] = result["cycles"] / running if running else 0.0
        return result

    def take_records(self) -> list[Record]:
        """Return what was recorded since the last call; also of a closed device."""
        size = ctypes.c_uint64()
        memory = self._library.stagecoach_take_record(self._device, ctypes.byref(size))
        try:
            raw = ctypes.string_at(memory, size.value)
        finally:
            self._library.stagecoach_free(memory)
        return parse_records(raw)

    def close(self, timeout: float = 1.0) -> None:
        """Flush the connections for at most `timeout` seconds and stop; may be called again."""
        self._library.stagecoach_close(self._device, timeout)

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
