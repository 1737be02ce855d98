"""MPA startup frames (RFC 5044, 7.1) with enhanced connection data (RFC 6581, 6 and 9)."""

from dataclasses import dataclass, field

from stagecoach.sim.model import errors
from stagecoach.sim.model.errors import MpaError

# RFC 5044, 7.1.1.
KEY_REQUEST = b"MPA ID Req Frame"
KEY_REPLY = b"MPA ID Rep Frame"
KEY_OCTETS = 16
HEADER_OCTETS = 20
FLAG_MARKERS = 0x80
FLAG_CRC = 0x40
FLAG_REJECT = 0x20
FLAG_ENHANCED = 0x10
PRIVATE_DATA_MAX = 512
REVISION = 1
# RFC 6581, 6: needed for any enhanced feature.
REVISION_ENHANCED = 2
# RFC 6581, 9.
ENHANCED_OCTETS = 4
DEPTH_NOT_NEGOTIATED = 0x3FFF
_FLAG_HIGH = 0x8000
_FLAG_LOW = 0x4000


def invalid(detail: str) -> MpaError:
    """MPA error 4 with its reason."""
    return MpaError(errors.MPA_INVALID_STARTUP, detail)


@dataclass(frozen=True)
class EnhancedData:
    """Enhanced RDMA connection establishment data (RFC 6581, 9)."""

    ird: int = DEPTH_NOT_NEGOTIATED
    ord: int = DEPTH_NOT_NEGOTIATED
    peer_to_peer: bool = False  # A
    rtr_send: bool = False  # B
    rtr_write: bool = False  # C
    rtr_read: bool = False  # D

    def encode(self) -> bytes:
        for name, depth in (("IRD", self.ird), ("ORD", self.ord)):
            if not 0 <= depth <= DEPTH_NOT_NEGOTIATED:
                raise ValueError(f"{name} is {depth}; 0 to {DEPTH_NOT_NEGOTIATED} are possible")
        first = self.ird | _FLAG_HIGH * self.peer_to_peer | _FLAG_LOW * self.rtr_send
        second = self.ord | _FLAG_HIGH * self.rtr_write | _FLAG_LOW * self.rtr_read
        return first.to_bytes(2, "big") + second.to_bytes(2, "big")

    @classmethod
    def decode(cls, octets: bytes) -> "EnhancedData":
        first = int.from_bytes(octets[0:2], "big")
        second = int.from_bytes(octets[2:4], "big")
        return cls(
            ird=first & DEPTH_NOT_NEGOTIATED,
            ord=second & DEPTH_NOT_NEGOTIATED,
            peer_to_peer=bool(first & _FLAG_HIGH),
            rtr_send=bool(first & _FLAG_LOW),
            rtr_write=bool(second & _FLAG_HIGH),
            rtr_read=bool(second & _FLAG_LOW),
        )


@dataclass(frozen=True)
class StartupFrame:
    """MPA Request or Reply Frame. ``private_data`` is the ULP's part, without enhanced data.

    The S bit is set exactly when ``enhanced`` is given.
    """

    reply: bool
    markers: bool = False
    crc: bool = True
    reject: bool = False
    revision: int = REVISION_ENHANCED
    private_data: bytes = b""
    enhanced: EnhancedData | None = field(default=None)

    def encode(self) -> bytes:
        private = (self.enhanced.encode() if self.enhanced else b"") + self.private_data
        if len(private) > PRIVATE_DATA_MAX:
            raise ValueError(
                f"{len(private)} bytes of private data (enhanced data included); "
                f"at most {PRIVATE_DATA_MAX} are allowed"
            )
        flags = (
            FLAG_MARKERS * self.markers
            | FLAG_CRC * self.crc
            | FLAG_REJECT * self.reject
            | FLAG_ENHANCED * (self.enhanced is not None)
        )
        key = KEY_REPLY if self.reply else KEY_REQUEST
        return key + bytes([flags, self.revision]) + len(private).to_bytes(2, "big") + private

    @classmethod
    def parse(cls, octets: bytes) -> "tuple[StartupFrame, int] | None":
        """The frame at the start of a stream and its length; ``None`` while octets are missing.

        Raises :class:`MpaError` (code 4) as soon as the octets cannot become a legal frame.
        """
        key = bytes(octets[:KEY_OCTETS])
        if not (KEY_REQUEST.startswith(key) or KEY_REPLY.startswith(key)):
            raise invalid(f"key {key!r} is neither that of a Request nor that of a Reply Frame")
        if len(octets) < HEADER_OCTETS:
            return None
        flags, revision = octets[16], octets[17]
        length = int.from_bytes(octets[18:20], "big")
        if revision not in (REVISION, REVISION_ENHANCED):
            raise invalid(f"MPA revision {revision}; 1 and 2 are supported")
        if length > PRIVATE_DATA_MAX:
            raise invalid(f"PD_Length {length}; at most {PRIVATE_DATA_MAX} is allowed")
        # In revision 1 this bit is reserved and not checked (RFC 5044, 7.1.1).
        is_enhanced = bool(flags & FLAG_ENHANCED) and revision >= REVISION_ENHANCED
        if is_enhanced and length < ENHANCED_OCTETS:
            raise invalid(f"S bit set with PD_Length {length}; {ENHANCED_OCTETS} are needed")
        end = HEADER_OCTETS + length
        if len(octets) < end:
            return None
        private = bytes(octets[HEADER_OCTETS:end])
        enhanced = None
        if is_enhanced:
            enhanced = EnhancedData.decode(private)
            private = private[ENHANCED_OCTETS:]
        frame = cls(
            reply=key == KEY_REPLY,
            markers=bool(flags & FLAG_MARKERS),
            crc=bool(flags & FLAG_CRC),
            reject=bool(flags & FLAG_REJECT),
            revision=revision,
            private_data=private,
            enhanced=enhanced,
        )
        return frame, end

    @classmethod
    def decode(cls, octets: bytes) -> "StartupFrame":
        """The frame that ``octets`` are, exactly."""
        parsed = cls.parse(octets)
        if parsed is None or parsed[1] != len(octets):
            raise invalid(f"{len(octets)} bytes are not exactly one startup frame")
        return parsed[0]


