"""MPA startup frames: encoding, decoding, and what the two ends agree on.

RFC 5044 7.1 and RFC 6581.
"""

from dataclasses import dataclass

from host_driver.errors import StartupError

REQUEST_KEY = b"MPA ID Req Frame"  # RFC 5044, 7.1.1
REPLY_KEY = b"MPA ID Rep Frame"
HEADER_OCTETS = 20
MAXIMUM_PRIVATE_DATA = 512
ENHANCED_REVISION = 2  # RFC 6581, 6
ENHANCED_OCTETS = 4  # RFC 6581, 9
NOT_NEGOTIATED = 0x3FFF  # RFC 6581, 9.1

FLAG_MARKERS = 0x80
FLAG_CRC = 0x40
FLAG_REJECT = 0x20
FLAG_ENHANCED = 0x10

FLAG_PEER_TO_PEER = 0x8000  # A and, in the second word, C
FLAG_RTR = 0x4000  # B and D
READS_MASK = 0x3FFF


@dataclass(frozen=True)
class StartupFrame:
    """A Request or Reply frame.

    `ird` and `ord` are `None` unless the frame has the enhanced data of RFC 6581; `private_data`
    is the ULP's own, without them. `control` holds the flags A, B and C, D of RFC 6581 9 as bits
    3 to 0.
    """

    reply: bool
    markers: bool = False
    crc: bool = True
    reject: bool = False
    revision: int = 2
    ird: int | None = None
    ord: int | None = None
    control: int = 0
    private_data: bytes = b""

    @property
    def enhanced(self) -> bool:
        """Whether the frame has the enhanced data of RFC 6581."""
        return self.ird is not None

    def encode(self) -> bytes:
        """The octets of the frame; `ValueError` if the private data is too long."""
        enhanced = b""
        if self.ird is not None and self.ord is not None:
            first = self.ird & READS_MASK | (self.control >> 2 & 3) << 14
            second = self.ord & READS_MASK | (self.control & 3) << 14
            enhanced = first.to_bytes(2, "big") + second.to_bytes(2, "big")
        allowed = MAXIMUM_PRIVATE_DATA - len(enhanced)
        if len(self.private_data) > allowed:
            raise ValueError(
                f"{len(self.private_data)} octets of private data; allowed: 0 to {allowed}"
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


def private_data_length(header: bytes, *, reply: bool) -> int:
    """Octets that follow the 20-octet `header` of the expected kind of frame.

    Raises `StartupError` for anything that is no such frame.
    """
    key = REPLY_KEY if reply else REQUEST_KEY
    name = "Reply" if reply else "Request"
    if header[:16] != key:
        other = REQUEST_KEY if reply else REPLY_KEY
        if header[:16] == other:
            raise StartupError(f"the peer took the same side of MPA startup: no {name} frame")
        raise StartupError(f"no MPA {name} frame: it begins {header[:16]!r}; allowed: {key!r}")
    if header[17] not in (1, 2):
        raise StartupError(f"MPA revision {header[17]} in the {name}; allowed: 1 and 2")
    length = int.from_bytes(header[18:20], "big")
    if length > MAXIMUM_PRIVATE_DATA:
        raise StartupError(
            f"private data length {length} in the {name}; allowed: 0 to {MAXIMUM_PRIVATE_DATA}"
        )
    return length


def decode(header: bytes, data: bytes, *, reply: bool) -> StartupFrame:
    """The frame of a checked header and its private data; `StartupError` if it is malformed."""
    flags = header[16]
    ird = ord_ = None
    control = 0
    # In revision 1 this bit is reserved and not checked (RFC 5044, 7.1.1).
    if flags & FLAG_ENHANCED and header[17] >= ENHANCED_REVISION:
        if len(data) < ENHANCED_OCTETS:
            raise StartupError(
                f"enhanced frame with {len(data)} octets; allowed: {ENHANCED_OCTETS} or more"
            )
        first = int.from_bytes(data[:2], "big")
        second = int.from_bytes(data[2:4], "big")
        ird, ord_ = first & READS_MASK, second & READS_MASK
        control = (first >> 14) << 2 | second >> 14
        data = data[ENHANCED_OCTETS:]
    return StartupFrame(
        reply=reply,
        markers=bool(flags & FLAG_MARKERS),
        crc=bool(flags & FLAG_CRC),
        reject=bool(flags & FLAG_REJECT),
        revision=header[17],
        ird=ird,
        ord=ord_,
        control=control,
        private_data=data,
    )


def limit_reads(own: int, peers: int | None) -> int:
    """The smaller of the own limit and what the peer told, if it told anything (RFC 6581, 9.1)."""
    return own if peers is None or peers == NOT_NEGOTIATED else min(own, peers)
