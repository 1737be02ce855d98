"""What a file handle is made of: what names the file, and a code that only the server can make."""

import hmac
import os
import secrets
import struct

from stagecoach.ulp.nfs.server.identity import Identity
from stagecoach.ulp.nfs.status import NfsError, NfsStatus

KEY_OCTETS = 32
_MAGIC = b"SNF4"
_FIELDS = struct.Struct(">4sQQQ")
"""Magic, file system, inode number, generation: all that tells a file from every other one."""
_CODE_OCTETS = 16
HANDLE_OCTETS = _FIELDS.size + _CODE_OCTETS

_WORD = (1 << 64) - 1
_OF_THIS_RUN = 1 << 63
"""In a generation: it was drawn at random, because the file system keeps no time of birth."""


class HandleFormat:
    """Makes handles, and reads those that it has made, also in an earlier run.

    A handle names file system, inode and generation, which is the time of birth: a file that gets
    the inode number of a deleted one has another handle. Of a file system that keeps no time of
    birth the generation is a random number, which no later run knows.

    Parameters
    ----------
    key: secret, of 32 bytes; its holder can make handles. export: path of the export. Handles
        of another export are not taken.
    """

    def __init__(self, key: bytes, export: bytes):
        if len(key) != KEY_OCTETS:
            raise ValueError(f"the key has {len(key)} bytes; allowed: {KEY_OCTETS}")
        self._key = key
        self._export = export
        self._file_systems: dict[int, int] = {}  # by device, as long as this run

    def make(self, fd: int, identity: Identity) -> bytes:
        """The handle of an open file."""
        device, inode, birth = identity
        lasting = 0 < birth < _OF_THIS_RUN
        generation = birth if lasting else _OF_THIS_RUN | secrets.randbits(63)
        fields = _FIELDS.pack(_MAGIC, self._file_system(fd, device), inode & _WORD, generation)
        return fields + self._code(fields)

    def _file_system(self, fd: int, device: int) -> int:
        """Its own number, which stays when devices get other ones at the next start."""
        found = self._file_systems.get(device)
        if found is None:
            found = self._file_systems[device] = (os.fstatvfs(fd).f_fsid or device) & _WORD
        return found

    def _code(self, fields: bytes) -> bytes:
        code = hmac.digest(self._key, fields + self._export, "sha256")
        return code[:_CODE_OCTETS]

    def lost_inode(self, handle: bytes) -> int:
        """The inode number of a handle that this run has not given out.

        Raises `NfsError`: BADHANDLE for anything else, STALE unless an earlier run has made it.
        """
        check_form(handle)
        fields, code = handle[: _FIELDS.size], handle[_FIELDS.size :]
        _, _, inode, generation = _FIELDS.unpack(fields)
        if not hmac.compare_digest(code, self._code(fields)) or generation & _OF_THIS_RUN:
            raise NfsError(NfsStatus.STALE)
        return int(inode)


def check_form(handle: bytes) -> None:
    """Raises `NfsError`, BADHANDLE, for anything other than a handle of this server."""
    if len(handle) != HANDLE_OCTETS or not handle.startswith(_MAGIC):
        raise NfsError(NfsStatus.BADHANDLE)
