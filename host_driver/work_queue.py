"""The driver's side of a send or receive queue: its ring, and what is outstanding in it."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stagecoach.host_driver import entries
from stagecoach.host_driver.atomics import check_atomic, entry_fields
from stagecoach.host_driver.enums import (
    ANSWERED,
    ATOMIC_OPERATIONS,
    WITH_IMMEDIATE,
    AccessFlags,
    SendFlags,
    WCOpcode,
    WROpcode,
)
from stagecoach.host_driver.errors import ResourceError
from stagecoach.host_driver.mr import FastMR, check_access, rights_of
from stagecoach.host_driver.registers import Register
from stagecoach.host_driver.ring import Ring
from stagecoach.host_driver.wr import SGE, RecvWR, SendWR
from stagecoach.hw.interface import queue_entries
from stagecoach.hw.interface.queue_entries import (
    IMMEDIATE_OPERATIONS,
    RECEIVE_ENTRY_OCTETS,
    SEND_UNIT_OCTETS,
    STAG_OPERATIONS,
    SendOpcode,
    send_units,
)
from stagecoach.hw.interface.wire import IMMEDIATE_DATA_OCTETS

_SOLICITED = {
    WROpcode.SEND: SendOpcode.SEND_WITH_SE,
    WROpcode.SEND_WITH_INV: SendOpcode.SEND_WITH_SE_AND_INVALIDATE,
    WROpcode.IMM_DATA: SendOpcode.IMMEDIATE_WITH_SE,
}
"""The operations that can be solicited (RFC 5040, 4.3; RFC 7306, 6)."""

_FLAGS = {
    SendFlags.SIGNALED: queue_entries.SendFlags.SIGNALED,
    SendFlags.FENCE: queue_entries.SendFlags.FENCE,
}
"""The flags that a send entry has; SOLICITED is part of its opcode, INLINE is the driver's."""

_ALL_FLAGS = sum(SendFlags)


@dataclass
class Posted:
    """A work request that is not completed. The user sees nothing of a hidden one.

    Of one that is not signaled the device says nothing.

    Attributes
    ----------
    first, index: its first and its last entry; they are the same but for RDMA_WRITE_WITH_IMM.
    entries: how many were written to the queue before it.
    length: bytes of the message, if its last entry does not have them.
    msn: of the request to the peer, of an RDMA Read or atomic. sink: STag of its element, if any.
    """

    first: int
    index: int
    entries: int
    wr_id: int
    opcode: WCOpcode
    hidden: bool
    signaled: bool
    length: int | None = None
    msn: int | None = None
    sink: int | None = None

    def has_entry(self, index: int) -> bool:
        """Whether entry `index` is of this work request."""
        return index in (self.first, self.index)


