"""Makes captures out of octets, and decodes them."""

import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stagecoach.sim.capture.decode import decode_file
from stagecoach.sim.capture.decode_json import as_json
from stagecoach.sim.capture.decode_text import lines
from stagecoach.sim.capture.pcapng import PcapngWriter, TcpConversation
from stagecoach.sim.model import mpa
from stagecoach.sim.model.direction import Direction
from stagecoach.sim.model.startup import StartupFrame

Log = Iterable[tuple[Direction, bytes]]
TO_RESPONDER, TO_INITIATOR = Direction.TO_RESPONDER, Direction.TO_INITIATOR


def written(path: Path, *logs: Log) -> Path:
    """A pcapng file of conversations, in each piece as one or more packets."""
    with PcapngWriter(path) as writer:
        for number, log in enumerate(logs):
            conversation = TcpConversation(writer, initiator=("10.0.0.1", 49152 + number))
            time = float(number)
            for direction, octets in log:
                time += 1e-3
                conversation.add(direction, octets, time)
            conversation.close(time)
    return path


def startup(
    request: StartupFrame | None = None, reply: StartupFrame | None = None
) -> list[tuple[Direction, bytes]]:
    """Request and Reply, plain ones if none are given."""
    return [
        (TO_RESPONDER, (request or StartupFrame(reply=False)).encode()),
        (TO_INITIATOR, (reply or StartupFrame(reply=True)).encode()),
    ]


def conversation(
    *ulpdus: tuple[Direction, bytes],
    request: StartupFrame | None = None,
    reply: StartupFrame | None = None,
) -> list[tuple[Direction, bytes]]:
    """Startup frames and FPDUs with what they settle."""
    request = request or StartupFrame(reply=False)
    reply = reply or StartupFrame(reply=True)
    settled = mpa.negotiate(request, reply)
    framers = {
        TO_RESPONDER: mpa.Framer(settled.initiator_sends_markers, settled.crc),
        TO_INITIATOR: mpa.Framer(settled.responder_sends_markers, settled.crc),
    }
    log = startup(request, reply)
    return log + [(direction, framers[direction].frame(ulpdu)) for direction, ulpdu in ulpdus]


def decoded(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a capture, through their text."""
    return [json.loads(json.dumps(as_json(item))) for item in decode_file(path).items]


def printed(path: Path) -> list[str]:
    """The lines of a capture, without colours."""
    return [line.plain for line in lines(decode_file(path))]


def problems(objects: Iterable[dict[str, Any]]) -> list[tuple[str, str | None]]:
    """Source and error of everything that is wrong, in order."""
    return [(p["source"], p["error"]) for item in objects for p in item["problems"]]


Record = tuple[bool, int, int, bytes]


def tcp_packet(record: Record, *, ip: int = 4) -> bytes:
    """An IP packet of (to responder, sequence number, flags, payload), without checksums."""
    to_responder, sequence, flags, payload = record
    ports = (1000, 2000) if to_responder else (2000, 1000)
    tcp = struct.pack(">HHIIBBHHH", *ports, sequence % 2**32, 0, 0x50, flags, 0, 0, 0) + payload
    if ip == 4:
        fields = (0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0, b"abcd", b"abcd")
        return struct.pack(">BBHHHBBH4s4s", *fields) + tcp
    # With eight octets of hop-by-hop options.
    header = struct.pack(">IHBB16s16s", 6 << 28, 8 + len(tcp), 0, 64, b"a" * 16, b"a" * 16)
    return header + bytes([6, 0, 1, 4, 0, 0, 0, 0]) + tcp


def pcap(packets: Iterable[bytes], *, linktype: int, order: str = "<", nano: bool = False) -> bytes:
    """A pcap file; the packets come a millisecond apart, the first at 1.5 s."""
    magic = 0xA1B23C4D if nano else 0xA1B2C3D4
    data = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 0xFFFF, linktype)
    for number, packet in enumerate(packets):
        fraction = (500 + number) * (10**6 if nano else 10**3)
        data += struct.pack(f"{order}IIII", 1, fraction, len(packet), len(packet)) + packet
    return data
