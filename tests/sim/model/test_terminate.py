"""Terminates: every code of every layer, both forms, the headers sent back, and their words."""

import pytest

from stagecoach.sim.model import ddp, errors, mpa, rdmap
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.endpoint import Endpoint
from stagecoach.sim.model.errors import ErrorCode
from stagecoach.sim.model.rdmap import Form, Opcode, ReadRequest, Terminate, control_octet
from stagecoach.sim.model.terminate import (
    read_terminate,
    readings,
    terminate_for,
    terminate_for_cut_read,
)
from stagecoach.sim.model.words import complaint
from tests.sim.model.vectors import vector

READ = ReadRequest(0xAABBCCDD, 0x2000, 0x800, 0x11223344, 0x1000)
READ_REQUEST = (
    UntaggedHeader(1, 1, rsvd_ulp=control_octet(Opcode.RDMA_READ_REQUEST)).encode() + READ.encode()
)
WRITE = TaggedHeader(0x11223344, 0x1000, rsvd_ulp=control_octet(Opcode.RDMA_WRITE))
SEND = UntaggedHeader(0, 7, 1442, rsvd_ulp=control_octet(Opcode.SEND_WITH_INVALIDATE))
WRITE_SEGMENT = WRITE.encode() + bytes(100)
SEND_SEGMENT = SEND.encode() + bytes(100)

# RFC 5040, Figures 9 and 10; RFC 5041, 7.2; RFC 5044, 8; RFC 6581, 8: the codes, the segment in
# which they are found, and M, D, R of the Terminate (Figure 10 and 4.8).
NONE, DDP, READ_HEADER = 0x00, 0xC0, 0xE0
ROWS = [
    (0, 0, 0x00, SEND_SEGMENT, NONE),
    *[(0, 1, code, READ_REQUEST, READ_HEADER) for code in (0, 1, 2, 3, 4, 0xFF)],
    (0, 1, 0x09, SEND_SEGMENT, DDP),
    *[(0, 2, code, SEND_SEGMENT, DDP) for code in (5, 6, 7, 8, 9, 0xFF)],
    *[(0, 2, code, READ_REQUEST, DDP) for code in (5, 6, 7, 8, 0xFF)],
    (0, 2, 0x06, WRITE_SEGMENT, DDP),
    (0, 2, 0x07, b"", NONE),
    (0, 2, 0x08, b"", NONE),
    (1, 0, 0x00, SEND_SEGMENT, NONE),
    *[(1, 1, code, WRITE_SEGMENT, DDP) for code in range(5)],
    *[(1, 2, code, SEND_SEGMENT, DDP) for code in range(1, 7)],
    (1, 2, 0x02, READ_REQUEST, DDP),
    *[(2, 0, code, SEND_SEGMENT, NONE) for code in (2, 3)],
    *[(2, 0, code, b"", NONE) for code in (5, 6, 7)],
]

# RFC 5040, Figure 9; RFC 5041, 7.2; RFC 5044, 8; RFC 6581, 8: octets of a header without copies.
REGISTERED = [
    *(
        "00000000",
        "01000000",
        "01010000",
        "01020000",
        "01030000",
        "01040000",
        "01090000",
        "01ff0000",
    ),
    *("02050000", "02060000", "02070000", "02080000", "02090000", "02ff0000"),
    *("10000000", "11000000", "11010000", "11020000", "11030000", "11040000"),
    *("12010000", "12020000", "12030000", "12040000", "12050000", "12060000"),
    *("20010000", "20020000", "20030000", "20040000", "20050000", "20060000", "20070000"),
]


def row_id(row: tuple) -> str:
    return f"{row[0]}/{row[1]}/{row[2]:02X} {len(row[3])} octets"


@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_every_code_has_the_headers_of_figure_10(row):
    layer, etype, code, segment, flags = row
    terminate = terminate_for(ErrorCode(layer, etype, code), segment)
    octets = terminate.encode()
    assert octets[:4] == bytes([layer << 4 | etype, code, flags, 0])
    expected = b""
    if flags & DDP:
        header = segment[: ddp.header_octets(segment[0])]
        expected = len(segment).to_bytes(2, "big") + header
    if flags == READ_HEADER:
        expected += segment[18:]
    assert octets[4:] == expected
    # Pad is never needed (ULPDU_Length 22, 38, 42 or 70).
    assert (2 + 18 + len(octets)) % 4 == 0
    assert Terminate.decode(octets) == terminate
    assert read_terminate(octets) == terminate


