"""A NIC at a link: its board's memory is reached through the device."""

from collections import deque
from collections.abc import Callable, Container, Mapping
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
class _Transfer:
    """Bytes that are read or written by some accesses.

    what: of errors. waiting: accesses without an answer. found: what was read, in order.
    """

    what: str
    result: "Future[Any]"
    asked: float
    waiting: int = 0
    found: list[bytes] = field(default_factory=list)

    def fail(self, error: Exception) -> None:
        if not self.result.done():
            self.result.set_exception(error)


@dataclass
class _Access:
    """So many words, of which some bytes are wanted."""

    transfer: _Transfer
    payload: bytes
    is_read: bool
    wanted: slice
    words: int


class LinkedNic(LinkedDevice):
    """Serves the messages of a NIC.

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
        self._unsent: deque[_Access] = deque()
        self._sent: deque[_Access] = deque()

    def read_board(self, address: int, octets: int, now: float, result: "Future[bytes]") -> None:
        """Reads bytes of the board's memory."""
        transfer = _Transfer(f"read of {octets} bytes at {address:#x}", result, now)
        self._begin(transfer, address, octets, None)

    def write_board(self, address: int, data: bytes, now: float, result: "Future[bytes]") -> None:
        """Writes bytes to the board's memory; the result is empty."""
        transfer = _Transfer(f"write of {len(data)} bytes at {address:#x}", result, now)
        self._begin(transfer, address, len(data), data)

    def _begin(self, transfer: _Transfer, address: int, octets: int, data: bytes | None) -> None:
        at, end = address, address + octets
        while at < end:
            first, until = at - at % WORD, min(end, at - at % PIECE + PIECE)
            words = (until - first + WORD - 1) // WORD
            payload = first.to_bytes(8, "little") + bytes([words])
            if data is not None:
                payload += _words(data[at - address : until - address], at - first, words)
            wanted = slice(at - first, until - first)
            self._unsent.append(_Access(transfer, payload, data is None, wanted, words))
            transfer.waiting += 1
            at = until
        if not transfer.waiting:
            transfer.result.set_result(b"")
        self._send_more()

    def _send_more(self) -> None:
        while self._unsent and len(self._sent) < BOARD_ACCESSES:
            access = self._unsent.popleft()
            self._sent.append(access)
            self.endpoint.send(Kind.BOARD_ACCESS, access.payload)

    def take(self, kind: int, payload: bytes) -> None:
        """Does what a message asks for. Raises `TransportError` if no device sends such a one."""
        super().take(kind, payload)
        if kind == Kind.BOARD_ANSWER:
            self._take_answer(payload)

    def _take_answer(self, payload: bytes) -> None:
        if not self._sent:
            raise TransportError("the device has sent BOARD_ANSWER; allowed: one for each access")
        access = self._sent.popleft()
        transfer, words, response = access.transfer, payload[:-1], payload[-1]
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
        if not transfer.waiting and not transfer.result.done():
            transfer.result.set_result(b"".join(transfer.found))
        self._send_more()

    def check_time(self, now: float) -> None:
        """Lets accesses fail that take too long. Their answers may still come."""
        super().check_time(now)
        for access in (*self._sent, *self._unsent):
            transfer = access.transfer
            if now - transfer.asked >= self._board_seconds:
                what = f"{transfer.what}: the board's memory does not answer"
                transfer.fail(TransportTimeout(f"{what} within {self._board_seconds:g} s"))
        self._unsent = deque(one for one in self._unsent if not one.transfer.result.done())

    def fail(self, error: Exception) -> None:
        """Ends all accesses with an error."""
        super().fail(error)
        for access in (*self._sent, *self._unsent):
            access.transfer.fail(error)
        self._sent.clear()
        self._unsent.clear()


def _words(data: bytes, before: int, words: int) -> bytes:
    """Words with their strobes, nine bytes each; `before` bytes of the first one are kept."""
    strobes = ((1 << len(data)) - 1) << before
    padded = bytes(before) + data + bytes(words * WORD - before - len(data))
    return b"".join(
        bytes([strobes >> WORD * number & 0xFF]) + padded[WORD * number : WORD * number + WORD]
        for number in range(words)
    )
