"""Handles of an earlier run of the server: good with the same key, if their file is there."""

import os
import threading

import pytest

from stagecoach.ulp.nfs import program as p
from stagecoach.ulp.nfs.arguments import (
    DirectoryArguments,
    HandleArguments,
    ReadArguments,
    ReaddirArguments,
)
from stagecoach.ulp.nfs.server import handles, lost_files
from stagecoach.ulp.nfs.server.handle_format import HANDLE_OCTETS, HandleFormat
from stagecoach.ulp.nfs.status import NfsError, NfsStatus
from tests.ulp.nfs.rig import Rig

KEY = bytes(range(32))
OTHER = bytes(32)
LARGEST_HANDLE = 64
"""NFS3_FHSIZE."""


@pytest.fixture
def rig(tmp_path, monkeypatch):
    """Its searches end however slow this machine is, and follow each other at once."""
    monkeypatch.setattr(lost_files, "_PATIENCE", 60.0)
    monkeypatch.setattr(lost_files, "_SPARE", 0.0)
    rig = Rig(tmp_path, key=KEY)
    yield rig
    rig.close()
    rig.assert_untouched()


def status(rig, handle):
    return rig.status(p.GETATTR, HandleArguments(handle))


def restart(rig):
    rig.restart(KEY)


def test_every_kind_of_file_is_found_again(rig):
    (rig.directory / "a" / "b").mkdir(parents=True)
    (rig.directory / "a" / "b" / "file").write_bytes(b"content")
    (rig.directory / "a" / "link").symlink_to("/etc/passwd")
    os.mkfifo(rig.directory / "a" / "fifo")
    names = ["", "a", "a/b", "a/b/file", "a/link", "a/fifo"]
    before = {name: rig.handle(name) for name in names}
    restart(rig)
    # The deepest first: nothing above it has been looked up.
    for name in reversed(names):
        assert rig.attributes(before[name]).fileid == os.lstat(rig.directory / name).st_ino
        assert rig.handle(name) == before[name]
    assert bytes(rig.ok(p.READ, ReadArguments(before["a/b/file"], 0, 9)).data) == b"content"
    assert rig.ok(p.READLINK, HandleArguments(before["a/link"])).path == b"/etc/passwd"
    above = rig.ok(p.LOOKUP, DirectoryArguments(before["a/b"], b".."))
    assert above.object == before["a"]


def test_a_folder_is_found_before_anything_in_it(rig):
    (rig.directory / "a" / "b").mkdir(parents=True)
    handle = rig.handle("a/b")
    restart(rig)
    assert rig.attributes(handle).nlink == 2


def test_a_listing_goes_on_where_it_was(rig):
    for number in range(500):
        (rig.directory / f"{number}").touch()
    seen, cookie, verifier = [], 0, bytes(8)
    while True:
        page = rig.ok(p.READDIR, ReaddirArguments(rig.root, cookie, verifier, 2048))
        seen += [entry.name for entry in page.entries]
        if page.eof:
            break
        cookie, verifier = page.entries[-1].cookie, page.verifier
        restart(rig)
    assert sorted(seen) == sorted([b".", b"..", *(b"%d" % number for number in range(500))])


def test_a_file_that_was_renamed_meanwhile_is_found(rig):
    (rig.directory / "file").write_bytes(b"content")
    (rig.directory / "sub").mkdir()
    handle = rig.handle("file")
    rig.export.close()
    (rig.directory / "file").rename(rig.directory / "sub" / "new")
    restart(rig)
    assert rig.attributes(handle).size == 7
    assert rig.handle("sub/new") == handle


@pytest.mark.parametrize("directory", [False, True])
def test_what_was_deleted_meanwhile_is_stale_whoever_has_its_inode(rig, directory):
    path = rig.directory / "object"

    def make():
        path.mkdir() if directory else path.touch()
        return path.stat().st_ino

    inode = make()
    handle = rig.handle("object")
    rig.export.close()
    path.rmdir() if directory else path.unlink()
    kept = []
    for number in range(200):  # until the number is given again, if this file system does so
        if make() == inode:
            break
        kept.append(path.rename(rig.directory / f"{number}"))
    restart(rig)
    for _ in range(2):
        assert status(rig, handle) == NfsStatus.STALE
    if path.exists():
        assert rig.handle("object") != handle


def test_what_was_moved_out_meanwhile_is_stale(rig):
    (rig.directory / "file").write_bytes(b"private")
    (rig.directory / "sub").mkdir()
    (rig.directory / "sub" / "file").write_bytes(b"private")
    stale = [rig.handle(name) for name in ("file", "sub", "sub/file")]
    rig.export.close()
    place = rig.outside / "place"
    place.mkdir()
    for name in ("file", "sub"):
        (rig.directory / name).rename(place / name)
    (rig.directory / "link").symlink_to(place)
    restart(rig)
    assert [status(rig, handle) for handle in stale] == [NfsStatus.STALE] * 3
    # It comes back, and is found by its name: then its handle is good again.
    (place / "file").rename(rig.directory / "file")
    assert rig.handle("file") == stale[0]
    assert rig.attributes(stale[0]).size == 7
    (place / "sub" / "file").unlink()
    (place / "sub").rmdir()
    place.rmdir()


def test_one_of_two_names_is_enough(rig):
    (rig.directory / "one").write_bytes(b"content")
    (rig.directory / "sub").mkdir()
    os.link(rig.directory / "one", rig.directory / "sub" / "two")
    handle = rig.handle("one")
    rig.export.close()
    (rig.directory / "one").unlink()
    restart(rig)
    assert rig.attributes(handle).size == 7