@pytest.mark.parametrize(
    ("name", "terminate"),
    [
        ("Terminate LLP/MPA/CRC error (2/0/02), no headers", Terminate(errors.MPA_CRC)),
        (
            "Terminate DDP/tagged/base-bounds (1/1/01) for a Write segment",
            terminate_for(errors.DDP_BASE_OR_BOUNDS, WRITE_SEGMENT),
        ),
        (
            "Terminate RDMA/Remote Protection/invalid STag (0/1/00) for a Read Request",
            terminate_for(errors.RDMAP_INVALID_STAG, READ_REQUEST),
        ),
        (
            "Terminate RDMA/Remote Operation/unexpected opcode (0/2/06) for an untagged segment",
            terminate_for(
                errors.RDMAP_UNEXPECTED_OPCODE,
                UntaggedHeader(0, 1, rsvd_ulp=0x48).encode() + bytes(8),
            ),
        ),
    ],
)
def test_vectors(name, terminate):
    (expected,) = vector("fpdu", name)["ulpdus_hex"]
    header, payload = ddp.decode(bytes.fromhex(expected))
    assert header == UntaggedHeader(2, 1, rsvd_ulp=control_octet(Opcode.TERMINATE))
    assert payload == terminate.encode()
    assert Terminate.decode(payload) == terminate


@pytest.mark.parametrize(
    ("octets", "error", "form"),
    [
        # Compiled from the kernel's own structures: MPA CRC error, and RDMAP protection error
        # with M, D, R (there after the ULPDU_Length and header of a Read Request).
        ("02020000", errors.MPA_CRC, Form.SIW),
        ("10000700" + "002e" + READ_REQUEST.hex(), errors.RDMAP_INVALID_STAG, Form.SIW),
        # siw sets R for a Send with Invalidate, too, without a header after it.
        ("10090700" + "0064" + SEND.encode().hex(), ErrorCode(0, 1, 9), Form.SIW),
        # What it sends with M and D.
        ("11010300" + "0064" + WRITE.encode().hex(), errors.DDP_BASE_OR_BOUNDS, Form.SIW),
        ("21020300" + "0064" + SEND.encode().hex(), errors.DDP_NO_BUFFER, Form.SIW),
        ("21030000", errors.DDP_INVALID_MSN, Form.SIW),
        ("12030000", errors.DDP_INVALID_MSN, Form.RFC),
        ("20ff0000", ErrorCode(0, 2, 0xFF), Form.SIW),
        ("02ff0000", ErrorCode(0, 2, 0xFF), Form.RFC),
        ("20020000", errors.MPA_CRC, Form.RFC),
        # cxgb4 has error type 3 for MPA.
        ("23020000", ErrorCode(2, 3, 2), Form.RFC),
        ("11010000", errors.DDP_BASE_OR_BOUNDS, Form.RFC),
        # Codes that nobody defined stay as they are.
        ("f7990000", ErrorCode(15, 7, 0x99), Form.RFC),
    ],
)
def test_the_form_is_found_out(octets, error, form):
    found = read_terminate(bytes.fromhex(octets))
    assert (found.error, found.form) == (error, form)


@pytest.mark.requirement("MPA2-8-01", "RDMAP-4.8-03")
@pytest.mark.parametrize("control", REGISTERED)
def test_every_registered_code_is_read_as_the_rfcs_lay_it_out(control):
    octets = bytes.fromhex(control)
    layer, etype, code = octets[0] >> 4, octets[0] & 0xF, octets[1]
    assert read_terminate(octets) == Terminate(ErrorCode(layer, etype, code))


@pytest.mark.parametrize("code", [5, 6, 7])
def test_where_both_forms_mean_something_that_of_siw_is_the_second_reading(code):
    mpa_error, rdmap_error = ErrorCode(2, 0, code), ErrorCode(0, 2, code)
    for octets, first, second in (
        (f"20{code:02x}0000", mpa_error, rdmap_error),
        (f"02{code:02x}0000", rdmap_error, mpa_error),
    ):
        assert readings(bytes.fromhex(octets)) == [
            Terminate(first),
            Terminate(second, form=Form.SIW),
        ]


