"""TCP options (RFC 9293, 3.2; RFC 2018; RFC 7323, 2): parsed wherever they stand."""

from dataclasses import dataclass

OPTIONS_OCTETS_MAX = 40
SACK_BLOCKS_MAX = 4
SHIFT_MAX = 14
_END, _NO_OPERATION, _MSS, _WINDOW_SCALE, _SACK_PERMITTED, _SACK = range(6)


@dataclass(frozen=True)
class Options:
    """The options of a segment.

    ``sack`` holds pairs of left edge and right edge, the right one being the sequence number
    after the last byte. ``malformed`` says that an illegal length ended the parsing (RFC 9293,
    MUST-7): the options before it hold. Options that are not known are skipped (MUST-6), and so
    is a known one of a wrong length.
    """

    mss: int | None = None
    window_scale: int | None = None
    sack_permitted: bool = False
    sack: tuple[tuple[int, int], ...] = ()
    malformed: bool = False

    def encode(self) -> bytes:
        """The options, padded by NOP in front so that each starts as in RFC 7323, appendix A.

        Raises ``ValueError`` for a value that its field cannot hold.
        """
        octets = b""
        if self.mss is not None:
            if not 0 <= self.mss <= 0xFFFF:
                raise ValueError(f"MSS {self.mss} (expected 0 to 65535)")
            octets += bytes((_MSS, 4)) + self.mss.to_bytes(2, "big")
        if self.sack_permitted:
            octets += bytes((_NO_OPERATION, _NO_OPERATION, _SACK_PERMITTED, 2))
        if self.window_scale is not None:
            if not 0 <= self.window_scale <= SHIFT_MAX:
                raise ValueError(f"window scale {self.window_scale} (expected 0 to {SHIFT_MAX})")
            octets += bytes((_NO_OPERATION, _WINDOW_SCALE, 3, self.window_scale))
        if len(self.sack) > SACK_BLOCKS_MAX:
            raise ValueError(f"{len(self.sack)} SACK blocks (at most {SACK_BLOCKS_MAX})")
        if self.sack:
            octets += bytes((_NO_OPERATION, _NO_OPERATION, _SACK, 2 + 8 * len(self.sack)))
            for left, right in self.sack:
                octets += left.to_bytes(4, "big") + right.to_bytes(4, "big")
        if len(octets) > OPTIONS_OCTETS_MAX:
            raise ValueError(f"{len(octets)} bytes of options (at most {OPTIONS_OCTETS_MAX})")
        return octets

    @classmethod
    def decode(cls, octets: bytes) -> "Options":
        """The options in the bytes between header and data. Of duplicates the last one counts."""
        mss = window_scale = None
        sack_permitted = malformed = False
        sack: tuple[tuple[int, int], ...] = ()
        at = 0
        while at < len(octets) and octets[at] != _END:
            kind = octets[at]
            if kind == _NO_OPERATION:
                at += 1
                continue
            length = octets[at + 1] if at + 1 < len(octets) else 0
            if length < 2 or at + length > len(octets):
                malformed = True
                break
            value = octets[at + 2 : at + length]
            at += length
            if (kind, length) == (_MSS, 4):
                mss = int.from_bytes(value, "big")
            elif (kind, length) == (_WINDOW_SCALE, 3):
                # RFC 7323, 2.3: a larger shift counts as 14.
                window_scale = min(value[0], SHIFT_MAX)
            elif (kind, length) == (_SACK_PERMITTED, 2):
                sack_permitted = True
            elif kind == _SACK and length > 2 and length % 8 == 2:
                edges = [int.from_bytes(value[i : i + 4], "big") for i in range(0, len(value), 4)]
                sack = tuple(zip(edges[::2], edges[1::2], strict=True))
        return cls(mss, window_scale, sack_permitted, sack, malformed)
