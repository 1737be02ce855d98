"""What an id of the connection manager is given: addresses, and parameters of a connection."""

import errno
import socket

from stagecoach.pyverbs import cm_enums as ce
from stagecoach.pyverbs.base import PyverbsObject, shown, unsupported
from stagecoach.pyverbs.pyverbs_error import PyverbsRDMAError
from stagecoach.pyverbs.wr import CONNECTED_ONLY


class ConnParam(PyverbsObject):
    """What one end brings to a connection.

    resources: IRD, Reads and atomics of the peer under way here. depth: ORD, those of this end.
    qp_num: a QP of the program's own instead of that of the `CMID`.
    The others are of InfiniBand: TCP repeats what is lost, and nothing waits for a receive.
    """

    def __init__(
        self,
        resources: int = 1,
        depth: int = 1,
        flow_control: int = 0,
        retry: int = 5,
        rnr_retry: int = 5,
        srq: int = 0,
        qp_num: int = 0,
        data_len: int = 0,
    ):
        self.resources, self.depth = resources, depth
        self.qpn = qp_num
        self._data_len = data_len
        self.private_data = b""

    def __repr__(self) -> str:
        return shown(self, "resources", "depth", "qpn", "private_data")

    def set_private_data(self, data: bytes | str) -> None:
        """Sets the private data; `data_len` of the constructor cuts it, if it was given."""
        octets = data.encode() if isinstance(data, str) else bytes(data)
        self.private_data = octets[: self._data_len or None]


class AddrInfo(PyverbsObject):
    """Where to listen (RAI_PASSIVE: `src`), or where to connect to (`dst`).

    Names and services are looked up at once. Raises `PyverbsRDMAError` for what is not known, and
    for a port space that is not that of connected QPs, RDMA_PS_TCP.

    Attributes
    ----------
    source, destination: host and port; an empty host is any address of this end. flags: RAI_*.
    """

    def __init__(
        self,
        src: str | bytes | None = None,
        dst: str | bytes | None = None,
        src_service: str | bytes | None = None,
        dst_service: str | bytes | None = None,
        port_space: int = 0,
        flags: int = 0,
    ):
        require_connected(port_space)
        self.flags = flags
        self.source = self._look_up(src, src_service)
        self.destination = self._look_up(dst, dst_service)

    def __repr__(self) -> str:
        return shown(self, "source", "destination", "flags")

    def _look_up(self, host: str | bytes | None, service: str | bytes | None) -> tuple[str, int]:
        hints = socket.AI_NUMERICHOST if self.flags & ce.RAI_NUMERICHOST else 0
        if not host:
            hints |= socket.AI_PASSIVE
        try:
            found = socket.getaddrinfo(host or None, service or 0, 0, socket.SOCK_STREAM, 0, hints)
        except (OSError, UnicodeError) as error:
            raise PyverbsRDMAError(
                f"AddrInfo: {host!r} port {service!r}: {error}", errno.EADDRNOTAVAIL
            ) from error
        address = found[0][4]
        return (str(address[0]) if host else ""), int(address[1])

    def close(self) -> None:
        """Nothing is held."""


def require_connected(port_space: int) -> None:
    """Raises `PyverbsRDMAError` for a port space of datagrams."""
    if port_space not in (0, ce.RDMA_PS_TCP):
        raise unsupported(f"port space {port_space}", f"{CONNECTED_ONLY}; allowed: RDMA_PS_TCP")
