"""The regions of one message that the peer may reach: as short, and with as few rights as can be.

RFC 8166, 4.4 and 8.1.3.
"""

from contextlib import ExitStack

from stagecoach.host_driver import MR, QP, AccessFlags
from stagecoach.ulp.rpcrdma.chunks import Segment


class ChunkMemory:
    """Registers buffers for the peer of one QP alone, until `close`.

    Parameters
    ----------
    qp: the QP. segment_octets: of the longest segment.
    """

    def __init__(self, qp: QP, segment_octets: int):
        self._qp = qp
        self._segment_octets = segment_octets
        self._regions = ExitStack()

    def readable(self, data: memoryview | bytes) -> tuple[Segment, ...]:
        """Segments that the peer may read and not write. Read-only data is copied first."""
        view = memoryview(data)
        return self._register(bytearray(view) if view.readonly else view, AccessFlags.REMOTE_READ)

    def writable(self, buffer: memoryview | bytearray) -> tuple[Segment, ...]:
        """Segments that the peer may write and not read; none for an empty buffer."""
        return self._register(buffer, AccessFlags.REMOTE_WRITE)

    def _register(self, buffer: memoryview | bytearray, access: AccessFlags) -> tuple[Segment, ...]:
        octets = len(buffer)
        if not octets:
            return ()
        region = self._regions.enter_context(MR(self._qp.pd, buffer, access, qp=self._qp))
        return tuple(
            Segment(region.rkey, min(self._segment_octets, octets - at), region.addr + at)
            for at in range(0, octets, self._segment_octets)
        )

    def close(self) -> None:
        """Invalidates all of it: when it returns the peer reaches none of the buffers."""
        self._regions.close()
