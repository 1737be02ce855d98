"""The two processes of the demonstration: the source has the file, the sink gets it."""

import contextlib
import mmap
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from stagecoach.cli.demo.end import DemoError, End, check_digest, digest_of
from stagecoach.cli.demo.messages import Note, NoteKind, Region, pack_length, unpack_length
from stagecoach.host_driver import cm
from stagecoach.host_driver.enums import AccessFlags, WROpcode
from stagecoach.host_driver.locate import SIMULATED, Locator
from stagecoach.host_driver.startup_options import StartupOptions
from stagecoach.host_driver.transport.network import ConnectionInfo
from stagecoach.sim.network.nic import SimulatedNic
from stagecoach.sim.transport import SimulatedDevice

GENERATED_SEED = 5040


@dataclass(frozen=True)
class Job:
    """What the demonstration does; it goes to both processes.

    file: to be moved; if None, `size` bytes are generated.
    sink_library, source_library: the built devices.
    pcapng, waves: files to be left; no waveform if None.
    startup: what both ends ask for in MPA startup.
    source_device, sink_device: instead of simulated ones with sockets. host: of the sink.
    """

    file: Path | None
    size: int
    emss: int
    sink_library: Path
    source_library: Path
    pcapng: Path
    waves: Path | None = None
    startup: StartupOptions = field(default_factory=StartupOptions)
    source_device: Locator = SIMULATED
    sink_device: Locator = SIMULATED
    host: str = "127.0.0.1"


@dataclass
class Measurement:
    """One row of the table: what an operation took on the device of the source.

    segments, retransmissions: of TCP, both directions, as far as the source sees them. rtt_us: the
    smoothed round-trip time then. They are there if the device has a network of its own. clock_hz:
    of the device's core clock, if it has a real one.
    """

    operation: str
    octets: int
    fpdus: int
    cycles: int
    seconds: float
    segments: int | None = None
    retransmissions: int | None = None
    rtt_us: int | None = None
    clock_hz: float | None = None


@dataclass
class Report:
    """What a process tells the one that started it; the fields that are set say which."""

    port: int | None = None
    progress: tuple[str, int] | None = None
    error: str | None = None
    measurements: list[Measurement] = field(default_factory=list)
    digest: str | None = None
    capture_complete: bool = True


Body = Callable[[Job, int, Callable[[Report], None]], None]


def run_end(body: Body, job: Job, port: int, pipe: Connection) -> None:
    """Main function of a process: a failure becomes one line for the other side of the pipe."""
    # The parent process reads the pipe for as long as it needs progress.
    with pipe, contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        try:
            body(job, port, pipe.send)
        except Exception as error:
            _tell_error(error, pipe.send)
            raise SystemExit(1) from None


def _tell_error(error: BaseException, report: Callable[[Report], None]) -> None:
    text = str(error).strip().splitlines() or ["no reason given"]
    report(Report(error=text[0]))


@contextlib.contextmanager
def _errors_told_first(report: Callable[[Report], None]) -> Iterator[None]:
    """Closing after an error may fail, too: the first error is the one to know."""
    try:
        yield
    except Exception as error:
        _tell_error(error, report)
        raise


def _load(job: Job) -> Any:
    if job.file is None:
        import numpy

        return bytearray(numpy.random.default_rng(GENERATED_SEED).bytes(job.size))
    with job.file.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return bytearray()
        # A private mapping: registered memory must be writable, the file is not written.
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)


def sink(job: Job, port: int, report: Callable[[Report], None]) -> None:
    """Listens, gives memory, checks what was written there."""
    device = job.sink_device.open(library=lambda *_: job.sink_library)
    with End(device) as end, _errors_told_first(report):
        with cm.listen(end.context, job.host) as listener:
            report(Report(port=listener.port))
            request = listener.get_request(job.startup.timeout)
        length = unpack_length(request.private_data)
        buffer = bytearray(length)
        mr = end.register(buffer, AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_READ)
        region = Region(mr.addr, mr.rkey, length) if mr else Region(0, 0, 0)
        wanted = job.startup.arguments
        request.accept(end.qp, private_data=region.pack(), emss=job.emss, **wanted)
        written = end.receive(NoteKind.WRITTEN).digest
        found = digest_of(buffer)
        end.send(Note(NoteKind.RECEIVED, found))
        check_digest(found, written, "the written file at the sink")
        read_back = end.receive(NoteKind.READ_BACK).digest
        check_digest(read_back, found, "the file that the source read back")
        report(Report(digest=found.hex()))


