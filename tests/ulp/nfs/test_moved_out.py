"""What leaves the export leaves the reach of clients with it, whatever handles they hold."""

import os
import threading

import pytest

from stagecoach.ulp.nfs import program as p
from stagecoach.ulp.nfs.arguments import (
    Access,
    AccessArguments,
    CommitArguments,
    CreateArguments,
    CreateMode,
    DirectoryArguments,
    HandleArguments,
    LinkArguments,
    ReadArguments,
    ReaddirArguments,
    RenameArguments,
    SetattrArguments,
    StableHow,
    WriteArguments,
)
from stagecoach.ulp.nfs.attributes import SetAttributes
from stagecoach.ulp.nfs.server import directories, handles
from stagecoach.ulp.nfs.server.identity import names_below
from stagecoach.ulp.nfs.status import NfsStatus

STABLE = StableHow.FILE_SYNC


def file_calls(rig, handle):
    """Every procedure that takes the handle of a file."""
    link = LinkArguments(handle, DirectoryArguments(rig.root, b"link"))
    return {
        p.GETATTR: HandleArguments(handle),
        p.SETATTR: SetattrArguments(handle, SetAttributes(mode=0o777), None),
        p.ACCESS: AccessArguments(handle, Access.READ),
        p.READ: ReadArguments(handle, 0, 100),
        p.WRITE: WriteArguments(handle, 0, 3, STABLE, memoryview(b"bad")),
        p.COMMIT: CommitArguments(handle, 0, 0),
        p.LINK: link,
        p.FSSTAT: HandleArguments(handle),
    }


def directory_calls(rig, handle):
    """Procedures that take the handle of a directory, which holds `file`."""
    there, new = DirectoryArguments(handle, b"file"), DirectoryArguments(handle, b"new")
    own = DirectoryArguments(rig.root, b"own")
    create = CreateArguments(new, (CreateMode.UNCHECKED, SetAttributes()))
    return [
        (p.LOOKUP, there),
        (p.CREATE, create),
        (p.REMOVE, there),
        (p.RENAME, RenameArguments(there, DirectoryArguments(rig.root, b"stolen"))),
        (p.RENAME, RenameArguments(own, new)),
        (p.READDIR, ReaddirArguments(handle, 0, bytes(8), 4096)),
        (p.LOOKUP, DirectoryArguments(handle, b"..")),
        (p.LOOKUP, DirectoryArguments(handle, b".")),
    ]


@pytest.fixture
def place(rig):
    """A directory beside the export, on the same file system; taken away before the rig looks."""
    outside = rig.outside / "outside"
    outside.mkdir()
    yield outside
    for directory, _, names in os.walk(outside, topdown=False):
        for name in names:
            os.unlink(os.path.join(directory, name))
        os.rmdir(directory)


def facts_of(path):
    status = path.stat()
    return status.st_mode, status.st_nlink, status.st_mtime_ns, status.st_ctime_ns


def refused(rig, calls):
    return {(each.name, rig.status(each, arguments)) for each, arguments in calls} == {
        (each.name, NfsStatus.STALE) for each, _ in calls
    }


@pytest.mark.parametrize("way", ["renamed", "linked", "parent renamed"])
def test_file_out_of_the_export_is_out_of_reach(rig, place, way):
    (rig.directory / "sub").mkdir()
    inside, outside = rig.directory / "sub" / "file", place / "file"
    inside.write_bytes(b"private")
    for procedure, arguments in file_calls(rig, b"").items():
        del arguments
        handle = rig.handle("sub/file")
        if way == "renamed":
            inside.rename(outside)
        elif way == "linked":
            os.link(inside, outside)
            inside.unlink()
        else:
            inside.parent.rename(place / "sub")
            outside = place / "sub" / "file"
        facts = facts_of(outside)
        calls = file_calls(rig, handle)
        assert rig.status(procedure, calls[procedure]) == NfsStatus.STALE, procedure.name
        assert outside.read_bytes() == b"private"
        assert facts_of(outside) == facts
        assert not (rig.directory / "link").exists()
        # Back again, for the next procedure.
        if way == "parent renamed":
            (place / "sub").rename(rig.directory / "sub")
            outside = place / "file"
        else:
            outside.rename(inside)
        assert rig.attributes(rig.handle("sub/file")).size == 7


