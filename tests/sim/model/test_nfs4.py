"""COMPOUND of NFS 4 as `stagecoach decode` names it."""

import re
from pathlib import Path

import pytest

from stagecoach.sim.capture.pcapng import PcapngWriter, TcpConversation
from stagecoach.sim.model import nfs4, rpc
from stagecoach.sim.model.direction import Direction
from stagecoach.sim.model.nfs4 import NAMES, compound
from tests.sim.capture import tshark


def words(*values: int) -> bytes:
    return b"".join(value.to_bytes(4) for value in values)


def opaque(octets: bytes) -> bytes:
    return words(len(octets)) + octets + bytes(-len(octets) % 4)


def bitmap(*values: int) -> bytes:
    return words(len(values), *values)


STATEID = bytes(range(16))
ATTRIBUTES = bitmap(0, 2) + opaque(b"1234567")
OWNER = bytes(8) + opaque(b"owner")
ARGUMENTS = {
    "SEQUENCE": bytes(16) + words(1, 2, 3, 0),
    "PUTFH": opaque(bytes(29)),
    "PUTROOTFH": b"",
    "GETFH": b"",
    "SAVEFH": b"",
    "LOOKUP": opaque(b"name"),
    "GETATTR": bitmap(1, 2, 3),
    "ACCESS": words(0x3F),
    "READ": STATEID + bytes(8) + words(4096),
    "WRITE": STATEID + bytes(8) + words(2) + opaque(b"content"),
    "COMMIT": bytes(12),
    "READDIR": bytes(16) + words(100, 1000) + bitmap(7),
    "RENAME": opaque(b"old") + opaque(b"new"),
    "SETATTR": STATEID + ATTRIBUTES,
    "CREATE": words(2) + opaque(b"directory") + ATTRIBUTES,
    "OPEN": words(0, 1, 0) + OWNER + words(1, 0) + ATTRIBUTES + words(0) + opaque(b"file"),
    "CLOSE": words(1) + STATEID,
    "LOCK": words(1, 0) + bytes(16) + words(1, 5) + STATEID + words(1) + OWNER,
    "LOCKU": words(1, 2) + STATEID + bytes(16),
    "SETCLIENTID": bytes(8)
    + opaque(b"client")
    + words(1)
    + opaque(b"tcp")
    + opaque(b"192.0.2.1.8.1")
    + words(7),
    "EXCHANGE_ID": bytes(8)
    + opaque(b"client")
    + words(1, 0, 1)
    + opaque(b"a")
    + opaque(b"b")
    + bytes(12),
    "CREATE_SESSION": bytes(16)
    + 2 * (words(1, 2, 3, 4, 5, 6) + bitmap(9))
    + words(5, 2, 0, 1, 77)
    + opaque(b"host")
    + words(0, 0, 1, 0),
    "TEST_STATEID": words(2) + 2 * STATEID,
    "DESTROY_SESSION": bytes(16),
    "LAYOUTGET": bytes(36) + STATEID + words(1),
    "SEEK": STATEID + bytes(8) + words(1),
    "GETXATTR": opaque(b"user.name"),
}
ALTERNATIVES = [
    ("CREATE", words(5) + opaque(b"target") + opaque(b"a longer name") + ATTRIBUTES),
    ("CREATE", words(4, 1, 2) + opaque(b"device") + ATTRIBUTES),
    ("OPEN", words(0, 1, 0) + OWNER + words(0, 4)),
    ("OPEN", words(0, 1, 0) + OWNER + words(1, 2) + bytes(8) + words(0) + opaque(b"file")),
    ("OPEN", words(0, 1, 0) + OWNER + words(1, 3) + bytes(8) + ATTRIBUTES + words(5) + STATEID),
    ("OPEN", words(0, 1, 0) + OWNER + words(0, 2) + STATEID + opaque(b"file")),
    ("LOCK", words(1, 0) + bytes(16) + words(0) + STATEID + words(1)),
]
NUMBERS = {name: number for number, name in NAMES.items()}


def arguments(*operations: tuple[str, bytes], minor: int = 1) -> bytes:
    listed = b"".join(words(NUMBERS[name]) + octets for name, octets in operations)
    return opaque(b"tag") + words(minor, len(operations)) + listed


