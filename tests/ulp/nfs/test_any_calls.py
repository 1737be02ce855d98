"""Any calls in any order: every one is answered as RFC 1813 has it, nothing outside is touched."""

import dataclasses
import tempfile
import types
import typing
from enum import IntEnum
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from stagecoach.ulp.nfs import arguments as args
from stagecoach.ulp.nfs import program as p
from stagecoach.ulp.nfs.attributes import FileHandle, SetTime, TimeHow
from stagecoach.ulp.nfs.status import NfsStatus
from stagecoach.ulp.oncrpc.errors import GarbageArguments
from stagecoach.ulp.oncrpc.program import Procedure
from stagecoach.ulp.oncrpc.records import Uhyper, Uint
from stagecoach.ulp.oncrpc.xdr import Encoder
from stagecoach.ulp.oncrpc.xdr_types import VOID, XdrType
from tests.ulp.nfs.rig import Rig

HANDLES = [*["root"] * 5, "sub", "file", "link", "fifo", "gone", "forged", "none"]
NAMES = [b"file", b"new", b"sub", b"link", b"out", b"..", b".", b"", b"../secret", b"a/b", b"a\0b"]
NAMES += [*[b"../secret"] * 4, b"n" * 255, b"n" * 256, b"\xff\xfe"]
PATHS = [b"../secret", b"/etc", b"file", b"", b"x" * 4000]
SIZES = [0, 1, 100, 4096, (1 << 20) + 1, (1 << 31), (1 << 32) - 1]
EDGES = [*SIZES, (1 << 62), (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
ARGUMENTS = {
    procedure: getattr(args, name)
    for procedure, name in (
        *((each, "HandleArguments") for each in (p.GETATTR, p.READLINK, p.FSSTAT, p.FSINFO)),
        *((each, "DirectoryArguments") for each in (p.LOOKUP, p.REMOVE, p.RMDIR)),
        *((p.PATHCONF, "HandleArguments"), (p.SETATTR, "SetattrArguments")),
        *((p.ACCESS, "AccessArguments"), (p.READ, "ReadArguments"), (p.WRITE, "WriteArguments")),
        *((p.CREATE, "CreateArguments"), (p.MKDIR, "MkdirArguments")),
        *((p.SYMLINK, "SymlinkArguments"), (p.MKNOD, "MknodArguments")),
        *((p.RENAME, "RenameArguments"), (p.LINK, "LinkArguments")),
        *((p.READDIR, "ReaddirArguments"), (p.READDIRPLUS, "ReaddirplusArguments")),
        (p.COMMIT, "CommitArguments"),
    )
}


def values_of(hint) -> st.SearchStrategy:
    """Values for a field of arguments; handles by name."""
    known = {
        FileHandle: st.sampled_from(HANDLES).map(lambda name: f"handle {name}"),
        args.FileName: st.sampled_from(NAMES),
        args.PathData: st.sampled_from(PATHS).map(memoryview),
        args.FileData: st.binary(max_size=50).map(memoryview),
        args.Verifier: st.sampled_from([bytes(8), b"verifier"]),
        Uint: st.sampled_from(SIZES),
        Uhyper: st.sampled_from(EDGES),
    }
    if hint in known:
        return known[hint]
    if hint == SetTime:
        return st.just((TimeHow.DONT_CHANGE, None)) | st.just((TimeHow.SET_TO_SERVER_TIME, None))
    if hint == args.HowToCreate:
        set_attributes = values_of(args.MkdirArguments.__annotations__["attributes"])
        modes = st.sampled_from([args.CreateMode.UNCHECKED, args.CreateMode.GUARDED])
        exclusive = st.tuples(st.just(args.CreateMode.EXCLUSIVE), st.just(bytes(8)))
        return st.tuples(modes, set_attributes) | exclusive
    if hint == args.MknodData:
        kinds = st.sampled_from([args.FileType.SOCK, args.FileType.FIFO])
        other = st.tuples(st.just(args.FileType.DIR), st.none())
        return st.tuples(kinds, values_of(args.SetAttributes)) | other
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        (item,) = (each for each in typing.get_args(hint) if each is not types.NoneType)
        return st.none() | values_of(item)
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return st.sampled_from(hint)
    assert dataclasses.is_dataclass(hint), hint
    hints = typing.get_type_hints(hint, include_extras=True)
    fields = [values_of(hints[field.name]) for field in dataclasses.fields(hint)]
    return st.builds(hint, *fields)


CALLS = st.one_of(
    *(st.tuples(st.just(procedure), values_of(record)) for procedure, record in ARGUMENTS.items())
)


def tree(path: Path) -> tuple[Rig, dict[str, bytes]]:
    rig = Rig(path)
    (rig.directory / "sub").mkdir()
    (rig.directory / "file").write_bytes(bytes(5000))
    (rig.directory / "link").symlink_to("../secret")
    (rig.directory / "out").symlink_to("..")
    rig.call(
        p.MKNOD,
        args.MknodArguments(
            args.DirectoryArguments(rig.root, b"fifo"), (args.FileType.FIFO, args.SetAttributes())
        ),
    )
    (rig.directory / "gone").touch()
    handles = {name: rig.handle(name) for name in ("sub", "file", "link", "fifo", "gone")}
    (rig.directory / "gone").unlink()
    forged = rig.root[:-1] + bytes([rig.root[-1] ^ 1])
    return rig, handles | {"root": rig.root, "forged": forged, "none": b"none"}


def with_handles(value, handles):
    """Handles instead of their names."""
    if isinstance(value, str):
        return handles[value.removeprefix("handle ")]
    if dataclasses.is_dataclass(value):
        return type(value)(
            *(
                with_handles(getattr(value, field.name), handles)
                for field in dataclasses.fields(value)
            )
        )
    return value


def names_in(value) -> list[bytes]:
    """The names in arguments."""
    if isinstance(value, args.DirectoryArguments):
        return [value.name]
    if dataclasses.is_dataclass(value):
        fields = [getattr(value, field.name) for field in dataclasses.fields(value)]
        return [name for field in fields for name in names_in(field)]
    return []


@settings(max_examples=100, deadline=None)
@given(st.lists(CALLS, min_size=6, max_size=15))
def test_any_calls(calls):
    with tempfile.TemporaryDirectory() as folder:
        rig, handles = tree(Path(folder))
        for procedure, arguments in calls:
            # A SYSTEM_ERR or a refusal would raise.
            status, _ = rig.call(procedure, with_handles(arguments, handles))
            assert status in NfsStatus
            if any(not name or b"/" in name or b"\0" in name for name in names_in(arguments)):
                assert status != NfsStatus.OK, (procedure.name, arguments)
            assert status not in (NfsStatus.IO, NfsStatus.SERVERFAULT), procedure.name
            rig.assert_untouched()
        rig.close()


class Raw(XdrType[bytes]):
    """Arguments that are already encoded, or are none."""

    octets = 1 << 12

    def pack(self, encoder: Encoder, value: bytes) -> None:
        encoder.fixed(value)

    def unpack(self, decoder):
        raise NotImplementedError


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(p.NFS.procedures), st.binary(max_size=120))
def test_any_arguments_are_garbage_or_answered(procedure, octets):
    raw = Procedure(procedure.number, procedure.name, Raw(), procedure.result)
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder))
        try:
            answer = rig.call(raw, octets)
        except GarbageArguments:
            assert octets or procedure.arguments is not VOID
        else:
            assert answer is None or answer[0] != NfsStatus.OK
        rig.assert_untouched()
        rig.close()
