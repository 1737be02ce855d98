"""A NIC at a link: its board's memory is reached through the device."""

from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from stagecoach.host_driver.hostlink.device import ACCESS_SECONDS, LinkedDevice
from stagecoach.host_driver.hostlink.endpoint import Endpoint
from stagecoach.host_driver.hostlink.memory import WORD, MappedMemory
from stagecoach.host_driver.transport.base import TransportError, TransportTimeout
from stagecoach.hw.interface.hostlink import BOARD_ACCESSES, MAXIMUM_BEATS, Kind

PIECE = WORD * MAXIMUM_BEATS
"""Bytes of the longest access; with an aligned one none passes a multiple of 4 KiB."""


@dataclass
class _Access:
    """So many words, of which some bytes are wanted."""

    payload: bytes
    is_read: bool
    wanted: slice
    words: int


@dataclass(eq=False)
class _Transfer:
    """Bytes that are read or written by some accesses.

    what: of errors. unsent: accesses that were not sent. waiting: of those that were, how many have
    no answer. found: what was read, in order.
    """

    what: str
    result: "Future[Any]"
    unsent: Iterator[_Access]
    waiting: int = 0
    found: list[bytes] = field(default_factory=list)

    def fail(self, error: Exception) -> None:
        if not self.result.done():
            self.result.set_exception(error)


class LinkedNic(LinkedDevice):
    """Serves the messages of a NIC.

    Transfers of the board's memory take turns access by access, so a long one holds up nobody else;
    two that are under way at once have no order. They fail if nothing is answered for
    `access_seconds`, however long they take.

    Parameters
    ----------
    endpoint, memory, interrupt, access_seconds: see `LinkedDevice`.
    """

    payloads: Mapping[Kind, Container[int]] = {
        **LinkedDevice.payloads,
        Kind.BOARD_ANSWER: range(1, PIECE + 2, WORD),
    }

    def __init__(
        self,
        endpoint: Endpoint,
        memory: MappedMemory,
        interrupt: Callable[[int], None],
        access_seconds: float = ACCESS_SECONDS,
    ):
        super().__init__(endpoint, memory, interrupt, access_seconds)
        self._board_seconds = access_seconds
        self._transfers: deque[_Transfer] = deque()  # that have something to send, in turns
        self._sent: deque[tuple[_Transfer, _Access]] = deque()
        self._answers = 0
        # When the board was seen to have answered so many, or nobody waited before.
        self._seen, self._since = 0, 0.0

    def read_board(self, address: int, octets: int, now: float, result: "Future[bytes]") -> None:
        """Reads bytes of the board's memory."""
        what = f"read of {octets} bytes at {address:#x}"
        self._begin(_Transfer(what, result, _accesses(address, octets, None)), now)

    def write_board(self, address: int, data: bytes, now: float, result: "Future[bytes]") -> None:
        """Writes bytes to the board's memory; the result is empty."""
        what = f"write of {len(data)} bytes at {address:#x}"
        self._begin(_Transfer(what, result, _accesses(address, len(data), data)), now)

    def _begin(self, transfer: _Transfer, now: float) -> None:
        # Answers may be owed to transfers that have failed: the time of this one begins now.
        if all(each.result.done() for each in self._under_way()):
            self._since = now
        self._transfers.append(transfer)
        self._send_more()

    def _send_more(self) -> None:
        while self._transfers and len(self._sent) < BOARD_ACCESSES:
            transfer = self._transfers.popleft()
            access = None if transfer.result.done() else next(transfer.unsent, None)
            if access is None:
                self._finish(transfer)
                continue
            transfer.waiting += 1
            self._sent.append((transfer, access))
            self._transfers.append(transfer)
            self.endpoint.send(Kind.BOARD_ACCESS, access.payload)

    def _finish(self, transfer: _Transfer) -> None:
        """Tells of a transfer that has nothing more to send, once all is answered."""
        if not transfer.waiting and not transfer.result.done():
            transfer.result.set_result(b"".join(transfer.found))

    def take(self, kind: int, payload: bytes) -> None:
        """Does what a message asks for. Raises `TransportError` if no device sends such a one."""
        super().take(kind, payload)
        if kind == Kind.BOARD_ANSWER:
            self._take_answer(payload)

    def _take_answer(self, payload: bytes) -> None:
        if not self._sent:
            raise TransportError("the device has sent BOARD_ANSWER; allowed: one for each access")
        transfer, access = self._sent.popleft()
        words, response = payload[:-1], payload[-1]
        if response:
            transfer.fail(
                TransportError(f"{transfer.what}: the board's memory answers with an error")
            )
        elif len(words) != access.is_read * access.words * WORD:
            raise TransportError(
                f"the device has sent BOARD_ANSWER with {len(words)} bytes of memory; "
                f"allowed: {access.is_read * access.words * WORD}"
            )
        transfer.found.append(words[access.wanted])
        transfer.waiting -= 1
        self._answers += 1
        if transfer not in self._transfers:
            self._finish(transfer)
        self._send_more()

    def check_time(self, now: float) -> None:
        """Lets all transfers fail if none is answered. Answers may still come."""
        super().check_time(now)
        if self._answers != self._seen:
            self._seen, self._since = self._answers, now
        if self._sent and now - self._since >= self._board_seconds:
            self._since = now
            for transfer in self._under_way():
                what = f"{transfer.what}: the board's memory does not answer"
                transfer.fail(TransportTimeout(f"{what} within {self._board_seconds:g} s"))
            self._transfers.clear()

    def fail(self, error: Exception) -> None:
        """Ends all accesses with an error."""
        super().fail(error)
        for transfer in self._under_way():
            transfer.fail(error)
        self._sent.clear()
        self._transfers.clear()

    def _under_way(self) -> list[_Transfer]:
        return [*(transfer for transfer, _ in self._sent), *self._transfers]


def _accesses(address: int, octets: int, data: bytes | None) -> Iterator[_Access]:
    """The accesses that read bytes, or write `data`, each cut out when its turn comes."""
    at, end = address, address + octets
    while at < end:
        first, until = at - at % WORD, min(end, at - at % PIECE + PIECE)
        words = (until - first + WORD - 1) // WORD
        payload = first.to_bytes(8, "little") + bytes([words])
        if data is not None:
            payload += _words(data[at - address : until - address], at - first, words)
        yield _Access(payload, data is None, slice(at - first, until - first), words)
        at = until


def _words(data: bytes, before: int, words: int) -> bytes:
    """Words with their strobes, nine bytes each; `before` bytes of the first one are kept."""
    strobes = ((1 << len(data)) - 1) << before
    padded = bytes(before) + data + bytes(words * WORD - before - len(data))
    return b"".join(
        bytes([strobes >> WORD * number & 0xFF]) + padded[WORD * number : WORD * number + WORD]
        for number in range(words)
    )
