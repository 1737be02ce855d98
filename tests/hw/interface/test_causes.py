"""Every check has the Terminate code of the RFCs, and copies the headers of Figure 10."""

import pytest

from stagecoach.hw.interface.causes import CODES, Cause, HeaderCopy, header_copy

ANY = range(256)
REGISTERED = {
    # RFC 5040, Figure 9
    (0, 0): ANY,
    (0, 1): (0x00, 0x01, 0x02, 0x03, 0x04, 0x09, 0xFF),
    (0, 2): (0x05, 0x06, 0x07, 0x08, 0x09, 0xFF),
    # RFC 5041, 7.2
    (1, 0): (0x00,),
    (1, 1): (0x00, 0x01, 0x02, 0x03, 0x04),
    (1, 2): (0x01, 0x02, 0x03, 0x04, 0x05, 0x06),
    # RFC 5044, 8; RFC 6581, 8
    (2, 0): (0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07),
}
"""Error codes by layer and error type."""

NONE, DDP, READ_REQUEST = HeaderCopy.NONE, HeaderCopy.DDP, HeaderCopy.READ_REQUEST
EXPECTED = {
    Cause.LLP_CLOSED: (2, 0, 0x01, NONE),
    Cause.LLP_CLOSED_INSIDE_FPDU: (2, 0, 0x01, NONE),
    Cause.CRC_ERROR: (2, 0, 0x02, NONE),
    Cause.MARKER_MISMATCH: (2, 0, 0x03, NONE),
    Cause.ULPDU_TOO_SHORT: (2, 0, 0x03, NONE),
    Cause.TAGGED_STAG_INVALID: (1, 1, 0x00, DDP),
    Cause.TAGGED_BOUNDS: (1, 1, 0x01, DDP),
    Cause.TAGGED_STAG_NOT_ASSOCIATED: (1, 1, 0x02, DDP),
    Cause.TAGGED_TO_WRAP: (1, 1, 0x03, DDP),
    Cause.TAGGED_DDP_VERSION: (1, 1, 0x04, DDP),
    Cause.WRITE_NOT_PERMITTED: (1, 1, 0x00, DDP),
    Cause.READ_RESPONSE_STAG: (1, 1, 0x00, DDP),
    Cause.READ_RESPONSE_RANGE: (1, 1, 0x01, DDP),
    Cause.UNTAGGED_QN: (1, 2, 0x01, DDP),
    Cause.UNTAGGED_NO_BUFFER: (1, 2, 0x02, DDP),
    Cause.UNTAGGED_MSN: (1, 2, 0x03, DDP),
    Cause.UNTAGGED_MO: (1, 2, 0x04, DDP),
    Cause.UNTAGGED_TOO_LONG: (1, 2, 0x05, DDP),
    Cause.UNTAGGED_DDP_VERSION: (1, 2, 0x06, DDP),
    Cause.RDMAP_VERSION: (0, 2, 0x05, DDP),
    Cause.UNEXPECTED_OPCODE: (0, 2, 0x06, DDP),
    Cause.UNSOLICITED_READ_RESPONSE: (0, 2, 0x06, DDP),
    Cause.READ_REQUEST_TOO_SHORT: (0, 2, 0xFF, DDP),
    Cause.READ_REQUEST_TOO_LONG: (1, 2, 0x05, DDP),
    Cause.TOO_MANY_READ_REQUESTS: (1, 2, 0x02, DDP),
    Cause.READ_STAG_INVALID: (0, 1, 0x00, READ_REQUEST),
    Cause.READ_BOUNDS: (0, 1, 0x01, READ_REQUEST),
    Cause.READ_NOT_PERMITTED: (0, 1, 0x02, READ_REQUEST),
    Cause.READ_STAG_NOT_ASSOCIATED: (0, 1, 0x03, READ_REQUEST),
    Cause.READ_TO_WRAP: (0, 1, 0x04, READ_REQUEST),
    Cause.INVALIDATE_NOT_ASSOCIATED: (0, 1, 0x09, DDP),
    Cause.INVALIDATE_REFUSED: (0, 2, 0x09, DDP),
    Cause.IMMEDIATE_TOO_SHORT: (0, 2, 0xFF, DDP),
    Cause.ATOMIC_REQUEST_TOO_LONG: (1, 2, 0x05, DDP),
    Cause.ATOMIC_REQUEST_TOO_SHORT: (0, 2, 0xFF, DDP),
    Cause.ATOMIC_OPERATION_UNSUPPORTED: (0, 2, 0x06, DDP),
    Cause.ATOMIC_STAG_INVALID: (0, 1, 0x00, DDP),
    Cause.ATOMIC_BOUNDS: (0, 1, 0x01, DDP),
    Cause.ATOMIC_NOT_PERMITTED: (0, 1, 0x02, DDP),
    Cause.ATOMIC_STAG_NOT_ASSOCIATED: (0, 1, 0x03, DDP),
    Cause.ATOMIC_TO_WRAP: (0, 1, 0x04, DDP),
    Cause.ATOMIC_MISALIGNED: (0, 2, 0x07, DDP),
    Cause.UNSOLICITED_ATOMIC_RESPONSE: (1, 2, 0x02, DDP),
    Cause.ATOMIC_RESPONSE_TOO_LONG: (1, 2, 0x05, DDP),
    Cause.ATOMIC_RESPONSE_TOO_SHORT: (0, 2, 0xFF, DDP),
    Cause.ATOMIC_RESPONSE_IDENTIFIER: (0, 2, 0xFF, DDP),
    Cause.LOCAL_SEND_PROTECTION: (0, 0, 0x00, NONE),
    Cause.LOCAL_RECEIVE_PROTECTION: (0, 0, 0x00, NONE),
    Cause.LOCAL_BAD_ENTRY: (0, 0, 0x00, NONE),
    Cause.HOST_READ_ERROR: (0, 0, 0x00, NONE),
    Cause.HOST_WRITE_ERROR: (0, 0, 0x00, NONE),
    Cause.CQ_OVERFLOW: (0, 0, 0x00, NONE),
    Cause.LOCAL_STAG_OPERATION: (0, 0, 0x00, NONE),
}
"""Layer, error type, error code; whether the DDP header comes with it, and that of the request."""

