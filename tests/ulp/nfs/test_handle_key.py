"""The file of the key: private, made once, and never one that somebody else has put there."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from stagecoach.ulp.nfs.server import handle_key as module
from stagecoach.ulp.nfs.server.handle_key import KEY_FILE, HandleKeyError, handle_key


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "state" / "nfs"


def test_the_key_is_made_once_and_private(folder):
    old = os.umask(0)
    try:
        key = handle_key(folder)
    finally:
        os.umask(old)
    assert len(key) == 32 and len(set(key)) > 8
    assert handle_key(folder) == key
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / KEY_FILE).stat().st_mode) == 0o600
    assert os.listdir(folder) == [KEY_FILE]
    assert handle_key(folder.parent / "other") != key


def test_a_strict_umask_does_not_take_it_from_its_user(folder):
    old = os.umask(0o777)
    folder.parent.mkdir(mode=0o700)
    os.chmod(folder.parent, 0o700)
    try:
        folder.mkdir()
        os.chmod(folder, 0o700)
        key = handle_key(folder)
    finally:
        os.umask(old)
    assert handle_key(folder) == key
    assert stat.S_IMODE((folder / KEY_FILE).stat().st_mode) == 0o600


def test_processes_that_begin_together_have_the_same(folder, monkeypatch):
    folder.mkdir(parents=True, mode=0o700)
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: handle_key(folder), range(8)))
    assert len(set(keys)) == 1
    # One that was slower than another takes the other's.
    (folder / KEY_FILE).unlink()
    make = module._make

    def late(directory):
        make(directory)
        monkeypatch.setattr(module, "_make", make)
        other = handle_key(folder)
        make(directory)
        assert handle_key(folder) == other

    monkeypatch.setattr(module, "_make", late)
    handle_key(folder)


@pytest.mark.parametrize("what", ["folder", "file"])
def test_a_link_is_not_followed(folder, tmp_path, what):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (elsewhere / KEY_FILE).write_bytes(bytes(32))
    (elsewhere / KEY_FILE).chmod(0o600)
    folder.parent.mkdir()
    if what == "folder":
        folder.symlink_to(elsewhere)
    else:
        folder.mkdir(mode=0o700)
        (folder / KEY_FILE).symlink_to(elsewhere / KEY_FILE)
    with pytest.raises(HandleKeyError, match="link; allowed: a f"):
        handle_key(folder)


def test_a_link_to_nothing_is_not_followed(folder, tmp_path):
    folder.mkdir(parents=True, mode=0o700)
    (folder / KEY_FILE).symlink_to(tmp_path / "target")
    with pytest.raises((HandleKeyError, OSError)):
        handle_key(folder)
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o602])
def test_a_key_that_others_can_read_or_change_is_refused(folder, mode):
    handle_key(folder)
    (folder / KEY_FILE).chmod(mode)
    with pytest.raises(HandleKeyError, match=f"has mode {mode:04o}; allowed: a file that its user"):
        handle_key(folder)


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_may_use_is_refused(folder, mode):
    folder.mkdir(parents=True)
    folder.chmod(mode)
    with pytest.raises(HandleKeyError, match=f"has mode {mode:04o}; allowed: a folder that its us"):
        handle_key(folder)
    assert os.listdir(folder) == []


@pytest.mark.parametrize("what", ["folder", "file"])
def test_what_belongs_to_another_user_is_refused(folder, monkeypatch, what):
    handle_key(folder)
    fstat = os.fstat

    def of_another(fd):
        status = fstat(fd)
        if stat.S_ISDIR(status.st_mode) != (what == "folder"):
            return status
        return os.stat_result([*status[:4], os.geteuid() + 1, *status[5:10]])

    monkeypatch.setattr(os, "fstat", of_another)
    with pytest.raises(
        HandleKeyError, match=f"belongs to uid {os.geteuid() + 1}; allowed: a {what}"
    ):
        handle_key(folder)


@pytest.mark.parametrize("octets", [b"", bytes(31), bytes(33)])
def test_what_is_no_key_is_refused(folder, octets):
    handle_key(folder)
    (folder / KEY_FILE).write_bytes(octets)
    with pytest.raises(HandleKeyError, match=r"has (0|31|more) bytes; allowed: 32"):
        handle_key(folder)


def test_what_is_no_file_is_refused(folder):
    folder.mkdir(parents=True, mode=0o700)
    os.mkfifo(folder / KEY_FILE, 0o600)
    with pytest.raises(HandleKeyError, match="is not a regular file"):
        handle_key(folder)
