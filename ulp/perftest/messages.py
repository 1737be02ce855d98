"""What the two ends send each other, octet for octet.

All numbers are big endian but the credit of `ib_send_bw`, which one program writes into the memory
of the other as its processor has it; that is little endian here.
"""

import math
import struct
from dataclasses import dataclass
from typing import Self

from stagecoach.ulp.perftest.errors import PerftestError, WrongPerftestVersion

RELEASE = "perftest 4.5+0.17"
VERSION = "6.06"
"""What the tools of that release call themselves, on the wire and with -V."""

VERSION_OCTETS = 16

PAGE_OCTETS = 4096
LINE_OCTETS = 64
"""What this end says of its memory: small messages take turns in a page, a cache line apart."""

_MAXIMUM_PAGE = 1 << 20
_MAXIMUM_LINE = 4096

MTU = 3
"""Code of 1024 bytes, the largest InfiniBand MTU in an Ethernet frame. iWARP does not use it."""

_MTUS = range(1, 6)
_NUMBER = struct.Struct("!I")
_LONG = struct.Struct("!Q")
_DOUBLE = struct.Struct("!d")
_CREDIT = struct.Struct("<I")

# Four bytes of padding, which may hold anything, before the address.
_DESTINATION = struct.Struct("!IIIII4xQ16sIi")
DESTINATION_OCTETS = _DESTINATION.size
CREDIT_OCTETS = _CREDIT.size

_SHOWN = 24


def pack_version() -> bytes:
    """The version of this end, a zero-terminated text."""
    return VERSION.encode().ljust(VERSION_OCTETS, b"\0")


def check_version(octets: bytes) -> None:
    """Raises `WrongPerftestVersion` for any other version of the peer."""
    text = octets.split(b"\0", 1)[0].decode("ascii", "backslashreplace")
    if text != VERSION:
        raise WrongPerftestVersion(
            f"the peer's version of perftest is {text!r}; allowed: {VERSION!r}, that of {RELEASE}"
        )


def pack_number(value: int) -> bytes:
    """A number of 32 bits."""
    return _NUMBER.pack(value)


def _unpack_number(octets: bytes, name: str, most: int) -> int:
    (value,) = _NUMBER.unpack(octets)
    if not 1 <= value <= most:
        raise PerftestError(f"the peer's {name} is {value}; allowed: 1 to {most}")
    return int(value)


def unpack_page(octets: bytes) -> int:
    """Bytes in which the peer's small messages take turns."""
    return _unpack_number(octets, "page size", _MAXIMUM_PAGE)


def unpack_line(octets: bytes) -> int:
    """Bytes from one of these places to the next."""
    return _unpack_number(octets, "cache line size", _MAXIMUM_LINE)


def pack_mtu(code: int) -> bytes:
    """The code of an InfiniBand MTU: a digit and a zero."""
    return b"%d\0" % code


def check_mtu(octets: bytes) -> None:
    """Raises `PerftestError` for an unknown code."""
    if octets not in map(pack_mtu, _MTUS):
        raise PerftestError(
            f"the peer's MTU is {octets!r}; allowed: a digit from 1 to 5 and a zero"
        )


@dataclass(frozen=True)
class Destination:
    """Where the memory of an end is; iWARP uses only `rkey` and `vaddr`.

    Attributes
    ----------
    lid, qpn, psn, gid, srqn, gid_index: of InfiniBand; `qpn` is the number of the second QP.
    out_reads: RDMA Reads under way. rkey, vaddr: STag and Tagged Offset.
    """

    lid: int = 0
    out_reads: int = 0
    qpn: int = 0
    psn: int = 0
    rkey: int = 0
    vaddr: int = 0
    gid: bytes = bytes(16)
    srqn: int = 0
    gid_index: int = 0

    def pack(self) -> bytes:
        """The bytes on the wire."""
        return _DESTINATION.pack(
            self.lid,
            self.out_reads,
            self.qpn,
            self.psn,
            self.rkey,
            self.vaddr,
            self.gid,
            self.srqn,
            self.gid_index,
        )

    @classmethod
    def unpack(cls, octets: bytes) -> Self:
        """The inverse of `pack`, for 56 bytes."""
        return cls(*_DESTINATION.unpack(octets))

    def check_room(self, octets: int) -> None:
        """Raises `PerftestError` if so many bytes at `vaddr` are more than 64 bits address."""
        if self.vaddr + octets > 1 << 64:
            raise PerftestError(
                f"the peer's address is 0x{self.vaddr:x}; allowed: up to 2^64 - {octets}, for the "
                f"{octets} bytes of this test"
            )


@dataclass(frozen=True)
class Report:
    """The result of an end, in five messages.

    peak, average: MiB/s. rate: millions of messages per second.
    """

    size: int
    iterations: int
    peak: float
    average: float
    rate: float

    def pack(self) -> list[bytes]:
        """The messages."""
        counts = [_LONG.pack(self.size), _LONG.pack(self.iterations)]
        return counts + [_DOUBLE.pack(each) for each in (self.peak, self.average, self.rate)]

    @classmethod
    def unpack(cls, messages: list[bytes]) -> Self:
        """The inverse of `pack`."""
        counts = [int(_LONG.unpack(each)[0]) for each in messages[:2]]
        return cls(*counts, *(float(_DOUBLE.unpack(each)[0]) for each in messages[2:]))

    def check(self, size: int, iterations: int) -> None:
        """Raises `PerftestError` if it is not the report of this test."""
        wanted = {"-s": (size, self.size), "-n": (iterations, self.iterations)}
        for option, (here, there) in wanted.items():
            if here != there:
                raise PerftestError(f"the client ran with {option} {there}, this end with {here}")
        if not all(map(math.isfinite, (self.peak, self.average, self.rate))):
            raise PerftestError(
                f"the client reports {self.peak}, {self.average} MiB/s and {self.rate} million "
                "messages per second; allowed: finite numbers"
            )


REPORT_NAMES = ("size", "iterations", "peak", "average", "message rate")
"""What the messages of a report have."""


def pack_credit(messages: int) -> bytes:
    """How many messages have come, mod 2^32."""
    return _CREDIT.pack(messages & 0xFFFF_FFFF)


def unpack_credit(octets: bytes) -> int:
    """The inverse of `pack_credit`."""
    return int(_CREDIT.unpack(octets)[0])


def shown(octets: bytes) -> str:
    """The first bytes of a message, for people."""
    more = f" and {len(octets) - _SHOWN} bytes more" * (len(octets) > _SHOWN)
    return f"{octets[:_SHOWN].hex(' ')}{more}"
