"""RPC-over-RDMA in `stagecoach decode`: as tshark has it, cut into FPDUs, and in error."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stagecoach.sim.model import rpc, rpcrdma
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, control_octet
from stagecoach.sim.model.rpcrdma import RpcRdmaError
from stagecoach.sim.model.startup import StartupFrame
from tests.sim.capture.decoding import (
    TO_INITIATOR,
    TO_RESPONDER,
    conversation,
    decoded,
    printed,
    problems,
    written,
)
from tests.ulp.nfs.dissected import dissected as messages
from tests.ulp.rpcrdma.captured import dissected

CAPTURE = Path(__file__).parents[2] / "data" / "captures" / "nfs" / "crc1-nfs3.pcap"
KNOWN = StartupFrame(reply=False, private_data=bytes.fromhex("f6ab0e1801010303"))


def fields_of(header: dict[str, Any]) -> dict[str, list[int]]:
    """The fields as tshark names them."""
    chunks = header["writes"] + ([] if header["reply"] is None else [header["reply"]])
    segments = header["reads"] + [segment for chunk in chunks for segment in chunk]
    fields = {
        "xid": [header["xid"]],
        "version": [header["version"]],
        "flow_control": [header["credits"]],
        "msg_type": [["RDMA_MSG", "RDMA_NOMSG"].index(header["procedure"])],
        "reads_count": [len(header["reads"])],
        "writes_count": [len(header["writes"])],
        "reply_count": [0 if header["reply"] is None else 1],
        "segment_count": [len(chunk) for chunk in chunks],
        "position": [each["position"] for each in header["reads"]],
        "rdma_handle": [each["handle"] for each in segments],
        "rdma_length": [each["length"] for each in segments],
        "rdma_offset": [each["offset"] for each in segments],
    }
    return {name: values for name, values in fields.items() if values}


NAMES = (
    *("xid", "version", "flow_control", "msg_type", "reads_count", "writes_count", "reply_count"),
    *("segment_count", "position", "rdma_handle", "rdma_length", "rdma_offset"),
)


def sends(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in objects if each.get("rpcrdma")]


@pytest.fixture(scope="module")
def captured() -> list[dict[str, Any]]:
    return sends(decoded(CAPTURE))


@pytest.mark.requirement("RFC8166-4-01", "RFC8166-4.1.2-01")
def test_headers_of_linux_are_those_that_tshark_finds(captured):
    found = {each["packet"]: fields_of(each["rpcrdma"]["header"]) for each in captured}
    tshark = {
        packet: {name: values for name, values in fields.items() if name in NAMES}
        for packet, fields in dissected(CAPTURE)
    }
    assert len(found) == 64
    assert found == tshark


def test_calls_and_replies_of_linux_are_those_that_tshark_finds(captured):
    program = shutil.which("tshark")
    assert program, "tshark is not installed (Debian package tshark); this test needs it"
    names = ("rpc.xid", "rpc.msgtyp", "rpc.program", "rpc.programversion", "rpc.procedure")
    options = [option for name in names for option in ("-e", name)]
    command = [program, "-n", "-r", str(CAPTURE), "-Y", "rpc", "-T", "fields"]
    command += ["-E", "occurrence=f", *options]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    tshark = [tuple(int(each, 0) for each in row.split("\t")) for row in text.splitlines()]
    found = []
    for each in captured:
        seen, message = each["rpcrdma"]["header"], each["rpcrdma"]["rpc"]
        kind = ["call", "reply"].index(message["kind"])
        numbers = (message["program"], message["version"], message["procedure"])
        found.append((seen["xid"], kind, *numbers))
    # tshark tells of a call when its read chunks are there.
    assert sorted(found) == sorted(tshark)
    assert {each["rpcrdma"]["rpc"]["name"] for each in captured} > {
        *("NFS 3 READ", "NFS 3 WRITE", "NFS 3 READDIRPLUS", "NFS 3 RENAME", "NFS 3 REMOVE"),
    }


def test_tshark_calls_one_reply_of_linux_malformed():
    """A READ of 22 octets into 4096: tshark adds the roundup to chunks only that are filled."""
    malformed = [each for each in messages(CAPTURE) if "_ws.malformed" in each.protocols]
    assert [each.fields["rpcordma.rdma_length"] for each in malformed] == [["22"]]


def test_lines_tell_chunks_and_procedures():
    lines = printed(CAPTURE)
    read = [line for line in lines if "NFS 3 READ call" in line]
    assert "RDMA_MSG XID 0x918b83d4 credits 128, write chunk of 4096 bytes, " in read[0]
    assert any(
        "read chunk at 108 of 65536 bytes" in line for line in lines if "NFS 3 WRITE call" in line
    )
    assert any("NFS 3 READDIRPLUS reply" in line for line in lines)


def send(octets: bytes, msn: int = 1, mo: int = 0, last: bool = True) -> bytes:
    control = control_octet(Opcode.SEND)
    return UntaggedHeader(qn=0, msn=msn, mo=mo, last=last, rsvd_ulp=control).encode() + octets


def words(*values: int) -> bytes:
    return b"".join(value.to_bytes(4) for value in values)


CALL = words(7, 1, 32, 0, 1, 132, 9, 300, 0, 64, 0, 0, 0) + words(7, 0, 2, 100003, 3, 7)
REPLY = words(7, 1, 16, 0, 0, 0, 0) + words(7, 1, 0, 0, 0, 0)


def test_a_send_in_several_fpdus_is_told_with_the_last_one(tmp_path: Path):
    log = conversation(
        (TO_RESPONDER, send(CALL[:20], last=False)),
        (TO_RESPONDER, send(CALL[20:40], mo=20, last=False)),
        (TO_RESPONDER, send(CALL[40:], mo=40)),
        (TO_INITIATOR, send(REPLY)),
    )
    lines = printed(written(tmp_path / "a.pcapng", log))
    assert ["XID" in line for line in lines[-4:]] == [False, False, True, True]
    assert "RDMA_MSG XID 0x00000007 credits 32, read chunk at 132 of 300 bytes, " in lines[-2]
    assert lines[-2].endswith("NFS 3 WRITE call")
    assert lines[-1].endswith("credits 16, NFS 3 WRITE reply")


def read(sink: int, size: int, stag: int, offset: int, msn: int = 1) -> bytes:
    """A Read Request into Tagged Offset 0 of the sink."""
    control = control_octet(Opcode.RDMA_READ_REQUEST)
    header = UntaggedHeader(qn=1, msn=msn, mo=0, last=True, rsvd_ulp=control)
    return header.encode() + ReadRequest(sink, 0, size, stag, offset).encode()


def tagged(opcode: Opcode, stag: int, offset: int, octets: bytes, last: bool = True) -> bytes:
    header = TaggedHeader(stag, offset, last, control_octet(opcode))
    return header.encode() + octets


def response(sink: int, offset: int, octets: bytes, last: bool = True) -> bytes:
    return tagged(Opcode.RDMA_READ_RESPONSE, sink, offset, octets, last)


LONG_CALL = words(7, 0, 2, 100003, 3, 3) + bytes(range(200))
# 20 octets, then the rest, which has a read chunk in it too.
LONG_CALL_HEADER = words(7, 1, 32, 1) + (
    words(1, 0, 9, 20, 0, 64, 1, 0, 10, len(LONG_CALL) - 20, 0, 96, 1, 40, 11, 8, 0, 0, 0, 0, 0)
)


def test_the_procedure_of_a_long_call_is_found_in_its_chunk(tmp_path: Path):
    rest = LONG_CALL[20:]
    log = conversation(
        (TO_RESPONDER, send(LONG_CALL_HEADER)),
        (TO_INITIATOR, read(501, len(rest), 10, 96)),
        (TO_INITIATOR, read(502, 8, 11, 0, msn=2)),
        (TO_INITIATOR, read(503, 20, 9, 64, msn=3)),
        (TO_RESPONDER, response(501, 0, rest[:3], last=False)),
        (TO_RESPONDER, response(501, 3, rest[3:])),
        (TO_RESPONDER, response(502, 0, bytes(8))),
        (TO_RESPONDER, response(503, 0, LONG_CALL[:20])),
        (TO_INITIATOR, send(REPLY)),
        request=KNOWN,
    )
    call, reply = sends(decoded(written(tmp_path / "a.pcapng", log)))
    assert call["rpcrdma"]["rpc"]["name"] == reply["rpcrdma"]["rpc"]["name"] == "NFS 3 LOOKUP"
    line = next(line for line in printed(tmp_path / "a.pcapng") if "RDMA_NOMSG" in line)
    assert line.endswith("read chunk at 40 of 8 bytes, NFS 3 LOOKUP call")


@pytest.mark.parametrize("octets", [words(8, 0, 2, 100003, 3, 3), words(7, 9), b""])
def test_a_long_call_that_is_none_is_in_error(tmp_path: Path, octets: bytes):
    header = words(7, 1, 32, 1, 1, 0, 9, len(octets) or 24, 0, 0, 0, 0, 0)
    log = conversation(
        (TO_RESPONDER, send(header)),
        (TO_INITIATOR, read(501, len(octets), 9, 0)),
        (TO_RESPONDER, response(501, 0, octets)),
        request=KNOWN,
    )
    found = decoded(written(tmp_path / "a.pcapng", log))
    wrong = [("RFC 8166, 4.2.1", None)] if octets else []  # of what was not read nothing is told
    assert [each for each in problems(found) if each[0].startswith("RFC 8166")] == wrong


def long_reply(status: int) -> bytes:
    return words(7, 1, 0, 0, 0, status) + bytes(600)


OFFER = words(7, 1, 32, 0, 0, 0, 1, 2, 5, 16, 0, 0, 6, 900, 0, 4096)
RETURNED = words(7, 1, 32, 1, 0, 0, 1, 2, 5, 16, 0, 0, 6, 608, 0, 4096)


@pytest.mark.parametrize(("status", "text"), [(0, "reply"), (5, "reply SYSTEM_ERR")])
def test_the_status_of_a_long_reply_is_found_in_its_chunk(tmp_path: Path, status: int, text: str):
    octets = long_reply(status)
    log = conversation(
        (TO_RESPONDER, send(OFFER + words(7, 0, 2, 100003, 3, 17))),
        (TO_INITIATOR, tagged(Opcode.RDMA_WRITE, 5, 0, octets[:16])),
        (TO_INITIATOR, tagged(Opcode.RDMA_WRITE, 6, 4096, octets[16:])),
        (TO_INITIATOR, send(RETURNED)),
    )
    lines = printed(written(tmp_path / "a.pcapng", log))
    assert lines[-1].endswith(f"reply chunk of 624 bytes in 2 segments, NFS 3 READDIRPLUS {text}")


def test_a_reply_that_the_client_reads_is_found_in_its_chunk(tmp_path: Path):
    octets = long_reply(4)
    header = words(7, 1, 32, 1, 1, 0, 9, len(octets), 0, 0, 0, 0, 0)
    log = conversation(
        (TO_RESPONDER, send(words(7, 1, 32, 0, 0, 0, 0) + words(7, 0, 2, 100003, 3, 17))),
        (TO_INITIATOR, send(header)),
        (TO_RESPONDER, read(501, len(octets), 9, 0)),
        (TO_INITIATOR, response(501, 0, octets)),
    )
    _, reply = sends(decoded(written(tmp_path / "a.pcapng", log)))
    assert (reply["rpcrdma"]["rpc"]["name"], reply["rpcrdma"]["rpc"]["status"]) == (
        "NFS 3 READDIRPLUS",
        "GARBAGE_ARGS",
    )


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (words(7, 1, 1, 3), "RDMA_DONE XID 0x00000007 credits 1"),
        (words(7, 1, 1, 4, 2), "RDMA_ERROR XID 0x00000007 credits 1, ERR_CHUNK"),
        (words(7, 2, 1, 4, 1, 1, 1), "RDMA_ERROR XID 0x00000007 credits 1, ERR_VERS 1 to 1"),
        (words(7, 1, 1, 1, 0, 0, 1, 1, 5, 99, 0, 0), "reply chunk of 99 bytes"),
        (
            words(7, 1, 1, 2, 64, 512, 0, 0, 0, 7, 1, 0, 0, 0, 4),
            "RDMA_MSGP XID 0x00000007 credits 1, align 64 threshold 512, reply GARBAGE_ARGS",
        ),
        (words(7, 1, 1, 0, 0, 0, 0, 7, 1, 1, 1), "reply AUTH_ERROR"),
    ],
)
def test_other_headers(tmp_path: Path, octets: bytes, text: str):
    log = conversation((TO_RESPONDER, send(octets)), request=KNOWN)
    assert text in printed(written(tmp_path / "a.pcapng", log))[-1]


WRONG = [
    words(7, 2, 1, 0, 0, 0, 0),
    words(7, 1, 1, 9),
    words(7, 1, 1, 0, 2),
    words(7, 1, 1, 0, 0, 1, 5, 0),
    words(7, 1, 1),
]


@pytest.mark.parametrize("octets", WRONG)
def test_a_send_without_a_header_is_in_error_only_where_one_is_expected(tmp_path: Path, octets):
    expected = conversation((TO_RESPONDER, send(octets)), request=KNOWN)
    assert problems(decoded(written(tmp_path / "a.pcapng", expected))) == [("RFC 8166, 4.5", None)]
    found = decoded(written(tmp_path / "b.pcapng", conversation((TO_RESPONDER, send(octets)))))
    assert problems(found) == []
    assert not sends(found)


def test_what_stands_behind_a_header_without_a_message_is_in_error(tmp_path: Path):
    log = conversation((TO_RESPONDER, send(words(7, 1, 1, 3, 0))), request=KNOWN)
    assert problems(decoded(written(tmp_path / "a.pcapng", log))) == [("RFC 5666, 4.1", None)]


def test_another_xid_in_the_message_is_in_error(tmp_path: Path):
    octets = words(7, 1, 1, 0, 0, 0, 0, 8, 1, 0, 0, 0, 0)
    log = conversation((TO_RESPONDER, send(octets)), request=KNOWN)
    assert problems(decoded(written(tmp_path / "a.pcapng", log))) == [("RFC 8166, 4.2.1", None)]


@pytest.mark.parametrize("cut", range(0, len(CALL) - 24, 4))
def test_headers_that_are_cut_are_none(cut: int):
    with pytest.raises(RpcRdmaError):
        rpcrdma.parse(CALL[:cut])


def test_messages_that_are_none():
    assert rpc.parse(words(1, 0)) is None
    assert rpc.parse(words(1, 2, 2, 3, 4, 5)) is None
    assert rpc.parse(words(1, 0, 3, 3, 4, 5)) is None
    found = rpc.parse(words(1, 0, 2, 100003, 3, 99))
    assert found is not None and found.call is not None
    assert found.call.name == "NFS 3 procedure 99"


def test_a_compound_of_nfs_4_is_told_by_its_operations(tmp_path: Path):
    operations = words(4, 53) + bytes(16) + words(1, 0, 0, 0) + words(24, 10, 9, 2, 16, 17)
    call = words(7, 1, 32, 0, 0, 0, 0) + words(7, 0, 2, 100003, 4, 1, 0, 0, 0, 0) + words(0, 1)
    reply = words(7, 1, 16, 0, 0, 0, 0) + words(7, 1, 0, 0, 0, 0, 10008, 0, 0)
    log = conversation((TO_RESPONDER, send(call + operations)), (TO_INITIATOR, send(reply)))
    path = written(tmp_path / "a.pcapng", log)
    lines = printed(path)
    name = "NFS 4.1 COMPOUND of SEQUENCE, PUTROOTFH, GETFH, GETATTR"
    assert lines[3].endswith(f" credits 32, {name} call")
    assert lines[4].endswith(f" credits 16, {name} reply NFS4ERR_DELAY")
    sent, answer = sends(decoded(path))
    assert sent["rpcrdma"]["rpc"]["operations"] == ["SEQUENCE", "PUTROOTFH", "GETFH", "GETATTR"]
    assert answer["rpcrdma"]["rpc"]["status"] == "NFS4ERR_DELAY"
