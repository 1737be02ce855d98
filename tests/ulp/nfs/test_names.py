"""Procedures that change names, and that they change nothing outside of the export."""

import os
import stat

import pytest

from stagecoach.ulp.nfs import program as p
from stagecoach.ulp.nfs.arguments import (
    CommitArguments,
    CreateArguments,
    CreateMode,
    DeviceData,
    DirectoryArguments,
    LinkArguments,
    MkdirArguments,
    MknodArguments,
    RenameArguments,
    SetattrArguments,
    StableHow,
    SymlinkArguments,
    WriteArguments,
)
from stagecoach.ulp.nfs.attributes import (
    FileType,
    NfsTime,
    SetAttributes,
    SpecData,
    TimeHow,
)
from stagecoach.ulp.nfs.results import Changed
from stagecoach.ulp.nfs.status import NfsStatus
from tests.ulp.nfs.rig import Rig

NOTHING = SetAttributes()
UNCHECKED = (CreateMode.UNCHECKED, NOTHING)
GUARDED = (CreateMode.GUARDED, NOTHING)


def create_of(directory, name, how=UNCHECKED):
    return CreateArguments(DirectoryArguments(directory, name), how)


def symlink_of(directory, name, path):
    return SymlinkArguments(DirectoryArguments(directory, name), NOTHING, memoryview(path))


def rename_of(source, name, target, new_name):
    return RenameArguments(DirectoryArguments(source, name), DirectoryArguments(target, new_name))


def mknod_of(directory, name, kind, data):
    return MknodArguments(DirectoryArguments(directory, name), (kind, data))


@pytest.mark.parametrize("mode", [CreateMode.UNCHECKED, CreateMode.GUARDED])
def test_create(rig, mode):
    wanted = SetAttributes(mode=0o666, size=10, mtime=(TimeHow.SET_TO_CLIENT_TIME, NfsTime(3, 4)))
    result = rig.ok(p.CREATE, create_of(rig.root, b"new", (mode, wanted)))
    status = (rig.directory / "new").stat()
    assert stat.S_IMODE(status.st_mode) == 0o666  # whatever the umask
    assert (status.st_size, status.st_mtime_ns) == (10, 3_000_000_004)
    assert result.object == rig.handle("new")
    assert result.attributes == rig.attributes(result.object)
    assert result.wcc.after == rig.attributes(rig.root)


def test_create_of_what_is_there(rig):
    path = rig.directory / "file"
    path.write_bytes(b"content")
    path.chmod(0o640)
    assert rig.status(p.CREATE, create_of(rig.root, b"file", GUARDED)) == NfsStatus.EXIST
    how = (CreateMode.UNCHECKED, SetAttributes(mode=0o777))
    assert rig.ok(p.CREATE, create_of(rig.root, b"file", how)).object == rig.handle("file")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"content", 0o640)
    how = (CreateMode.UNCHECKED, SetAttributes(size=0))
    rig.ok(p.CREATE, create_of(rig.root, b"file", how))
    assert path.read_bytes() == b""


def test_exclusive_create_can_be_repeated(rig):
    how = (CreateMode.EXCLUSIVE, b"\xff\xee\xdd\xcc\xbb\xaa\x99\x88")
    first = rig.ok(p.CREATE, create_of(rig.root, b"new", how))
    assert rig.ok(p.CREATE, create_of(rig.root, b"new", how)).object == first.object
    other = (CreateMode.EXCLUSIVE, b"\xff\xee\xdd\xcc\xbb\xaa\x99\x89")
    assert rig.status(p.CREATE, create_of(rig.root, b"new", other)) == NfsStatus.EXIST


@pytest.mark.parametrize("how", [UNCHECKED, GUARDED, (CreateMode.EXCLUSIVE, bytes(8))])
def test_create_does_not_follow_links(rig, how):
    (rig.directory / "link").symlink_to("../secret")
    (rig.directory / "dangling").symlink_to("../new")
    for name in (b"link", b"dangling"):
        assert rig.status(p.CREATE, create_of(rig.root, name, how)) == NfsStatus.EXIST
    how = (CreateMode.UNCHECKED, SetAttributes(size=0))
    assert rig.status(p.CREATE, create_of(rig.root, b"link", how)) == NfsStatus.EXIST


def test_create_with_a_size_that_is_too_large_creates_nothing(rig):
    how = (CreateMode.UNCHECKED, SetAttributes(size=(1 << 64) - 1))
    assert rig.status(p.CREATE, create_of(rig.root, b"new", how)) == NfsStatus.FBIG
    assert os.listdir(rig.directory) == []


def test_mkdir(rig):
    arguments = MkdirArguments(DirectoryArguments(rig.root, b"new"), SetAttributes(mode=0o777))
    result = rig.ok(p.MKDIR, arguments)
    assert stat.S_IMODE((rig.directory / "new").stat().st_mode) == 0o777
    assert result.object == rig.handle("new")
    assert rig.status(p.MKDIR, arguments) == NfsStatus.EXIST
    sized = MkdirArguments(DirectoryArguments(rig.root, b"other"), SetAttributes(size=1))
    assert rig.status(p.MKDIR, sized) == NfsStatus.INVAL


