"""Faults of siw that are known, told by what the wire shows: what fails by one is not our failure.

siw's Terminate has fields of a byte in the reverse order; the device reads both orders, so that
is no reason to fail. The other two end a connection now and then:

* **Accept race**: siw sends the MPA Reply before it looks for FPDUs. It acknowledges the first FPDU
  and does nothing with it until more comes.
* **Split CRC trailer**: siw finds a wrong CRC in an FPDU whose CRC is right, if pad and CRC come in
  two segments.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stagecoach.sim.capture.decode import decode_file
from stagecoach.sim.capture.decode_json import as_json
from stagecoach.sim.capture.file import read_packets
from stagecoach.sim.capture.packets import FLAG_FIN, FLAG_RST, Segment, tcp_segments
from tools.interop.guest import ADDRESSES, USER_ADDRESS

ACCEPT_RACE = "siw did not look at the first FPDU after its MPA Reply"
SPLIT_TRAILER = "siw found a wrong CRC in an FPDU whose CRC is right"

_LINUX = (*ADDRESSES, USER_ADDRESS)
_MPA_CRC = "2/0/02"
_RACE_NS = 1_000_000_000
"""For which the connection has to stand still, to be told from a program that ends."""


def known_fault(capture: Path) -> str | None:
    """The fault of siw that a capture shows, if it shows one."""
    items = [as_json(item) for item in decode_file(capture).items]
    if _split_trailer(items):
        return SPLIT_TRAILER
    if _accept_race(items, list(tcp_segments(read_packets(capture)))):
        return ACCEPT_RACE
    return None


def _host(address: str) -> str:
    return address.rsplit(":", 1)[0]


def _split_trailer(items: Iterable[Mapping[str, Any]]) -> bool:
    """Whether Linux complains of a CRC in a connection in which all of ours are right."""
    good: dict[int, bool] = {}
    for item in items:
        if item["kind"] != "fpdu":
            continue
        connection, linux = item["connection"], _host(item["source"]) in _LINUX
        if not linux:
            right = item["crc_good"] or not item["crc_in_use"]
            good[connection] = good.get(connection, True) and right
        elif item["terminate"] and item["terminate"]["error"] == _MPA_CRC:
            return good.get(connection, False)
    return False


def _accept_race(items: Iterable[Mapping[str, Any]], segments: Iterable[Segment]) -> bool:
    """Whether Linux accepted a connection, got an FPDU, and said nothing more for a second."""
    replied: set[int] = set()
    asked: dict[int, Mapping[str, Any]] = {}
    for item in items:
        connection, linux = item["connection"], _host(item["source"]) in _LINUX
        if item["kind"] == "reply" and linux and not item["reject"]:
            replied.add(connection)
        elif item["kind"] == "fpdu" and connection in replied:
            if linux:
                replied.discard(connection)
                asked.pop(connection, None)
            else:
                asked.setdefault(connection, item)
    return any(_stood_still(item, segments) for item in asked.values())


def _stood_still(item: Mapping[str, Any], segments: Iterable[Segment]) -> bool:
    """Whether the connection of an FPDU was ended a second later or more, and not by Linux."""
    pair = {item["source"], item["destination"]}
    for each in segments:
        source, destination = (f"{host}:{port}" for host, port in (each.source, each.destination))
        if {source, destination} == pair and each.flags & (FLAG_FIN | FLAG_RST):
            late = each.time_ns - item["time_ns"] >= _RACE_NS
            return late and _host(source) not in _LINUX
    return False
