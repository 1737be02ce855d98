"""RDMAP headers of the reference model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecoach.sim.model import errors, rdmap
from stagecoach.sim.model.errors import ErrorCode
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, Terminate
from tests.sim.model.vectors import payload_of

U32, U64 = (st.integers(0, 2**bits - 1) for bits in (32, 64))


@given(st.builds(ReadRequest, U32, U64, U32, U32, U64))
def test_read_request_is_decoded_as_encoded(request_header):
    octets = request_header.encode()
    assert len(octets) == 28
    assert ReadRequest.decode(octets) == request_header


@pytest.mark.parametrize(
    ("name", "error", "copies"),
    [
        ("Terminate LLP/MPA/CRC error (2/0/02), no headers", errors.MPA_CRC, (0, 0)),
        (
            "Terminate DDP/tagged/base-bounds (1/1/01) for a Write segment",
            errors.DDP_BASE_OR_BOUNDS,
            (14, 0),
        ),
        (
            "Terminate RDMA/Remote Protection/invalid STag (0/1/00) for a Read Request",
            errors.RDMAP_INVALID_STAG,
            (18, 28),
        ),
        (
            "Terminate RDMA/Remote Operation/unexpected opcode (0/2/06) for an untagged segment",
            errors.RDMAP_UNEXPECTED_OPCODE,
            (18, 0),
        ),
    ],
)
def test_terminate_vectors(name, error, copies):
    payload = payload_of(name)
    terminate = Terminate.decode(payload)
    assert terminate.error == error
    assert (len(terminate.ddp_header), len(terminate.rdmap_header)) == copies
    assert terminate.encode() == payload


@given(st.data())
def test_truncated_terminate_is_refused(data):
    whole = payload_of("Terminate RDMA/Remote Protection/invalid STag (0/1/00) for a Read Request")
    with pytest.raises(ValueError, match="are required"):
        Terminate.decode(whole[: data.draw(st.integers(0, len(whole) - 1))])


def test_error_names():
    assert str(ErrorCode(1, 2, 3)) == "1/2/03 invalid MSN, MSN range is not valid"
    assert ErrorCode(5, 0, 0).name == "undefined error 5/0/00"


def test_control_octet():
    assert rdmap.control_octet(Opcode.SEND) == 0x43
    assert rdmap.decode_control(0xB3) == rdmap.Control(opcode=3, version=2, reserved=0x30)