@pytest.mark.requirement("RDMAP-4.8-09")
@pytest.mark.parametrize("control", ["01020800", "01028000", "01020001", "02051fff", "0205c200"])
def test_reserved_bits_are_ignored_in_the_form_of_the_rfc_and_never_those_of_siw(control):
    octets = bytes.fromhex(control)
    described = {0x80: b"\0d", 0xC2: b"\0d" + SEND.encode()}  # M, and M and D
    found = readings(octets + described.get(octets[2], b""))
    assert [reading.form for reading in found] == [Form.RFC]


@pytest.mark.parametrize("row", [row for row in ROWS if row[4]], ids=row_id)
def test_siw_form_of_every_code_with_headers_is_recognised(row):
    layer, etype, code, segment, _ = row
    sent = terminate_for(ErrorCode(layer, etype, code), segment)
    siw = Terminate(sent.error, sent.segment_length, sent.ddp_header, sent.rdmap_header, Form.SIW)
    assert siw.encode()[4:] == sent.encode()[4:]
    assert siw.encode()[2] in (0x03, 0x07)
    assert read_terminate(siw.encode()) == siw


@pytest.mark.parametrize("octets", [0, 3, 5, 6, 23, 24, 25, 51, 53])
def test_a_length_that_does_not_fit_the_header_control_bits_is_refused(octets):
    whole = terminate_for(errors.RDMAP_INVALID_STAG, READ_REQUEST).encode()
    assert len(whole) == 52
    with pytest.raises(ValueError, match=r"Terminate header of \d+ bytes; \d+ "):
        Terminate.decode((whole + b"\0")[:octets])


def test_the_copied_read_request_of_a_cut_read_asks_for_the_rest():
    # RFC 5040, 4.8, with its example: terminated after 2048 octets were sent.
    request = ReadRequest(5, 0x10000, 5000, 6, 0x20000)
    segment = READ_REQUEST[:18] + request.encode()
    cut = terminate_for_cut_read(errors.RDMAP_INVALID_STAG, segment, 2048)
    assert cut.encode()[:4] == bytes([0x01, 0x00, 0xE0, 0])
    assert (cut.segment_length, cut.ddp_header) == (46, segment[:18])
    rest = ReadRequest(5, 0x10000 + 2048, 5000 - 2048, 6, 0x20000 + 2048)
    assert ReadRequest.decode(cut.rdmap_header) == rest


def read_cut_after(fpdus: int, revoke: str) -> tuple[Endpoint, list[bytes]]:
    """An end that is to send 4000 octets, revoked when some FPDUs of them were taken."""
    end = Endpoint(mulpdu=1014)
    region = end.register(bytearray(range(250)) * 16, stag=6, base=0x20000)
    request = ReadRequest(5, 0x10000, 4000, 6, 0x20000)
    end.receive(mpa.frame_fpdu(READ_REQUEST[:18] + request.encode()))
    output = end.take_output(limit=fpdus)
    if revoke == "locally":
        region.valid = False
    else:
        end.post_receive(0)
        header = UntaggedHeader(0, 1, rsvd_ulp=0x44, rsvd_ulp_word=6)
        end.receive(mpa.frame_fpdu(header.encode()))
    return end, list(mpa.Deframer().feed(b"".join(output + end.take_output())))


@pytest.mark.parametrize("revoke", ["locally", "by the peer"])
@pytest.mark.parametrize("fpdus", [0, 1, 3])
def test_a_revoked_source_cuts_the_read_response(fpdus, revoke):
    end, ulpdus = read_cut_after(fpdus, revoke)
    assert end.error == errors.RDMAP_INVALID_STAG
    assert len(ulpdus) == fpdus + 1
    header, payload = ddp.decode(ulpdus[-1])
    assert header.rsvd_ulp == control_octet(Opcode.TERMINATE)
    terminate = Terminate.decode(payload)
    assert terminate == end.terminate_sent
    assert terminate.segment_length == 46
    sent = 1000 * fpdus
    rest = ReadRequest(5, 0x10000 + sent, 4000 - sent, 6, 0x20000 + sent)
    assert ReadRequest.decode(terminate.rdmap_header) == rest


def test_a_read_that_was_answered_in_whole_is_not_cut():
    end, ulpdus = read_cut_after(4, "by the peer")
    assert end.error is None
    assert len(ulpdus) == 4


