"""What must become of a record and its pieces once their STags are looked up.

The STag table is the stand-in of `model`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from stagecoach.gateware.layouts import DeliveryKind, StagStatus
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import CompletionFlags, Rights
from stagecoach.sim.model.rdmap import (
    IMMEDIATE_OPCODES,
    INVALIDATE_OPCODES,
    SEND_OPCODES,
    SOLICITED_OPCODES,
    Opcode,
)
from tests.rdmap.receive.bench import as_told
from tests.rdmap.receive.model import ADDRESS_MASK, STORE_WORDS, stag_status, terminated_msn

REQUESTS = (Opcode.RDMA_READ_REQUEST, Opcode.ATOMIC_REQUEST)
RESPONSES = (Opcode.RDMA_READ_RESPONSE, Opcode.ATOMIC_RESPONSE)
RECEIVES = SEND_OPCODES | IMMEDIATE_OPCODES

RIGHTS = {
    Opcode.RDMA_WRITE: Rights.REMOTE_WRITE,
    Opcode.RDMA_READ_REQUEST: Rights.REMOTE_READ,
    Opcode.ATOMIC_REQUEST: Rights.REMOTE_READ | Rights.REMOTE_WRITE,
}
"""That a piece needs; others are in local buffers."""

_TAGGED = {
    StagStatus.INVALID: Cause.TAGGED_STAG_INVALID,
    StagStatus.NOT_ASSOCIATED: Cause.TAGGED_STAG_NOT_ASSOCIATED,
    StagStatus.WRAP: Cause.TAGGED_TO_WRAP,
    StagStatus.BOUNDS: Cause.TAGGED_BOUNDS,
}
CAUSES = {
    Opcode.RDMA_WRITE: _TAGGED | {StagStatus.NOT_PERMITTED: Cause.WRITE_NOT_PERMITTED},
    Opcode.RDMA_READ_RESPONSE: _TAGGED | {StagStatus.NOT_PERMITTED: Cause.TAGGED_STAG_INVALID},
    Opcode.RDMA_READ_REQUEST: {
        StagStatus.INVALID: Cause.READ_STAG_INVALID,
        StagStatus.NOT_ASSOCIATED: Cause.READ_STAG_NOT_ASSOCIATED,
        StagStatus.NOT_PERMITTED: Cause.READ_NOT_PERMITTED,
        StagStatus.WRAP: Cause.READ_TO_WRAP,
        StagStatus.BOUNDS: Cause.READ_BOUNDS,
    },
    Opcode.ATOMIC_REQUEST: {
        StagStatus.INVALID: Cause.ATOMIC_STAG_INVALID,
        StagStatus.NOT_ASSOCIATED: Cause.ATOMIC_STAG_NOT_ASSOCIATED,
        StagStatus.NOT_PERMITTED: Cause.ATOMIC_NOT_PERMITTED,
        StagStatus.WRAP: Cause.ATOMIC_TO_WRAP,
        StagStatus.BOUNDS: Cause.ATOMIC_BOUNDS,
    },
    Opcode.ATOMIC_RESPONSE: dict.fromkeys(StagStatus, Cause.LOCAL_SEND_PROTECTION),
}
"""Of a piece that is refused; those of receive entries have one (RFC 5040, 7.2; RFC 7306, 8.2)."""

REFUSED_INVALIDATIONS = {
    StagStatus.INVALID: Cause.INVALIDATE_REFUSED,
    StagStatus.NOT_ASSOCIATED: Cause.INVALIDATE_NOT_ASSOCIATED,
    StagStatus.NOT_PERMITTED: Cause.INVALIDATE_REFUSED,
}
LOCAL_CAUSES = (Cause.LOCAL_RECEIVE_PROTECTION, Cause.LOCAL_SEND_PROTECTION)

Record = dict[str, Any]


class Effects:
    """Of one record after the other, as `model.Model.events`; `placements` were issued before."""

    def __init__(self) -> None:
        self.placements = 0

    def of(self, record: Record, pieces: Sequence[Record]) -> list[tuple[Any, ...]]:
        """What must happen, in order."""
        return list(self._of(record, pieces))

    def _of(self, record: Record, pieces: Sequence[Record]) -> Iterator[tuple[Any, ...]]:
        release = [("release", record["stored"]["number"])] if record["fpdu"] else []
        if record["dropped"]:
            yield from release
            return
        if record["first"]:
            yield "first", record["qp"]
        cause = Cause(record["cause"])
        for piece in pieces[: record["pieces"]]:
            yield "stag", self._request(record, piece)
            cause = self._refusal(record["opcode"], piece)
            if cause:
                break
        if not cause and record["invalidates"]:
            yield as_told("stag", self._request(record, None))
            cause = REFUSED_INVALIDATIONS.get(stag_status(_ulp_word(record)), Cause.NONE)
            if not cause:
                yield "invalidate", _ulp_word(record)
        if cause:
            names = ("qp", "ulpdu_length", "header")
            index = record["index"] if cause in LOCAL_CAUSES else 0
            if cause is Cause.TERMINATE_RECEIVED:
                index = terminated_msn(record["header"])
            error = {name: record[name] for name in names} | {"cause": cause, "index": index}
            yield as_told("error", error)
        if cause or not record["pieces"] or record["opcode"] in REQUESTS:
            yield from release
        else:
            yield from self._places(record, pieces[: record["pieces"]])
        if record["delivers"] and not cause:
            yield as_told("deliver", self._delivery(record))

    @staticmethod
    def _request(record: Record, piece: Record | None) -> Record:
        """About a piece, or about the STag to invalidate."""
        request = {"pd": record["pd"], "qp": record["qp"], "exclusive": int(piece is None)}
        if piece is None:
            of = {"stag": _ulp_word(record), "tagged_offset": 0, "octets": 0}
            return of | request | {"rights": 0}
        return piece | request | {"rights": int(RIGHTS.get(record["opcode"], Rights.LOCAL_WRITE))}

    @staticmethod
    def _refusal(opcode: int, piece: Record) -> Cause:
        status = stag_status(piece["stag"])
        if status is not StagStatus.OK:
            of_opcode = CAUSES.get(Opcode(opcode))
            return of_opcode[status] if of_opcode else Cause.LOCAL_RECEIVE_PROTECTION
        misaligned = (piece["tagged_offset"] ^ ADDRESS_MASK) % 8
        is_atomic = opcode == Opcode.ATOMIC_REQUEST
        return Cause.ATOMIC_MISALIGNED if is_atomic and misaligned else Cause.NONE

    def _places(self, record: Record, pieces: Sequence[Record]) -> Iterator[tuple[Any, ...]]:
        position = record["position"]
        for number, piece in enumerate(pieces):
            position %= 8 * STORE_WORDS
            self.placements += 1
            placement = {
                "qp": record["qp"],
                "address": piece["tagged_offset"] ^ ADDRESS_MASK,
                "octets": piece["octets"],
                "store_address": position // 8,
                "store_octet": position % 8,
                "reversed": int(record["opcode"] == Opcode.ATOMIC_RESPONSE),
                "release": int(number == len(pieces) - 1),
                "stored": record["stored"],
            }
            yield "place", placement
            position += piece["octets"]

    def _delivery(self, record: Record) -> Record:
        opcode, flags, detail = record["opcode"], CompletionFlags(0), _ulp_word(record)
        kind = DeliveryKind.READ if opcode in RESPONSES else DeliveryKind.REQUEST
        if opcode in RECEIVES:
            kind = DeliveryKind.RECEIVE
        if opcode in SOLICITED_OPCODES:
            flags |= CompletionFlags.SOLICITED
        if opcode in INVALIDATE_OPCODES:
            flags |= CompletionFlags.INVALIDATED
        if opcode in IMMEDIATE_OPCODES:
            flags |= CompletionFlags.IMMEDIATE
            detail = record["header"] >> 8 * 18 & (1 << 64) - 1
        return {
            "kind": kind.value,
            "qp": record["qp"],
            "index": record["index"] if opcode in RECEIVES else 0,
            "length": record["length"],
            "flags": int(flags),
            "detail": detail,
            "after": self.placements % 2**16,
        }


def _ulp_word(record: Record) -> int:
    """The STag to invalidate, in an untagged DDP header after its two control octets."""
    return int.from_bytes((record["header"] >> 16 & (1 << 32) - 1).to_bytes(4, "little"), "big")
