"""The checks of a received segment that need no STag, as conditions on its octets.

RFC 5041, 7.1; RFC 5040, 7.2; RFC 7306, 5, 6, 8.2. Octets are counted from the first one of the
ULPDU. Nothing of the gateware's layouts is used. What the device refuses beyond the RFCs is in
docs/decisions/stricter-than-the-rfcs.md: it is refused here, too.
"""

from collections.abc import Iterable
from typing import Any

from amaranth.hdl import Cat, Const, Mux, Value
from amaranth.lib import data

WRITE, READ_REQUEST, READ_RESPONSE = 0, 1, 2
SENDS = (3, 4, 5, 6)
INVALIDATING = (4, 6)
IMMEDIATE = (8, 9)
ATOMIC_REQUEST, ATOMIC_RESPONSE = 10, 11
EXTENSIONS = (*IMMEDIATE, ATOMIC_REQUEST, ATOMIC_RESPONSE)
"""Opcodes (RFC 5040, Figure 4; RFC 7306, Figure 2)."""

QUEUES = {READ_REQUEST: 1, **dict.fromkeys((*SENDS, *IMMEDIATE), 0)}
QUEUES |= {ATOMIC_REQUEST: 1, ATOMIC_RESPONSE: 3}
"""The queue of each untagged message (RFC 5040, Figure 5; RFC 7306, Figure 3)."""

EXPECTED = data.StructLayout(
    {
        "send_msn": 32,  # of queue 0: the number of the next message
        "send_mo": 32,  # octets of it that came
        "send_begun": 1,
        "send_opcode": 4,  # of the message that has begun
        "request_msn": 32,  # of queue 1
        "response_octets": 32,  # that came of the answer to the oldest request of this end
        "atomic_msn": 32,  # of queue 3
    }
)
"""What the segments of a connection so far say of the next one."""

FIRST = EXPECTED.const({"send_msn": 1, "request_msn": 1, "atomic_msn": 1})
"""Of a new connection: every queue begins with MSN 1 (RFC 5041, 4.3)."""


def is_any(value: Any, members: Iterable[int]) -> Value:
    """Whether a value is one of some."""
    return Cat(value == member for member in members).any()


class Ulpdu:
    """The fields of a ULPDU: `header` has octet i in bits [8i+7:8i], `octets` is its length."""

    def __init__(self, header: Value, octets: Value):
        self._header = header
        self.octets = octets
        control, rdmap = self.octet(0), self.octet(1)
        self.tagged, self.last, self.ddp_version = control[7], control[6], control[:2]
        self.rdmap_version, self.opcode = rdmap[6:8], rdmap[:4]
        self.stag, self.tagged_offset = self.number(2, 4), self.number(6, 8)
        self.invalidate_stag = self.number(2, 4)
        self.qn, self.msn, self.mo = self.number(6, 4), self.number(10, 4), self.number(14, 4)
        self.payload = (octets - Mux(self.tagged, 14, 18))[: len(octets)]

    def octet(self, number: int) -> Value:
        return self._header[8 * number : 8 * number + 8]

    def number(self, first: int, octets: int) -> Value:
        """A field in network order."""
        return Cat(self.octet(n) for n in reversed(range(first, first + octets)))

    def is_any(self, opcodes: Iterable[int]) -> Value:
        return is_any(self.opcode, opcodes)


def header_passes(ulpdu: Ulpdu, extensions: Any) -> Value:
    """Versions, opcode, buffer model and queue; `extensions`: the QP takes those of RFC 7306."""
    model = Mux(ulpdu.tagged, ulpdu.is_any((WRITE, READ_RESPONSE)), ulpdu.is_any(QUEUES))
    queue = [(ulpdu.opcode != opcode) | (ulpdu.qn == qn) for opcode, qn in QUEUES.items()]
    whole = ulpdu.octets >= Mux(ulpdu.tagged, 14, 18)
    versions = (ulpdu.ddp_version == 1) & (ulpdu.rdmap_version == 1)
    known = extensions | ~ulpdu.is_any(EXTENSIONS)
    return whole & versions & model & known & (ulpdu.tagged | Cat(queue).all())


def send_passes(ulpdu: Ulpdu, expected: Any, posted: Any) -> Value:
    """MSN, buffer and MO of a Send or Immediate Data (RFC 5041, 7.1)."""
    position = (ulpdu.msn == expected.send_msn) & (ulpdu.mo == expected.send_mo)
    return position & (posted != 0)


