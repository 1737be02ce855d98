"""Reads and writes the memory of a server."""

import sys
from collections import deque
from contextlib import ExitStack
from typing import Protocol, Self

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    Context,
    QPCap,
    QPInitAttr,
    SendWR,
    StartupOptions,
    WaitTimeout,
    WCStatus,
    WROpcode,
    connect,
)
from stagecoach.ulp.memory_server.errors import (
    MemoryServerError,
    NotAMemoryServer,
    OutsideRegion,
)
from stagecoach.ulp.memory_server.protocol import DEFAULT_PORT, Region

MESSAGE_OCTETS = 64 << 10
"""Bytes of a Write or Read of `put` and `get`."""

DEPTH = 16
"""Of them under way at a time."""

COUNTER_OCTETS = 8
"""Of a number that a FetchAdd adds to."""

PATIENCE = 120.0
"""Seconds that one of them may take."""

_DEFAULT_STARTUP = StartupOptions()


class Source(Protocol):
    """What `put` reads from: an open file."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fills the buffer from its beginning; returns with how many bytes."""


class Sink(Protocol):
    """What `get` writes to: an open file."""

    def write(self, data: bytes, /) -> object:
        """Takes the bytes."""


class Client:
    """A connection to a memory server.

    Parameters
    ----------
    context: the open device. host, port: of the server.
    startup: what this end asks for in MPA startup.

    Attributes
    ----------
    region: what the server offers; offsets are from its first byte on.

    Raises `NotAMemoryServer`, and what `connect` does.
    """

    def __init__(
        self,
        context: Context,
        host: str,
        port: int = DEFAULT_PORT,
        startup: StartupOptions = _DEFAULT_STARTUP,
    ):
        with ExitStack() as undo:
            self._cq = CQ(context, 2 * DEPTH)
            undo.callback(self._cq.close)
            pd = PD(context)
            undo.callback(pd.close)
            cap = QPCap(max_send_wr=DEPTH, max_recv_wr=1)
            has_atomics = bool(context.attr.atomics)
            self._qp = QP(pd, QPInitAttr(self._cq, self._cq, cap, rfc7306=has_atomics))
            self._staging = MR(pd, DEPTH * MESSAGE_OCTETS)
            private_data = connect(self._qp, host, port, **startup.arguments)
            try:
                self.region = Region.unpack(private_data)
            except ValueError as error:
                raise NotAMemoryServer(f"{host}:{port} is no memory server: {error}") from None
            if not self._qp.connection or not self._qp.connection.ord:
                raise NotAMemoryServer(f"{host}:{port} is no memory server: it takes no Reads")
            self._undo = undo.pop_all()

    def require(self, offset: int, octets: int, what: str) -> None:
        """Raises `OutsideRegion` unless the server has these bytes."""
        length = self.region.length
        if not 0 <= offset <= length or octets > length - offset:
            left = max(0, length - offset)
            raise OutsideRegion(
                f"{what} of {octets} bytes at offset {offset}; allowed: up to {left}, what is left "
                f"there of the server's {length}"
            )

    def put(self, source: Source, offset: int, octets: int) -> None:
        """Writes so many bytes of a file; returns when they are in the server's memory."""
        self.require(offset, octets, "put")
        under_way = 0
        for place in range(0, octets, MESSAGE_OCTETS):
            slot = place // MESSAGE_OCTETS % DEPTH
            length = min(MESSAGE_OCTETS, octets - place)
            if under_way == DEPTH:
                self.complete()
                under_way -= 1
            self._fill(source, slot, length)
            self.post(WROpcode.RDMA_WRITE, offset + place, length, slot)
            under_way += 1
        for _ in range(under_way):
            self.complete()
        # A Write is complete when TCP has it. A Read is answered after the Writes before it.
        self.post(WROpcode.RDMA_READ, 0, 1)
        self.complete()

    def _fill(self, source: Source, slot: int, octets: int) -> None:
        """Reads so many bytes of a file into a slot of the staging buffer."""
        begin = slot * MESSAGE_OCTETS
        with memoryview(self._staging.buf) as view:
            filled = 0
            while filled < octets:
                with view[begin + filled : begin + octets] as rest:
                    count = source.readinto(rest)
                if not count:
                    raise MemoryServerError(f"the file ends {octets - filled} bytes too early")
                filled += count

    def get(self, sink: Sink, offset: int, octets: int) -> None:
        """Reads so many bytes into a file."""
        self.require(offset, octets, "get")
        under_way: deque[tuple[int, int]] = deque()
        for place in range(0, octets, MESSAGE_OCTETS):
            slot = place // MESSAGE_OCTETS % DEPTH
            length = min(MESSAGE_OCTETS, octets - place)
            if len(under_way) == DEPTH:
                self._take(sink, *under_way.popleft())
            self.post(WROpcode.RDMA_READ, offset + place, length, slot)
            under_way.append((slot, length))
        while under_way:
            self._take(sink, *under_way.popleft())

    def _take(self, sink: Sink, slot: int, octets: int) -> None:
        self.complete()
        sink.write(self._staging.read(octets, slot * MESSAGE_OCTETS))

    def fetch_add(self, offset: int, value: int) -> int:
        """Adds to the 64-bit number at a multiple of 8, in one step; returns the one before."""
        self.post(WROpcode.ATOMIC_FETCH_AND_ADD, offset, COUNTER_OCTETS, value=value)
        self.complete()
        return int.from_bytes(self._staging.read(COUNTER_OCTETS), sys.byteorder)

    def post(
        self, opcode: WROpcode, offset: int, octets: int, slot: int = 0, value: int = 0
    ) -> None:
        """Begins a Write, Read or FetchAdd with a slot of the staging buffer, 0 to `DEPTH` - 1."""
        element = SGE(self._staging.addr + slot * MESSAGE_OCTETS, octets, self._staging.lkey)
        region = self.region
        self._qp.post_send(
            SendWR(
                0,
                opcode,
                [element],
                remote_addr=region.addr + offset,
                rkey=region.rkey,
                compare_add=value,
            )
        )

    def complete(self) -> None:
        """Waits for the oldest one that is under way. Raises `MemoryServerError` if it failed."""
        try:
            (found,) = self._cq.wait(1, PATIENCE)
        except WaitTimeout:
            raise MemoryServerError(f"nothing from the server in {PATIENCE:g} s") from None
        if found.status != WCStatus.SUCCESS:
            raise MemoryServerError(found.describe())

    def close(self) -> None:
        """Ends the connection."""
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
