"""The decoder against tshark, field by field, on real and on made captures."""

from pathlib import Path
from typing import Any

import pytest

from stagecoach.sim.model import errors
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.direction import Direction
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, Terminate, control_octet
from stagecoach.sim.model.startup import EnhancedData, StartupFrame
from stagecoach.sim.model.terminate import terminate_for
from tests.sim.capture.decoding import TO_INITIATOR, TO_RESPONDER, conversation, decoded, written
from tests.sim.capture.tshark import Dissection, dissections
from tests.sim.model.vectors import DATA

CAPTURES = sorted((DATA / "captures").rglob("*.pcap"))


def assert_startup_agrees(ours: dict[str, Any], theirs: Dissection) -> None:
    key = "req" if ours["kind"] == "request" else "rep"
    assert f"iwarp_mpa.key.{key}" in theirs.fields
    assert ours["markers"] == theirs.number("iwarp_mpa.marker_flag")
    assert ours["crc"] == theirs.number("iwarp_mpa.crc_flag")
    assert ours["reject"] == theirs.number("iwarp_mpa.rej_flag")
    assert ours["revision"] == theirs.number("iwarp_mpa.rev")
    # tshark does not know enhanced data: they are private data to it, and S is reserved.
    enhanced = b""
    if ours["enhanced"] is not None:
        enhanced = EnhancedData(**ours["enhanced"]).encode()
        assert theirs.number("iwarp_mpa.res") == 0x10
    private = enhanced + bytes.fromhex(ours["private_data"])
    assert len(private) == theirs.number("iwarp_mpa.pdlength")
    assert private == (theirs.octets("iwarp_mpa.privatedata") or b"")
    assert ours["octets"] == 20 + len(private)


def assert_fpdu_agrees(ours: dict[str, Any], theirs: Dissection) -> None:
    ddp, rdmap = ours["ddp"], ours["rdmap"]
    assert ours["ulpdu_length"] == theirs.number("iwarp_mpa.ulpdulength")
    assert bytes.fromhex(ours["pad"]) == (theirs.octets("iwarp_mpa.pad") or b"")
    crc = "iwarp_mpa.crc_check" if ours["crc_in_use"] else "iwarp_mpa.crc"
    assert int(ours["crc"], 16) == theirs.number(crc)
    if ours["crc_in_use"]:
        assert ours["crc_good"] == ("Good CRC32" in theirs.names[crc])
    pointers = [int(text, 0) for text in theirs.all("iwarp_mpa.marker_fpduptr")]
    assert [marker["fpduptr"] for marker in ours["markers"]] == pointers
    assert ddp["tagged"] == theirs.number("iwarp_ddp.tagged_flag")
    assert ddp["last"] == theirs.number("iwarp_ddp.last_flag")
    assert ddp["version"] == theirs.number("iwarp_ddp.dv")
    assert ddp["reserved"] == theirs.number("iwarp_ddp.rsvd")
    for ours_name, theirs_name in (
        ("stag", "stag"),
        ("tagged_offset", "tagged_offset"),
        ("qn", "qn"),
        ("msn", "msn"),
        ("mo", "mo"),
    ):
        assert ddp.get(ours_name) == theirs.number(f"iwarp_ddp.{theirs_name}")
    assert rdmap["version"] == theirs.number("iwarp_rdma.version")
    assert rdmap["opcode"] == theirs.number("iwarp_rdma.opcode")
    assert rdmap["reserved"] == theirs.number("iwarp_rdma.rsv")
    assert rdmap["invalidate_stag"] == theirs.number("iwarp_rdma.inval_stag")
    header = 14 if ddp["tagged"] else 18
    assert ours["payload_octets"] == ours["ulpdu_length"] - header
    request = ours["read_request"] or {}
    for ours_name, theirs_name in (
        ("sink_stag", "sinkstag"),
        ("sink_tagged_offset", "sinkto"),
        ("size", "rdmardsz"),
        ("source_stag", "srcstag"),
        ("source_tagged_offset", "srcto"),
    ):
        assert request.get(ours_name) == theirs.number(f"iwarp_rdma.{theirs_name}")
    assert_terminate_agrees(ours["terminate"], theirs)


def assert_terminate_agrees(ours: dict[str, Any] | None, theirs: Dissection) -> None:
    if ours is None:
        assert "iwarp_rdma.terminate" not in theirs.fields
        return
    layer, etype, code = ours["error"].split("/")
    suffix = ("rdma", "ddp", "llp")[int(layer)]
    assert int(layer) == theirs.number("iwarp_rdma.term_layer")
    assert int(etype) == theirs.number(f"iwarp_rdma.term_etype_{suffix}")
    buffer = {"1": "_tagged", "2": "_untagged"}.get(etype, "") if suffix == "ddp" else ""
    theirs_code = theirs.number(f"iwarp_rdma.term_errcode_{suffix}{buffer}")
    # For a local catastrophic error tshark has a field of another name.
    assert int(code, 16) == (theirs_code or theirs.number("iwarp_rdma.term_errcode") or 0)
    has_length = ours["segment_length"] is not None
    assert has_length == theirs.number("iwarp_rdma.term_hdrct_m")
    assert bool(ours["ddp_header"]) == theirs.number("iwarp_rdma.hdrct_d")
    assert bool(ours["rdmap_header"]) == theirs.number("iwarp_rdma.hdrct_r")
    if has_length:
        length = theirs.octets("iwarp_rdma.term_ddp_seg_len")
        assert ours["segment_length"] == int.from_bytes(length, "big")


