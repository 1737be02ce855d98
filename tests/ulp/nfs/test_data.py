"""READ, WRITE and COMMIT."""

import os

import pytest

from stagecoach.host_driver.errors import ResourceError
from stagecoach.ulp.nfs import program as p
from stagecoach.ulp.nfs.arguments import (
    CommitArguments,
    ReadArguments,
    StableHow,
    WriteArguments,
)
from stagecoach.ulp.nfs.results import Changed
from stagecoach.ulp.nfs.status import NfsStatus

EDGE = 1 << 63
CONTENT = bytes(range(256)) * 20


@pytest.fixture
def file(rig):
    path = rig.directory / "file"
    path.write_bytes(CONTENT)
    return path


def write_of(handle, offset, data, stable=StableHow.UNSTABLE, count=None):
    count = len(data) if count is None else count
    return WriteArguments(handle, offset, count, stable, memoryview(data))


@pytest.mark.parametrize(
    ("offset", "count", "eof"),
    [
        (0, 5120, True),
        (0, 5119, False),
        (1, 7, False),
        (5119, 1, True),
        (5119, 100, True),
        (5120, 1, True),
        (0, 0, False),
        (5120, 0, True),
        (0, (1 << 32) - 1, True),
        (EDGE - 1, 10, True),
        (EDGE, 10, True),
        ((1 << 64) - 1, (1 << 32) - 1, True),
    ],
)
def test_read(rig, file, offset, count, eof):
    result = rig.ok(p.READ, ReadArguments(rig.handle("file"), offset, count))
    expected = CONTENT[offset : offset + count]
    assert (bytes(result.data), result.count, result.eof) == (expected, len(expected), eof)
    assert result.attributes.size == len(CONTENT)


def test_read_is_placed(rig, file):
    buffer = memoryview(bytearray(1000))
    result = rig.ok(p.READ, ReadArguments(rig.handle("file"), 10, 1000), into=[buffer])
    assert bytes(buffer) == CONTENT[10:1010] == bytes(result.data)


def test_the_file_is_read_into_the_memory_that_is_sent(rig, file, monkeypatch):
    buffers = []

    def remember(self, octets):
        buffers.append(memoryview(bytearray(octets)))
        return buffers[-1]

    monkeypatch.setattr("tests.ulp.oncrpc.memory_transport.MemoryCall.buffer", remember)
    rig.ok(p.READ, ReadArguments(rig.handle("file"), 0, 100))
    assert [bytes(buffer) for buffer in buffers] == [CONTENT[:100]]


def test_read_for_which_there_is_no_memory(rig, file, monkeypatch):
    def refuse(self, octets):
        raise ResourceError("no STag left")

    monkeypatch.setattr("tests.ulp.oncrpc.memory_transport.MemoryCall.buffer", refuse)
    status, failure = rig.call(p.READ, ReadArguments(rig.handle("file"), 0, 100))
    assert status == NfsStatus.JUKEBOX
    assert failure.attributes.size == len(CONTENT)


def test_reads_are_at_most_what_fsinfo_says(rig, file):
    with file.open("r+b") as opened:
        opened.truncate(3 << 20)
    result = rig.ok(p.READ, ReadArguments(rig.handle("file"), 0, 3 << 20))
    assert (result.count, result.eof) == (1 << 20, False)


@pytest.mark.parametrize("stable", StableHow)
def test_write(rig, file, stable):
    handle = rig.handle("file")
    result = rig.ok(p.WRITE, write_of(handle, 100, b"written", stable))
    assert file.read_bytes() == CONTENT[:100] + b"written" + CONTENT[107:]
    assert (result.count, result.committed) == (7, stable)
    assert result.verifier == rig.export.write_verifier
    assert (result.wcc.before.size, result.wcc.after.size) == (5120, 5120)


@pytest.mark.parametrize(
    ("stable", "calls"),
    [
        (StableHow.UNSTABLE, []),
        (StableHow.DATA_SYNC, ["fdatasync"]),
        (StableHow.FILE_SYNC, ["fsync"]),
    ],
)
def test_write_is_as_stable_as_asked(rig, file, monkeypatch, stable, calls):
    made = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda fd, name=name: made.append(name))
    rig.ok(p.WRITE, write_of(rig.handle("file"), 0, b"x", stable))
    assert made == calls


def test_write_behind_the_end_leaves_a_hole(rig, file):
    rig.ok(p.WRITE, write_of(rig.handle("file"), 6000, b"end"))
    assert file.read_bytes() == CONTENT + bytes(6000 - 5120) + b"end"


def test_write_of_nothing(rig, file):
    assert rig.ok(p.WRITE, write_of(rig.handle("file"), 0, b"")).count == 0
    assert file.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("offset", "status"),
    [
        (EDGE - 4, NfsStatus.FBIG),
        (EDGE - 1, NfsStatus.FBIG),
        (EDGE, NfsStatus.FBIG),
        ((1 << 64) - 1, NfsStatus.FBIG),
        ((1 << 64) - 4, NfsStatus.FBIG),
    ],
)
def test_write_at_the_edge(rig, file, offset, status):
    answer, failure = rig.call(p.WRITE, write_of(rig.handle("file"), offset, b"data"))
    assert answer == status
    assert isinstance(failure, Changed)
    assert file.read_bytes() == CONTENT


@pytest.mark.parametrize("count", [0, 3, 5, (1 << 32) - 1])
def test_count_that_is_not_that_of_the_data(rig, file, count):
    arguments = write_of(rig.handle("file"), 0, b"data", count=count)
    assert rig.status(p.WRITE, arguments) == NfsStatus.INVAL
    assert file.read_bytes() == CONTENT


def test_commit(rig, file, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    for offset, count in ((0, 0), ((1 << 64) - 1, (1 << 32) - 1)):
        result = rig.ok(p.COMMIT, CommitArguments(rig.handle("file"), offset, count))
        assert result.verifier == rig.export.write_verifier
    assert synced == [file.stat().st_ino] * 2


def make_fifo(rig):
    os.mkfifo(rig.directory / "object")


def make_link(rig):
    (rig.directory / "object").symlink_to("../secret")


def make_directory(rig):
    (rig.directory / "object").mkdir()


@pytest.mark.parametrize(
    ("make", "status"),
    [
        (make_fifo, NfsStatus.INVAL),
        (make_link, NfsStatus.INVAL),
        (make_directory, NfsStatus.ISDIR),
    ],
)
def test_what_is_no_file_has_no_data(rig, make, status):
    make(rig)
    handle = rig.handle("object")
    assert rig.status(p.READ, ReadArguments(handle, 0, 10)) == status
    assert rig.status(p.WRITE, write_of(handle, 0, b"x")) == status
    assert rig.status(p.COMMIT, CommitArguments(handle, 0, 0)) == status


def test_deleted_file_has_no_data(rig, file):
    handle = rig.handle("file")
    file.unlink()
    assert rig.status(p.READ, ReadArguments(handle, 0, 10)) == NfsStatus.STALE
    assert rig.status(p.WRITE, write_of(handle, 0, b"x")) == NfsStatus.STALE
    assert rig.status(p.COMMIT, CommitArguments(handle, 0, 0)) == NfsStatus.STALE