SILENT = {
    Cause.NONE,
    Cause.TERMINATE_RECEIVED,
    Cause.TERMINATE_MALFORMED,
    Cause.STOPPED_BY_DRIVER,
    Cause.SRQ_LIMIT_REACHED,
}
"""For these no Terminate is sent."""


@pytest.mark.requirement("RDMAP-4.8-03", "RDMAP-4.8-04", "RDMAP-4.8-05", "RDMAP-4.8-06")
@pytest.mark.requirement("RDMAP-4.8-07", "RDMAP-4.8-12", "RDMAP-4.8-14", "DDP-7.2-01")
@pytest.mark.parametrize("cause", EXPECTED, ids=lambda cause: cause.name)
def test_code_and_headers_of_a_check(cause: Cause):
    code, _ = CODES[cause]
    assert code is not None
    assert (*code, header_copy(cause)) == EXPECTED[cause]


@pytest.mark.requirement("RDMAP-4.8-03", "DDP-7.2-01")
def test_every_cause_has_a_registered_code_or_none():
    assert set(CODES) == set(Cause) == EXPECTED.keys() | SILENT
    for cause, (code, _) in CODES.items():
        assert (code is None) == (cause in SILENT)
        if code is not None:
            assert code.error_code in REGISTERED[code.layer, code.error_type], cause.name


def test_what_cannot_be_sent_is_the_loss_of_the_connection():
    cannot = [cause for cause, (code, _) in CODES.items() if code and not code.can_be_sent]
    assert cannot == [Cause.LLP_CLOSED, Cause.LLP_CLOSED_INSIDE_FPDU]
