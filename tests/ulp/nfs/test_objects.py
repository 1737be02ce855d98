"""Procedures about one object: attributes, names, access, links, file systems."""

import os
import stat

import pytest

from stagecoach.ulp.nfs import program as p
from stagecoach.ulp.nfs.arguments import (
    Access,
    AccessArguments,
    DirectoryArguments,
    HandleArguments,
    SetattrArguments,
)
from stagecoach.ulp.nfs.attributes import FileType, NfsTime, SetAttributes, TimeHow
from stagecoach.ulp.nfs.results import Attributes, Properties
from stagecoach.ulp.nfs.status import NfsStatus
from tests.ulp.nfs.rig import Rig


def test_null(rig):
    assert rig.call(p.NULL, None) is None


def test_getattr_tells_what_stat_tells(rig):
    path = rig.directory / "file"
    path.write_bytes(bytes(5000))
    path.chmod(0o640)
    os.utime(path, ns=(1_000_000_007, 2_000_000_009))
    status = path.stat()
    found = rig.attributes(rig.handle("file"))
    assert (found.type, found.mode, found.size) == (FileType.REG, 0o640, 5000)
    assert (found.nlink, found.uid, found.gid) == (1, status.st_uid, status.st_gid)
    assert (found.fsid, found.fileid) == (status.st_dev, status.st_ino)
    assert (found.atime, found.mtime) == (NfsTime(1, 7), NfsTime(2, 9))
    assert found.ctime.ns == status.st_ctime_ns
    assert found.used == status.st_blocks * 512


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        (FileType.DIR, lambda path: path.mkdir()),
        (FileType.LNK, lambda path: path.symlink_to("nowhere")),
        (FileType.FIFO, os.mkfifo),
        (FileType.SOCK, lambda path: os.mknod(path, stat.S_IFSOCK | 0o600)),
    ],
)
def test_types(rig, kind, make):
    make(rig.directory / "object")
    assert rig.attributes(rig.handle("object")).type == kind


def test_times_that_do_not_fit_become_the_nearest(rig):
    path = rig.directory / "file"
    path.touch()
    os.utime(path, ns=(-(10**9), (2**32 + 5) * 10**9))
    found = rig.attributes(rig.handle("file"))
    assert (found.atime, found.mtime) == (NfsTime(0, 0), NfsTime(2**32 - 1, 999_999_999))


