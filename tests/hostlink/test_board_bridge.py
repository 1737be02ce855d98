"""Accesses of the host become bursts in the board's memory, and each has its answer in order."""

from random import Random
from typing import Any

import cocotb
import pytest

from stagecoach.gateware.dma.ports import RESPONSE_OKAY, RESPONSE_SLVERR
from stagecoach.gateware.hostlink.board_bridge import BoardBridge
from stagecoach.gateware.hostlink.octets import OCTET
from stagecoach.hw.interface.hostlink import BOARD_ACCESSES, MAXIMUM_BEATS, Kind
from stagecoach.sim.cosim.axi import AxiMemory
from stagecoach.sim.cosim.host_memory import HostMemory
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.dma.axi_traffic import watch
from tests.hostlink.flat_ports import until
from tests.support.runner import parameter, run_cocotb

WORD = 8
SIZE = 1 << 12
LATENCY = 30


@pytest.mark.parametrize("pattern", ["always", "random"])
def test_board_bridge(pattern: str) -> None:
    run_cocotb(BoardBridge(), __name__, parameters={"PATTERN": pattern})


class Memory(AxiMemory):
    """The board's memory; while `stopped` it answers nothing and takes nothing."""

    stopped = False

    def _open(self) -> bool:
        return not self.stopped and super()._open()


class Bench:
    def __init__(self, dut: Any) -> None:
        self.dut = dut
        pattern = parameter("PATTERN")
        self.rng = rng = seeded_random(pattern)
        self.asked = StreamSource(dut, "i", OCTET, rng=rng, pattern=pattern)
        self.answers = StreamSink(dut, "o", OCTET, rng=rng, pattern=pattern)
        StreamMonitor(dut, "o", OCTET)
        watch(dut, [], ["axi"])
        host = HostMemory()
        self.octets = bytearray(rng.randbytes(SIZE))
        self.base = host.map(self.octets)
        slow = Random(rng.random()) if pattern == "random" else None
        self.memory = Memory(
            dut, "axi", dut.clk, host, read_latency=LATENCY, write_latency=LATENCY, rng=slow
        )

    async def start(self) -> "Bench":
        cocotb.start_soon(self.memory.run())
        await start_clock_and_reset(self.dut)
        return self

    def ask(self, message: bytes) -> None:
        last = len(message) - 1
        self.asked.put_all({"octet": o, "last": int(i == last)} for i, o in enumerate(message))

    async def answer(self) -> bytes:
        """Payload of the next answer."""
        message = bytes(item["octet"] for item in await self.answers.get_until())
        assert message[0] == Kind.BOARD_ANSWER
        return message[1:]

    def place(self, words: int) -> int:
        """Where so many words are, somewhere in the memory."""
        return WORD * self.rng.randrange(SIZE // WORD - words + 1)

    def access(self, at: int, words: int, writes: bytes = b"") -> None:
        self.ask((self.base + at).to_bytes(8, "little") + bytes([words]) + writes)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_accesses_are_made_in_order(dut: Any) -> None:
    bench = await Bench(dut).start()
    rng, octets = bench.rng, bytearray(bench.octets)
    expected: list[bytes] = []
    for _ in range(24):
        for _ in range(BOARD_ACCESSES):
            words = rng.choice([1, 2, 5, MAXIMUM_BEATS])
            at, writes = bench.place(words), b""
            if rng.random() < 0.5:
                for number in range(words):
                    strobes, word = rng.choice([0xFF, rng.getrandbits(8)]), rng.randbytes(WORD)
                    writes += bytes([strobes]) + word
                    for lane in range(WORD):
                        if strobes >> lane & 1:
                            octets[at + WORD * number + lane] = word[lane]
                expected.append(bytes([RESPONSE_OKAY]))
            else:
                expected.append(octets[at : at + WORD * words] + bytes([RESPONSE_OKAY]))
            bench.access(at, words, writes)
        while expected:
            assert await bench.answer() == expected.pop(0)
    assert bench.octets == octets


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_what_the_memory_refuses_is_told(dut: Any) -> None:
    bench = await Bench(dut).start()
    beyond = SIZE - WORD
    bench.access(beyond, 3)
    first = bytes(bench.octets[beyond:])
    assert await bench.answer() == first + bytes(2 * WORD) + bytes([RESPONSE_SLVERR])
    bench.access(beyond, 2, 2 * (b"\xff" + bytes(WORD)))
    assert await bench.answer() == bytes([RESPONSE_SLVERR])
    bench.access(0, 1)
    assert await bench.answer() == bench.octets[:WORD] + bytes([RESPONSE_OKAY])


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_message_that_is_no_access_touches_nothing(dut: Any) -> None:
    bench = await Bench(dut).start()
    before = bytes(bench.octets)
    address = bench.base.to_bytes(8, "little")
    word = b"\xff" + bytes(WORD)
    for message in (
        address[:1],
        address,
        address + bytes([0]),
        address + bytes([0]) + word,
        address + bytes([MAXIMUM_BEATS + 1]),
        address + bytes([MAXIMUM_BEATS + 1]) + word,
    ):
        bench.ask(message)
        assert await bench.answer() == bytes([RESPONSE_SLVERR])
    # Of a write that ends too soon whole words are written, and of a long one what was announced.
    for rest in (word[:4], word[:1], b""):
        bench.octets[:] = before
        bench.ask(address + bytes([3]) + word + rest)
        assert await bench.answer() == bytes([RESPONSE_OKAY])
        assert bench.octets == bytes(WORD) + before[WORD:]
    bench.ask(address + bytes([1]) + 2 * (b"\xff" + before[:WORD]))
    assert await bench.answer() == bytes([RESPONSE_OKAY])
    assert bench.octets == before


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_the_longest_accesses_have_room_while_the_memory_does_nothing(dut: Any) -> None:
    bench = await Bench(dut).start()
    bench.memory._rng = bench.rng  # so that it looks whether it is stopped
    bench.memory.stopped = True
    writes = MAXIMUM_BEATS * (b"\xff" + bytes(WORD))
    for _ in range(BOARD_ACCESSES):
        bench.access(0, MAXIMUM_BEATS, writes)
    await until(dut, lambda: not bench.asked.pending)
    await cycles(dut, 200)
    assert not len(bench.answers)
    bench.memory.stopped = False
    for _ in range(BOARD_ACCESSES):
        assert await bench.answer() == bytes([RESPONSE_OKAY])
