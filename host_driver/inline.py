"""Inline sends: the driver copies the message, so that its buffer is free when the post returns.

The send entry of the device has no room for a payload. The copy is in a region of the QP, one slot
for each work request that may be outstanding, and the device reads it there like any other element.
"""

from collections.abc import Callable
from dataclasses import replace

from stagecoach.host_driver.enums import SendFlags, WROpcode
from stagecoach.host_driver.mr import MR
from stagecoach.host_driver.pd import PD
from stagecoach.host_driver.wr import SGE, SendWR

_SENT = (
    WROpcode.SEND,
    WROpcode.SEND_WITH_INV,
    WROpcode.RDMA_WRITE,
    WROpcode.RDMA_WRITE_WITH_IMM,
)
"""The operations that send what their elements name."""


def is_inline(request: SendWR) -> bool:
    """Whether the message is copied when the request is posted."""
    return bool(request.send_flags & SendFlags.INLINE)


class InlineBuffer:
    """The copies of a send queue.

    Parameters
    ----------
    slots: work requests that may be outstanding. octets: of each, at most; 0 for none.
    pd: of the QP.
    register: makes a region of so many bytes that only the device reads.
    """

    def __init__(
        self,
        slots: int,
        octets: int,
        pd: PD,
        register: Callable[[int], MR],
    ):
        self._slots, self._octets = slots, octets
        self._pd = pd
        self._region = register(slots * octets) if octets else None

    def gather(self, request: SendWR) -> bytes:
        """The message of an inline request.

        Raises `ValueError` for an operation that sends none, for a message that is too long, and
        for an element that is not all in an open region.
        """
        if request.opcode not in _SENT:
            names = ", ".join(each.name for each in _SENT)
            name = WROpcode(request.opcode).name
            raise ValueError(f"{name} with INLINE; allowed: with {names}")
        length = sum(element.length for element in request.sg)
        if length > self._octets:
            raise ValueError(
                f"inline data of {length} bytes; allowed: 0 to {self._octets} "
                "(QPCap.max_inline_data)"
            )
        return b"".join(self._read(element) for element in request.sg)

    def _read(self, element: SGE) -> bytes:
        region = self._pd.context.mrs.get(element.lkey)
        if not isinstance(region, MR) or region.pd is not self._pd:
            raise ValueError(
                f"inline element with STag 0x{element.lkey:08x}; allowed: that of an open region "
                "of the QP's PD"
            )
        return region.read(element.length, element.addr - region.addr)

    def put(self, request: SendWR, message: bytes, number: int) -> SendWR:
        """The request that sends the copy; `number`: send entries that were written before it."""
        if self._region is None or not message:
            return replace(request, sg=())
        offset = number % self._slots * self._octets
        self._region._memory.write(offset, message)
        return replace(
            request, sg=(SGE(self._region.addr + offset, len(message), self._region.lkey),)
        )
