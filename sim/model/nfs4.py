"""COMPOUND of NFS version 4: which operations a call has, and what its reply says.

Numbers and arguments are those of RFC 7530 (minor version 0), RFC 8881 (1), RFC 7862 (2) and
RFC 8276 (extended attributes).
"""

import struct
from dataclasses import dataclass

_OPERATIONS = (
    *("ACCESS", "CLOSE", "COMMIT", "CREATE", "DELEGPURGE", "DELEGRETURN", "GETATTR", "GETFH"),
    *("LINK", "LOCK", "LOCKT", "LOCKU", "LOOKUP", "LOOKUPP", "NVERIFY", "OPEN", "OPENATTR"),
    *("OPEN_CONFIRM", "OPEN_DOWNGRADE", "PUTFH", "PUTPUBFH", "PUTROOTFH", "READ", "READDIR"),
    *("READLINK", "REMOVE", "RENAME", "RENEW", "RESTOREFH", "SAVEFH", "SECINFO", "SETATTR"),
    *("SETCLIENTID", "SETCLIENTID_CONFIRM", "VERIFY", "WRITE", "RELEASE_LOCKOWNER"),
    *("BACKCHANNEL_CTL", "BIND_CONN_TO_SESSION", "EXCHANGE_ID", "CREATE_SESSION"),
    *("DESTROY_SESSION", "FREE_STATEID", "GET_DIR_DELEGATION", "GETDEVICEINFO", "GETDEVICELIST"),
    *("LAYOUTCOMMIT", "LAYOUTGET", "LAYOUTRETURN", "SECINFO_NO_NAME", "SEQUENCE", "SET_SSV"),
    *("TEST_STATEID", "WANT_DELEGATION", "DESTROY_CLIENTID", "RECLAIM_COMPLETE", "ALLOCATE"),
    *("COPY", "COPY_NOTIFY", "DEALLOCATE", "IO_ADVISE", "LAYOUTERROR", "LAYOUTSTATS"),
    *("OFFLOAD_CANCEL", "OFFLOAD_STATUS", "READ_PLUS", "SEEK", "WRITE_SAME", "CLONE"),
    *("GETXATTR", "SETXATTR", "LISTXATTRS", "REMOVEXATTR"),
)
NAMES = dict(enumerate(_OPERATIONS, 3)) | {10044: "ILLEGAL"}

_STATEID = "f16"
_OWNER = "hs"  # client id, and what names the owner
_ATTRIBUTES = "bs"
_CHANNEL = "wwwwwwa"
_ARGUMENTS = {
    "ACCESS": "w",
    "CLOSE": f"w{_STATEID}",
    "COMMIT": "hw",
    "DELEGPURGE": "h",
    "DELEGRETURN": _STATEID,
    "GETATTR": "b",
    "GETFH": "",
    "LINK": "s",
    "LOCKT": f"whh{_OWNER}",
    "LOCKU": f"ww{_STATEID}hh",
    "LOOKUP": "s",
    "LOOKUPP": "",
    "NVERIFY": _ATTRIBUTES,
    "OPENATTR": "w",
    "OPEN_CONFIRM": f"{_STATEID}w",
    "OPEN_DOWNGRADE": f"{_STATEID}www",
    "PUTFH": "s",
    "PUTPUBFH": "",
    "PUTROOTFH": "",
    "READ": f"{_STATEID}hw",
    "READDIR": "hhwwb",
    "READLINK": "",
    "REMOVE": "s",
    "RENAME": "ss",
    "RENEW": "h",
    "RESTOREFH": "",
    "SAVEFH": "",
    "SECINFO": "s",
    "SETATTR": f"{_STATEID}{_ATTRIBUTES}",
    "SETCLIENTID": "hswssw",
    "SETCLIENTID_CONFIRM": "hh",
    "VERIFY": _ATTRIBUTES,
    "WRITE": f"{_STATEID}hws",
    "RELEASE_LOCKOWNER": _OWNER,
    "BIND_CONN_TO_SESSION": "f16ww",
    "DESTROY_SESSION": "f16",
    "FREE_STATEID": _STATEID,
    "GETDEVICEINFO": "f16wwb",
    "GETDEVICELIST": "wwhh",
    "LAYOUTGET": f"wwwhhh{_STATEID}w",
    "SECINFO_NO_NAME": "w",
    "SEQUENCE": "f16wwww",
    "SET_SSV": "ss",
    "DESTROY_CLIENTID": "h",
    "RECLAIM_COMPLETE": "w",
    "ALLOCATE": f"{_STATEID}hh",
    "DEALLOCATE": f"{_STATEID}hh",
    "IO_ADVISE": f"{_STATEID}hhb",
    "OFFLOAD_CANCEL": _STATEID,
    "OFFLOAD_STATUS": _STATEID,
    "READ_PLUS": f"{_STATEID}hw",
    "SEEK": f"{_STATEID}hw",
    "CLONE": f"{_STATEID}{_STATEID}hhh",
    "GETXATTR": "s",
    "SETXATTR": "wss",
    "LISTXATTRS": "hw",
    "REMOVEXATTR": "s",
}
"""Of operations whose arguments have no alternatives. w: a word. h: two. fN: N octets. s: an opaque
or a string of any length. b, a: an array of words."""

