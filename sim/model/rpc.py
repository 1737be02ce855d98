"""ONC RPC messages in what was captured: kind, program, procedure, outcome (RFC 5531, 9)."""

import struct
from dataclasses import dataclass

from stagecoach.sim.model import nfs4
from stagecoach.sim.model.nfs4 import Compound

CALL, REPLY = 0, 1

_NFS3 = (
    *("NULL", "GETATTR", "SETATTR", "LOOKUP", "ACCESS", "READLINK", "READ", "WRITE", "CREATE"),
    *("MKDIR", "SYMLINK", "MKNOD", "REMOVE", "RMDIR", "RENAME", "LINK", "READDIR", "READDIRPLUS"),
    *("FSSTAT", "FSINFO", "PATHCONF", "COMMIT"),
)
_MOUNT3 = ("NULL", "MNT", "DUMP", "UMNT", "UMNTALL", "EXPORT")
_NFSACL3 = ("NULL", "GETACL", "SETACL")
_CONFIG_RDMA1 = ("NULL", "CONF_RDMA")
PROGRAMS: dict[tuple[int, int], tuple[str, tuple[str, ...]]] = {
    (100003, 3): ("NFS", _NFS3),
    (100003, 4): ("NFS", ("NULL", "COMPOUND")),
    (0x40000000, 1): ("NFS_CB", ("CB_NULL", "CB_COMPOUND")),
    (100005, 3): ("MOUNT", _MOUNT3),
    (100227, 3): ("NFSACL", _NFSACL3),
    (100417, 1): ("CONFIG_RDMA", _CONFIG_RDMA1),
}
"""Name and procedures of a program and version (RFC 1813, 3 and Appendix I; RFC 5666, 6.2;
RFC 8881, 16 and 20)."""

ACCEPT_STATUS = (
    *("SUCCESS", "PROG_UNAVAIL", "PROG_MISMATCH", "PROC_UNAVAIL", "GARBAGE_ARGS", "SYSTEM_ERR"),
)
REJECT_STATUS = ("RPC_MISMATCH", "AUTH_ERROR")


@dataclass(frozen=True)
class RpcCall:
    """What an RPC call is for; `compound` are the operations of a COMPOUND of NFS 4."""

    program: int
    version: int
    procedure: int
    compound: Compound | None = None

    @property
    def name(self) -> str:
        """Such as NFS 3 READ, or NFS 4.1 COMPOUND of SEQUENCE, PUTFH."""
        if self.compound is not None:
            return self.compound.words
        program, procedures = PROGRAMS.get((self.program, self.version), (str(self.program), ()))
        known = self.procedure < len(procedures)
        procedure = procedures[self.procedure] if known else f"procedure {self.procedure}"
        return f"{program} {self.version} {procedure}"


@dataclass(frozen=True)
class RpcMessage:
    """The start of an RPC message; `call` of a reply is that with the same XID, if it was seen."""

    xid: int
    kind: int
    call: RpcCall | None = None
    status: str | None = None


def parse(octets: bytes) -> RpcMessage | None:
    """The message of these octets, `None` if there is none."""
    if len(octets) < 12:
        return None
    xid, kind, word = struct.unpack_from("!3I", octets)
    if kind == CALL and word == 2 and len(octets) >= 24:
        return RpcMessage(xid, CALL, _call(octets[12:]))
    if kind == REPLY and word in (0, 1):
        return RpcMessage(xid, REPLY, status=_status(octets[12:], denied=bool(word)))
    return None


COMPOUND_OF_NFS4 = (100003, 4, 1)


def _call(octets: bytes) -> RpcCall:
    """Program, version and procedure, then the credential and the verifier."""
    what = struct.unpack_from("!3I", octets)
    found = None
    if what == COMPOUND_OF_NFS4:
        at = _after_opaque(octets, _after_opaque(octets, 12 + 4) + 4)
        found = nfs4.compound(octets[at:])
    return RpcCall(what[0], what[1], what[2], found)


def _after_opaque(octets: bytes, at: int) -> int:
    """Where an opaque ends whose length stands at a place."""
    return at + 4 + -(-int.from_bytes(octets[at : at + 4]) // 4) * 4


def reply_status(message: RpcMessage, octets: bytes) -> str | None:
    """That of a reply whose call is known: of a COMPOUND too."""
    call = message.call
    is_compound = call is not None and call.compound is not None
    if not is_compound or message.status != "SUCCESS":
        return message.status
    return nfs4.status_of_reply(octets[_after_opaque(octets, 16) + 4 :]) or message.status


def _status(octets: bytes, *, denied: bool) -> str | None:
    names, at = (REJECT_STATUS, 0) if denied else (ACCEPT_STATUS, 8)
    if not denied and len(octets) >= 8:
        # The verifier stands before it.
        at += -(-int.from_bytes(octets[4:8]) // 4) * 4
    if len(octets) < at + 4:
        return None
    number = int.from_bytes(octets[at : at + 4])
    return names[number] if number < len(names) else f"status {number}"
