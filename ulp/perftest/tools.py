"""The tools of perftest, and in what they differ."""

from dataclasses import dataclass
from enum import Enum

from stagecoach.host_driver import WROpcode

MINIMUM_ITERATIONS = 5
MAXIMUM_SIZE = 1 << 23
"""Bytes of a message: the largest of the tools' own series of sizes."""


class Kind(Enum):
    """What a tool measures."""

    BANDWIDTH = "BW"
    LATENCY = "Latency"


@dataclass(frozen=True)
class Tool:
    """A tool.

    Attributes
    ----------
    opcode: of the messages. kind: what is measured.
    iterations, size, tx_depth: the defaults of its options.
    handshakes: how often the ends tell each other where their memory is, from the connection of
        the second QP to the first message.
    reports: whether both ends exchange their results. ends_together: whether they meet once more
        before they disconnect.
    server_first: whether the server sends the first message.
    """

    name: str
    opcode: WROpcode
    kind: Kind
    iterations: int
    handshakes: int
    reports: bool = False
    ends_together: bool = True
    server_first: bool = False

    @property
    def latency(self) -> bool:
        """Whether one message is under way at a time."""
        return self.kind is Kind.LATENCY

    @property
    def size(self) -> int:
        """Bytes of a message if nothing is said."""
        return 2 if self.latency else 65536

    @property
    def tx_depth(self) -> int:
        """Work requests under way if nothing is said."""
        return 50 if self.latency else 128

    @property
    def title(self) -> str:
        """As the tool calls its test."""
        names = {
            WROpcode.RDMA_WRITE: "RDMA_Write",
            WROpcode.RDMA_READ: "RDMA_Read",
            WROpcode.SEND: "Send",
        }
        return f"{names[self.opcode]} {self.kind.value} Test"

    @property
    def ping_pong(self) -> bool:
        """Whether each message is answered by one; of a Read the response is the answer."""
        return self.latency and self.opcode is not WROpcode.RDMA_READ


_WRITE, _READ, _SEND = WROpcode.RDMA_WRITE, WROpcode.RDMA_READ, WROpcode.SEND

TOOLS = {
    tool.name: tool
    for tool in (
        Tool("ib_write_bw", _WRITE, Kind.BANDWIDTH, 5000, 3, reports=True),
        Tool("ib_write_lat", _WRITE, Kind.LATENCY, 1000, 4, ends_together=False, server_first=True),
        Tool("ib_read_bw", _READ, Kind.BANDWIDTH, 1000, 3, reports=True),
        Tool("ib_read_lat", _READ, Kind.LATENCY, 1000, 4),
        Tool("ib_send_bw", _SEND, Kind.BANDWIDTH, 1000, 4),
        Tool("ib_send_lat", _SEND, Kind.LATENCY, 1000, 4),
    )
}
"""By name."""
