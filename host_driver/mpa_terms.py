"""What one end brings to MPA startup, and what both have when it is done."""

from dataclasses import dataclass
from typing import Self

from stagecoach.host_driver.mpa_startup import NOT_NEGOTIATED, RTR

DEFAULT_RTR = RTR.WRITE | RTR.READ
"""A Send as RTR frame would take a receive buffer of the ULP, so it is not offered."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What one end brings to MPA startup.

    `ord` and `ird`: RDMA Reads under way from this end, and towards it. `limit`: how many the
    device can have.
    """

    limit: int
    ord: int
    ird: int
    crc: bool = True
    markers: bool = False
    rtr: RTR = DEFAULT_RTR
    private_data: bytes = b""

    @classmethod
    def check(
        cls,
        limit: int,
        *,
        ord: int | None,
        ird: int | None,
        crc: bool,
        markers: bool,
        rtr: RTR,
        private_data: bytes,
    ) -> Self:
        """Terms out of a user's arguments; `ValueError` and `TypeError` name what does not fit."""
        private_data = octets_of(private_data)
        if not isinstance(rtr, RTR) or not rtr:
            raise ValueError(f"rtr is {rtr!r}; allowed: one or more of {RTR(7)!r}")
        return cls(
            limit=limit,
            ord=_reads("ORD", ord, limit),
            ird=_reads("IRD", ird, limit),
            crc=bool(crc),
            markers=bool(markers),
            rtr=rtr,
            private_data=private_data,
        )


@dataclass(frozen=True, kw_only=True)
class Connection:
    """What MPA startup agreed on, and what the peer said.

    Attributes
    ----------
    initiator: whether this end is the MPA Initiator.
    revision: of the peer's frame.
    crc: whether CRCs are generated and checked.
    markers_tx, markers_rx: whether Markers are sent and received.
    ord, ird: RDMA Reads that may be under way from this end, and towards it.
    peer_ord, peer_ird: what the peer's frame says, `None` if it leaves that to the ULP.
    peer_to_peer: whether the Initiator begins with an RTR frame.
    rtr: the RTR frame of the Initiator; at the Responder the ones it told to be possible.
    private_data: the ULP's own in the peer's frame.
    """

    initiator: bool
    revision: int
    crc: bool
    markers_tx: bool
    markers_rx: bool
    ord: int
    ird: int
    peer_ord: int | None
    peer_ird: int | None
    peer_to_peer: bool
    rtr: RTR
    private_data: bytes


def _reads(name: str, value: int | None, limit: int) -> int:
    limit = min(limit, NOT_NEGOTIATED - 1)
    if value is None:
        return limit
    if not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r}; allowed: 0 to {limit}")
    if not 0 <= value <= limit:
        raise ValueError(f"{name} {value}; allowed: 0 to {limit}")
    return int(value)


def octets_of(private_data: object) -> bytes:
    """Private data as `bytes`; `TypeError` for what has no bytes."""
    if not isinstance(private_data, bytes | bytearray | memoryview):
        raise TypeError(f"private_data is a {type(private_data).__name__}; allowed: bytes")
    return bytes(private_data)