class WorkQueue:
    """A ring of send or receive entries.

    The number of an entry is that of its first unit: a send entry has one or two.

    Parameters
    ----------
    limit: entries that may be outstanding; they fit the ring, whatever they are.

    Attributes
    ----------
    ring, doorbell, name: as given. posted: what is not completed, the oldest first.
    producer: number after the last unit.
    entries: how many were written ever.
    end: number after the last unit that the device is given; `None` as long as it is given all.
    """

    def __init__(self, ring: Ring, doorbell: Register, limit: int, name: str):
        self.ring = ring
        self.doorbell = doorbell
        self.name = name
        self.producer = 0
        self.posted: deque[Posted] = deque()
        self.end: int | None = None
        self._limit = limit
        self.entries = 0
        self._requests = 0  # RDMA Reads and atomics among them

    @property
    def _outstanding(self) -> int:
        """Entries that are not completed."""
        return self.entries - self.posted[0].entries if self.posted else 0

    @property
    def answered(self) -> list[Posted]:
        """What the peer answers of `posted`: RDMA Reads and atomics."""
        return [each for each in self.posted if each.msn is not None]

    def check_room(self, count: int) -> None:
        """Raises `ResourceError` if so many more entries do not fit."""
        outstanding = self._outstanding
        if outstanding + count > self._limit:
            raise ResourceError(
                f"{count} more work requests for a {self.name} queue that holds {self._limit} and "
                f"has {outstanding}; allowed: {self._limit - outstanding}"
            )

    def write_send(self, request: SendWR, hidden: bool) -> None:
        """Writes the send entries of a request that `check_send` found good."""
        first, before = self.producer, self.entries
        for part in parts_of(request):
            last = self.producer
            self._write_entry(part)
        opcode = WROpcode(request.opcode)
        length = None
        if opcode == WROpcode.RDMA_WRITE_WITH_IMM:
            length = sum(element.length for element in request.sg)
        signaled = bool(request.send_flags & SendFlags.SIGNALED)
        posted = Posted(
            first, last, before, request.wr_id, opcode.completed_as, hidden, signaled, length
        )
        if opcode in ANSWERED:
            # Its queue counts messages from 1 (RFC 5041, 5.1).
            self._requests += 1
            posted.msn = self._requests & 0xFFFFFFFF
            posted.sink = next((element.lkey for element in request.sg), None)
        self.posted.append(posted)

    def _write_entry(self, request: SendWR) -> None:
        opcode = WROpcode(request.opcode)
        elements, remote_addr = request.sg, request.remote_addr
        if opcode == WROpcode.REG_MR:
            assert request.mr is not None
            elements, remote_addr = [_region(request.mr, request.access)], request.mr.addr
        length = sum(element.length for element in elements)
        if opcode == WROpcode.IMM_DATA:
            length = IMMEDIATE_DATA_OCTETS
        operation = send_opcode(request)
        entry = entries.SEND.pack(
            opcode=operation,
            flags=sum(flag for asked, flag in _FLAGS.items() if request.send_flags & asked),
            element_count=len(elements),
            length=length,
            remote_stag=request.rkey,
            remote_tagged_offset=remote_addr,
            immediate_data=int.from_bytes(request.imm_data or b"", "little"),
            elements=_elements(elements),
            **entry_fields(request),
        )
        for unit in range(send_units(operation, len(elements))):
            self._write_unit(entry[unit * SEND_UNIT_OCTETS : (unit + 1) * SEND_UNIT_OCTETS])
        self.entries += 1

    def write_receive(self, request: RecvWR, hidden: bool) -> None:
        """Writes a receive entry that `check_elements` found good."""
        number = self.producer
        self.posted.append(
            Posted(
                number, number, self.entries, request.wr_id, WCOpcode.RECV, hidden, signaled=True
            )
        )
        write_receive_entry(self.ring, number, request)
        self.producer = number + 1 & 0xFFFF
        self.entries += 1

    def _write_unit(self, octets: bytes) -> None:
        offset = self.ring.offset(self.producer)
        self.ring.memory[offset : offset + len(octets)] = octets
        self.producer = self.producer + 1 & 0xFFFF

    def close(self) -> None:
        """Takes the ring back from the device."""
        self.ring.close()

    def end_here(self) -> None:
        """What is posted from here on stays in the driver."""
        if self.end is None:
            self.end = self.producer

    @property
    def allowed(self) -> str:
        """What may complete, in words."""
        first = self.posted[0].first if self.posted else self.producer
        return f"one of {len(self.posted)} from {first}"

    @property
    def drained(self) -> bool:
        """Whether all that the device is given has completed."""
        return not self.posted or self.posted[0].first == self.end

    def is_posted(self, index: int) -> bool:
        """Whether the work request whose last entry is `index` is not completed."""
        return any(posted.index == index for posted in self.posted)

    def has_lost_one(self, index: int) -> bool:
        """Whether the completion of a request before entry `index`, which is posted, is missing."""
        for posted in self.posted:
            if posted.index == index:
                return False
            if posted.signaled:
                return True
        return False

    def of_message(self, msn: int) -> list[Posted]:
        """What the message of queue 0 with that number has taken: messages count from 1."""
        return [each for each in self.posted if each.has_entry(msn - 1 & 0xFFFF)]

    def take(self, index: int) -> Posted | None:
        """The work request of entry `index`, which is completed with all before it.

        `None`, and nothing is taken, if it is not posted.
        """
        if not self.is_posted(index):
            return None
        while (posted := self.posted.popleft()).index != index:
            pass
        return posted


def write_receive_entry(ring: Ring, number: int, request: RecvWR) -> None:
    """Writes the entry with a running number into a receive ring."""
    octets = _elements(request.sg).ljust(RECEIVE_ENTRY_OCTETS, b"\0")
    offset = ring.offset(number)
    ring.memory[offset : offset + len(octets)] = octets