NUMBERED = """
3 ACCESS 4 CLOSE 5 COMMIT 6 CREATE 7 DELEGPURGE 8 DELEGRETURN 9 GETATTR 10 GETFH 11 LINK
12 LOCK 13 LOCKT 14 LOCKU 15 LOOKUP 16 LOOKUPP 17 NVERIFY 18 OPEN 19 OPENATTR
20 OPEN_CONFIRM 21 OPEN_DOWNGRADE 22 PUTFH 23 PUTPUBFH 24 PUTROOTFH 25 READ 26 READDIR
27 READLINK 28 REMOVE 29 RENAME 30 RENEW 31 RESTOREFH 32 SAVEFH 33 SECINFO 34 SETATTR
35 SETCLIENTID 36 SETCLIENTID_CONFIRM 37 VERIFY 38 WRITE 39 RELEASE_LOCKOWNER
40 BACKCHANNEL_CTL 41 BIND_CONN_TO_SESSION 42 EXCHANGE_ID 43 CREATE_SESSION
44 DESTROY_SESSION 45 FREE_STATEID 46 GET_DIR_DELEGATION 47 GETDEVICEINFO 48 GETDEVICELIST
49 LAYOUTCOMMIT 50 LAYOUTGET 51 LAYOUTRETURN 52 SECINFO_NO_NAME 53 SEQUENCE 54 SET_SSV
55 TEST_STATEID 56 WANT_DELEGATION 57 DESTROY_CLIENTID 58 RECLAIM_COMPLETE 59 ALLOCATE
60 COPY 61 COPY_NOTIFY 62 DEALLOCATE 63 IO_ADVISE 64 LAYOUTERROR 65 LAYOUTSTATS
66 OFFLOAD_CANCEL 67 OFFLOAD_STATUS 68 READ_PLUS 69 SEEK 70 WRITE_SAME 71 CLONE
72 GETXATTR 73 SETXATTR 74 LISTXATTRS 75 REMOVEXATTR 10044 ILLEGAL
"""
"""Number and name of each operation."""


def test_numbers_are_those_of_the_rfcs():
    """RFC 7530, 16; RFC 8881, 18; RFC 7862, 15; RFC 8276, 8.4."""
    listed = NUMBERED.split()
    assert NAMES == dict(zip(map(int, listed[::2]), listed[1::2], strict=True))


SHORT = {
    "GETDEVINFO": "GETDEVICEINFO",
    "GETDEVLIST": "GETDEVICELIST",
    "WANT_DELEG": "WANT_DELEGATION",
}
"""Names of tshark's own, and those of the RFCs."""


def names_of_tshark(path: Path, *calls: bytes) -> list[tuple[str, int]]:
    """What tshark calls the operations of COMPOUNDs, given their arguments, and their numbers."""
    with PcapngWriter(path) as writer:
        ends = {"initiator": ("10.0.0.1", 1000), "responder": ("10.0.0.2", 2049)}
        conversation = TcpConversation(writer, **ends)
        for xid, listed in enumerate(calls):
            call = words(xid, 0, 2, 100003, 4, 1, 0, 0, 0, 0) + listed
            record = words(1 << 31 | len(call)) + call
            conversation.add(Direction.TO_RESPONDER, record, 1.0 + xid)
        conversation.close(1.0 + len(calls))
    shown = "\n".join(tshark.lines(path, "-V"))
    found = re.findall(r"^ +Opcode: (\w+) \((\d+)\)", shown, re.MULTILINE)
    return [(SHORT.get(name, name), int(number)) for name, number in found]


def test_tshark_has_the_same_names(tmp_path):
    """It finds each operation after the arguments of those before it, as `compound` does."""
    whole = arguments(*ARGUMENTS.items(), minor=2)
    found = names_of_tshark(tmp_path / "a.pcapng", whole)
    assert found == [(name, NUMBERS[name]) for name in ARGUMENTS]
    assert compound(whole) == nfs4.Compound(2, len(found), tuple(name for name, _ in found))


def test_tshark_has_the_same_numbers(tmp_path):
    """Each operation is the last of a call, which ends before its arguments."""
    calls = [arguments((name, b""), minor=2) for name in NAMES.values()]
    found = names_of_tshark(tmp_path / "a.pcapng", *calls)
    assert {number: name for name, number in found} == NAMES