def test_folder_out_of_the_export_is_out_of_reach_with_what_comes_later(rig, place):
    (rig.directory / "folder" / "deep").mkdir(parents=True)
    (rig.directory / "own").touch()
    folder, deep = rig.handle("folder"), rig.handle("folder/deep")
    (rig.directory / "folder").rename(place / "folder")
    for directory in (place / "folder", place / "folder" / "deep"):
        (directory / "file").write_bytes(b"private")
    for handle in (folder, deep):
        assert refused(rig, directory_calls(rig, handle))
    assert sorted(os.listdir(place / "folder")) == ["deep", "file"]
    assert os.listdir(place / "folder" / "deep") == ["file"]


def test_folder_that_comes_back_is_there_again(rig, place):
    (rig.directory / "folder").mkdir()
    (rig.directory / "folder" / "file").touch()
    handle = rig.handle("folder")
    (rig.directory / "folder").rename(place / "folder")
    assert rig.status(p.GETATTR, HandleArguments(handle)) == NfsStatus.STALE
    (place / "folder").rename(rig.directory / "folder")
    rig.attributes(rig.handle("folder/file"))


def test_file_with_another_name_in_the_export_stays(rig, place):
    """Names that clients have seen, and names in the same directory."""
    (rig.directory / "sub").mkdir()
    for name, seen in (("sub/second", True), ("second", False)):
        (rig.directory / "first").write_bytes(b"content")
        os.link(rig.directory / "first", rig.directory / name)
        os.link(rig.directory / "first", place / "third")
        handle = rig.handle("first")
        if seen:
            rig.handle(name)
        (rig.directory / "first").unlink()
        assert rig.attributes(handle).size == 7
        (rig.directory / name).unlink()
        assert rig.status(p.GETATTR, HandleArguments(handle)) == NfsStatus.STALE
        (place / "third").unlink()


def test_names_that_look_like_those_of_deleted_files(rig):
    (rig.directory / "file (deleted)").write_bytes(b"content")
    handle = rig.handle("file (deleted)")
    assert rig.attributes(handle).size == 7
    (rig.directory / "line\nfeed").mkdir()
    (rig.directory / "line\nfeed" / "b\xe4d").touch()
    assert rig.attributes(rig.handle("line\nfeed/b\xe4d")).size == 0


def test_a_neighbour_with_a_longer_name_is_outside(rig):
    """`/export-2` begins as `/export` does."""
    (rig.directory / "file").write_bytes(b"private")
    handle = rig.handle("file")
    other = rig.outside / "export-2"
    other.mkdir()
    (rig.directory / "file").rename(other / "file")
    assert rig.status(p.GETATTR, HandleArguments(handle)) == NfsStatus.STALE
    (other / "file").unlink()
    other.rmdir()


def test_a_link_in_place_of_a_folder_leads_nowhere(rig, place):
    (rig.directory / "folder").mkdir()
    (rig.directory / "folder" / "file").write_bytes(b"private")
    handle, folder = rig.handle("folder/file"), rig.handle("folder")
    (rig.directory / "folder").rename(place / "folder")
    (rig.directory / "folder").symlink_to(place / "folder")
    for each in (handle, folder):
        assert rig.status(p.GETATTR, HandleArguments(each)) == NfsStatus.STALE


def test_moving_the_export_itself_takes_its_files_along(rig):
    (rig.directory / "file").write_bytes(b"content")
    handle = rig.handle("file")
    moved = rig.directory.rename(rig.outside / "moved")
    assert rig.attributes(handle).size == 7
    moved.rename(rig.directory)
    assert rig.attributes(handle).size == 7


def test_deep_files_are_found(rig):
    """Below 5,000 octets of path, which is more than one call takes."""
    directory = os.open(rig.directory, os.O_PATH)
    handle = rig.root
    for _ in range(25):
        os.mkdir("d" * 200, dir_fd=directory)
        below = os.open("d" * 200, os.O_PATH, dir_fd=directory)
        os.close(directory)
        directory = below
        handle = rig.ok(p.LOOKUP, DirectoryArguments(handle, b"d" * 200)).object
        assert rig.attributes(handle).nlink == 2
    os.close(directory)


