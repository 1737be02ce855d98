"""New files have their rights from the first moment, and never more than were asked for."""

import os
import stat
import threading

import pytest

from stagecoach.ulp.nfs import program as p
from stagecoach.ulp.nfs.arguments import (
    CreateArguments,
    CreateMode,
    DirectoryArguments,
    MkdirArguments,
    MknodArguments,
)
from stagecoach.ulp.nfs.attributes import FileType, NfsTime, SetAttributes, TimeHow
from stagecoach.ulp.nfs.status import NfsStatus

MAKERS = ("open", "mkdir", "mknod")


def make(rig, kind, name, wanted):
    """CREATE, MKDIR or MKNOD of a name."""
    where = DirectoryArguments(rig.root, os.fsencode(name))
    if kind == "open":
        return rig.ok(p.CREATE, CreateArguments(where, (CreateMode.GUARDED, wanted)))
    if kind == "mkdir":
        return rig.ok(p.MKDIR, MkdirArguments(where, wanted))
    return rig.ok(p.MKNOD, MknodArguments(where, (FileType.FIFO, wanted)))


def mode_of(path):
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def first(rig, monkeypatch):
    """Modes of new files after the call that made them, before anything else is done."""
    seen = []

    def watched(make):
        def call(name, *arguments, **keys):
            made = make(name, *arguments, **keys)
            if name == b"new":
                seen.append(mode_of(rig.directory / "new"))
            return made

        return call

    for name in MAKERS:
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    return seen


@pytest.fixture
def umask():
    """The usual one, whatever this process has."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("mode", [0o600, 0o000, 0o666, 0o644, 0o777, 0o420])
def test_rights_are_there_from_the_first_moment(umask, rig, first, monkeypatch, kind, mode):
    monkeypatch.setattr(os, "chmod", None)
    result = make(rig, kind, "new", SetAttributes(mode=mode))
    assert result.attributes.mode == mode
    assert first[0] == mode
    # The umask of the process is as it was.
    assert os.umask(0o022) == 0o022


@pytest.mark.parametrize("kind", MAKERS)
def test_without_a_mode_the_umask_decides(umask, rig, first, kind):
    make(rig, kind, "new", SetAttributes())
    assert first[0] == (0o755 if kind == "mkdir" else 0o644)


@pytest.mark.parametrize("kind", MAKERS)
def test_another_group_gets_its_rights_when_it_is_set(rig, first, kind):
    wanted = SetAttributes(mode=0o664, gid=os.getegid())
    make(rig, kind, "new", wanted)
    assert first[0] == 0o600
    assert mode_of(rig.directory / "new") == 0o664


@pytest.mark.parametrize("kind", MAKERS)
def test_bits_that_are_not_given_at_creation_are_set_later(rig, kind):
    wanted = SetAttributes(mode=0o3750)
    assert make(rig, kind, "new", wanted).attributes.mode & 0o1777 == 0o1750
    assert mode_of(rig.directory / "new") & 0o777 == 0o750


def test_directories_inherit_the_group_bit(rig):
    rig.directory.chmod(0o2755)
    assert make(rig, "mkdir", "new", SetAttributes(mode=0o700)).attributes.mode == 0o2700


def test_exclusive_files_are_the_owners_until_the_client_says_more(umask, rig, first):
    where = DirectoryArguments(rig.root, b"new")
    result = rig.ok(p.CREATE, CreateArguments(where, (CreateMode.EXCLUSIVE, b"verifier")))
    assert (first[0], result.attributes.mode) == (0o600, 0o600)


def test_size_and_times_of_a_file_that_its_owner_may_not_write(rig):
    times = (TimeHow.SET_TO_CLIENT_TIME, NfsTime(3, 4))
    wanted = SetAttributes(mode=0o400, size=10, mtime=times)
    attributes = make(rig, "open", "new", wanted).attributes
    assert (attributes.mode, attributes.size, attributes.mtime) == (0o400, 10, NfsTime(3, 4))


def test_what_takes_the_name_of_a_new_file_is_left_alone(rig, monkeypatch):
    """Between the creation and what is set of it another file has the name."""
    other = rig.directory / "other"
    other.write_bytes(b"content")
    other.chmod(0o640)
    opened = os.open

    def swapped(name, *arguments, **keys):
        fd = opened(name, *arguments, **keys)
        if name == b"new":
            os.replace(other, rig.directory / "new")
        return fd

    monkeypatch.setattr(os, "open", swapped)
    wanted = SetAttributes(mode=0o777, size=0, gid=os.getegid())
    make(rig, "open", "new", wanted)
    assert mode_of(rig.directory / "new") == 0o640
    assert (rig.directory / "new").read_bytes() == b"content"


def test_nobody_sees_other_rights(rig):
    """Another thread looks all the time, as another user of the machine may."""
    names = [f"new-{number}" for number in range(30)]
    seen, done = set(), threading.Event()

    def look():
        while not done.is_set():
            with os.scandir(rig.directory) as entries:
                for entry in entries:
                    seen.add(stat.S_IMODE(entry.stat().st_mode))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for name in names:
            make(rig, "open", name, SetAttributes(mode=0o600))
    finally:
        done.set()
        thread.join()
    assert seen == {0o600}


@pytest.mark.parametrize("kind", ["mkdir", "mknod"])
def test_a_file_that_takes_the_name_of_what_was_made_is_not_changed(rig, monkeypatch, kind):
    (rig.directory / "private").touch(0o600)
    really = getattr(os, kind)

    def make_and_replace(name, *arguments, **keys):
        really(name, *arguments, **keys)
        (rig.directory / "new").rename(rig.directory / "moved")
        (rig.directory / "private").rename(rig.directory / "new")

    monkeypatch.setattr(os, kind, make_and_replace)
    where, wanted = DirectoryArguments(rig.root, b"new"), SetAttributes(mode=0o777)
    if kind == "mkdir":
        status = rig.status(p.MKDIR, MkdirArguments(where, wanted))
    else:
        status = rig.status(p.MKNOD, MknodArguments(where, (FileType.FIFO, wanted)))
    assert status == NfsStatus.EXIST
    assert mode_of(rig.directory / "new") == 0o600