def test_an_earlier_error_wins_over_a_cut_read():
    end = Endpoint(mulpdu=1014)
    region = end.register(bytearray(4000), stag=6)
    request = ReadRequest(5, 0, 4000, 6, 0)
    end.receive(mpa.frame_fpdu(READ_REQUEST[:18] + request.encode()))
    first = end.take_output(limit=1)
    end.receive(mpa.frame_fpdu(WRITE_SEGMENT))
    region.valid = False
    ulpdus = list(mpa.Deframer().feed(b"".join(first + end.take_output())))
    assert end.error == errors.DDP_INVALID_STAG
    assert [ddp.decode(ulpdu)[0].rsvd_ulp & 0xF for ulpdu in ulpdus] == [2, 7]


@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_a_complaint_names_layer_code_and_source(row):
    layer, etype, code, segment, flags = row
    error = ErrorCode(layer, etype, code)
    text = complaint(terminate_for(error, segment))
    assert ("RDMAP", "DDP", "MPA")[layer] in text
    assert error.name in text
    assert f"{layer}/{etype}/{code:02X} of RFC " in text
    if flags & DDP:
        assert f"about a segment of {len(segment)} bytes" in text
        names = {0: "RDMA Write, STag 0x11223344", 1: "RDMA Read Request, QN 1", 4: "Send with"}
        assert names[rdmap.decode_control(segment[1]).opcode] in text
    assert ("2048 bytes from STag 0x11223344, TO 0x1000" in text) == (flags == READ_HEADER)


def test_a_complaint_in_full():
    assert complaint(terminate_for(errors.RDMAP_INVALID_STAG, READ_REQUEST)) == (
        "RDMAP (remote protection error): invalid STag, 0/1/00 of RFC 5040, 4.8; about a segment "
        "of 46 bytes: RDMA Read Request, QN 1, MSN 1, MO 0, 2048 bytes from STag 0x11223344, "
        "TO 0x1000 into STag 0xaabbccdd, TO 0x2000"
    )
    assert complaint(Terminate(ErrorCode(2, 3, 2))) == (
        "MPA: MPA CRC does not match, 2/3/02 of RFC 5044, 8"
    )


def test_a_terminate_of_siw_ends_the_stream_with_its_meaning():
    end = Endpoint()
    header = UntaggedHeader(2, 1, rsvd_ulp=control_octet(Opcode.TERMINATE))
    end.receive(mpa.frame_fpdu(header.encode() + bytes.fromhex("02020000")))
    assert end.terminate_received == Terminate(errors.MPA_CRC, form=Form.SIW)
    assert end.error is None
    assert end.take_output() == []


@pytest.mark.parametrize("error", errors.NAMES, ids=str)
def test_an_abort_sends_its_code_unless_there_is_nothing_to_send_it_on(error):
    end = Endpoint()
    end.post_receive(1, "receive")
    end.abort(error, "for a test")
    assert [completion.work_id for completion in end.poll()] == ["receive"]
    sent = [ddp.decode(ulpdu)[1] for ulpdu in mpa.Deframer().feed(b"".join(end.take_output()))]
    local = error in (errors.MPA_TCP_LOST, errors.MPA_INVALID_STARTUP)
    # RFC 5040, 7.1 (1): what no incoming message caused has no headers.
    assert sent == ([] if local else [Terminate(error).encode()])
    assert end.closed == local


@pytest.mark.requirement("MPA2-8-01", "MPA2-9.3-01")
@pytest.mark.parametrize("responder", [False, True])
@pytest.mark.parametrize("before", [0, 1])
def test_startup_codes_come_from_either_end_behind_whatever_fpdus(responder, before):
    end = Endpoint(responder=responder)
    for msn in range(1, before + 1):
        end.post_receive(16)
        send = UntaggedHeader(0, msn, rsvd_ulp=control_octet(Opcode.SEND))
        end.receive(mpa.frame_fpdu(send.encode()))
    header = UntaggedHeader(2, 1, rsvd_ulp=control_octet(Opcode.TERMINATE))
    end.receive(mpa.frame_fpdu(header.encode() + bytes.fromhex("20070000")))
    assert end.terminate_received == Terminate(errors.MPA_NO_MATCHING_RTR)
