"""Bursts become messages, and answers become what the device reads and is told."""

from collections import deque
from typing import Any

import cocotb
import pytest

from stagecoach.gateware.dma.ports import RESPONSE_OKAY, RESPONSE_SLVERR
from stagecoach.gateware.hostlink.memory_bridge import BURSTS, ReadBridge, WriteBridge
from stagecoach.gateware.hostlink.octets import DEPTH, OCTET
from stagecoach.hw.interface.hostlink import MAXIMUM_BEATS, Kind
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.hostlink.flat_ports import Sink, Source, until
from tests.support.runner import parameter, run_cocotb

WORD = 8
PATTERNS = pytest.mark.parametrize("pattern", ["always", "random"])


@PATTERNS
def test_read_bridge(pattern: str) -> None:
    parameters = {"PATTERN": pattern}
    run_cocotb(ReadBridge(), __name__, test_filter="check_reads", parameters=parameters)


@PATTERNS
def test_write_bridge(pattern: str) -> None:
    parameters = {"PATTERN": pattern}
    run_cocotb(WriteBridge(), __name__, test_filter="check_writes", parameters=parameters)


def octets_of(octets: bytes) -> list[dict[str, int]]:
    return [{"octet": o, "last": int(i == len(octets) - 1)} for i, o in enumerate(octets)]


def words_read(answer: bytes, beats: int) -> list[tuple[int, bytes | None]]:
    """Response and octets of each word; None where they mean nothing."""
    response, octets = answer[0], answer[1:]
    words: list[tuple[int, bytes | None]] = []
    for at in range(0, beats * WORD, WORD):
        word = octets[at : at + WORD]
        if len(word) == WORD:
            words.append((response, word))
        elif word or response == RESPONSE_OKAY:
            response = RESPONSE_SLVERR
            words.append((response, None))
        else:
            words.append((response, None))
    return words


class Reads:
    """The device that reads, and the host that answers."""

    def __init__(self, dut: Any) -> None:
        self.dut, self.pattern = dut, parameter("PATTERN")
        self.rng = rng = seeded_random(self.pattern)
        self.messages = StreamSink(dut, "o", OCTET, rng=rng, pattern=self.pattern)
        StreamMonitor(dut, "o", OCTET)
        self.answers = StreamSource(dut, "i", OCTET, rng=rng, pattern=self.pattern)
        self.ar = Source(dut, "axi__ar", ("addr", "len", "id"), rng, self.pattern)
        self.r = Sink(dut, "axi__r", ("data", "resp", "last", "id"), rng, self.pattern)
        self.asked: deque[tuple[int, int]] = deque()  # id, words: of messages that came

    def read(self, beats: int) -> None:
        rng = self.rng
        address = rng.getrandbits(64) & -WORD
        self.ar.items.append({"addr": address, "len": beats - 1, "id": rng.getrandbits(1)})

    async def take_message(self, burst: dict[str, int]) -> None:
        message = bytes(item["octet"] for item in await self.messages.get_until())
        beats = burst["len"] + 1
        expected = bytes([Kind.MEMORY_READ]) + burst["addr"].to_bytes(8, "little")
        assert message == expected + (WORD * beats).to_bytes(2, "little")
        self.asked.append((burst["id"], beats))

    def answer(self, beats: int) -> bytes:
        """An answer as the host gives it, or as it should not."""
        rng = self.rng
        octets = WORD * beats
        wrong = rng.choice([0, 1, WORD, octets - 1, octets + 1, octets + 30, rng.randrange(octets)])
        octets = rng.choice([octets, octets, wrong])
        response = rng.choice([RESPONSE_OKAY, RESPONSE_OKAY, RESPONSE_SLVERR, 3])
        return bytes([response]) + rng.randbytes(octets)

    async def check(self, answer: bytes, burst: int, beats: int) -> None:
        """The words of the oldest burst are those of its answer."""
        for number, (response, octets) in enumerate(words_read(answer, beats)):
            await until(self.dut, lambda: self.r.items)
            word = self.r.items.popleft()
            assert word["id"] == burst and word["last"] == (number == beats - 1)
            assert word["resp"] == response, (number, answer.hex())
            assert octets is None or word["data"].to_bytes(WORD, "little") == octets


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_reads_bring_what_was_answered(dut: Any) -> None:
    bench = Reads(dut)
    await start_clock_and_reset(dut)
    for _ in range(12):
        sizes = [bench.rng.choice([1, 2, 5, MAXIMUM_BEATS]) for _ in range(5)]
        for beats in sizes:
            bench.read(beats)
        bursts = list(bench.ar.items)
        answers = []
        for burst in bursts:
            await bench.take_message(burst)
            answers.append(bench.answer(burst["len"] + 1))
            bench.answers.put_all(octets_of(answers[-1]))
        for answer in answers:
            await bench.check(answer, *bench.asked.popleft())
    await cycles(dut, 100)
    assert not bench.r.items and not len(bench.messages)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_reads_on_their_way_have_room_for_their_answers(dut: Any) -> None:
    """Answers are taken while the device takes no word."""
    bench = Reads(dut)
    await start_clock_and_reset(dut)
    for beats, most in ((1, BURSTS), (MAXIMUM_BEATS, 7)):
        bench.r.paused = True
        bench.ar.taken = 0
        for _ in range(BURSTS + 4):
            bench.read(beats)
        bursts = list(bench.ar.items)
        for burst in bursts[:most]:
            await bench.take_message(burst)
        await cycles(dut, 100)
        assert bench.ar.taken == most and not len(bench.messages)
        assert most * (WORD * beats + 1) <= DEPTH
        answers = []
        for _ in range(most):
            answers.append(bytes([RESPONSE_OKAY]) + bench.rng.randbytes(WORD * beats))
            bench.answers.put_all(octets_of(answers[-1]))
        await until(dut, lambda: not bench.answers.pending)
        assert not bench.r.items
        bench.r.paused = False
        for burst in bursts[most:]:
            answer = answers.pop(0)
            await bench.check(answer, *bench.asked.popleft())
            await bench.take_message(burst)
            answers.append(bytes([RESPONSE_OKAY]) + bench.rng.randbytes(WORD * beats))
            bench.answers.put_all(octets_of(answers[-1]))
        for answer in answers:
            await bench.check(answer, *bench.asked.popleft())