@pytest.mark.parametrize("path", [b"../secret", b"/etc/passwd", b"x" * 4000, b"\xff\xfe"])
def test_symlink_keeps_any_path_and_follows_none(rig, path):
    result = rig.ok(p.SYMLINK, symlink_of(rig.root, b"new", path))
    assert os.readlink(os.fsencode(rig.directory) + b"/new") == path
    assert result.attributes.type == FileType.LNK


@pytest.mark.parametrize("path", [b"", b"a\0b"])
def test_symlink_to_what_is_no_path(rig, path):
    assert rig.status(p.SYMLINK, symlink_of(rig.root, b"new", path)) == NfsStatus.ACCES


@pytest.mark.parametrize("kind", [FileType.FIFO, FileType.SOCK])
def test_mknod(rig, kind):
    result = rig.ok(p.MKNOD, mknod_of(rig.root, b"new", kind, SetAttributes(mode=0o640)))
    assert (result.attributes.type, result.attributes.mode) == (kind, 0o640)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (FileType.CHR, DeviceData(NOTHING, SpecData(1, 3))),
        (FileType.BLK, DeviceData(NOTHING, SpecData(8, 0))),
        (FileType.REG, None),
        (FileType.DIR, None),
        (FileType.LNK, None),
    ],
)
def test_devices_are_not_made(rig, kind, data):
    assert rig.status(p.MKNOD, mknod_of(rig.root, b"new", kind, data)) == NfsStatus.BADTYPE
    assert os.listdir(rig.directory) == []


def test_remove(rig):
    (rig.directory / "file").touch()
    (rig.directory / "link").symlink_to("../secret")
    for name in (b"file", b"link"):
        result = rig.ok(p.REMOVE, DirectoryArguments(rig.root, name))
        assert result.wcc.after == rig.attributes(rig.root)
    assert os.listdir(rig.directory) == []
    assert rig.status(p.REMOVE, DirectoryArguments(rig.root, b"file")) == NfsStatus.NOENT


def test_remove_takes_no_directory_and_rmdir_nothing_else(rig):
    (rig.directory / "sub").mkdir()
    (rig.directory / "file").touch()
    (rig.directory / "link").symlink_to("sub")
    assert rig.status(p.REMOVE, DirectoryArguments(rig.root, b"sub")) == NfsStatus.ISDIR
    assert rig.status(p.RMDIR, DirectoryArguments(rig.root, b"file")) == NfsStatus.NOTDIR
    assert rig.status(p.RMDIR, DirectoryArguments(rig.root, b"link")) == NfsStatus.NOTDIR
    assert sorted(os.listdir(rig.directory)) == ["file", "link", "sub"]


def test_rmdir(rig):
    (rig.directory / "sub" / "inner").mkdir(parents=True)
    assert rig.status(p.RMDIR, DirectoryArguments(rig.root, b"sub")) == NfsStatus.NOTEMPTY
    (rig.directory / "sub" / "inner").rmdir()
    rig.ok(p.RMDIR, DirectoryArguments(rig.root, b"sub"))
    assert os.listdir(rig.directory) == []


def test_rename(rig):
    (rig.directory / "sub").mkdir()
    (rig.directory / "file").write_bytes(b"content")
    (rig.directory / "sub" / "old").write_bytes(b"old")
    sub = rig.handle("sub")
    result = rig.ok(p.RENAME, rename_of(rig.root, b"file", sub, b"old"))
    assert (rig.directory / "sub" / "old").read_bytes() == b"content"
    assert result.source.after == rig.attributes(rig.root)
    assert result.target.after == rig.attributes(sub)
    status, failure = rig.call(p.RENAME, rename_of(rig.root, b"file", sub, b"x"))
    assert status == NfsStatus.NOENT
    assert failure.target.after == rig.attributes(sub)


def test_rename_of_a_directory_into_itself(rig):
    (rig.directory / "sub").mkdir()
    arguments = rename_of(rig.root, b"sub", rig.handle("sub"), b"sub")
    assert rig.status(p.RENAME, arguments) == NfsStatus.INVAL


def test_link(rig):
    (rig.directory / "file").write_bytes(b"content")
    (rig.directory / "symlink").symlink_to("../secret")
    for name in ("file", "symlink"):
        new = DirectoryArguments(rig.root, name[0].encode())
        result = rig.ok(p.LINK, LinkArguments(rig.handle(name), new))
        assert result.attributes.nlink == 2
        assert rig.handle(name[0]) == rig.handle(name)
        assert rig.status(p.LINK, LinkArguments(rig.handle(name), new)) == NfsStatus.EXIST


