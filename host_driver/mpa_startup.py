"""MPA startup frames: their bytes, and how they are checked while they arrive.

RFC 5044 7.1.1; RFC 6581 6 and 9.
"""

from dataclasses import dataclass, replace
from enum import IntFlag
from typing import Self

from stagecoach.host_driver.mpa_errors import InitiatorInitiatorError, MalformedFrame

REQUEST_KEY = b"MPA ID Req Frame"  # RFC 5044, 7.1.1
REPLY_KEY = b"MPA ID Rep Frame"
KEY_OCTETS = 16
HEADER_OCTETS = 20
MAXIMUM_PRIVATE_DATA = 512
PLAIN_REVISION = 1
ENHANCED_REVISION = 2  # RFC 6581, 6
ENHANCED_OCTETS = 4  # RFC 6581, 9
NOT_NEGOTIATED = 0x3FFF  # RFC 6581, 9.1

FLAG_MARKERS = 0x80
FLAG_CRC = 0x40
FLAG_REJECT = 0x20
FLAG_ENHANCED = 0x10

_FLAGS_OFFSET, _REVISION_OFFSET, _LENGTH_OFFSET = 16, 17, 18
_HIGH, _LOW = 0x8000, 0x4000  # A and B in the first word, C and D in the second


class RTR(IntFlag):
    """First FPDUs of a peer-to-peer Initiator, all of length zero (RFC 6581, 9.2)."""

    READ = 1  # D
    WRITE = 2  # C
    SEND = 4  # B


NO_RTR = RTR(0)


@dataclass(frozen=True)
class StartupFrame:
    """A Request or Reply frame.

    `ird` and `ord` are `None` unless the frame has the enhanced data of RFC 6581, to which
    `peer_to_peer` (flag A) and `rtr` (B, C, D) belong; `private_data` is the ULP's own, without
    them.
    """

    reply: bool
    markers: bool = False
    crc: bool = True
    reject: bool = False
    revision: int = ENHANCED_REVISION
    ird: int | None = None
    ord: int | None = None
    peer_to_peer: bool = False
    rtr: RTR = NO_RTR
    private_data: bytes = b""

    @property
    def enhanced(self) -> bool:
        """Whether the frame has the enhanced data of RFC 6581."""
        return self.ird is not None

    @property
    def agreed_rtr(self) -> RTR:
        """The RTR options, which do not count unless A is set (RFC 6581, 9.2)."""
        return self.rtr if self.peer_to_peer else NO_RTR

    def _encode_enhanced(self) -> bytes:
        if self.ird is None or self.ord is None:
            return b""
        for name, depth in (("IRD", self.ird), ("ORD", self.ord)):
            if not 0 <= depth <= NOT_NEGOTIATED:
                raise ValueError(f"{name} {depth} in a frame; allowed: 0 to {NOT_NEGOTIATED}")
        first = self.ird | _HIGH * self.peer_to_peer | _LOW * bool(self.rtr & RTR.SEND)
        second = self.ord | _HIGH * bool(self.rtr & RTR.WRITE) | _LOW * bool(self.rtr & RTR.READ)
        return first.to_bytes(2, "big") + second.to_bytes(2, "big")

    def encode(self) -> bytes:
        """The bytes of the frame; `ValueError` if a value has no place in it."""
        enhanced = self._encode_enhanced()
        revisions = (PLAIN_REVISION, ENHANCED_REVISION)[bool(enhanced) :]
        if self.revision not in revisions:
            raise ValueError(f"MPA revision {self.revision}; allowed: {_either(revisions)}")
        allowed = MAXIMUM_PRIVATE_DATA - len(enhanced)
        if len(self.private_data) > allowed:
            raise ValueError(
                f"{len(self.private_data)} bytes of private data; allowed: 0 to {allowed}"
            )
        data = enhanced + self.private_data
        flags = (
            FLAG_MARKERS * self.markers
            | FLAG_CRC * self.crc
            | FLAG_REJECT * self.reject
            | FLAG_ENHANCED * bool(enhanced)
        )
        key = REPLY_KEY if self.reply else REQUEST_KEY
        return key + bytes([flags, self.revision]) + len(data).to_bytes(2, "big") + data

    @classmethod
    def decode(cls, octets: bytes, *, reply: bool) -> Self:
        """The frame that `octets` are, exactly; `MalformedFrame` if they are not."""
        if missing := missing_octets(octets, reply=reply):
            allowed = f"{len(octets) + missing} or more"
            raise MalformedFrame(f"{len(octets)} bytes of a {_name(reply)}; allowed: {allowed}")
        flags, revision = octets[_FLAGS_OFFSET], octets[_REVISION_OFFSET]
        end = HEADER_OCTETS + int.from_bytes(octets[_LENGTH_OFFSET:HEADER_OCTETS], "big")
        if len(octets) > end:
            raise MalformedFrame(f"{len(octets)} bytes of a {_name(reply)}; allowed: {end}")
        data = bytes(octets[HEADER_OCTETS:])
        frame = cls(
            reply=reply,
            markers=bool(flags & FLAG_MARKERS),
            crc=bool(flags & FLAG_CRC),
            reject=bool(flags & FLAG_REJECT),
            revision=revision,
            private_data=data,
        )
        if not _is_enhanced(flags, revision):
            return frame
        first, second = int.from_bytes(data[:2], "big"), int.from_bytes(data[2:4], "big")
        options = {
            RTR.SEND: first & _LOW,
            RTR.WRITE: second & _HIGH,
            RTR.READ: second & _LOW,
        }
        return replace(
            frame,
            ird=first & NOT_NEGOTIATED,
            ord=second & NOT_NEGOTIATED,
            peer_to_peer=bool(first & _HIGH),
            rtr=RTR(sum(option for option, flag in options.items() if flag)),
            private_data=data[ENHANCED_OCTETS:],
        )


