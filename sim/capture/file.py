"""Reads the records of pcap and pcapng files (draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng)."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_NANOSECONDS = 10**9
# pcap: magic number, versions, zone, accuracy, snapshot length, link type; then records.
_PCAP_UNITS = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}
_PCAP_HEADER_OCTETS = 24
_LINKTYPE_MASK = 0xFFFF
# pcapng: blocks of type, length, body, length.
_SECTION, _INTERFACE, _OLD_PACKET, _SIMPLE_PACKET, _PACKET = 0x0A0D0D0A, 1, 2, 3, 6
_BYTE_ORDER_MAGIC = 0x1A2B3C4D
_BLOCK_OVERHEAD = 12
_OPTION_END, _OPTION_RESOLUTION, _OPTION_OFFSET = 0, 9, 14
_MICROSECONDS = 10**6
# More than any packet, so that a wrong length does not ask for all memory.
_LARGEST_RECORD = 1 << 24


class CaptureError(ValueError):
    """A file that cannot be read as a capture; the text is one line."""


@dataclass(frozen=True)
class Packet:
    """One record of a capture file: its place in it (from 1), its bytes, how many there were."""

    number: int
    time_ns: int
    linktype: int
    octets: bytes
    original: int


def read_packets(path: str | Path) -> Iterator[Packet]:
    """The packets of a capture file, in their order.

    Raises :class:`CaptureError` for other files, and after the last whole packet of one that
    ends in the middle of a record. ``OSError`` comes as it is.
    """
    with open(path, "rb") as file:
        start = file.read(4)
        magics = {order: int.from_bytes(start, order) for order in ("little", "big")}
        if len(start) == 4:
            for order, magic in magics.items():
                if magic in _PCAP_UNITS:
                    yield from _pcap(path, file, "<" if order == "little" else ">", magic)
                    return
            if magics["big"] == _SECTION:
                yield from _Pcapng(path, file).packets()
                return
    found = f"it starts with {start.hex()}" if start else "it is empty"
    raise CaptureError(f"{path} is neither pcap nor pcapng: {found}")


def _broken(path: str | Path, number: int, detail: str) -> CaptureError:
    return CaptureError(f"{path} is cut or broken after packet {number}: {detail}")


def _pcap(path: str | Path, file: BinaryIO, order: str, magic: int) -> Iterator[Packet]:
    header = file.read(_PCAP_HEADER_OCTETS - 4)
    if len(header) < _PCAP_HEADER_OCTETS - 4:
        raise _broken(path, 0, "the header is cut")
    # The upper bits say something about frame check sequences.
    linktype = struct.unpack_from(f"{order}I", header, 16)[0] & _LINKTYPE_MASK
    record = struct.Struct(f"{order}IIII")
    number = 0
    while start := file.read(record.size):
        if len(start) < record.size:
            raise _broken(path, number, "a record is cut")
        seconds, fraction, captured, original = record.unpack(start)
        octets = file.read(captured) if captured <= _LARGEST_RECORD else b""
        if len(octets) < captured:
            raise _broken(path, number, f"a record has fewer than its {captured} bytes")
        number += 1
        time_ns = seconds * _NANOSECONDS + fraction * _PCAP_UNITS[magic]
        yield Packet(number, time_ns, linktype, octets, original)


@dataclass(frozen=True)
class _Interface:
    linktype: int
    snapshot: int
    ticks_per_second: int = _MICROSECONDS
    offset_seconds: int = 0


class _Pcapng:
    """A pcapng file after the type of its first block."""

    def __init__(self, path: str | Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._order = "<"
        self._interfaces: list[_Interface] = []
        self._number = 0

    def packets(self) -> Iterator[Packet]:
        kind = _SECTION
        while True:
            body = self._section() if kind == _SECTION else self._body()
            try:
                packet = self._packet(kind, body)
            except (struct.error, IndexError) as error:
                raise self._broken(f"a block of type {kind} is malformed") from error
            if packet is not None:
                yield packet
            start = self._file.read(4)
            if not start:
                return
            if len(start) < 4:
                raise self._broken("a block is cut")
            # The type of a section is the same in both byte orders.
            (kind,) = struct.unpack(f"{self._order}I", start)

    def _broken(self, detail: str) -> CaptureError:
        return _broken(self._path, self._number, detail)

    def _section(self) -> bytes:
        start = self._file.read(8)
        if len(start) < 8:
            raise self._broken("a section is cut")
        for order in "<>":
            if struct.unpack_from(f"{order}I", start, 4)[0] == _BYTE_ORDER_MAGIC:
                self._order = order
                break
        else:
            raise self._broken(f"a section has byte-order magic {start[4:].hex()}")
        (length,) = struct.unpack_from(f"{self._order}I", start)
        self._interfaces = []
        return self._rest(length, len(start))

    def _body(self) -> bytes:
        start = self._file.read(4)
        if len(start) < 4:
            raise self._broken("a block is cut")
        (length,) = struct.unpack(f"{self._order}I", start)
        return self._rest(length, len(start))

    def _rest(self, length: int, taken: int) -> bytes:
        """What is left of a block of ``length`` after its type and ``taken`` bytes."""
        wanted = length - 4 - taken
        if not _BLOCK_OVERHEAD <= length <= _LARGEST_RECORD or wanted < 4 or length % 4:
            raise self._broken(f"a block has length {length}")
        rest = self._file.read(wanted)
        if len(rest) < wanted:
            raise self._broken("a block is cut")
        return rest[:-4]

    def _packet(self, kind: int, body: bytes) -> Packet | None:
        order = self._order
        if kind == _INTERFACE:
            self._interfaces.append(self._interface(body))
        if kind not in (_PACKET, _OLD_PACKET, _SIMPLE_PACKET):
            return None
        if kind == _SIMPLE_PACKET:
            (original,) = struct.unpack_from(f"{order}I", body)
            interface = self._interfaces[0]
            captured = min(original, interface.snapshot or original)
            ticks, start = 0, 4
        else:
            layout = "IIIII" if kind == _PACKET else "HxxIIII"
            number, high, low, captured, original = struct.unpack_from(f"{order}{layout}", body)
            interface = self._interfaces[number]
            ticks, start = high << 32 | low, 20
        octets = body[start : start + captured]
        if len(octets) < captured:
            raise self._broken(f"a packet of {captured} bytes in a block of {len(body)}")
        time_ns = ticks * _NANOSECONDS // interface.ticks_per_second
        time_ns += interface.offset_seconds * _NANOSECONDS
        self._number += 1
        return Packet(self._number, time_ns, interface.linktype, octets, original)

    def _interface(self, body: bytes) -> _Interface:
        linktype, snapshot = struct.unpack_from(f"{self._order}HxxI", body)
        ticks, offset = _MICROSECONDS, 0
        position = 8
        while position + 4 <= len(body):
            code, length = struct.unpack_from(f"{self._order}HH", body, position)
            value = body[position + 4 : position + 4 + length]
            position += 4 + length + -length % 4
            if code == _OPTION_END:
                break
            if code == _OPTION_RESOLUTION and value:
                ticks = (2 if value[0] & 0x80 else 10) ** (value[0] & 0x7F)
            elif code == _OPTION_OFFSET and len(value) == 8:
                (offset,) = struct.unpack(f"{self._order}q", value)
        return _Interface(linktype, snapshot, ticks, offset)