@dataclass(frozen=True)
class Negotiated:
    """What Request and Reply settle for Full Operation (RFC 5044, 7.1.1)."""

    crc: bool
    initiator_sends_markers: bool
    responder_sends_markers: bool


def negotiate(request: StartupFrame, reply: StartupFrame) -> Negotiated:
    """CRC if either side wants it; Markers towards a side that asked for them."""
    return Negotiated(request.crc or reply.crc, reply.markers, request.markers)


def reply_faults(request: StartupFrame, reply: StartupFrame) -> list[str]:
    """What the RFCs forbid in this Reply to this Request, each with its section; best empty."""
    faults = []
    # Without S the frames of both revisions are the same (RFC 6581, 6).
    if request.enhanced is not None and reply.revision != request.revision:
        faults.append("RFC 6581, 6: Rev of the Request is not that of the Reply")
    if (reply.enhanced is None) != (request.enhanced is None):
        faults.append("RFC 6581, 10: S of the Request is not that of the Reply")
    asked, answered = request.enhanced, reply.enhanced
    if asked is None or answered is None:
        return faults
    options = (answered.rtr_send, answered.rtr_write, answered.rtr_read)
    if answered.peer_to_peer != asked.peer_to_peer:
        faults.append("RFC 6581, 9.2: A of the Request is not that of the Reply")
    if not answered.peer_to_peer and any(options):
        faults.append("RFC 6581, 9.2: an RTR option without A")
    if answered.peer_to_peer and not any(options):
        faults.append("RFC 6581, 9.2: A without an RTR option")
    if asked.ord == DEPTH_NOT_NEGOTIATED != answered.ird:
        faults.append("RFC 6581, 9.1: ORD is not to be negotiated, but IRD is answered")
    if asked.ird == DEPTH_NOT_NEGOTIATED:
        if answered.ord != DEPTH_NOT_NEGOTIATED:
            faults.append("RFC 6581, 9.1: IRD is not to be negotiated, but ORD is answered")
    elif not reply.reject and answered.ord > asked.ird:
        faults.append("RFC 6581, 9.1: ORD of the responder above IRD of the initiator")
    if answered.peer_to_peer and answered.rtr_read and answered.ird == 0:
        faults.append("RFC 6581, 9.1: a Read as RTR, but no IRD for it")
    return faults


def initiator_faults(reply: StartupFrame, *, ird: int, ord: int) -> list[str]:
    """What RFC 6581, 9.1 forbids in the initiator's depths after an accepting Reply."""
    faults: list[str] = []
    answered = reply.enhanced
    if answered is None:
        return faults
    if DEPTH_NOT_NEGOTIATED != answered.ird < ord:
        faults.append(f"ORD {ord} of the initiator above IRD {answered.ird} of the responder")
    if DEPTH_NOT_NEGOTIATED != answered.ord > ird:
        faults.append(f"IRD {ird} of the initiator below ORD {answered.ord} of the responder")
    return faults