@pytest.mark.parametrize("key", [None, OTHER])
def test_another_key_makes_all_handles_stale(rig, key):
    (rig.directory / "file").touch()
    handle, root = rig.handle("file"), rig.root
    rig.restart(key)
    assert [status(rig, each) for each in (handle, root)] == [NfsStatus.STALE] * 2
    assert rig.export.nodes._lost.walks == 0


def test_no_handle_can_be_made_up(rig):
    """Any other octet anywhere, any length, another export: nobody walks for it."""
    (rig.directory / "file").touch()
    handle = rig.handle("file")
    restart(rig)
    assert len(handle) == HANDLE_OCTETS <= LARGEST_HANDLE
    for at in range(HANDLE_OCTETS):
        forged = handle[:at] + bytes([handle[at] ^ 1]) + handle[at + 1 :]
        assert status(rig, forged) == (NfsStatus.BADHANDLE if at < 4 else NfsStatus.STALE)
    for other in (b"", handle[:-1], handle + b"\0"):
        assert status(rig, other) == NfsStatus.BADHANDLE
    with pytest.raises(NfsError, match="STALE"):
        HandleFormat(KEY, b"/other").lost_inode(handle)
    assert rig.export.nodes._lost.walks == 0
    assert (
        HandleFormat(KEY, b"/export").lost_inode(handle) == (rig.directory / "file").stat().st_ino
    )


def test_without_times_of_birth_handles_are_of_one_run(rig, monkeypatch):
    """Nothing would tell a file from one that gets its inode number later."""
    identity = handles.identity
    monkeypatch.setattr(handles, "identity", lambda fd: (*identity(fd)[:2], 0))
    (rig.directory / "file").touch()
    restart(rig)
    handle = rig.handle("file")
    assert rig.attributes(handle).size == 0
    restart(rig)
    assert status(rig, handle) == NfsStatus.STALE
    assert rig.handle("file") != handle
    assert rig.export.nodes._lost.walks == 0


def test_nobody_looks_twice_for_what_is_not_there(rig):
    for number in range(20):
        (rig.directory / f"{number}").touch()
    gone = [rig.handle(f"{number}") for number in range(20)]
    rig.export.close()
    for number in range(10):
        (rig.directory / f"{number}").unlink()
    restart(rig)
    for _ in range(3):
        for handle in gone[:10]:
            assert status(rig, handle) == NfsStatus.STALE
    assert rig.export.nodes._lost.walks <= 10


def test_a_long_search_goes_on_while_its_client_waits(rig, monkeypatch):
    (rig.directory / "file").write_bytes(b"content")
    handle = rig.handle("file")
    restart(rig)
    going = threading.Event()
    walk = lost_files.LostFiles._walk

    def slowly(lost, wanted):
        assert going.wait(30)
        walk(lost, wanted)

    monkeypatch.setattr(lost_files.LostFiles, "_walk", slowly)
    monkeypatch.setattr(lost_files, "_PATIENCE", 0.05)
    assert status(rig, handle) == NfsStatus.JUKEBOX
    # Others are served meanwhile.
    assert status(rig, rig.root) == NfsStatus.OK
    going.set()
    found = NfsStatus.JUKEBOX
    while found == NfsStatus.JUKEBOX:
        found = status(rig, handle)
    assert found == NfsStatus.OK


def test_a_search_ends_with_the_server(rig, monkeypatch):
    """It looks at no directory more, and whoever waits for its file is told at once."""
    (rig.directory / "file").touch()
    handle = rig.handle("file")
    restart(rig)
    walking, going = threading.Event(), threading.Event()
    walk, looked_at, told = lost_files.LostFiles._walk, [], []

    def held(lost, wanted):
        walking.set()
        assert going.wait(30)
        walk(lost, wanted)

    def wait():
        try:
            lost.find(handle, (rig.directory / "file").stat().st_ino)
        except NfsError as error:
            told.append(error.status)

    monkeypatch.setattr(lost_files.LostFiles, "_walk", held)
    monkeypatch.setattr(lost_files.LostFiles, "_look", lambda *_: looked_at.append(1) or [])
    lost = rig.export.nodes._lost
    waiting = threading.Thread(target=wait)
    waiting.start()
    assert walking.wait(30)
    closing = threading.Thread(target=rig.export.close)
    closing.start()
    waiting.join(30)
    assert told == [NfsStatus.JUKEBOX]
    # It still waits for the search, whose file is still sought.
    assert closing.is_alive() and handle in lost._sought
    going.set()
    closing.join(30)
    assert not [each for each in threading.enumerate() if each.name == "nfs lost files"]
    assert looked_at == []
    restart(rig)


def test_folders_that_nobody_may_list_and_too_deep_ones_do_not_end_a_search(rig, monkeypatch):
    monkeypatch.setattr(lost_files, "_DEEPEST", 3)
    (rig.directory / "1" / "2" / "3" / "4" / "5").mkdir(parents=True)
    (rig.directory / "1" / "2" / "3" / "4" / "5" / "deep").touch()
    (rig.directory / "z").mkdir()
    (rig.directory / "z" / "file").touch()
    deep, file = rig.handle("1/2/3/4/5/deep"), rig.handle("z/file")
    scandir = os.scandir
    unlisted = (rig.directory / "1" / "2").stat().st_ino

    def refuse(fd):
        if os.fstat(fd).st_ino == unlisted:
            raise PermissionError
        return scandir(fd)

    restart(rig)
    assert status(rig, file) == NfsStatus.OK
    assert status(rig, deep) == NfsStatus.STALE
    restart(rig)
    monkeypatch.setattr(os, "scandir", refuse)
    assert status(rig, deep) == NfsStatus.STALE
    assert status(rig, file) == NfsStatus.OK
