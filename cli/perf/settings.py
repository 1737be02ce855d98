"""What is measured: the plan of the client, and what the server has to know of it."""

import struct
from dataclasses import dataclass
from typing import Self

from stagecoach.cli.perf.limit import Framing
from stagecoach.cli.perf.operations import Operation, Remote
from stagecoach.host_driver.cm import MAXIMUM_EMSS, MINIMUM_EMSS
from stagecoach.host_driver.errors import StagecoachError

DEFAULT_PORT = 7175
DEFAULT_DEPTH = 128
DEFAULT_SIZES = tuple(1 << power for power in range(17))
"""1 octet to 64 KiB."""

MAXIMUM_SIZE = 16 << 20
MAXIMUM_QPS = 63
"""One of the device's 64 is for what the two ends tell each other."""

MAXIMUM_OUTSTANDING = 8192
"""On all QPs together: the completions that a CQ holds, with room for receives."""

LATENCY_MESSAGES = 32
"""Unless given."""

_FEWEST, _MOST = 16, 1024
_OCTETS = 512 << 10
_OCTETS_OUTSTANDING = 1 << 20


class PerfError(StagecoachError):
    """The measurement cannot be made, or the other end does not do its part."""


@dataclass(frozen=True)
class Plan:
    """What the client measures.

    Attributes
    ----------
    sizes: of messages, in octets. depth: messages outstanding on each QP.
    messages: per size on all QPs together; chosen by size if None.
    latency_messages: per size, one at a time.
    pingpong: whether latency is half of a round trip of messages, which the server answers.
    """

    operation: Operation
    sizes: tuple[int, ...]
    depth: int
    qps: int
    framing: Framing
    messages: int | None = None
    latency_messages: int = LATENCY_MESSAGES
    pingpong: bool = False

    def messages_of(self, size: int) -> int:
        """Messages of a size.

        Unless given: those of 512 KiB, from 16 to 1024, and twice as many as are outstanding, so
        that the first and the last ones weigh little. Of these no more than 1 MiB count, but two
        on each QP; at most `MAXIMUM_OUTSTANDING`.
        """
        if self.messages is not None:
            return self.messages
        outstanding = min(self.depth * self.qps, _OCTETS_OUTSTANDING // size)
        wanted = max(2 * outstanding, 2 * self.qps, min(max(_OCTETS // size, _FEWEST), _MOST))
        return min(wanted, MAXIMUM_OUTSTANDING)

    def share(self, size: int) -> int:
        """Messages of a size on the QP that has most."""
        return -(-self.messages_of(size) // self.qps)

    @property
    def octets(self) -> int:
        """Of the buffers."""
        return max(self.sizes) + self.operation.stride * (self.qps - 1)

    def for_server(self, back: Remote | None = None) -> "ServerPlan":
        """What the server has to know; `back` is where its own messages go, of a ping-pong."""
        receives = max(max(self.share(size) for size in self.sizes), self.latency_messages)
        return ServerPlan(
            self.operation.name,
            self.qps,
            self.octets,
            receives if self.operation.takes_receive else 0,
            self.framing.emss,
            self.framing.markers,
            back,
        )


@dataclass(frozen=True)
class ServerPlan:
    """Private data of the client's Request; big endian.

    Attributes
    ----------
    octets: of the server's buffer. receives: most that are posted to a QP at a time.
    back: where the messages of a ping-pong go; None if there is none.
    """

    operation: str
    qps: int
    octets: int
    receives: int
    emss: int
    markers: bool
    back: Remote | None = None

    _LAYOUT = struct.Struct("!8s8sHIHH??QI")
    MAGIC = b"perf 2\0\0"

    def pack(self) -> bytes:
        """The octets on the wire."""
        return self._LAYOUT.pack(
            self.MAGIC,
            self.operation.encode(),
            self.qps,
            self.octets,
            self.receives,
            self.emss,
            self.markers,
            self.back is not None,
            *((0, 0) if self.back is None else (self.back.addr, self.back.rkey)),
        )

    @classmethod
    def unpack(cls, octets: bytes) -> Self:
        """The inverse of `pack`; `PerfError` for what no client of this version sends."""
        if len(octets) != cls._LAYOUT.size or not octets.startswith(cls.MAGIC):
            raise PerfError(f"{len(octets)} octets of private data; allowed: a perf client's")
        _, name, qps, buffer, receives, emss, markers, pingpong, addr, rkey = cls._LAYOUT.unpack(
            octets
        )
        back = Remote(addr, rkey) if pingpong else None
        operation = name.rstrip(b"\0").decode("ascii", "replace")
        plan = cls(operation, qps, buffer, receives, emss, markers, back)
        limits = {
            "QPs": (plan.qps, 1, MAXIMUM_QPS),
            "octets": (plan.octets, 1, MAXIMUM_SIZE),
            "receives": (plan.receives * plan.qps, 0, MAXIMUM_OUTSTANDING + MAXIMUM_QPS),
            "octets of EMSS": (plan.emss, MINIMUM_EMSS, MAXIMUM_EMSS),
        }
        for what, (value, least, most) in limits.items():
            if not least <= value <= most:
                raise PerfError(f"the client wants {value} {what}; allowed: {least} to {most}")
        return plan


_REMOTE = struct.Struct("!QI")


def pack_remote(remote: Remote) -> bytes:
    """Private data of the server's Reply."""
    return _REMOTE.pack(remote.addr, remote.rkey)


def unpack_remote(octets: bytes) -> Remote:
    """The inverse of `pack_remote`; `PerfError` for anything else."""
    if len(octets) != _REMOTE.size:
        raise PerfError(f"{len(octets)} octets of private data; allowed: a perf server's")
    return Remote(*_REMOTE.unpack(octets))