@pytest.mark.parametrize("after", [False, True])
def test_data_that_is_written_outside_while_a_read_is_under_way_is_not_returned(
    rig, place, monkeypatch, after
):
    inside = rig.directory / "file"
    inside.write_bytes(b"content")
    handle = rig.handle("file")
    preadv = os.preadv

    def moved(*arguments):
        found = preadv(*arguments) if after else None
        inside.rename(place / "file")
        (place / "file").write_bytes(b"private")
        return found if after else preadv(*arguments)

    monkeypatch.setattr(os, "preadv", moved)
    assert rig.status(p.READ, ReadArguments(handle, 0, 100)) == NfsStatus.STALE


def test_listing_of_a_folder_that_is_moved_meanwhile_is_not_returned(rig, place, monkeypatch):
    (rig.directory / "folder").mkdir()
    handle = rig.handle("folder")
    entries = directories.entries

    def moved(*arguments):
        (rig.directory / "folder").rename(place / "folder")
        (place / "folder" / "private").touch()
        return entries(*arguments)

    monkeypatch.setattr(directories, "entries", moved)
    arguments = ReaddirArguments(handle, 0, bytes(8), 4096)
    assert rig.status(p.READDIR, arguments) == NfsStatus.STALE


def test_identity_decides_not_the_path(rig, place, monkeypatch):
    """The path that the kernel tells of an open file is where to look, and proves nothing."""
    (rig.directory / "file").write_bytes(b"content")
    (place / "file").write_bytes(b"private")
    handle = rig.handle("file")
    (rig.directory / "file").rename(place / "moved")
    (rig.directory / "file").write_bytes(b"other")
    monkeypatch.setattr(handles, "names_below", lambda root, fd: [b"file"])
    assert rig.status(p.GETATTR, HandleArguments(handle)) == NfsStatus.STALE


def test_reads_that_race_with_a_move_never_return_what_is_written_outside(rig, place):
    """Another user moves files out and writes into them while a client reads them."""
    rounds, path = 60, rig.directory / "file"
    begun, moved = threading.Barrier(2), threading.Barrier(2)

    def move():
        for _ in range(rounds):
            begun.wait(10)
            path.rename(place / "file")
            (place / "file").write_bytes(b"private")
            moved.wait(10)
            (place / "file").unlink()

    thread = threading.Thread(target=move)
    thread.start()
    seen = set()
    for _ in range(rounds):
        path.write_bytes(b"content")
        handle = rig.handle("file")
        begun.wait(10)
        for _ in range(3):
            status, result = rig.call(p.READ, ReadArguments(handle, 0, 100))
            seen.add((status, bytes(result.data) if status == NfsStatus.OK else None))
        moved.wait(10)
        assert rig.status(p.READ, ReadArguments(handle, 0, 100)) == NfsStatus.STALE
    thread.join()
    assert (NfsStatus.STALE, None) in seen
    assert seen <= {(NfsStatus.OK, b"content"), (NfsStatus.OK, b""), (NfsStatus.STALE, None)}


def test_looking_for_a_lost_file_takes_no_longer_with_every_name_above(rig, place, monkeypatch):
    """Each folder has had four names: there are 4^12 ways up from the last one."""
    above, names = rig.directory, ""
    for _ in range(12):
        (above / "a").mkdir()
        handle = rig.handle(f"{names}a")
        for before, after in ("ab", "bc", "cd"):
            (above / before).rename(above / after)
            handle = rig.handle(names + after)
        above, names = above / "d", f"{names}d/"
    os.rename(rig.directory / "d", place / "d")
    looked = []

    def count(*arguments):
        looked.append(arguments)
        assert len(looked) < 1000
        return names_below(*arguments)

    monkeypatch.setattr(handles, "names_below", count)
    assert rig.status(p.GETATTR, HandleArguments(handle)) == NfsStatus.STALE
