"""The operations that can be measured: what is posted, and what that is on the wire."""

from collections.abc import Callable
from dataclasses import dataclass

from stagecoach.cli.perf.limit import Framing, WireOctets
from stagecoach.host_driver.enums import AccessFlags, WROpcode
from stagecoach.host_driver.mr import MR
from stagecoach.host_driver.wr import SGE, SendWR
from stagecoach.sim.model.atomics import (
    ATOMIC_OCTETS,
    ATOMIC_REQUEST_OCTETS,
    ATOMIC_RESPONSE_OCTETS,
)
from stagecoach.sim.model.ddp import TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS
from stagecoach.sim.model.rdmap import READ_REQUEST_OCTETS


@dataclass(frozen=True)
class Remote:
    """The server's buffer."""

    addr: int
    rkey: int


@dataclass(frozen=True)
class Operation:
    """One operation.

    Attributes
    ----------
    name: of the command. title: of table and plot.
    access: what the server allows for its buffer.
    takes_receive: whether each message takes a receive of the server.
    completes: when a message is complete, in words.
    request: the work request for a message of some bytes.
    wire: bytes on the wire for a message of some bytes.
    size: the only one that its messages have; None if they have any.
    stride: bytes from the target of a QP to that of the next one.
    rfc7306: whether its messages are of RFC 7306.
    pingpong: whether the peer can see a message come, and answer with its own.
    """

    name: str
    title: str
    access: AccessFlags
    takes_receive: bool
    completes: str
    request: Callable[[MR, Remote, int], SendWR]
    wire: Callable[[Framing, int], WireOctets]
    size: int | None = None
    stride: int = 0
    rfc7306: bool = False
    pingpong: bool = False

    def requests(self, qps: int, mr: MR, remote: Remote, octets: int) -> list[SendWR]:
        """A request for each QP; their targets are `stride` bytes apart."""
        targets = (Remote(remote.addr + place * self.stride, remote.rkey) for place in range(qps))
        return [self.request(mr, target, octets) for target in targets]


def _source(mr: MR, octets: int) -> list[SGE]:
    return [SGE(mr.addr, octets, mr.lkey)]


def _rdma(opcode: WROpcode) -> Callable[[MR, Remote, int], SendWR]:
    def request(mr: MR, remote: Remote, octets: int) -> SendWR:
        return SendWR(0, opcode, _source(mr, octets), remote_addr=remote.addr, rkey=remote.rkey)

    return request


def _fetch_add(mr: MR, remote: Remote, octets: int) -> SendWR:
    return SendWR(
        0,
        WROpcode.ATOMIC_FETCH_AND_ADD,
        _source(mr, octets),
        remote_addr=remote.addr,
        rkey=remote.rkey,
        compare_add=1,
    )


_LOCAL = "when all its bytes were given to the LLP"

OPERATIONS = {
    each.name: each
    for each in (
        Operation(
            name="write",
            title="RDMA Write",
            access=AccessFlags.REMOTE_WRITE,
            takes_receive=False,
            completes=_LOCAL,
            request=_rdma(WROpcode.RDMA_WRITE),
            wire=lambda framing, octets: WireOctets(framing.message(octets, TAGGED_HEADER_OCTETS)),
            pingpong=True,
        ),
        Operation(
            name="read",
            title="RDMA Read",
            access=AccessFlags.REMOTE_READ,
            takes_receive=False,
            completes="when all bytes that were read are in host memory",
            request=_rdma(WROpcode.RDMA_READ),
            wire=lambda framing, octets: WireOctets(
                framing.message(READ_REQUEST_OCTETS, UNTAGGED_HEADER_OCTETS),
                framing.message(octets, TAGGED_HEADER_OCTETS),
            ),
        ),
        Operation(
            name="send",
            title="Send",
            access=AccessFlags(0),
            takes_receive=True,
            completes=_LOCAL,
            request=lambda mr, _, octets: SendWR(0, WROpcode.SEND, _source(mr, octets)),
            wire=lambda framing, octets: WireOctets(
                framing.message(octets, UNTAGGED_HEADER_OCTETS)
            ),
            pingpong=True,
        ),
        Operation(
            name="atomic",
            title="Atomic FetchAdd",
            access=AccessFlags.REMOTE_ATOMIC,
            takes_receive=False,
            completes="when the original value is in host memory",
            request=_fetch_add,
            wire=lambda framing, _: WireOctets(
                framing.message(ATOMIC_REQUEST_OCTETS, UNTAGGED_HEADER_OCTETS),
                framing.message(ATOMIC_RESPONSE_OCTETS, UNTAGGED_HEADER_OCTETS),
            ),
            size=ATOMIC_OCTETS,
            stride=ATOMIC_OCTETS,
            rfc7306=True,
        ),
    )
}
