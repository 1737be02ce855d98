"""The Sends of the captured NFS/RDMA session, and what tshark says of the headers in them."""

import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from stagecoach.sim.capture.decode import SeenFpdu, decode_file
from stagecoach.sim.model import rdmap
from stagecoach.sim.model.ddp import UntaggedHeader

CAPTURE = Path(__file__).parents[2] / "data" / "captures" / "nfs" / "crc1-nfs3.pcap"


@dataclass(frozen=True)
class Send:
    """A whole Send: the packet with its end, the direction, its octets."""

    packet: int
    to_responder: bool
    octets: bytes


@cache
def sends(path: Path = CAPTURE) -> list[Send]:
    """All Sends of a capture in the order of their ends."""
    found, parts = [], {}
    for item in decode_file(path).items:
        if not isinstance(item, SeenFpdu):
            continue
        header, seen = item.observation.header, item.observation
        if seen.opcode not in rdmap.SEND_OPCODES or not isinstance(header, UntaggedHeader):
            continue
        octets = parts.pop(seen.direction, b"") + seen.payload
        if header.last:
            to_responder = seen.direction.name == "TO_RESPONDER"
            found.append(Send(item.place.packet, to_responder, octets))
        else:
            parts[seen.direction] = octets
    return found


@cache
def dissected(path: Path = CAPTURE) -> list[tuple[int, dict[str, list[int]]]]:
    """Packet and fields of each header that tshark finds, numbers by name without `rpcordma.`."""
    program = shutil.which("tshark")
    assert program, "tshark is not installed (Debian package tshark); this test needs it"
    command = [program, "-n", "-r", str(path), "-T", "pdml"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    found = []
    for packet in ElementTree.fromstring(text).iter("packet"):
        number = packet.find("proto[@name='geninfo']/field[@name='num']")
        for proto in packet.iter("proto"):
            if proto.get("name") == "rpcordma":
                fields: dict[str, list[int]] = {}
                for field in proto.iter("field"):
                    name = field.get("name", "").removeprefix("rpcordma.")
                    if (show := field.get("show", "")) and name:
                        fields.setdefault(name, []).append(int(show, 0))
                found.append((int(number.get("show")), fields))
    return found
