"""What is measured: the plan of the client, and what the server has to know of it."""

import struct
from dataclasses import dataclass, field
from typing import Any, Self

from stagecoach.cli.perf.limit import Framing
from stagecoach.cli.perf.operations import Operation, Remote
from stagecoach.host_driver.cm import MAXIMUM_EMSS, MINIMUM_EMSS
from stagecoach.host_driver.errors import StagecoachError
from stagecoach.host_driver.mr import MR
from stagecoach.host_driver.startup_options import StartupOptions
from stagecoach.host_driver.wr import SendWR

DEFAULT_PORT = 7175
DEFAULT_DEPTH = 128
DEFAULT_SIZES = tuple(1 << power for power in range(17))
"""1 byte to 64 KiB."""

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
    sizes: of messages, in bytes. depth: messages outstanding on each QP.
    messages: per size on all QPs together; chosen by size if None.
    latency_messages: per size, one at a time.
    pingpong: whether latency is half of a round trip of messages, which the server answers.
    bidirectional: whether throughput is that of both ends, which send at the same time.
    startup: of all connections, but for Markers: both ends want them if `framing` has them.
    """

    operation: Operation
    sizes: tuple[int, ...]
    depth: int
    qps: int
    framing: Framing
    messages: int | None = None
    latency_messages: int = LATENCY_MESSAGES
    pingpong: bool = False
    bidirectional: bool = False
    startup: StartupOptions = field(default_factory=StartupOptions)

    @property
    def connecting(self) -> dict[str, Any]:
        """Arguments of `connect`, for every connection."""
        framing = self.framing
        return {**self.startup.arguments, "emss": framing.emss, "markers": framing.markers}

    @property
    def directions(self) -> int:
        """In which messages flow at the same time."""
        return 1 + self.bidirectional

    @property
    def server_sends(self) -> bool:
        """Whether the server has messages of its own."""
        return self.pingpong or self.bidirectional

    def limit_messages_per_cycle(self, size: int) -> float:
        """The most that the protocol allows, of all directions."""
        wire = self.operation.wire(self.framing, size)
        return wire.messages_per_cycle_both_ways if self.bidirectional else wire.messages_per_cycle

    def requests(self, mr: MR, remote: Remote, size: int) -> list[SendWR]:
        """A request for each QP; see `Operation.requests`."""
        return self.operation.requests(self.qps, mr, remote, size)

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

    @property
    def receives(self) -> int:
        """Most that are posted to a QP at a time where messages come; 0 if they take none."""
        if not self.operation.takes_receive:
            return 0
        return max(*(self.share(size) for size in self.sizes), self.latency_messages)

    def for_server(self, back: Remote | None = None) -> "ServerPlan":
        """What the server has to know; `back` is where its own messages go, if it has some."""
        return ServerPlan(
            self.operation.name,
            self.qps,
            self.octets,
            self.receives,
            self.framing.emss,
            self.framing.markers,
            self.depth if self.bidirectional else 1,
            back,
            self.startup.crc,
        )


@dataclass(frozen=True)
class ServerPlan:
    """Private data of the client's Request; big endian.

    Attributes
    ----------
    octets: of the server's buffer. receives: most that are posted to a QP at a time.
    depth: messages that the server has outstanding on each QP.
    back: where the server's messages go; None if it has none. crc: whether the client wants CRCs.
    """

    operation: str
    qps: int
    octets: int
    receives: int
    emss: int
    markers: bool
    depth: int = 1
    back: Remote | None = None
    crc: bool = True

    _LAYOUT = struct.Struct("!8s8sHIHH?H?QI?")
    MAGIC = b"perf 4\0\0"

    def pack(self) -> bytes:
        """The bytes on the wire."""
        return self._LAYOUT.pack(
            self.MAGIC,
            self.operation.encode(),
            self.qps,
            self.octets,
            self.receives,
            self.emss,
            self.markers,
            self.depth,
            self.back is not None,
            *((0, 0) if self.back is None else (self.back.addr, self.back.rkey)),
            self.crc,
        )

    @classmethod
    def unpack(cls, octets: bytes) -> Self:
        """The inverse of `pack`; `PerfError` for what no client of this version sends."""
        if len(octets) != cls._LAYOUT.size or not octets.startswith(cls.MAGIC):
            raise PerfError(f"{len(octets)} bytes of private data; allowed: a perf client's")
        _, name, qps, buffer, receives, emss, markers, depth, sends, addr, rkey, crc = (
            cls._LAYOUT.unpack(octets)
        )
        back = Remote(addr, rkey) if sends else None
        operation = name.rstrip(b"\0").decode("ascii", "replace")
        plan = cls(operation, qps, buffer, receives, emss, markers, depth, back, crc)
        limits = {
            "QPs": (plan.qps, 1, MAXIMUM_QPS),
            "bytes": (plan.octets, 1, MAXIMUM_SIZE),
            "receives": (plan.receives * plan.qps, 0, MAXIMUM_OUTSTANDING + MAXIMUM_QPS),
            "messages outstanding": (plan.depth * plan.qps, plan.qps, MAXIMUM_OUTSTANDING),
            "bytes of EMSS": (plan.emss, MINIMUM_EMSS, MAXIMUM_EMSS),
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
        raise PerfError(f"{len(octets)} bytes of private data; allowed: a perf server's")
    return Remote(*_REMOTE.unpack(octets))
