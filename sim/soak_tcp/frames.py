"""Counts the segments that cards give to their wire."""

from collections import Counter

from stagecoach.host_driver.network.ipv4 import Protocol
from stagecoach.host_driver.network.tcp import Flag
from stagecoach.sim.network.frame_log import FrameLog

_IPV4 = b"\x08\x00"
_PROTOCOL = 23
_ADDRESSES = slice(26, 34)
_PORTS = slice(34, 38)
_LEAST = 54
"""Bytes of a frame with a segment: headers without options."""

_HALF = 1 << 31


class SegmentLog(FrameLog):
    """A card's log that counts TCP segments, too.

    Attributes
    ----------
    counts: of those that the card sent: segments, with data, pure ACKs, with SYN, FIN or RST, with
        SACK blocks; retransmitted: whose bytes were all sent before; wrapped: whose bytes have
        both sequence number 2^32 - 1 and 0. others: frames that are no segments.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self._next: dict[bytes, int] = {}

    def note(self, now_us: int, frame: bytes, *, sent: bool) -> None:
        """A frame passes."""
        super().note(now_us, frame, sent=sent)
        if sent:
            is_segment = (
                frame[12:14] == _IPV4 and len(frame) >= _LEAST and frame[_PROTOCOL] == Protocol.TCP
            )
            if is_segment:
                self._count(frame)
            else:
                self.counts["others"] += 1

    def _count(self, frame: bytes) -> None:
        counts = self.counts
        counts["segments"] += 1
        flags, header = frame[47], 34 + (frame[46] >> 4) * 4
        data = 14 + int.from_bytes(frame[16:18]) - header
        for flag, name in ((Flag.SYN, "syn"), (Flag.FIN, "fin"), (Flag.RST, "rst")):
            counts[name] += bool(flags & flag)
        counts["with_sack_blocks"] += header > _LEAST and not flags & Flag.SYN
        sequence = int.from_bytes(frame[38:42])
        ends = frame[_ADDRESSES] + frame[_PORTS]
        after = sequence + data
        if flags & Flag.SYN:
            self._next[ends] = (after + 1) % (1 << 32)
            return
        if not data:
            counts["pure_acks"] += not flags & (Flag.FIN | Flag.RST)
            return
        counts["with_data"] += 1
        counts["wrapped"] += after > 1 << 32
        # Of the peer's reply to SYN the log of this card has no copy.
        known = self._next.setdefault(ends, sequence)
        if (after - known - 1) % (1 << 32) < _HALF:
            self._next[ends] = after % (1 << 32)
        else:
            counts["retransmitted"] += 1