def immediate_passes(ulpdu: Ulpdu, expected: Any) -> Value:
    """Immediate Data is 8 octets in one segment, not inside a Send (RFC 7306, 6.3)."""
    return (ulpdu.octets == 18 + 8) & ulpdu.last & ~expected.send_begun


def same_send(ulpdu: Ulpdu, expected: Any) -> Value:
    """It goes on with the Send that began, and its octets are fewer than 2^32."""
    same = ~expected.send_begun | (ulpdu.opcode == expected.send_opcode)
    return same & ((expected.send_mo + ulpdu.payload)[32] == 0)


def _request_position(ulpdu: Ulpdu, expected: Any, level: Any, ird: Any) -> Value:
    return (ulpdu.msn == expected.request_msn) & (ulpdu.mo == 0) & (level < ird)


def read_request_passes(ulpdu: Ulpdu, expected: Any, level: Any, ird: Any) -> Value:
    """`level`: requests of the peer that are not answered yet (RFC 5040, 6.1)."""
    alone = (ulpdu.octets == 18 + 28) & ulpdu.last
    return _request_position(ulpdu, expected, level, ird) & alone


def atomic_request_passes(ulpdu: Ulpdu, expected: Any, level: Any, ird: Any, strict: Any) -> Value:
    """FetchAdd, CmpSwap, and, but for `strict`, the Swap of draft-00 (tables.md, 7.1)."""
    alone = (ulpdu.octets == 18 + 52) & ulpdu.last
    operation = ulpdu.octet(18 + 3)[:4]
    supported = is_any(operation, (0, 2)) | ((operation == 1) & ~strict)
    return _request_position(ulpdu, expected, level, ird) & alone & supported


def read_response_passes(ulpdu: Ulpdu, expected: Any, level: Any, oldest: Any) -> Value:
    """It is the next part of the `oldest` outstanding request (RFC 5040, 5.2.2).

    STag and TO of an empty segment mean nothing (RFC 5041, 5.2).
    """
    offset = (oldest.sink_tagged_offset + expected.response_octets)[:64]
    remaining = (oldest.length - expected.response_octets)[:32]
    there = (ulpdu.stag == oldest.sink_stag) & (ulpdu.tagged_offset == offset)
    fits = (ulpdu.payload <= remaining) & (~ulpdu.last | (ulpdu.payload == remaining))
    return (level != 0) & ~oldest.atomic & fits & ((ulpdu.payload == 0) | there)


def atomic_response_passes(ulpdu: Ulpdu, expected: Any, level: Any, oldest: Any) -> Value:
    """It answers the `oldest` outstanding request, with its identifier (RFC 7306, 5.2.2)."""
    position = (ulpdu.msn == expected.atomic_msn) & (ulpdu.mo == 0)
    alone = (ulpdu.octets == 18 + 12) & ulpdu.last
    same = ulpdu.number(18, 4) == expected.atomic_msn
    return (level != 0) & oldest.atomic & position & alone & same


def behind(ulpdu: Ulpdu, expected: Any) -> dict[str, Value]:
    """The fields of `EXPECTED` after a good segment."""
    send, last = ulpdu.is_any(SENDS), ulpdu.last
    buffers = send | ulpdu.is_any(IMMEDIATE)
    requests = ulpdu.is_any((READ_REQUEST, ATOMIC_REQUEST))
    responses = ulpdu.is_any((READ_RESPONSE, ATOMIC_RESPONSE))

    def after(here: Value, octets: Value) -> Value:
        return Mux(here, Mux(last, Const(0, 32), (octets + ulpdu.payload)[:32]), octets)

    return {
        "send_msn": (expected.send_msn + (buffers & last))[:32],
        "send_mo": after(send, expected.send_mo),
        "send_begun": Mux(send, ~last, expected.send_begun),
        "send_opcode": Mux(send, ulpdu.opcode, expected.send_opcode),
        "request_msn": (expected.request_msn + requests)[:32],
        "response_octets": after(responses, expected.response_octets),
        "atomic_msn": (expected.atomic_msn + (ulpdu.opcode == ATOMIC_RESPONSE))[:32],
    }


def position(ulpdu: Ulpdu, store_address: Value) -> Value:
    """Octet of the store with the payload, or the original value of an Atomic Response.

    The FPDU stands in the store from its length field on, which has 2 octets.
    """
    front = 2 + Mux(ulpdu.tagged, 14, Mux(ulpdu.opcode == ATOMIC_RESPONSE, 18 + 4, 18))
    return (Cat(Const(0, 3), store_address) + front)[: 3 + len(store_address)]
