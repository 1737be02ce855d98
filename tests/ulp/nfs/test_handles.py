"""Handles stay with their files, and are stale when these are gone."""

import os

import pytest

from stagecoach.ulp.nfs import program as p
from stagecoach.ulp.nfs.arguments import (
    DirectoryArguments,
    HandleArguments,
    RenameArguments,
)
from stagecoach.ulp.nfs.server import handles
from stagecoach.ulp.nfs.server.handles import HandleTable
from stagecoach.ulp.nfs.status import NfsStatus

CAPACITY = 64


@pytest.fixture
def small(rig, monkeypatch):
    """The rig with a table that keeps few files open."""
    table = HandleTable(os.open(rig.directory, os.O_PATH), CAPACITY)
    rig.export.nodes.close()
    rig.export.nodes = table
    rig.root = rig.export.root.handle
    return rig


def use_many(rig):
    """Has the table close everything that was used before."""
    many = rig.directory / "many"
    many.mkdir(exist_ok=True)
    for number in range(CAPACITY + 5):
        (many / f"{number}").touch()
        rig.handle(f"many/{number}")


def gone(rig, handle):
    return rig.status(p.GETATTR, HandleArguments(handle)) == NfsStatus.STALE


def test_handle_survives_renames_by_clients(rig):
    (rig.directory / "sub").mkdir()
    (rig.directory / "file").write_bytes(b"content")
    handle, sub = rig.handle("file"), rig.handle("sub")
    rename = RenameArguments(DirectoryArguments(rig.root, b"file"), DirectoryArguments(sub, b"new"))
    rig.ok(p.RENAME, rename)
    assert rig.attributes(handle).size == 7
    assert rig.handle("sub/new") == handle


def test_handle_survives_renames_by_others(rig):
    (rig.directory / "file").write_bytes(b"content")
    handle = rig.handle("file")
    (rig.directory / "file").rename(rig.directory / "other")
    assert rig.attributes(handle).size == 7
    assert rig.handle("other") == handle


def test_a_file_with_two_names_has_one_handle(rig):
    (rig.directory / "file").touch()
    os.link(rig.directory / "file", rig.directory / "name")
    handle = rig.handle("file")
    assert rig.handle("name") == handle
    rig.ok(p.REMOVE, DirectoryArguments(rig.root, b"file"))
    assert rig.attributes(handle).nlink == 1


@pytest.mark.parametrize("by_client", [False, True])
@pytest.mark.parametrize("directory", [False, True])
def test_handle_of_what_is_deleted_is_stale(rig, by_client, directory):
    path = rig.directory / "object"
    path.mkdir() if directory else path.touch()
    handle = rig.handle("object")
    if by_client:
        rig.ok(p.RMDIR if directory else p.REMOVE, DirectoryArguments(rig.root, b"object"))
    else:
        path.rmdir() if directory else path.unlink()
    assert gone(rig, handle)
    path.mkdir() if directory else path.touch()
    assert gone(rig, handle)
    assert rig.handle("object") != handle


def test_handle_of_a_replaced_file_is_stale(rig):
    (rig.directory / "old").touch()
    (rig.directory / "new").touch()
    old, new = rig.handle("old"), rig.handle("new")
    names = (DirectoryArguments(rig.root, name) for name in (b"new", b"old"))
    rig.ok(p.RENAME, RenameArguments(*names))
    assert gone(rig, old)
    assert rig.handle("old") == new


def test_files_of_deleted_files_are_closed(rig, monkeypatch):
    monkeypatch.setattr(handles, "_SWEEP_EVERY", 8)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(40):
        path = rig.directory / f"{number}"
        path.touch()
        rig.handle(path.name)
        path.unlink()
    assert len(os.listdir("/proc/self/fd")) <= before + 8


def test_only_so_many_files_are_open(small):
    before = len(os.listdir("/proc/self/fd"))
    use_many(small)
    use_many(small)
    assert len(os.listdir("/proc/self/fd")) <= before + CAPACITY


def test_the_export_stays_open(small):
    use_many(small)
    handles = [small.handle(f"many/{number}") for number in range(CAPACITY + 5)]
    for handle in 2 * handles:  # none of them by way of the root
        small.attributes(handle)
    assert small.handle("many/0") == handles[0]


def test_file_is_opened_again(small):
    (small.directory / "a" / "b").mkdir(parents=True)
    (small.directory / "a" / "b" / "file").write_bytes(b"content")
    handle = small.handle("a/b/file")
    use_many(small)
    assert small.attributes(handle).size == 7


def test_file_that_was_renamed_is_opened_again(small):
    for name in ("one", "two"):
        (small.directory / name).write_bytes(b"content")
    (small.directory / "sub").mkdir()
    one, two, sub = (small.handle(name) for name in ("one", "two", "sub"))
    new = DirectoryArguments(sub, b"new")
    small.ok(p.RENAME, RenameArguments(DirectoryArguments(small.root, b"one"), new))
    use_many(small)
    (small.directory / "two").rename(small.directory / "other")
    assert small.attributes(one).size == small.attributes(two).size == 7
    assert small.handle("sub/new") == one
    assert small.handle("other") == two


def test_file_that_was_deleted_is_not_opened_again(small):
    (small.directory / "file").touch()
    (small.directory / "sub").mkdir()
    (small.directory / "sub" / "file").touch()
    stale = [small.handle(name) for name in ("file", "sub", "sub/file")]
    use_many(small)
    (small.directory / "file").unlink()
    (small.directory / "file").symlink_to("../secret")
    (small.directory / "sub" / "file").unlink()
    (small.directory / "sub").rmdir()
    assert [gone(small, handle) for handle in stale] == [True] * 3


def test_directories_that_seem_to_be_in_each_other(small):
    (small.directory / "b" / "a").mkdir(parents=True)
    b, a = small.handle("b"), small.handle("b/a")
    (small.directory / "b" / "a").rename(small.directory / "a")
    (small.directory / "b").rename(small.directory / "a" / "b")
    small.ok(p.LOOKUP, DirectoryArguments(a, b"b"))
    use_many(small)
    assert gone(small, b)
    assert small.attributes(small.handle("a/b")).nlink == 2


def test_capacity_that_is_too_small_is_an_error():
    with pytest.raises(ValueError, match="allowed: 64 or more"):
        HandleTable(0, 1)


EVERY = 8


@pytest.fixture
def looks(rig, monkeypatch):
    """Files that looks for deleted ones were at; there is one after each 8 new handles."""
    found = []
    monkeypatch.setattr(handles, "_SWEEP_EVERY", EVERY)
    monkeypatch.setattr(handles, "_SWEPT", 2 * EVERY)
    whole = HandleTable._forget_deleted

    def forget_deleted(table, nodes):
        found.append(len(nodes))
        whole(table, nodes)

    monkeypatch.setattr(HandleTable, "_forget_deleted", forget_deleted)
    return found


def use_new(rig, numbers):
    for number in numbers:
        (rig.directory / f"{number}").touch()
        rig.handle(f"{number}")


def test_looks_for_deleted_files_do_not_take_longer_with_more_files(rig, looks):
    use_new(rig, range(400))
    assert len(looks) >= 400 // EVERY - 1
    assert max(looks) <= 2 * EVERY and sum(looks) <= 2 * 400


def test_every_deleted_file_has_its_turn(rig, looks):
    """Others have deleted them: no client did, and nobody uses their handles."""
    use_new(rig, range(100))
    for number in range(100):
        (rig.directory / f"{number}").unlink()
    use_new(rig, range(100, 260))
    assert len(rig.export.nodes._open) <= 160
