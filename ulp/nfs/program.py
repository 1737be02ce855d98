"""The NFS program, version 3, with its 22 procedures (RFC 1813, 3).

A result is a pair of `NfsStatus` and record: that of success for OK, else that of failure. READ and
READLINK results, WRITE and SYMLINK arguments are eligible for chunks (RFC 5667, 4).
"""

from typing import Any

from stagecoach.ulp.nfs import arguments as args
from stagecoach.ulp.nfs import results as res
from stagecoach.ulp.nfs.status import NfsStatus
from stagecoach.ulp.oncrpc.program import Procedure, Program, null_procedure
from stagecoach.ulp.oncrpc.records import Record
from stagecoach.ulp.oncrpc.xdr_types import VOID, Union, XdrType

NFS_PROGRAM = 100003
NFS_VERSION = 3


def _procedure(
    number: int, name: str, arguments: type, ok: type, fail: type | None
) -> Procedure[Any, Any]:
    failure: XdrType[Any] = VOID if fail is None else Record(fail)
    result = Union(NfsStatus, {NfsStatus.OK: Record(ok)}, failure)
    return Procedure(number, name, Record(arguments), result)


NULL = null_procedure()
GETATTR = _procedure(1, "GETATTR", args.HandleArguments, res.GetattrOk, None)
SETATTR = _procedure(2, "SETATTR", args.SetattrArguments, res.Changed, res.Changed)
LOOKUP = _procedure(3, "LOOKUP", args.DirectoryArguments, res.LookupOk, res.Attributes)
ACCESS = _procedure(4, "ACCESS", args.AccessArguments, res.AccessOk, res.Attributes)
READLINK = _procedure(5, "READLINK", args.HandleArguments, res.ReadlinkOk, res.Attributes)
READ = _procedure(6, "READ", args.ReadArguments, res.ReadOk, res.Attributes)
WRITE = _procedure(7, "WRITE", args.WriteArguments, res.WriteOk, res.Changed)
CREATE = _procedure(8, "CREATE", args.CreateArguments, res.CreateOk, res.Changed)
MKDIR = _procedure(9, "MKDIR", args.MkdirArguments, res.CreateOk, res.Changed)
SYMLINK = _procedure(10, "SYMLINK", args.SymlinkArguments, res.CreateOk, res.Changed)
MKNOD = _procedure(11, "MKNOD", args.MknodArguments, res.CreateOk, res.Changed)
REMOVE = _procedure(12, "REMOVE", args.DirectoryArguments, res.Changed, res.Changed)
RMDIR = _procedure(13, "RMDIR", args.DirectoryArguments, res.Changed, res.Changed)
RENAME = _procedure(14, "RENAME", args.RenameArguments, res.RenameResult, res.RenameResult)
LINK = _procedure(15, "LINK", args.LinkArguments, res.LinkResult, res.LinkResult)
READDIR = _procedure(16, "READDIR", args.ReaddirArguments, res.ReaddirOk, res.Attributes)
READDIRPLUS = _procedure(
    17, "READDIRPLUS", args.ReaddirplusArguments, res.ReaddirplusOk, res.Attributes
)
FSSTAT = _procedure(18, "FSSTAT", args.HandleArguments, res.FsstatOk, res.Attributes)
FSINFO = _procedure(19, "FSINFO", args.HandleArguments, res.FsinfoOk, res.Attributes)
PATHCONF = _procedure(20, "PATHCONF", args.HandleArguments, res.PathconfOk, res.Attributes)
COMMIT = _procedure(21, "COMMIT", args.CommitArguments, res.CommitOk, res.Changed)

NFS = Program(
    "NFS",
    NFS_PROGRAM,
    NFS_VERSION,
    [
        *(NULL, GETATTR, SETATTR, LOOKUP, ACCESS, READLINK, READ, WRITE, CREATE, MKDIR, SYMLINK),
        *(MKNOD, REMOVE, RMDIR, RENAME, LINK, READDIR, READDIRPLUS, FSSTAT, FSINFO, PATHCONF),
        COMMIT,
    ],
)
