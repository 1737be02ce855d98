"""Literal frames: known-answer vectors, and those that a Linux peer sent (tests/data/tcp)."""

import json
import struct
from collections.abc import Iterator

from tests.sim.model.tcp.vectors import TCP_DATA, VECTORS

FRAMES = {
    vector["name"]: bytes.fromhex(vector["frame_hex"])
    for vector in (
        *VECTORS["frames"],
        *json.loads((TCP_DATA / "network_frames.json").read_text())["frames"],
    )
}
"""By name; made by scapy."""

CAPTURES = ("dsack-duplicates", "odd-segments-b", "plain", "simultaneous-open-a")

# Magic number, then six octets of time and the two lengths of each record (little endian).
_FILE_HEADER = 24
_RECORD = struct.Struct("<IIII")


def captured(name: str) -> Iterator[bytes]:
    """The frames of a capture of a Linux peer."""
    octets = (TCP_DATA / f"{name}.pcap").read_bytes()
    place = _FILE_HEADER
    while place < len(octets):
        *_, length, _ = _RECORD.unpack_from(octets, place)
        place += _RECORD.size
        yield octets[place : place + length]
        place += length