STATUS = {
    **{1: "PERM", 2: "NOENT", 5: "IO", 6: "NXIO", 13: "ACCESS", 17: "EXIST", 18: "XDEV"},
    **{20: "NOTDIR", 21: "ISDIR", 22: "INVAL", 27: "FBIG", 28: "NOSPC", 30: "ROFS", 31: "MLINK"},
    **{63: "NAMETOOLONG", 66: "NOTEMPTY", 69: "DQUOT", 70: "STALE", 10001: "BADHANDLE"},
    **{10003: "BAD_COOKIE", 10004: "NOTSUPP", 10005: "TOOSMALL", 10006: "SERVERFAULT"},
    **{10007: "BADTYPE", 10008: "DELAY", 10009: "SAME", 10010: "DENIED", 10011: "EXPIRED"},
    **{10012: "LOCKED", 10013: "GRACE", 10014: "FHEXPIRED", 10015: "SHARE_DENIED"},
    **{10016: "WRONGSEC", 10017: "CLID_INUSE", 10018: "RESOURCE", 10019: "MOVED"},
    **{10020: "NOFILEHANDLE", 10021: "MINOR_VERS_MISMATCH", 10022: "STALE_CLIENTID"},
    **{10023: "STALE_STATEID", 10024: "OLD_STATEID", 10025: "BAD_STATEID", 10026: "BAD_SEQID"},
    **{10027: "NOT_SAME", 10032: "ATTRNOTSUPP", 10033: "NO_GRACE", 10036: "BADXDR"},
    **{10044: "OP_ILLEGAL", 10052: "BADSESSION", 10053: "BADSLOT", 10063: "SEQ_MISORDERED"},
}
"""nfsstat4 without the prefix NFS4ERR_ (RFC 7530, 13; RFC 8881, 15): those that are met."""


@dataclass(frozen=True)
class Compound:
    """The operations of a call.

    names: as far as they were found; the arguments of some operations are not known here, and data
    that a chunk carries is not looked at. count: how many there are.
    """

    minor: int
    count: int
    names: tuple[str, ...]

    @property
    def words(self) -> str:
        """Such as NFS 4.1 COMPOUND of SEQUENCE, PUTFH and 2 more."""
        hidden = self.count - len(self.names)
        shown = ", ".join(self.names)
        if hidden:
            shown += f" and {hidden} more" if shown else f"{hidden} operations"
        return f"NFS 4.{self.minor} COMPOUND" + (f" of {shown}" if shown else "")


class _EndError(Exception):
    """The octets end, or nobody knows what follows."""