def _elements(elements: Sequence[SGE]) -> bytes:
    return b"".join(
        entries.ELEMENT.pack(tagged_offset=each.addr, length=each.length, stag=each.lkey)
        for each in elements
    )


def check_elements(elements: Sequence[SGE], most: int) -> None:
    """Raises `ValueError` for more elements than `most`, or too many bytes."""
    if len(elements) > most:
        raise ValueError(f"{len(elements)} scatter/gather elements; allowed: 0 to {most}")
    length = sum(element.length for element in elements)
    if length >= 1 << 32:
        raise ValueError(f"a message of {length} bytes; allowed: 0 to 2^32 - 1")


def parts_of(request: SendWR) -> list[SendWR]:
    """The requests of one send entry each that a request consists of: it alone, or two.

    The second one says that both are done: what is posted after a Write completes after it.
    """
    if request.opcode != WROpcode.RDMA_WRITE_WITH_IMM:
        return [request]
    flags = request.send_flags
    write = replace(
        request,
        opcode=WROpcode.RDMA_WRITE,
        send_flags=flags & SendFlags.FENCE,
        imm_data=None,
    )
    immediate = SendWR(
        opcode=WROpcode.IMM_DATA,
        send_flags=flags & ~SendFlags.FENCE,
        imm_data=request.imm_data,
    )
    return [write, immediate]


def check_send(request: SendWR, most: int) -> None:
    """Raises `ValueError` for a request that no device takes, or with more elements than `most`."""
    opcode = WROpcode(request.opcode)
    flags = int(request.send_flags)
    if flags & ~_ALL_FLAGS:
        names = ", ".join(str(flag.name) for flag in SendFlags)
        raise ValueError(f"SendWR.send_flags is {flags:#x}; allowed: {names}")
    if (request.imm_data is not None) != (opcode in WITH_IMMEDIATE):
        found = "without" if request.imm_data is None else "with"
        names = ", ".join(each.name for each in WITH_IMMEDIATE)
        raise ValueError(f"{opcode.name} {found} imm_data; allowed: with it {names}, and only they")
    for part in parts_of(request):
        _check_part(part, most)


def _check_part(request: SendWR, most: int) -> None:
    check_elements(request.sg, most)
    opcode = send_opcode(request)
    if opcode in STAG_OPERATIONS:
        _check_stag_operation(request)
    if opcode in IMMEDIATE_OPERATIONS:
        _check_no_elements(request)
    if opcode == SendOpcode.ATOMIC:
        check_atomic(request)
    if opcode == SendOpcode.RDMA_READ and len(request.sg) > 1:
        raise ValueError(
            f"RDMA Read with {len(request.sg)} elements; allowed: 0 or 1 "
            "(RFC 5040, 4.4: one sink buffer)"
        )


def _check_stag_operation(request: SendWR) -> None:
    _check_no_elements(request)
    if request.opcode == WROpcode.REG_MR:
        if not isinstance(request.mr, FastMR):
            raise TypeError(f"{WROpcode.REG_MR.name} of {request.mr!r}; allowed: a FastMR")
        check_access(request.access)
        request.mr._check_stag(request.rkey)


def _check_no_elements(request: SendWR) -> None:
    if request.sg:
        name = WROpcode(request.opcode).name
        raise ValueError(f"{name} with {len(request.sg)} elements; allowed: none")


def _region(mr: FastMR, access: AccessFlags) -> SGE:
    """What a FAST_REGISTER has in place of an element."""
    return SGE(mr.host_address, mr.length, int(rights_of(access)))


def send_opcode(request: SendWR) -> SendOpcode:
    """Operation of the send entry for a request; `ValueError` if it cannot be solicited."""
    opcode = WROpcode(request.opcode)
    if not request.send_flags & SendFlags.SOLICITED:
        return SendOpcode.ATOMIC if opcode in ATOMIC_OPERATIONS else SendOpcode(opcode)
    if opcode not in _SOLICITED:
        names = ", ".join(each.name for each in (*_SOLICITED, WROpcode.RDMA_WRITE_WITH_IMM))
        raise ValueError(f"{opcode.name} with SOLICITED; allowed: with {names}")
    return _SOLICITED[opcode]
