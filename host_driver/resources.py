"""The scarce resources of a device: QP, CQ and PD numbers, STags, and the quotas on them."""

import secrets
from collections.abc import Container, Iterator
from contextlib import ExitStack, contextmanager

from stagecoach.host_driver.errors import ResourceError
from stagecoach.host_driver.quota import Quota, Usage

_PDS = 1 << 16


class Resources:
    """Hands out what a device has only so many of; the caller holds the lock of the context.

    Parameters
    ----------
    max_mr: entries of the STag table, a power of two. quota: limits below those of the device.

    Attributes
    ----------
    used: what is open now.
    """

    def __init__(self, max_mr: int, quota: Quota):
        self.used = Usage(quota)
        self._max_mr = max_mr
        self._stags: dict[int, int] = {}  # slot of the table: STag
        self._pds: set[int] = set()
        self._next_numbers: dict[str, int] = {}

    @contextmanager
    def reserve(self, **demands: int) -> Iterator[None]:
        """Counts against the quotas; taken back if the body fails.

        Raises `QuotaExceeded`, and counts nothing.
        """
        self.used.take(**demands)
        with ExitStack() as undo:
            undo.callback(self.used.give, **demands)
            yield
            undo.pop_all()

    def take_number(self, used: Container[int], limit: int, what: str) -> int:
        """A number below `limit` that is not used; `ResourceError` if there is none.

        Numbers go round, so that one is used again as late as possible: what still names the
        object that had it before shall not meet another one.
        """
        first = self._next_numbers.get(what, 0)
        for step in range(limit):
            number = (first + step) % limit
            if number not in used:
                self._next_numbers[what] = number + 1
                return number
        raise ResourceError(f"all {limit} {what} of the device are in use")

    def take_pd(self) -> int:
        """A Protection Domain number that no other PD has."""
        number = self.take_number(self._pds, _PDS, "Protection Domains")
        self._pds.add(number)
        return number

    def give_pd(self, number: int) -> None:
        """Frees a Protection Domain number."""
        self._pds.discard(number)

    def _slot(self, stag: int) -> int:
        return stag >> 8 & (self._max_mr - 1)

    def take_stag(self) -> int:
        """An STag drawn from the whole 32-bit space whose slot in the table is free.

        STags cannot be predicted (RFC 5042, 5.1.3); the low 8 bits are the key.
        """
        if len(self._stags) >= self._max_mr:
            raise ResourceError(f"all {self._max_mr} STags of the device are in use")
        while True:
            stag = secrets.randbits(32)
            if self._slot(stag) not in self._stags:
                self._stags[self._slot(stag)] = stag
                return stag

    def claim_stag(self, stag: int) -> int:
        """Takes a given STag; `ResourceError` if its slot in the table is in use."""
        if not 0 <= stag < 1 << 32:
            raise ValueError(f"STag {stag}; allowed: 0 to 2^32 - 1")
        slot = self._slot(stag)
        if slot in self._stags:
            raise ResourceError(f"STag 0x{stag:08X}: its slot {slot} is in use")
        self._stags[slot] = stag
        return stag

    def give_stag(self, stag: int) -> None:
        """Frees the slot of an STag that the device no longer knows."""
        self._stags.pop(self._slot(stag), None)