def assert_agrees(path: Path, leave_out: str = "") -> list[dict[str, Any]]:
    """Compares all items, but for the FPDUs of one direction; returns all of ours."""
    ours, theirs = decoded(path), dissections(path)
    packets = {
        item["packet"] for item in ours if item["kind"] == "fpdu" and item["direction"] == leave_out
    }
    compared = [item for item in ours if item["packet"] not in packets]
    theirs = [item for item in theirs if item.packet not in packets]
    assert [item["packet"] for item in compared] == [item.packet for item in theirs]
    for item, dissection in zip(compared, theirs, strict=True):
        if item["kind"] == "fpdu":
            assert_fpdu_agrees(item, dissection)
        else:
            assert_startup_agrees(item, dissection)
    return ours


def test_all_captures_are_there():
    assert len(CAPTURES) == 14


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_a_real_capture_is_decoded_as_by_tshark(path):
    ours = assert_agrees(path)
    # What Soft-iWARP does against the RFCs: it is told, and ends no stream.
    found = {problem["source"] for item in ours for problem in item["problems"]}
    assert found <= {"RFC 5044, 4.1", "RFC 5044, 7.1.2 (4)"}
    assert ("RFC 5044, 7.1.2 (4)" in found) == (path.stem == "crc1-ib_write_lat")
    assert not any(item.get("dropped") for item in ours)


def write(octets: int, to: int = 0, **fields: Any) -> bytes:
    control = control_octet(Opcode.RDMA_WRITE)
    return (
        TaggedHeader(7, to, rsvd_ulp=control, **fields).encode()
        + bytes(range(256)) * (octets // 256)
        + bytes(octets % 256)
    )


def send(msn: int, octets: int, opcode: Opcode = Opcode.SEND, **fields: Any) -> bytes:
    header = UntaggedHeader(0, msn, rsvd_ulp=control_octet(opcode), **fields)
    return header.encode() + bytes(octets)


@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize("to_initiator", [False, True])
@pytest.mark.parametrize("to_responder", [False, True])
def test_markers_of_each_direction_are_decoded_as_by_tshark(
    tmp_path, to_responder, to_initiator, crc
):
    ulpdus = []
    for number in range(1, 12):
        size = (1, 5, 488, 489, 490, 492, 1000, 1442, 3000, 64750, 0)[number - 1]
        ulpdus += [(TO_RESPONDER, write(size)), (TO_INITIATOR, send(number, size))]
    log = conversation(
        *ulpdus,
        request=StartupFrame(reply=False, markers=to_initiator, crc=crc),
        reply=StartupFrame(reply=True, markers=to_responder, crc=crc),
    )
    # When one direction has Markers tshark expects them in both: nothing is to be learned from it
    # about the other (dissect_iwarp_mpa asks for ini_exp_m_res || res_exp_m_ini).
    unmarked = ""
    if to_responder != to_initiator:
        unmarked = (TO_INITIATOR if to_responder else TO_RESPONDER).value
    ours = assert_agrees(written(tmp_path / "markers.pcapng", log), unmarked)
    assert len(ours) == 24
    assert not any(item["problems"] for item in ours)
    for item in ours[2:]:
        marked = to_responder if item["direction"] == "initiator to responder" else to_initiator
        assert bool(item["markers"]) <= marked
        assert marked or not item["markers"]
    assert sum(len(item["markers"]) for item in ours[2:]) >= 100 * (to_responder + to_initiator)


READ = ReadRequest(0xAABBCCDD, 0x2000, 0x800, 0x11223344, 0x1000)
READ_REQUEST = (
    UntaggedHeader(1, 1, rsvd_ulp=control_octet(Opcode.RDMA_READ_REQUEST)).encode() + READ.encode()
)


def terminate_log(error: errors.ErrorCode) -> tuple[Terminate, list[tuple[Direction, bytes]]]:
    """A conversation that ends with a Terminate for a segment of the initiator."""
    segment = READ_REQUEST if error[:2] == (0, 1) else send(1, 20)
    if error[:2] == (1, 1):
        segment = write(20)
    if error == errors.RDMAP_PROTECTION_CANNOT_INVALIDATE:
        segment = send(1, 20, Opcode.SEND_WITH_INVALIDATE, rsvd_ulp_word=5)
    terminate = terminate_for(error, segment)
    header = UntaggedHeader(2, 1, rsvd_ulp=control_octet(Opcode.TERMINATE))
    ulpdu = header.encode() + terminate.encode()
    if error.layer == 2 and error.code >= 5:
        # What can be the first FPDU of an initiator only.
        return terminate, conversation((TO_RESPONDER, ulpdu))
    return terminate, conversation((TO_RESPONDER, segment), (TO_INITIATOR, ulpdu))


def test_every_terminate_is_decoded_as_by_tshark(tmp_path):
    terminates, logs = zip(*map(terminate_log, errors.NAMES), strict=True)
    ours = assert_agrees(written(tmp_path / "terminates.pcapng", *logs))
    found = [item["terminate"] for item in ours if item.get("terminate")]
    assert len(found) == len(terminates)
    for seen, terminate in zip(found, terminates, strict=True):
        assert seen["form"] == "RFC 5040, 4.8"
        assert seen["error_name"] == terminate.error.name
        assert seen["ddp_header"] == terminate.ddp_header.hex()
        assert seen["rdmap_header"] == terminate.rdmap_header.hex()
        assert seen["about"] == (1 if terminate.ddp_header else None)