class _Reader:
    def __init__(self, octets: bytes, at: int = 0):
        self._octets, self._at = octets, at

    def skip(self, octets: int) -> bytes:
        start, self._at = self._at, self._at + octets
        if self._at > len(self._octets):
            raise _EndError
        return self._octets[start : self._at]

    def word(self) -> int:
        (value,) = struct.unpack("!I", self.skip(4))
        return int(value)

    def opaque(self) -> None:
        self.skip(-(-self.word() // 4) * 4)

    def words(self) -> None:
        self.skip(4 * self.word())

    def take(self, layout: str) -> None:
        """Passes over what a layout describes."""
        at = 0
        while at < len(layout):
            kind = layout[at]
            at += 1
            match kind:
                case "w":
                    self.skip(4)
                case "h":
                    self.skip(8)
                case "s":
                    self.opaque()
                case "b" | "a":
                    self.words()
                case "f":
                    self.skip(int(layout[at : at + 2]))
                    at += 2


def _create(reader: _Reader) -> None:
    kind = reader.word()
    reader.take({5: "s", 3: "h", 4: "h"}.get(kind, ""))  # link, block, character
    reader.take(f"s{_ATTRIBUTES}")


def _lock(reader: _Reader) -> None:
    reader.take("wwhh")
    new_owner = reader.word()
    reader.take(f"w{_STATEID}w{_OWNER}" if new_owner else f"{_STATEID}w")


def _open(reader: _Reader) -> None:
    reader.take(f"www{_OWNER}")
    if reader.word():  # OPEN4_CREATE
        how = reader.word()
        reader.take({0: _ATTRIBUTES, 1: _ATTRIBUTES, 2: "h", 3: f"h{_ATTRIBUTES}"}[how])
    claims = {0: "s", 1: "w", 2: f"{_STATEID}s", 3: "s", 4: "", 5: _STATEID, 6: ""}
    reader.take(claims[reader.word()])


def _exchange_id(reader: _Reader) -> None:
    reader.take("hsw")
    if reader.word():  # a protection of the state other than SP4_NONE
        raise _EndError
    for _ in range(min(reader.word(), 1)):
        reader.take("sshw")


def _create_session(reader: _Reader) -> None:
    reader.take(f"hww{_CHANNEL}{_CHANNEL}w")
    for _ in range(reader.word()):
        flavor = reader.word()
        if flavor > 1:
            raise _EndError
        reader.take("wswwa" if flavor else "")


def _test_stateid(reader: _Reader) -> None:
    reader.skip(16 * reader.word())


_ALTERNATIVES = {
    "CREATE": _create,
    "LOCK": _lock,
    "OPEN": _open,
    "EXCHANGE_ID": _exchange_id,
    "CREATE_SESSION": _create_session,
    "TEST_STATEID": _test_stateid,
}


def compound(octets: bytes) -> Compound | None:
    """The operations of the arguments of a COMPOUND, `None` if they are none."""
    reader = _Reader(octets)
    try:
        reader.opaque()  # the tag
        minor, count = reader.word(), reader.word()
    except _EndError:
        return None
    names: list[str] = []
    try:
        while len(names) < count:
            number = reader.word()
            name = NAMES.get(number, f"operation {number}")
            names.append(name)
            if name in _ALTERNATIVES:
                _ALTERNATIVES[name](reader)
            elif name in _ARGUMENTS:
                reader.take(_ARGUMENTS[name])
            else:
                break
    except (_EndError, KeyError):
        pass
    return Compound(minor, count, tuple(names))


def status_of_reply(octets: bytes) -> str | None:
    """Of the result of a COMPOUND, `None` if all went well or there is none."""
    if len(octets) < 4:
        return None
    number = int.from_bytes(octets[:4])
    if not number:
        return None
    return f"NFS4ERR_{STATUS[number]}" if number in STATUS else f"status {number} of NFS 4"
