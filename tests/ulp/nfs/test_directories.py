"""READDIR and READDIRPLUS."""

import pytest

from stagecoach.ulp.nfs import program as p
from stagecoach.ulp.nfs.arguments import ReaddirArguments, ReaddirplusArguments
from stagecoach.ulp.nfs.status import NfsStatus
from stagecoach.ulp.oncrpc.records import Record
from stagecoach.ulp.oncrpc.xdr import Encoder

NO_VERIFIER = bytes(8)
NAMES = sorted([f"{'n' * (number % 60)}{number}".encode() for number in range(300)])


@pytest.fixture
def many(rig):
    for name in NAMES:
        (rig.directory / name.decode()).touch()
    return rig


def readdir_of(handle, cookie=0, verifier=NO_VERIFIER, count=4096):
    return p.READDIR, ReaddirArguments(handle, cookie, verifier, count)


def readdirplus_of(handle, cookie=0, verifier=NO_VERIFIER, count=4096):
    return p.READDIRPLUS, ReaddirplusArguments(handle, cookie, verifier, count, count)


BOTH = pytest.mark.parametrize("make", [readdir_of, readdirplus_of])


def listed(rig, make, handle, count=4096):
    cookie, verifier, found = 0, NO_VERIFIER, []
    while True:
        result = rig.ok(*make(handle, cookie, verifier, count))
        encoder = Encoder()
        Record(type(result)).pack(encoder, result)
        assert len(encoder.message().stream) <= count
        found += result.entries
        if result.eof:
            return found
        cookie, verifier = result.entries[-1].cookie, result.verifier


@BOTH
@pytest.mark.parametrize("count", [512, 4096, 1 << 16, (1 << 32) - 1])
def test_every_name_is_listed_once(many, make, count):
    entries = listed(many, make, many.root, count)
    assert sorted(entry.name for entry in entries) == sorted([b".", b"..", *NAMES])
    for entry in entries:
        if entry.name in (b".", b".."):
            assert entry.fileid == many.attributes(many.root).fileid  # nothing is above it
        else:
            assert entry.fileid == (many.directory / entry.name.decode()).stat().st_ino


def test_readdirplus_has_attributes_and_handles(rig):
    (rig.directory / "sub").mkdir()
    (rig.directory / "sub" / "file").write_bytes(b"content")
    (rig.directory / "sub" / "link").symlink_to("../../secret")
    for entry in listed(rig, readdirplus_of, rig.handle("sub")):
        assert entry.attributes == rig.attributes(entry.handle)
        if entry.name not in (b".", b".."):
            assert entry.handle == rig.handle("sub/" + entry.name.decode())


def test_dircount_limits_names(many):
    arguments = ReaddirplusArguments(many.root, 0, NO_VERIFIER, 200, 1 << 16)
    some = many.ok(p.READDIRPLUS, arguments)
    assert 1 < len(some.entries) < 12
    assert not some.eof
    arguments = ReaddirplusArguments(many.root, 0, NO_VERIFIER, 0, 1 << 16)
    assert len(many.ok(p.READDIRPLUS, arguments).entries) == 1


@BOTH
def test_names_that_come_and_go_hide_no_other(many, make):
    first = many.ok(*make(many.root, count=2048))
    seen = [entry.name for entry in first.entries]
    for name in seen:
        if name not in (b".", b".."):
            (many.directory / name.decode()).unlink()
    (many.directory / "another").touch()
    rest = many.ok(*make(many.root, first.entries[-1].cookie, first.verifier, 1 << 20))
    found = [entry.name for entry in rest.entries]
    assert rest.eof
    assert set(NAMES) <= {*seen, *found}
    assert len(found) == len(set(found))


@BOTH
def test_room_for_no_entry(many, make):
    for count in (0, 100, 112):
        assert many.status(*make(many.root, count=count)) == NfsStatus.TOOSMALL


@BOTH
def test_cookies_that_are_none(many, make):
    cookie = many.ok(*make(many.root)).entries[3].cookie
    for arguments in (
        (1 << 63, NO_VERIFIER),
        ((1 << 64) - 1, NO_VERIFIER),
        (cookie, b"verifier"),
    ):
        assert many.status(*make(many.root, *arguments)) == NfsStatus.BAD_COOKIE
    many.call(*make(many.root, 12345, NO_VERIFIER))  # of no entry: any answer


@BOTH
def test_what_is_no_directory(rig, make):
    (rig.directory / "link").symlink_to("..")
    assert rig.status(*make(rig.handle("link"))) == NfsStatus.NOTDIR
    assert rig.status(*make(b"none")) == NfsStatus.BADHANDLE


@BOTH
def test_empty_directory(rig, make):
    (rig.directory / "sub").mkdir()
    handle = rig.handle("sub")
    entries = {entry.name: entry.fileid for entry in listed(rig, make, handle)}
    root = rig.attributes(rig.root).fileid
    assert entries == {b".": rig.attributes(handle).fileid, b"..": root}


@BOTH
def test_deleted_directory(rig, make):
    (rig.directory / "sub").mkdir()
    handle = rig.handle("sub")
    (rig.directory / "sub").rmdir()
    assert rig.status(*make(handle)) == NfsStatus.STALE