def missing_octets(octets: bytes, *, reply: bool) -> int:
    """How many bytes of the frame follow as far as is known, 0 if it is complete.

    Raises `MalformedFrame` as soon as the bytes cannot become a frame of the expected kind.
    """
    _check_key(bytes(octets[:KEY_OCTETS]), reply)
    if len(octets) < KEY_OCTETS:
        return KEY_OCTETS - len(octets)
    if len(octets) <= _REVISION_OFFSET:
        return HEADER_OCTETS - len(octets)
    revision = octets[_REVISION_OFFSET]
    if revision not in (PLAIN_REVISION, ENHANCED_REVISION):
        raise MalformedFrame(f"MPA revision {revision} in the {_name(reply)}; allowed: 1 and 2")
    if len(octets) < HEADER_OCTETS:
        return HEADER_OCTETS - len(octets)
    length = int.from_bytes(octets[_LENGTH_OFFSET:HEADER_OCTETS], "big")
    if length > MAXIMUM_PRIVATE_DATA:
        raise MalformedFrame(
            f"private data length {length} in the {_name(reply)}; "
            f"allowed: 0 to {MAXIMUM_PRIVATE_DATA}"
        )
    if _is_enhanced(octets[_FLAGS_OFFSET], revision) and length < ENHANCED_OCTETS:
        raise MalformedFrame(
            f"private data length {length} in an enhanced {_name(reply)}; "
            f"allowed: {ENHANCED_OCTETS} to {MAXIMUM_PRIVATE_DATA}"
        )
    return max(0, HEADER_OCTETS + length - len(octets))


def _is_enhanced(flags: int, revision: int) -> bool:
    # In revision 1 the bit is reserved and not checked (RFC 5044, 7.1.1).
    return bool(flags & FLAG_ENHANCED) and revision >= ENHANCED_REVISION


def _check_key(found: bytes, reply: bool) -> None:
    key, other = (REPLY_KEY, REQUEST_KEY) if reply else (REQUEST_KEY, REPLY_KEY)
    if key.startswith(found):
        return
    if reply and other.startswith(found):
        raise InitiatorInitiatorError(
            "Initiator/Initiator error: an MPA Request came instead of a Reply; "
            "allowed: one Initiator and one Responder"
        )
    raise MalformedFrame(f"no MPA {_name(reply)}: it begins {found!r}; allowed: {key!r}")


def _name(reply: bool) -> str:
    return "Reply" if reply else "Request"


def _either(values: tuple[int, ...]) -> str:
    return " or ".join(map(str, values))