class _Meter:
    """Measures operations on the device of one end."""

    def __init__(self, end: End, device: Any, report: Callable[[Report], None]):
        self._end = end
        self._stack = device.stack if isinstance(device, SimulatedNic) else None
        self._report = report
        self._clock_hz = device.info.get("clock_hz")
        self.measurements: list[Measurement] = []

    def _counters(self) -> tuple[int, int, float]:
        context = self._end.context
        fpdus = context.fpdus_sent + context.fpdus_received
        return context.cycles, fpdus, time.monotonic()

    def _infos(self) -> list[ConnectionInfo]:
        """Of the connections of the device's own network, if it has one."""
        connections = self._stack.connections() if self._stack is not None else []
        return [each.info for each in connections if each.info is not None]

    def measure(self, operation: str, octets: int, steps: Iterable[int]) -> None:
        """Runs the steps of an operation, which yield the bytes done."""
        before = self._infos()
        cycles, fpdus, begun = self._counters()
        for done in steps:
            self._report(Report(progress=(operation, done)))
        cycles_after, fpdus_after, ended = self._counters()
        measurement = Measurement(
            operation,
            octets,
            (fpdus_after - fpdus) & 0xFFFFFFFF,
            cycles_after - cycles,
            ended - begun,
            clock_hz=self._clock_hz,
        )
        if after := self._infos():
            sent, received, again = (
                sum(getattr(info, name) for info in after)
                - sum(getattr(info, name) for info in before)
                for name in ("segments_sent", "segments_received", "retransmissions")
            )
            measurement.segments, measurement.retransmissions = sent + received, again
            measurement.rtt_us = after[0].smoothed_rtt_us
        self.measurements.append(measurement)


def _exchange_digests(end: End, digest: bytes) -> Iterator[int]:
    note = Note(NoteKind.WRITTEN, digest)
    end.send(note)
    answer = end.receive(NoteKind.RECEIVED)
    check_digest(answer.digest, digest, "the sink's answer")
    yield 2 * len(note.pack())


def _check_octets(found: bytearray, expected: Any) -> None:
    if memoryview(found) == memoryview(expected):
        return
    import numpy

    differ = numpy.frombuffer(found, numpy.uint8) != numpy.frombuffer(expected, numpy.uint8)
    first = int(differ.argmax())
    raise DemoError(
        f"{int(differ.sum())} of {len(found)} bytes read back differ, first byte {first}"
    )


def source(job: Job, port: int, report: Callable[[Report], None]) -> None:
    """Connects, writes the file, compares digests, reads it back, compares bytes."""
    from stagecoach.sim.conversation import write_conversation

    buffer = _load(job)
    length = len(buffer)
    waves: dict[str, Any] = {"trace_path": job.waves} if job.source_device.is_simulated else {}
    record = not job.source_device.has_network
    device = job.source_device.open(library=lambda *_: job.source_library, record=record, **waves)
    with End(device) as end, _errors_told_first(report):
        meter = _Meter(end, device, report)
        file_mr = end.register(buffer, AccessFlags.LOCAL_WRITE)
        copy = bytearray(length)
        copy_mr = end.register(copy, AccessFlags.LOCAL_WRITE)
        answer = cm.connect(
            end.qp,
            job.host,
            port,
            private_data=pack_length(length),
            emss=job.emss,
            **job.startup.arguments,
        )
        region = Region.unpack(answer)
        if region.length != length:
            raise DemoError(f"the sink has {region.length} bytes of memory; needed: {length}")
        digest = digest_of(buffer)
        moves = end.move(WROpcode.RDMA_WRITE, file_mr, region.addr, region.rkey)
        meter.measure("RDMA Write", length, moves)
        meter.measure(
            "Send", 2 * len(Note(NoteKind.WRITTEN, digest).pack()), _exchange_digests(end, digest)
        )
        moves = end.move(WROpcode.RDMA_READ, copy_mr, region.addr, region.rkey)
        meter.measure("RDMA Read", length, moves)
        _check_octets(copy, buffer)
        end.send(Note(NoteKind.READ_BACK, digest_of(copy)))
    truncated = isinstance(device, SimulatedDevice) and device.statistics()["record_truncated"]
    if not job.source_device.has_network:  # else the wire has the capture
        write_conversation(job.pcapng, device.recorded_streams, device.take_records())
    report(
        Report(measurements=meter.measurements, digest=digest.hex(), capture_complete=not truncated)
    )
