"""Where the messages of a test are: the half that is sent, and the half where they come."""

import secrets

from stagecoach.host_driver import MR, SGE, AccessFlags, RecvWR, SendFlags, SendWR, WROpcode
from stagecoach.ulp.perftest.link import Link
from stagecoach.ulp.perftest.messages import (
    CREDIT_OCTETS,
    Destination,
    pack_credit,
    unpack_credit,
)
from stagecoach.ulp.perftest.tools import Tool

_ACCESS = {
    WROpcode.RDMA_WRITE: AccessFlags.REMOTE_WRITE,
    WROpcode.RDMA_READ: AccessFlags.REMOTE_READ,
    WROpcode.SEND: AccessFlags(0),
}


class Places:
    """Offsets of messages in a half: small ones take turns in a page, a cache line apart.

    Parameters
    ----------
    size: of a message. page, line: agreed with the peer.

    Attributes
    ----------
    octets: of the half. offsets: of the first messages; then they start over.
    """

    def __init__(self, size: int, page: int, line: int):
        self.octets = max(size, page)
        apart = -(-size // line) * line
        # A page that holds two messages or more, and has room for two places.
        turns = page // apart if size <= page // 2 else 1
        self.offsets = [apart * turn for turn in range(max(1, turns))]


class Memory:
    """The region of a test, with anything in it at first, and its work requests.

    A latency test uses one place only, and one that polls for Writes begins with zeros.

    Parameters
    ----------
    link: where it is registered. tool: of the test. size, page, line: as of `Places`.

    Attributes
    ----------
    half: bytes that are sent from, and as many after them that messages come to.
    """

    def __init__(self, link: Link, tool: Tool, size: int, page: int, line: int):
        self._size = size
        self._opcode = tool.opcode
        places = Places(size, page, line)
        self.half = places.octets
        self._offsets = places.offsets[:1] if tool.latency else places.offsets
        self._mr = link.register(2 * self.half, _ACCESS[tool.opcode])
        if not tool.server_first:
            self._mr.buf[:] = secrets.token_bytes(2 * self.half)

    @property
    def mr(self) -> MR:
        """The whole region."""
        return self._mr

    @property
    def here(self) -> int:
        """Tagged Offset of the half where messages come, or are read from."""
        return self._mr.addr + self.half

    def requests(self, remote: Destination, signaled: bool = True) -> list[SendWR]:
        """The messages, which take turns."""
        flags = SendFlags.SIGNALED if signaled else SendFlags(0)
        tagged = self._opcode != WROpcode.SEND
        return [
            SendWR(
                0,
                self._opcode,
                [SGE(self._mr.addr + offset, self._size, self._mr.lkey)],
                flags,
                remote_addr=remote.vaddr + offset if tagged else 0,
                rkey=remote.rkey if tagged else 0,
            )
            for offset in self._offsets
        ]

    def receives(self) -> list[RecvWR]:
        """Receives for the messages, which take turns."""
        return [
            RecvWR(0, [SGE(self.here + offset, self._size, self._mr.lkey)])
            for offset in self._offsets
        ]

    def mark(self, number: int) -> None:
        """Sets the last byte of the message that is sent next to its number, mod 256."""
        self._mr.buf[self._size - 1] = number & 0xFF

    def has(self, number: int) -> bool:
        """Whether the last byte of what came says that number."""
        return bool(self._mr.buf[self.half + self._size - 1] == number & 0xFF)


class Credit:
    """How many Sends have been received: the receiver writes it into the sender's memory.

    iWARP has nothing that holds back a Send for which no receive is posted.

    Parameters
    ----------
    link: where it is registered.
    """

    def __init__(self, link: Link):
        # What is written to the peer, and what the peer writes.
        self._mr = link.register(2 * CREDIT_OCTETS, AccessFlags.REMOTE_WRITE)

    @property
    def mr(self) -> MR:
        """The region."""
        return self._mr

    @property
    def here(self) -> int:
        """Tagged Offset of what the peer writes."""
        return self._mr.addr + CREDIT_OCTETS

    @property
    def value(self) -> int:
        """What the peer has received, mod 2^32."""
        return unpack_credit(self._mr.buf[CREDIT_OCTETS : 2 * CREDIT_OCTETS])

    def write(self, received: int, remote: Destination) -> SendWR:
        """The Write that tells the peer."""
        self._mr.buf[:CREDIT_OCTETS] = pack_credit(received)
        element = SGE(self._mr.addr, CREDIT_OCTETS, self._mr.lkey)
        return SendWR(0, WROpcode.RDMA_WRITE, [element], remote_addr=remote.vaddr, rkey=remote.rkey)