def test_directories_are_not_linked(rig):
    (rig.directory / "sub").mkdir()
    new = DirectoryArguments(rig.root, b"new")
    assert rig.status(p.LINK, LinkArguments(rig.handle("sub"), new)) == NfsStatus.INVAL


CHANGES = {
    "CREATE": lambda rig, d, name: (p.CREATE, create_of(d, name)),
    "MKDIR": lambda rig, d, name: (p.MKDIR, MkdirArguments(DirectoryArguments(d, name), NOTHING)),
    "SYMLINK": lambda rig, d, name: (p.SYMLINK, symlink_of(d, name, b"x")),
    "MKNOD": lambda rig, d, name: (p.MKNOD, mknod_of(d, name, FileType.FIFO, NOTHING)),
    "REMOVE": lambda rig, d, name: (p.REMOVE, DirectoryArguments(d, name)),
    "RMDIR": lambda rig, d, name: (p.RMDIR, DirectoryArguments(d, name)),
    "RENAME from": lambda rig, d, name: (p.RENAME, rename_of(d, name, rig.root, b"x")),
    "RENAME to": lambda rig, d, name: (p.RENAME, rename_of(rig.root, b"file", d, name)),
    "LINK": lambda rig, d, name: (
        p.LINK,
        LinkArguments(rig.handle("file"), DirectoryArguments(d, name)),
    ),
}
DOTS = {
    "CREATE": (NfsStatus.EXIST, NfsStatus.EXIST),
    "MKDIR": (NfsStatus.EXIST, NfsStatus.EXIST),
    "SYMLINK": (NfsStatus.EXIST, NfsStatus.EXIST),
    "MKNOD": (NfsStatus.EXIST, NfsStatus.EXIST),
    "REMOVE": (NfsStatus.ACCES, NfsStatus.ACCES),
    "RMDIR": (NfsStatus.INVAL, NfsStatus.EXIST),
    "RENAME from": (NfsStatus.INVAL, NfsStatus.INVAL),
    "RENAME to": (NfsStatus.INVAL, NfsStatus.INVAL),
    "LINK": (NfsStatus.EXIST, NfsStatus.EXIST),
}


@pytest.fixture
def tree(rig):
    (rig.directory / "sub").mkdir()
    (rig.directory / "file").touch()
    yield rig
    assert sorted(os.listdir(rig.directory)) == ["file", "sub"]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("name", "status"),
    [
        (b"", NfsStatus.ACCES),
        (b"../secret", NfsStatus.ACCES),
        (b"sub/new", NfsStatus.ACCES),
        (b"/", NfsStatus.ACCES),
        (b"secret\0", NfsStatus.ACCES),
        (b"a" * 256, NfsStatus.NAMETOOLONG),
    ],
)
def test_names_that_are_none(tree, change, name, status):
    procedure, arguments = CHANGES[change](tree, tree.root, name)
    answer, failure = tree.call(procedure, arguments)
    assert answer == status
    if isinstance(failure, Changed):
        assert failure.wcc.after == tree.attributes(tree.root)


@pytest.mark.parametrize("change", CHANGES)
def test_dots(tree, change):
    for name, status in zip((b".", b".."), DOTS[change], strict=True):
        procedure, arguments = CHANGES[change](tree, tree.handle("sub"), name)
        assert tree.status(procedure, arguments) == status


@pytest.mark.parametrize("change", CHANGES)
def test_changes_in_what_is_no_directory(tree, change):
    procedure, arguments = CHANGES[change](tree, tree.handle("file"), b"x")
    assert tree.status(procedure, arguments) == NfsStatus.NOTDIR
    procedure, arguments = CHANGES[change](tree, b"none", b"x")
    assert tree.status(procedure, arguments) == NfsStatus.BADHANDLE


@pytest.mark.parametrize("change", CHANGES)
def test_changes_through_a_link_out_of_the_export(tree, change):
    (tree.directory / "link").symlink_to("..")
    procedure, arguments = CHANGES[change](tree, tree.handle("link"), b"secret")
    assert tree.status(procedure, arguments) == NfsStatus.NOTDIR
    (tree.directory / "link").unlink()


def test_read_only_export(tmp_path):
    rig = Rig(tmp_path, read_only=True)
    (rig.directory / "file").touch()
    file = rig.handle("file")
    for change in CHANGES.values():
        procedure, arguments = change(rig, rig.root, b"file")
        assert rig.status(procedure, arguments) == NfsStatus.ROFS
    write = WriteArguments(file, 0, 1, StableHow.UNSTABLE, memoryview(b"x"))
    assert rig.status(p.WRITE, write) == NfsStatus.ROFS
    wanted = SetattrArguments(file, SetAttributes(mode=0), None)
    assert rig.status(p.SETATTR, wanted) == NfsStatus.ROFS
    assert rig.status(p.COMMIT, CommitArguments(file, 0, 0)) == NfsStatus.ROFS
    assert (rig.directory / "file").read_bytes() == b""
    rig.close()
