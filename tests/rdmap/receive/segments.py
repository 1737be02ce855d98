"""Segments for the RDMAP receiver, right ones unless a field is given that is not."""

from typing import Any

from stagecoach.gateware.layouts import StagStatus
from stagecoach.sim.model.atomics import AtomicRequest, AtomicResponse
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.rdmap import IMMEDIATE_OPCODES, Opcode, ReadRequest, control_octet
from tests.rdmap.receive.model import ADDRESS_MASK, Element, stag_with

LONGEST_PAYLOAD = 64768 - 18
RESERVED = 2**28 - 1
"""The bits before the AOpCode, all ones (RFC 7306, 5.2.1)."""


def write(rng: Any, octets: int, status: StagStatus = StagStatus.OK, **fields: Any) -> bytes:
    header = {
        "stag": stag_with(rng, status),
        "tagged_offset": rng.getrandbits(64),
        "last": rng.random() < 0.5,
        "rsvd_ulp": control_octet(Opcode.RDMA_WRITE, reserved=rng.choice([0, 0x30])),
        "reserved": rng.choice([0, 0x3C]),
    }
    return TaggedHeader(**(header | fields)).encode() + bytes(octets)


def response(stag: int, to: int, octets: int, last: bool, **fields: Any) -> bytes:
    header = {"last": last, "rsvd_ulp": control_octet(Opcode.RDMA_READ_RESPONSE)}
    return TaggedHeader(stag, to % 2**64, **(header | fields)).encode() + bytes(octets)


def send(msn: int, mo: int, octets: int, last: bool = True, **fields: Any) -> bytes:
    header = {"qn": 0, "rsvd_ulp": control_octet(Opcode.SEND)}
    header |= {"msn": msn, "mo": mo, "last": last}
    return UntaggedHeader(**(header | fields)).encode() + bytes(octets)


def invalidating(
    rng: Any, status: StagStatus, octets: int, last: bool = True, mo: int = 0, **fields: Any
) -> bytes:
    """A segment of the first Send, which invalidates an STag of that status."""
    header = opcode(rng.choice([4, 6]), rsvd_ulp_word=stag_with(rng, status))
    return send(1, mo, octets, last, **(header | fields))


def immediate(rng: Any, msn: int, octets: int = 8, **fields: Any) -> bytes:
    header = {"qn": 0, "msn": msn, "rsvd_ulp_word": rng.getrandbits(32)}
    header |= opcode(rng.choice(sorted(IMMEDIATE_OPCODES)))
    return UntaggedHeader(**(header | fields)).encode() + rng.randbytes(octets)


def terminate(octets: bytes, **fields: Any) -> bytes:
    header = opcode(Opcode.TERMINATE, qn=2, msn=1)
    return UntaggedHeader(**(header | fields)).encode() + octets


def read_request(
    rng: Any, msn: int, size: int | None = None, status: StagStatus = StagStatus.OK, **fields: Any
) -> bytes:
    header = {"qn": 1, "rsvd_ulp": control_octet(Opcode.RDMA_READ_REQUEST), "msn": msn}
    request = ReadRequest(
        rng.getrandbits(32),
        rng.getrandbits(64),
        rng.getrandbits(32) | 1 if size is None else size,
        stag_with(rng, status),
        rng.getrandbits(64),
    )
    return UntaggedHeader(**(header | fields)).encode() + request.encode()


def elements(rng: Any, *lengths: int, bad: int | None = None) -> list[Element]:
    """Elements of these lengths; the STag of element `bad` fails its check."""
    return [
        Element(
            rng.getrandbits(64),
            length,
            stag_with(rng, StagStatus.BOUNDS if number == bad else StagStatus.OK),
        )
        for number, length in enumerate(lengths)
    ]


def opcode(number: int, **fields: int) -> dict[str, int]:
    return {"rsvd_ulp": control_octet(number)} | fields


def atomic_request(
    rng: Any,
    msn: int,
    operation: int = 0,
    status: StagStatus = StagStatus.OK,
    misaligned: int = 0,
    **fields: Any,
) -> bytes:
    """The address that the STag table gives for its TO ends in `misaligned`."""
    header = {"qn": 1, "msn": msn, "rsvd_ulp_word": rng.getrandbits(32)}
    request = AtomicRequest(
        operation,
        identifier=rng.getrandbits(32),
        stag=stag_with(rng, status),
        tagged_offset=(rng.getrandbits(61) << 3 | misaligned) ^ ADDRESS_MASK,
        data=rng.getrandbits(64),
        mask=rng.getrandbits(64),
        compare=rng.getrandbits(64),
        compare_mask=rng.getrandbits(64),
        reserved=rng.choice([0, RESERVED]),
    )
    return (
        UntaggedHeader(**(header | opcode(Opcode.ATOMIC_REQUEST) | fields)).encode()
        + request.encode()
    )


def atomic_response(rng: Any, identifier: int, **fields: Any) -> bytes:
    """The MSN is the identifier unless it is given."""
    header = {"qn": 3, "msn": identifier, "rsvd_ulp_word": rng.getrandbits(32)}
    response = AtomicResponse(identifier, original=rng.getrandbits(64))
    return (
        UntaggedHeader(**(header | opcode(Opcode.ATOMIC_RESPONSE) | fields)).encode()
        + response.encode()
    )
