"""What both ends of the demonstration have: a device with a QP, registered memory and Sends."""

import hashlib
from collections.abc import Iterator
from typing import Any, Self

from stagecoach.cli.demo.messages import NOTE_OCTETS, Note, NoteKind
from stagecoach.host_driver.context import Context
from stagecoach.host_driver.cq import CQ
from stagecoach.host_driver.enums import AccessFlags, WCOpcode, WCStatus, WROpcode
from stagecoach.host_driver.errors import StagecoachError, WaitTimeout
from stagecoach.host_driver.mr import MR
from stagecoach.host_driver.pd import PD
from stagecoach.host_driver.qp import QP, raise_if_stopped
from stagecoach.host_driver.qp_attr import QPCap, QPInitAttr
from stagecoach.host_driver.transport.base import Transport
from stagecoach.host_driver.wr import SGE, WC, RecvWR, SendWR

CHUNK_OCTETS = 1 << 20
"""Bytes of one RDMA Write or RDMA Read."""

CHUNKS_UNDER_WAY = 4
NOTES = 4
PATIENCE = 120.0
"""Seconds without any completion after which the demonstration fails."""


class DemoError(StagecoachError):
    """The demonstration found that something is not as it must be."""


class End:
    """One end: an open device, a QP, and buffers for Sends.

    Parameters
    ----------
    transport: the device; closing the end closes it.
    """

    def __init__(self, transport: Transport):
        self.context = Context(transport)
        try:
            self.pd = PD(self.context)
            self.cq = CQ(self.context, 64)
            cap = QPCap(max_send_wr=16, max_recv_wr=NOTES)
            self.qp = QP(self.pd, QPInitAttr(self.cq, self.cq, cap))
            # One slot for what is sent, the others for what comes.
            self._notes = bytearray(NOTE_OCTETS * (1 + NOTES))
            self._notes_mr = MR(self.pd, self._notes, AccessFlags.LOCAL_WRITE)
            self._received: list[Note] = []
            for slot in range(1, 1 + NOTES):
                self.qp.post_recv(RecvWR(slot, [self._slot(slot)]))
        except BaseException:
            self.context.close()
            raise

    def _slot(self, slot: int) -> SGE:
        mr = self._notes_mr
        return SGE(mr.addr + NOTE_OCTETS * slot, NOTE_OCTETS, mr.lkey)

    def register(self, buffer: Any, access: AccessFlags) -> MR | None:
        """Registers a buffer; an empty one needs no region."""
        return MR(self.pd, buffer, access) if len(buffer) else None

    def completion(self) -> WC:
        """The next completion of a send request; notes that come are kept.

        Raises `DemoError` if a request failed, `QPError` if the QP has stopped.
        """
        while True:
            (found,) = self._wait()
            if not self._keep_note(found):
                return found

    def _wait(self) -> list[WC]:
        try:
            found = self.cq.wait(1, PATIENCE)
        except WaitTimeout:
            raise_if_stopped(self.qp)
            raise
        for one in found:
            if one.status != WCStatus.SUCCESS:
                raise DemoError(one.describe())
        return found

    def _keep_note(self, found: WC) -> bool:
        if found.opcode != WCOpcode.RECV:
            return False
        start = NOTE_OCTETS * found.wr_id
        self._received.append(Note.unpack(self._notes[start : start + found.byte_len]))
        return True

    def send(self, note: Note) -> None:
        """Sends a note and waits until it has left."""
        self._notes[:NOTE_OCTETS] = note.pack()
        self.qp.post_send(SendWR(0, WROpcode.SEND, [self._slot(0)]))
        self.completion()

    def receive(self, kind: NoteKind) -> Note:
        """The next note, which must be of a kind."""
        while not self._received:
            (found,) = self._wait()
            self._keep_note(found)
        note = self._received.pop(0)
        if note.kind != kind:
            raise DemoError(f"the peer sent a note {note.kind.name}; allowed: {kind.name}")
        return note

    def move(
        self, opcode: WROpcode, local: MR | None, remote_addr: int, rkey: int
    ) -> Iterator[int]:
        """Moves the whole of a local region with RDMA Writes or Reads, some under way at a time.

        Yields the bytes done so far. Without a region, one message of no bytes is moved.
        """
        length = local.length if local else 0
        waiting = list(range(0, max(length, 1), CHUNK_OCTETS))
        waiting.reverse()
        under_way = 0
        done = 0
        while waiting or under_way:
            while waiting and under_way < CHUNKS_UNDER_WAY:
                start = waiting.pop()
                octets = min(CHUNK_OCTETS, length - start)
                elements = [SGE(local.addr + start, octets, local.lkey)] if local else []
                self.qp.post_send(
                    SendWR(start, opcode, elements, remote_addr=remote_addr + start, rkey=rkey)
                )
                under_way += 1
            done += self.completion().byte_len
            under_way -= 1
            yield done

    def close(self) -> None:
        """Closes the device and all that was made from it."""
        self.context.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def digest_of(buffer: Any) -> bytes:
    """SHA-256 of a buffer."""
    return hashlib.sha256(buffer).digest()


def check_digest(found: bytes, expected: bytes, what: str) -> None:
    """Raises `DemoError` if two digests differ."""
    if found != expected:
        raise DemoError(f"{what}: SHA-256 {found.hex()}, expected {expected.hex()}")
