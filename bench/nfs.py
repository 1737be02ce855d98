"""NFS over RDMA between two compiled devices: bytes per cycle of READs, operations of each call.

The server's device and the client's run in step: cycles pass at both alike. What the programs do
takes cycles only where a program waits for its device meanwhile, which is little beside the
131,072 cycles that 1 MiB takes at least. Between the devices is nothing that loses or delays; their
segments are those of Ethernet.
"""

import asyncio
import contextlib
import socket
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from bench.catalogue import NFS_OCTETS, NFS_OPERATIONS
from stagecoach.host_driver.context import Context
from stagecoach.host_driver.transport.records import Record
from stagecoach.host_driver.transport.sockets import SocketStream
from stagecoach.sim.capture.decode import SeenFpdu, decode_file
from stagecoach.sim.conversation import write_conversation
from stagecoach.sim.model import rdmap
from stagecoach.sim.model.rdmap import Opcode
from stagecoach.sim.transport import SimulatedDevice
from stagecoach.ulp.nfs.client.connection import Ways, mounted
from stagecoach.ulp.nfs.client.files import Files
from stagecoach.ulp.nfs.client.url import RDMA, NfsUrl
from stagecoach.ulp.nfs.server.export import Export
from stagecoach.ulp.nfs.server.serving import NfsServer
from stagecoach.ulp.oncrpc.blocking import LoopThread
from stagecoach.ulp.rpcrdma.settings import ClientSettings, ServerSettings

READ_KEY = "nfs_read_1m_payload_octets_per_cycle"
OPERATION_KEYS = ("nfs_read_rdma_operations", "nfs_write_rdma_operations")
LEAST_KEYS = tuple(f"{key}_least" for key in OPERATION_KEYS)
KEYS = (READ_KEY, *OPERATION_KEYS, *LEAST_KEYS)

EMSS = 1460
OUTSTANDING = 4
READS = 8
COUNTED_OCTETS = 1 << 16
"""Of the READ and WRITE whose operations are counted."""

_HOST = "127.0.0.1"
_EXPORT = b"/bench"
_NAME = b"/bench/file"


@contextlib.contextmanager
def _serve(directory: Path, device: SimulatedDevice) -> Iterator[int]:
    """Serves a directory in a thread; gives the port."""
    export, thread = Export(directory, _EXPORT.decode()), LoopThread()

    async def start(context: Context) -> tuple[NfsServer, int]:
        server = await NfsServer(export, _HOST).__aenter__()
        return server, await server.listen_rdma(context, 0, ServerSettings(emss=EMSS))

    with contextlib.ExitStack() as stack:
        stack.callback(export.close)
        stack.callback(thread.close)
        context = stack.enter_context(Context(device))
        server, port = thread.run(start(context))
        stack.callback(lambda: thread.run(server.__aexit__()))
        yield port


@contextlib.asynccontextmanager
async def _files(port: int, context: Context) -> AsyncIterator[Files]:
    def opened() -> AbstractContextManager[Context]:
        return contextlib.nullcontext(context)

    url = NfsUrl(RDMA, _HOST, port, _EXPORT)
    async with mounted(url, Ways(opened, ClientSettings(emss=EMSS))) as files:
        yield files


def _join(one: SimulatedDevice, other: SimulatedDevice) -> None:
    for device, end in zip((one, other), socket.socketpair(), strict=True):
        device.run_in_step(SocketStream(end))


async def _read(port: int, context: Context, here: SimulatedDevice, there: SimulatedDevice) -> int:
    """Cycles of the client's device for all READs, from the first call to the last reply."""
    buffers = [memoryview(bytearray(NFS_OCTETS)) for _ in range(OUTSTANDING)]
    left = list(range(READS))
    async with _files(port, context) as files:
        handle = (await files.find(_NAME)).handle

        async def read(buffer: memoryview) -> None:
            while left:
                result = await files.nfs.read(handle, left.pop() % OUTSTANDING * NFS_OCTETS, buffer)
                assert result.count == NFS_OCTETS

        _join(here, there)  # from now on both programs wait for their devices
        try:
            start = here.cycles
            await asyncio.gather(*map(read, buffers))
            return here.cycles - start
        finally:
            here.run_freely()


def measure_read() -> dict[str, float]:
    """1 MiB READs, 4 outstanding."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "file").write_bytes(bytes(NFS_OCTETS * OUTSTANDING))
        there, here = SimulatedDevice(), SimulatedDevice()
        with Context(here) as context, _serve(Path(folder), there) as port:
            cycles = asyncio.run(_read(port, context, here, there))
    return {READ_KEY: round(READS * NFS_OCTETS / cycles, 3)}


_NAMES = {int(opcode): "Send" for opcode in rdmap.SEND_OPCODES}
_NAMES |= {int(Opcode.RDMA_WRITE): "RDMA Write", int(Opcode.RDMA_READ_REQUEST): "RDMA Read"}


def operations_of(capture: Path) -> Counter[str]:
    """Messages in a capture by operation; a Read Response belongs to its Read."""
    found: Counter[str] = Counter()
    for item in decode_file(capture).items:
        seen = item.observation if isinstance(item, SeenFpdu) else None
        if seen is None or seen.header is None or seen.opcode not in _NAMES:
            continue
        found[_NAMES[seen.opcode]] += seen.header.last
    return found


class _Recording:
    """What a device has sent and received; it gives each record only once."""

    def __init__(self, device: SimulatedDevice, path: Path):
        self._device, self._path = device, path
        self._records: list[Record] = []
        self._seen: Counter[str] = Counter()

    def operations(self) -> Counter[str]:
        """Operations since the last call."""
        self._records += self._device.take_records()
        write_conversation(self._path, self._device.recorded_streams, self._records)
        before, self._seen = self._seen, operations_of(self._path)
        return self._seen - before


async def _count(port: int, context: Context, recording: _Recording) -> list[Counter[str]]:
    buffer = memoryview(bytearray(COUNTED_OCTETS))
    counts = []
    async with _files(port, context) as files:
        handle = (await files.find(_NAME)).handle
        recording.operations()
        await files.nfs.read(handle, 0, buffer)
        counts.append(recording.operations())
        await files.nfs.write(handle, 0, buffer)
        counts.append(recording.operations())
    return counts


def count_operations() -> list[Counter[str]]:
    """RDMA operations of a READ, and of a WRITE, of 64 KiB."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as exported:
        Path(exported, "file").write_bytes(bytes(COUNTED_OCTETS))
        here = SimulatedDevice(record=True)
        recording = _Recording(here, Path(folder, "nfs.pcapng"))
        with Context(here) as context, _serve(Path(exported), SimulatedDevice()) as port:
            return asyncio.run(_count(port, context, recording))


def measure(key: str) -> dict[str, float]:
    """The figures that are measured together with one of `KEYS`."""
    if key == READ_KEY:
        return measure_read()
    counts = count_operations()
    totals = [found.total() for found in counts]
    least = [NFS_OPERATIONS] * len(LEAST_KEYS)
    return dict(zip((*OPERATION_KEYS, *LEAST_KEYS), (*totals, *least), strict=True))