@pytest.mark.parametrize("case", [*ARGUMENTS.items(), *ALTERNATIVES])
def test_what_follows_an_operation_is_found(case):
    found = compound(arguments(case, ("GETFH", b""), case, ("LOOKUPP", b"")))
    assert found is not None
    assert found.names == (case[0], "GETFH", case[0], "LOOKUPP")


def test_words_of_a_compound():
    found = compound(
        arguments(*((name, ARGUMENTS[name]) for name in ("SEQUENCE", "PUTFH", "READ")))
    )
    assert found is not None and found.words == "NFS 4.1 COMPOUND of SEQUENCE, PUTFH, READ"
    # The arguments of COPY are not known: it is named, and what follows is counted.
    unknown = arguments(("PUTFH", opaque(b"x")), ("COPY", bytes(100)), ("GETFH", b""), minor=2)
    found = compound(unknown)
    assert found is not None and found.words == "NFS 4.2 COMPOUND of PUTFH, COPY and 1 more"
    assert compound(opaque(b"") + words(0, 0)).words == "NFS 4.0 COMPOUND"  # type: ignore[union-attr]


def test_octets_that_are_cut_or_wrong_name_what_is_there():
    # An operation is named from the octet on that ends its number.
    named_at, at = [], len(arguments())
    for octets in ARGUMENTS.values():
        named_at.append(at + 4)
        at += 4 + len(octets)
    whole = arguments(*ARGUMENTS.items())
    assert len(whole) == at
    for cut in range(len(whole) + 1):
        found = compound(whole[:cut])
        if cut < len(arguments()):
            assert found is None
            continue
        assert found is not None and found.count == len(ARGUMENTS)
        assert found.names == tuple(ARGUMENTS)[: sum(each <= cut for each in named_at)]
    assert compound(words(1 << 31)) is None
    wrong = compound(opaque(b"") + words(1, 1 << 31, NUMBERS["LOOKUP"], (1 << 32) - 1))
    assert wrong is not None and wrong.names == ("LOOKUP",)
    wrong = compound(opaque(b"") + words(0, 2, 99, 3))
    assert wrong is not None and wrong.words == "NFS 4.0 COMPOUND of operation 99 and 1 more"
    bad_claim = ("OPEN", words(0, 1, 0) + OWNER + words(0, 77))
    found = compound(arguments(bad_claim, ("GETFH", b"")))
    assert found is not None and found.names == ("OPEN",)


def test_an_rpc_message_has_them_behind_its_credential():
    auth_sys = words(1, 20) + bytes(20)
    call = words(7, 0, 2, 100003, 4, 1) + auth_sys + words(0, 0)
    message = rpc.parse(call + arguments(("PUTROOTFH", b""), ("GETFH", b"")))
    assert message is not None and message.call is not None
    assert message.call.name == "NFS 4.1 COMPOUND of PUTROOTFH, GETFH"
    null = rpc.parse(words(7, 0, 2, 100003, 4, 0, 0, 0, 0, 0))
    assert null is not None and null.call is not None and null.call.name == "NFS 4 NULL"
    short = rpc.parse(words(7, 0, 2, 100003, 4, 1))
    assert short is not None and short.call is not None
    assert short.call.name == "NFS 4 COMPOUND"


@pytest.mark.parametrize(
    ("status", "told"),
    [(0, "SUCCESS"), (2, "NFS4ERR_NOENT"), (10008, "NFS4ERR_DELAY"), (9, "status 9 of NFS 4")],
)
def test_a_reply_says_what_went_wrong(status, told):
    call = rpc.RpcCall(100003, 4, 1, nfs4.Compound(1, 1, ("GETFH",)))
    octets = words(7, 1, 0, 0, 0, 0, status) + opaque(b"tag") + words(1, 10, status)
    message = rpc.parse(octets)
    assert message is not None and message.status == "SUCCESS"
    known = rpc.RpcMessage(message.xid, message.kind, call, message.status)
    assert rpc.reply_status(known, octets) == told
    assert rpc.reply_status(message, octets) == "SUCCESS"  # nobody knows what it answers
