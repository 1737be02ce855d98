"""Segments that came before the engine had their connection."""

from stagecoach.host_driver.network import ethernet, ipv4, tcp
from stagecoach.host_driver.network.ethernet import EtherType
from stagecoach.host_driver.network.hardware.flow import Flow, signed
from stagecoach.host_driver.network.ipv4 import Protocol
from stagecoach.host_driver.network.refusal import Refused
from stagecoach.host_driver.network.sequence import advance
from stagecoach.host_driver.network.tcp import Segment
from stagecoach.host_driver.network.time_wait import Ends
from stagecoach.host_driver.transport.network import ETHERNET_HEADER_OCTETS

_KIND = slice(12, ETHERNET_HEADER_OCTETS)
_PROTOCOL_AT = ETHERNET_HEADER_OCTETS + 9
_IPV4 = EtherType.IPV4.to_bytes(2)
_TCP = bytes((Protocol.TCP,))


def segment_of(frame: bytes, mac: bytes) -> tuple[Ends, Segment] | None:
    """The segment in a frame, and its ends here and there; `None` if it has no good one."""
    is_tcp = frame[_KIND] == _IPV4 and frame[_PROTOCOL_AT : _PROTOCOL_AT + 1] == _TCP
    if not is_tcp or frame[: len(mac)] != mac:
        return None
    try:
        segment = tcp.decode(ipv4.decode(ethernet.decode(frame, mac).payload))
    except Refused:
        return None
    return (segment.destination, segment.source), segment


def place(flow: Flow, segment: Segment, received: int) -> None:
    """Write those bytes of a segment to the RX ring that the engine may take.

    received: RCV.NXT. Bytes before it are there already, and those past the ring would be written
    over what is not read; the engine takes none of them, for the window ends there at the latest.
    Nothing is released meanwhile.
    """
    first = signed(received, segment.sequence)
    end = first + len(segment.data)
    room = flow.rx.octets + signed(received, flow.released)
    first_kept, end_kept = max(first, 0), min(end, room)
    if first_kept < end_kept:
        data = segment.data[first_kept - first : end_kept - first]
        flow.rx.write(advance(received, first_kept), data)
