"""A NIC's board memory over the link: pieces, strobes, order, and what goes wrong."""

from concurrent.futures import Future
from random import Random
from typing import Any

import pytest

from stagecoach.host_driver.hostlink.link_host import LinkHost
from stagecoach.host_driver.hostlink.memory import MappedMemory
from stagecoach.host_driver.hostlink.nic import PIECE, LinkedNic
from stagecoach.host_driver.transport.base import TransportError, TransportTimeout
from stagecoach.hw.interface.hostlink import BOARD_ACCESSES, Kind

WORD = 8
SIZE = 4 * PIECE
SECONDS = 5.0


class Line:
    """Takes what is sent to the device, which is this test."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, bytes]] = []

    def send(self, kind: int, payload: bytes = b"") -> None:
        self.sent.append((kind, payload))


class Bench:
    def __init__(self) -> None:
        self.line = Line()
        self.nic = LinkedNic(self.line, MappedMemory(), lambda levels: None, SECONDS)  # type: ignore[arg-type]
        self.octets = bytearray(Random("board").randbytes(SIZE))
        self.now = 0.0

    def read(self, address: int, octets: int) -> "Future[Any]":
        result: Future[Any] = Future()
        self.nic.read_board(address, octets, self.now, result)
        return result

    def write(self, address: int, data: bytes) -> "Future[Any]":
        result: Future[Any] = Future()
        self.nic.write_board(address, data, self.now, result)
        return result

    def serve(self) -> None:
        """Answers all that was asked for, as a board does."""
        while self.line.sent:
            assert len(self.line.sent) <= BOARD_ACCESSES
            kind, payload = self.line.sent.pop(0)
            assert kind == Kind.BOARD_ACCESS
            address, words, data = int.from_bytes(payload[:8], "little"), payload[8], payload[9:]
            assert address % WORD == 0 and 1 <= words <= PIECE // WORD
            assert address // PIECE == (address + words * WORD - 1) // PIECE
            found = b""
            if not data:
                found = bytes(self.octets[address : address + words * WORD])
            else:
                assert len(data) == 9 * words
            for number in range(len(data) // 9):
                strobes, word = data[9 * number], data[9 * number + 1 : 9 * number + 9]
                for lane in range(WORD):
                    if strobes >> lane & 1:
                        self.octets[address + WORD * number + lane] = word[lane]
            self.nic.take(Kind.BOARD_ANSWER, found + bytes(1))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_any_bytes_are_read_and_written(bench: Bench) -> None:
    rng = Random("places")
    expected = bytearray(bench.octets)
    for octets in [0, 1, 7, 8, 9, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 3, SIZE]:
        for _ in range(4):
            at = rng.randrange(SIZE - octets + 1)
            data = rng.randbytes(octets)
            reading, writing = bench.read(at, octets), bench.write(at, data)
            bench.serve()
            before = reading.result(0)
            assert writing.result(0) == b"" and len(before) == octets
            after = bench.read(at, octets)
            bench.serve()
            assert after.result(0) == data
            # The two were under way at once: of each access one was first.
            for place in range(octets):
                assert before[place] in (expected[at + place], data[place])
            expected[at : at + octets] = data
            assert bench.octets == expected


def test_an_error_of_the_memory_is_told_and_others_go_on(bench: Bench) -> None:
    bad, good = bench.read(8, PIECE), bench.read(0, WORD)
    bench.line.sent.clear()
    bench.nic.take(Kind.BOARD_ANSWER, bytes(PIECE - WORD) + bytes([2]))
    bench.nic.take(Kind.BOARD_ANSWER, bytes(WORD + 1))
    bench.nic.take(Kind.BOARD_ANSWER, bytes(range(WORD)) + bytes(1))
    with pytest.raises(TransportError, match="read of 256 bytes at 0x8: the board's memory answer"):
        bad.result(0)
    assert good.result(0) == bytes(range(WORD))


def test_a_memory_that_does_not_answer_is_told_of(bench: Bench) -> None:
    results = [bench.write(0, bytes(8 * PIECE)), bench.read(0, WORD)]
    bench.nic.check_time(SECONDS - 0.1)
    assert not any(result.done() for result in results)
    bench.nic.check_time(SECONDS)
    for result in results:
        with pytest.raises(TransportTimeout, match="memory does not answer within 5 s"):
            result.result(0)
    # What was asked for is answered late, and belongs to nobody.
    bench.now = 1.9 * SECONDS
    after = bench.read(0, WORD)
    bench.nic.check_time(2 * SECONDS)
    assert not after.done(), "it has its own time"
    for _ in range(BOARD_ACCESSES):
        bench.nic.take(Kind.BOARD_ANSWER, bytes(1))
    bench.nic.take(Kind.BOARD_ANSWER, bytes(range(WORD)) + bytes(1))
    assert after.result(0) == bytes(range(WORD))


def test_a_long_transfer_has_no_limit_of_time_and_holds_up_nobody(bench: Bench) -> None:
    pieces = 100
    writing = bench.write(0, bytes(pieces * PIECE))
    for number in range(pieces):
        bench.now += SECONDS / 2
        bench.nic.check_time(bench.now)
        if number == 10:
            reading = bench.read(8, WORD)
        assert number < 10 + BOARD_ACCESSES + 2 or reading.done()
        _, payload = bench.line.sent.pop(0)
        is_read = len(payload) == 9
        bench.nic.take(Kind.BOARD_ANSWER, bytes(range(WORD)) * is_read + bytes(1))
    assert reading.result(0) == bytes(range(WORD)) and not writing.done()
    assert len(bench.line.sent) == 1
    bench.nic.take(Kind.BOARD_ANSWER, bytes(1))
    assert writing.result(0) == b""


def test_what_is_left_of_a_transfer_that_failed_is_not_sent(bench: Bench) -> None:
    writing = bench.write(0, bytes(100 * PIECE))
    bench.nic.take(Kind.BOARD_ANSWER, bytes([2]))
    with pytest.raises(TransportError, match="answers with an error"):
        writing.result(0)
    assert len(bench.line.sent) == BOARD_ACCESSES


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (bytes(WORD + 1), "with 8 bytes of memory; allowed: 16"),
        (bytes(3), "BOARD_ANSWER with 3 bytes of payload"),
        (b"", "BOARD_ANSWER with 0 bytes of payload"),
    ],
)
def test_an_answer_that_no_device_gives_ends_the_link(
    bench: Bench, payload: bytes, message: str
) -> None:
    bench.read(0, 2 * WORD)
    with pytest.raises(TransportError, match=message):
        bench.nic.take(Kind.BOARD_ANSWER, payload)


def test_an_answer_that_nobody_asked_for_ends_the_link(bench: Bench) -> None:
    with pytest.raises(TransportError, match="BOARD_ANSWER; allowed: one for each access"):
        bench.nic.take(Kind.BOARD_ANSWER, bytes(1))


def test_the_end_of_the_link_ends_accesses(bench: Bench) -> None:
    reading = bench.read(0, SIZE)
    bench.nic.fail(TransportError("gone"))
    with pytest.raises(TransportError, match="gone"):
        reading.result(0)


class Board:
    """A link whose board memory is an array."""

    def __init__(self) -> None:
        self.octets = bytearray(SIZE)

    def read_board(self, address: int, octets: int) -> bytes:
        return bytes(self.octets[address : address + octets])

    def write_board(self, address: int, data: bytes) -> None:
        self.octets[address : address + len(data)] = data


def test_pieces_of_the_memory_are_apart_and_end_with_it() -> None:
    board = Board()
    host = LinkHost(board, SIZE)  # type: ignore[arg-type]
    first, second = host.allocate(24), host.allocate(PIECE, PIECE)
    assert (first.address, second.address) == (SIZE - 24, SIZE - 2 * PIECE)
    assert host.free == SIZE - 2 * PIECE
    first.write(0, b"a" * 24)
    second.write(3, b"bc")
    assert first.read(22, 2) == b"aa" and second.read(2, 4) == b"\0bc\0"
    assert board.octets[second.address + 3 : second.address + 5] == b"bc"
    with pytest.raises(TransportError, match=r"of 1024 bytes has no 513 for the network beside"):
        host.allocate(SIZE - 2 * PIECE + 1)
    assert host.allocate(SIZE - 2 * PIECE).address == host.free == 0