def test_setattr(rig):
    path = rig.directory / "file"
    path.write_bytes(b"0123456789")
    handle = rig.handle("file")
    client = TimeHow.SET_TO_CLIENT_TIME
    wanted = SetAttributes(
        mode=0o100600, size=4, atime=(client, NfsTime(5, 6)), mtime=(client, NfsTime(7, 8))
    )
    result = rig.ok(p.SETATTR, SetattrArguments(handle, wanted, None))
    assert result.wcc.after == rig.attributes(handle)
    status = path.stat()
    assert path.read_bytes() == b"0123"
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert (status.st_atime_ns // 10**9, status.st_mtime_ns) == (5, 7_000_000_008)
    assert result.wcc.before.size == 10


def test_setattr_to_the_server_time_leaves_the_other(rig):
    path = rig.directory / "file"
    path.touch()
    os.utime(path, ns=(1, 1))
    wanted = SetAttributes(mtime=(TimeHow.SET_TO_SERVER_TIME, None))
    rig.ok(p.SETATTR, SetattrArguments(rig.handle("file"), wanted, None))
    assert path.stat().st_atime_ns == 1
    assert path.stat().st_mtime_ns > 10**18


def test_setattr_of_owner(rig):
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    path = rig.directory / "file"
    path.touch()
    wanted = SetAttributes(uid=4711, gid=42)
    rig.ok(p.SETATTR, SetattrArguments(rig.handle("file"), wanted, None))
    assert (path.stat().st_uid, path.stat().st_gid) == (4711, 42)


def test_setattr_with_guard(rig):
    path = rig.directory / "file"
    path.write_bytes(b"abc")
    handle = rig.handle("file")
    now = rig.attributes(handle).ctime
    other = NfsTime(now.seconds, (now.nseconds + 1) % 10**9)
    wanted = SetAttributes(size=1)
    assert rig.status(p.SETATTR, SetattrArguments(handle, wanted, other)) == NfsStatus.NOT_SYNC
    assert path.read_bytes() == b"abc"
    rig.ok(p.SETATTR, SetattrArguments(handle, wanted, now))
    assert path.read_bytes() == b"a"


@pytest.mark.parametrize(
    ("wanted", "status"),
    [
        (SetAttributes(size=1 << 63), NfsStatus.FBIG),
        (SetAttributes(size=(1 << 64) - 1), NfsStatus.FBIG),
        (SetAttributes(size=(1 << 63) - 1), NfsStatus.FBIG),
        (SetAttributes(mtime=(TimeHow.SET_TO_CLIENT_TIME, NfsTime(0, 10**9))), NfsStatus.INVAL),
    ],
)
def test_setattr_that_is_not_possible(rig, wanted, status):
    path = rig.directory / "file"
    path.write_bytes(b"abc")
    assert rig.status(p.SETATTR, SetattrArguments(rig.handle("file"), wanted, None)) == status
    assert path.read_bytes() == b"abc"


def test_size_of_what_is_no_file(rig):
    wanted = SetAttributes(size=0)
    assert rig.status(p.SETATTR, SetattrArguments(rig.root, wanted, None)) == NfsStatus.INVAL


def test_setattr_of_a_link_does_not_follow_it(rig):
    (rig.directory / "link").symlink_to("../secret")
    handle = rig.handle("link")
    for wanted in (
        SetAttributes(mode=0o777),
        SetAttributes(size=0),
        SetAttributes(mtime=(TimeHow.SET_TO_CLIENT_TIME, NfsTime(77, 0))),
        SetAttributes(uid=os.geteuid()),
    ):
        rig.call(p.SETATTR, SetattrArguments(handle, wanted, None))
        rig.assert_untouched()
    assert (rig.directory / "link").lstat().st_mtime == 77


def test_lookup(rig):
    (rig.directory / "sub").mkdir()
    (rig.directory / "sub" / "file").touch()
    sub = rig.handle("sub")
    result = rig.ok(p.LOOKUP, DirectoryArguments(sub, b"file"))
    assert result.attributes == rig.attributes(result.object)
    assert result.directory == rig.attributes(sub)
    assert rig.handle("sub/file") == result.object
    assert rig.ok(p.LOOKUP, DirectoryArguments(sub, b".")).object == sub
    assert rig.ok(p.LOOKUP, DirectoryArguments(sub, b"..")).object == rig.root


def test_lookup_failure_tells_the_directory(rig):
    status, result = rig.call(p.LOOKUP, DirectoryArguments(rig.root, b"missing"))
    assert status == NfsStatus.NOENT
    assert result == Attributes(rig.attributes(rig.root))


@pytest.mark.parametrize(
    ("name", "status"),
    [
        (b"", NfsStatus.ACCES),
        (b"/", NfsStatus.ACCES),
        (b"sub/file", NfsStatus.ACCES),
        (b"../secret", NfsStatus.ACCES),
        (b"/etc/passwd", NfsStatus.ACCES),
        (b"file\0", NfsStatus.ACCES),
        (b"a" * 256, NfsStatus.NAMETOOLONG),
        (b"a" * 255, NfsStatus.NOENT),
        ("ü\udcff".encode(errors="surrogateescape"), NfsStatus.NOENT),
        (b"file", NfsStatus.OK),
    ],
)
def test_names(rig, name, status):
    (rig.directory / "file").touch()
    assert rig.status(p.LOOKUP, DirectoryArguments(rig.root, name)) == status


def test_lookup_in_what_is_no_directory(rig):
    (rig.directory / "file").touch()
    (rig.directory / "link").symlink_to("..")
    for name in ("file", "link"):
        handle = rig.handle(name)
        for child in (b"secret", b"..", b"."):
            arguments = DirectoryArguments(handle, child)
            assert rig.status(p.LOOKUP, arguments) == NfsStatus.NOTDIR


def test_the_root_is_above_itself(rig):
    assert rig.ok(p.LOOKUP, DirectoryArguments(rig.root, b"..")).object == rig.root


def test_nothing_is_above_a_directory_that_was_moved_out(rig, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (rig.directory / "sub").mkdir()
    handle = rig.handle("sub")
    (rig.directory / "sub").rename(elsewhere / "sub")
    assert rig.status(p.LOOKUP, DirectoryArguments(handle, b"..")) == NfsStatus.STALE


def test_parent_that_was_never_looked_up(rig):
    (rig.directory / "a").mkdir()
    (rig.directory / "b" / "c").mkdir(parents=True)
    handle = rig.handle("a")
    (rig.directory / "a").rename(rig.directory / "b" / "c" / "a")
    parent = rig.ok(p.LOOKUP, DirectoryArguments(handle, b"..")).object
    assert parent == rig.handle("b/c")


def test_access(rig):
    (rig.directory / "file").write_bytes(b"")
    (rig.directory / "file").chmod(0o600)
    every = sum(Access)
    result = rig.ok(p.ACCESS, AccessArguments(rig.handle("file"), every))
    assert result.access == Access.READ | Access.MODIFY | Access.EXTEND
    result = rig.ok(p.ACCESS, AccessArguments(rig.root, every))
    assert result.access == every & ~Access.EXECUTE
    assert rig.ok(p.ACCESS, AccessArguments(rig.root, Access.READ)).access == Access.READ


def test_readlink(rig):
    target = "/etc/" + "x" * 1000
    (rig.directory / "link").symlink_to(target)
    result = rig.ok(p.READLINK, HandleArguments(rig.handle("link")))
    assert bytes(result.path) == target.encode()


def test_readlink_of_what_is_no_link(rig):
    assert rig.status(p.READLINK, HandleArguments(rig.root)) == NfsStatus.INVAL


def test_fsstat(rig):
    result = rig.ok(p.FSSTAT, HandleArguments(rig.root))
    found = os.statvfs(rig.directory)
    assert result.tbytes == found.f_blocks * found.f_frsize
    assert 0 < result.abytes <= result.fbytes <= result.tbytes
    assert result.tfiles == found.f_files


def test_fsinfo(rig):
    result = rig.ok(p.FSINFO, HandleArguments(rig.root))
    assert result.rtmax == result.wtmax == 1 << 20
    assert result.maxfilesize == (1 << 63) - 1
    assert result.properties == sum(Properties)
    assert result.attributes == rig.attributes(rig.root)


def test_pathconf(rig):
    result = rig.ok(p.PATHCONF, HandleArguments(rig.root))
    assert (result.name_max, result.no_trunc, result.case_insensitive) == (255, True, False)
    assert result.linkmax == os.pathconf(rig.directory, "PC_LINK_MAX")


EVERY_HANDLE_PROCEDURE = [p.GETATTR, p.READLINK, p.FSSTAT, p.FSINFO, p.PATHCONF]


@pytest.mark.parametrize("procedure", EVERY_HANDLE_PROCEDURE, ids=lambda each: each.name)
@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda handle: b"", NfsStatus.BADHANDLE),
        (lambda handle: bytes(64), NfsStatus.BADHANDLE),
        (lambda handle: handle[:-1], NfsStatus.BADHANDLE),
        (lambda handle: b"X" + handle[1:], NfsStatus.BADHANDLE),
        (lambda handle: handle[:-1] + bytes([handle[-1] ^ 1]), NfsStatus.STALE),
    ],
)
def test_handles_that_are_none(rig, procedure, change, status):
    assert rig.status(procedure, HandleArguments(change(rig.root))) == status


def test_handles_of_another_run_are_stale(rig, tmp_path):
    (tmp_path / "other").mkdir()
    other = Rig(tmp_path / "other")
    assert rig.status(p.GETATTR, HandleArguments(other.root)) == NfsStatus.STALE
    other.close()
    (tmp_path / "other").rename(tmp_path / "export" / "other")