class Writes:
    """The device that writes, and the host that answers."""

    def __init__(self, dut: Any) -> None:
        self.dut, pattern = dut, parameter("PATTERN")
        self.rng = rng = seeded_random(pattern)
        self.messages = StreamSink(dut, "o", OCTET, rng=rng, pattern=pattern)
        StreamMonitor(dut, "o", OCTET)
        self.aw = Source(dut, "axi__aw", ("addr", "len", "id"), rng, pattern)
        self.w = Source(dut, "axi__w", ("data", "strb"), rng, pattern)
        self.b = Sink(dut, "axi__b", ("resp", "id"), rng, pattern)
        dut.done.value = 0

    def write(self, beats: int) -> tuple[bytes, int]:
        """A burst; its message, and its ID."""
        rng = self.rng
        address, burst = rng.getrandbits(64) & -WORD, rng.getrandbits(1)
        self.aw.items.append({"addr": address, "len": beats - 1, "id": burst})
        message = bytes([Kind.MEMORY_WRITE]) + address.to_bytes(8, "little")
        for _ in range(beats):
            word = {"data": rng.getrandbits(64), "strb": rng.getrandbits(8)}
            self.w.items.append(word)
            message += bytes([word["strb"]]) + word["data"].to_bytes(8, "little")
        return message, burst

    async def take(self, message: bytes) -> None:
        assert bytes(item["octet"] for item in await self.messages.get_until()) == message

    async def done(self, response: int) -> None:
        self.dut.done.value, self.dut.response.value = 1, response
        await cycles(self.dut, 1)
        self.dut.done.value, self.dut.response.value = 0, self.rng.getrandbits(2)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_writes_are_told_and_answered_in_order(dut: Any) -> None:
    bench = Writes(dut)
    await start_clock_and_reset(dut)
    for _ in range(8):
        sizes = [bench.rng.choice([1, 2, 7, MAXIMUM_BEATS]) for _ in range(5)]
        bursts = [bench.write(beats) for beats in sizes]
        answers = []
        for message, burst in bursts:
            await bench.take(message)
            answers.append({"resp": bench.rng.getrandbits(2), "id": burst})
            await bench.done(answers[-1]["resp"])
            await cycles(dut, bench.rng.choice([0, 1, 30]))
        for answer in answers:
            await until(dut, lambda: bench.b.items)
            assert bench.b.items.popleft() == answer


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_writes_under_way_are_limited(dut: Any) -> None:
    bench = Writes(dut)
    await start_clock_and_reset(dut)
    bench.b.paused = True
    bursts = [bench.write(1) for _ in range(2 * BURSTS)]
    for message, _ in bursts[:BURSTS]:
        await bench.take(message)
        await bench.done(RESPONSE_OKAY)  # which the device does not take
    await cycles(dut, 200)
    assert bench.aw.taken == BURSTS and not bench.b.items and dut.axi__bvalid.value
    bench.b.paused = False
    for message, _ in bursts[BURSTS:]:
        await bench.take(message)
        await bench.done(RESPONSE_SLVERR)
    await until(dut, lambda: len(bench.b.items) == len(bursts))
    for number, (answer, (_, burst)) in enumerate(zip(bench.b.items, bursts, strict=True)):
        response = RESPONSE_OKAY if number < BURSTS else RESPONSE_SLVERR
        assert answer == {"resp": response, "id": burst}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_writes_leave_when_they_are_complete(dut: Any) -> None:
    bench = Writes(dut)
    await start_clock_and_reset(dut)
    message, _ = bench.write(3)
    last = bench.w.items.pop()
    await until(dut, lambda: not bench.w.items)
    await cycles(dut, 60)
    assert not dut.o__valid.value
    bench.w.items.append(last)
    await bench.take(message)
