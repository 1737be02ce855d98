"""Buffers of one size for Sends and receives, registered once."""

from stagecoach.host_driver import MR, PD, SGE, AccessFlags


class Slots:
    """`count` buffers of `octets` bytes in one region.

    Parameters
    ----------
    access: what else than local reading is allowed; never anything for the peer.
    """

    def __init__(self, pd: PD, count: int, octets: int, access: AccessFlags):
        self.octets = octets
        self._buffer = bytearray(count * octets)
        self._view = memoryview(self._buffer)
        self._mr = MR(pd, self._buffer, access)

    def view(self, slot: int) -> memoryview:
        """The bytes of a buffer."""
        return self._view[slot * self.octets : (slot + 1) * self.octets]

    def element(self, slot: int, length: int | None = None) -> SGE:
        """The first `length` bytes of a buffer; all if not given."""
        octets = self.octets if length is None else length
        return SGE(self._mr.addr + slot * self.octets, octets, self._mr.lkey)
