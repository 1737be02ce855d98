"""A frame from Ethernet to DDP, with the offset of every field, out of the layouts of the code."""

from collections.abc import Iterable, Iterator

from amaranth.lib.data import StructLayout

from stagecoach.gateware.ddp.headers import CONTROL as DDP_CONTROL
from stagecoach.gateware.ddp.headers import TAGGED_HEADER, UNTAGGED_HEADER
from stagecoach.gateware.rdmap.headers import CONTROL as RDMAP_CONTROL
from stagecoach.host_driver.network.ethernet import MAC_OCTETS
from stagecoach.host_driver.network.ipv4 import HEADER_OCTETS as IPV4_OCTETS
from stagecoach.host_driver.network.tcp import HEADER_OCTETS as TCP_OCTETS
from stagecoach.host_driver.transport.network import ETHERNET_HEADER_OCTETS
from stagecoach.hw.interface.wire import FPDU_CRC_OCTETS, ULPDU_LENGTH_OCTETS
from tools.figures.svg import (
    HOST,
    MEMORY,
    MUTED,
    QUEUES,
    RECEIVE,
    TRANSMIT,
    WIRE,
    Drawing,
)

_NAMES = {
    "control": "DDP control",
    "rsvd_ulp": "RDMAP control",
    "rsvd_ulp_word": "Invalidate STag",
    "stag": "STag",
    "tagged_offset": "Tagged Offset",
    "qn": "QN",
    "msn": "MSN",
    "mo": "MO",
}
_ROW, _OCTET, _LEFT, _HEIGHT = 8, 100, 70, 30

Field = tuple[str, int, str]
"""Name, bytes, color."""

BEFORE_DDP: tuple[Field, ...] = (
    ("destination MAC", MAC_OCTETS, HOST),
    ("source MAC", MAC_OCTETS, HOST),
    ("EtherType", ETHERNET_HEADER_OCTETS - 2 * MAC_OCTETS, HOST),
    ("IPv4 header without options", IPV4_OCTETS, WIRE),
    ("TCP header without options", TCP_OCTETS, QUEUES),
    ("ULPDU_Length", ULPDU_LENGTH_OCTETS, RECEIVE),
)
LAYERS = (
    ("Ethernet", HOST),
    ("IPv4", WIRE),
    ("TCP", QUEUES),
    ("MPA", RECEIVE),
    ("DDP and RDMAP", TRANSMIT),
    ("payload", MEMORY),
)


def header_fields(layout: StructLayout) -> list[Field]:
    """The fields of a DDP header in the order of the wire."""
    found = sorted(layout, key=lambda each: each[1].offset)
    return [(_NAMES[name], field.width // 8, TRANSMIT) for name, field in found]


def _pieces(fields: Iterable[Field], start: int) -> Iterator[tuple[int, int, Field, bool]]:
    """Offset and bytes of the part of a field in each row; whether it is the longest part."""
    offset = start
    for field in fields:
        left, parts = field[1], []
        while left:
            octets = min(left, _ROW - offset % _ROW)
            parts.append((offset, octets))
            offset, left = offset + octets, left - octets
        longest = max(parts, key=lambda part: part[1])
        yield from ((*part, field, part is longest) for part in parts)


def _rows(d: Drawing, y: float, fields: Iterable[Field], start: int) -> float:
    """Fields in rows of 8 bytes, with the offset of each row; the height after them."""
    first, last = start // _ROW, 0
    for offset, octets, (name, _, color), named in _pieces(fields, start):
        row, column = offset // _ROW - first, offset % _ROW
        top = y + row * _HEIGHT
        d.cell(
            *(_LEFT + column * _OCTET, top, octets * _OCTET, _HEIGHT, color),
            name if named else "",
        )
        if column == 0 or offset == start:
            d.text(_LEFT - 10, top + 20, str(offset), 12, MUTED, "end")
        last = row
    return y + (last + 1) * _HEIGHT


def _bits(d: Drawing, x: float, y: float, title: str, layout: StructLayout) -> None:
    """A byte from bit 7 to bit 0."""
    d.text(x, y - 8, title, 13, anchor="start", bold=True)
    for name, field in layout:
        left = x + (8 - field.offset - field.width) * 48
        d.cell(left, y, field.width * 48, _HEIGHT, TRANSMIT, name)
        high = field.offset + field.width - 1
        bits = str(high) if field.width == 1 else f"{high} to {field.offset}"
        d.text(left + field.width * 24, y + _HEIGHT + 15, bits, 11, MUTED)


def frame() -> str:
    """The frame of an RDMA Write, and what a Send has instead."""
    d = Drawing(890, 625, "A frame with a segment of an RDMA Write, and the header of a Send")
    start = sum(octets for _, octets, _ in BEFORE_DDP)
    d.text(_LEFT, 26, "RDMA Write: offsets in the frame, 8 bytes a row", 15, anchor="start")
    tagged = header_fields(TAGGED_HEADER)
    payload = start + sum(octets for _, octets, _ in tagged)
    y = _rows(d, 40, [*BEFORE_DDP, *tagged], 0)
    d.text(_LEFT - 10, y + 20, str(payload), 12, MUTED, "end")
    d.cell(_LEFT, y, 500, _HEIGHT, MEMORY, f"payload from offset {payload}")
    d.cell(_LEFT + 500, y, 150, _HEIGHT, RECEIVE, "pad: 0 to 3 bytes")
    d.cell(_LEFT + 650, y, 150, _HEIGHT, RECEIVE, f"CRC32c: {FPDU_CRC_OCTETS} bytes")
    y += _HEIGHT + 16
    x: float = _LEFT
    for name, color in LAYERS:
        d.rectangle(x, y, 14, 14, color)
        d.label(x + 20, y + 12, name)
        x += 132
    d.text(_LEFT, y + 52, "Send: the untagged header instead", 15, anchor="start")
    y = _rows(d, y + 66, header_fields(UNTAGGED_HEADER), start)
    y += 54
    _bits(d, _LEFT, y, "DDP control", DDP_CONTROL)
    _bits(d, _LEFT + 416, y, "RDMAP control", RDMAP_CONTROL)
    return d.svg()
