"""Host memory behind the DMA clients, and pulses, for the tests of the queues."""

import random
from collections import deque
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.host_memory import MEMORY_COMMAND, READ_WORD, WORD
from stagecoach.sim.cosim.streams import pack, unpack


class ReadMemory:
    """Answers the ReadClient `name` from `octets_at(address, octets)` with random latency.

    Addresses in `failing` are answered with an error. With `quick` nothing waits but the latency.
    """

    def __init__(self, dut: Any, name: str, memory: dict[int, bytes], rng: random.Random) -> None:
        self.dut = dut
        self.memory = memory
        self.failing: set[int] = set()
        self.commands: list[dict] = []
        self.latency = (2, 40)
        self.quick = False
        self._rng = random.Random(rng.getrandbits(64))
        self._port = {
            part: getattr(dut, f"{name}__{part}")
            for part in (
                "command__valid",
                "command__ready",
                "command__payload",
                "data__valid",
                "data__ready",
                "data__payload",
            )
        }
        self._port["command__ready"].value = 0
        self._port["data__valid"].value = 0
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        port, rng = self._port, self._rng
        waiting: deque[tuple[int, int]] = deque()  # cycle from which on, word
        cycle = 0
        ready = offering = False
        while True:
            await RisingEdge(self.dut.clk)
            cycle += 1
            if self.dut.rst.value:
                continue
            if ready and port["command__valid"].value:
                command = unpack(MEMORY_COMMAND, int(port["command__payload"].value))
                self.commands.append(command)
                when = cycle + rng.randint(*self.latency)
                address, octets = command["address"], command["octets"]
                assert address % 8 == 0 and octets % 8 == 0
                for at in range(address, address + octets, 8):
                    word = {
                        "data": int.from_bytes(self.memory.get(at, b""), "little"),
                        "last": at + 8 == address + octets,
                        "error": at in self.failing,
                    }
                    waiting.append((when, pack(READ_WORD, word)))
            if offering and port["data__ready"].value:
                offering = False
                waiting.popleft()
            if not offering:
                due = bool(waiting) and waiting[0][0] <= cycle
                offering = due and (self.quick or rng.random() < 0.8)
                port["data__valid"].value = int(offering)
                bits = waiting[0][1] if offering else rng.getrandbits(66)
                port["data__payload"].value = bits
            ready = self.quick or rng.random() < 0.7
            port["command__ready"].value = int(ready)


class WriteMemory:
    """Takes what the WriteClient `name` writes; it is in `words` when its `done` pulses.

    No word is taken before its command, as in the write engine.
    Commands to addresses in `failing` are answered with an error and change nothing.
    """

    def __init__(self, dut: Any, name: str, rng: random.Random) -> None:
        self.dut = dut
        self.words: dict[int, int] = {}
        self.failing: set[int] = set()
        self.latency = (4, 40)
        self.held = False  # no write response while set
        self.always_ready = False
        self.writes = 0
        self._rng = random.Random(rng.getrandbits(64))
        self._name = name
        self._part("command__ready").value = 0
        self._part("data__ready").value = 0
        self._part("done").value = 0
        self._part("error").value = 0
        cocotb.start_soon(self._run())

    def _part(self, part: str) -> Any:
        return getattr(self.dut, f"{self._name}__{part}")

    async def _run(self) -> None:
        rng = self._rng
        commands: deque[dict] = deque()
        words: list[int] = []
        done: deque[tuple[int, int, list[int]]] = deque()
        cycle = 0
        command_ready = data_ready = 0
        while True:
            await RisingEdge(self.dut.clk)
            cycle += 1
            if self.dut.rst.value:
                continue
            if command_ready and self._part("command__valid").value:
                bits = int(self._part("command__payload").value)
                commands.append(unpack(MEMORY_COMMAND, bits))
            if data_ready and self._part("data__valid").value:
                word = unpack(WORD, int(self._part("data__payload").value))
                words.append(word["data"])
                assert word["last"] == (len(words) * 8 == commands[0]["octets"])
                if word["last"]:
                    when = cycle + rng.randint(*self.latency)
                    done.append((when, commands.popleft()["address"], words))
                    words = []
            self._part("done").value = 0
            self._part("error").value = 0
            if done and done[0][0] <= cycle and not self.held:
                _, address, stored = done.popleft()
                failed = address in self.failing
                self._part("done").value = 1
                self._part("error").value = int(failed)
                self.writes += 1
                if not failed:
                    for i, value in enumerate(stored):
                        self.words[address + 8 * i] = value
            command_ready, data_ready = (
                int(self.always_ready or rng.random() < 0.7) for _ in range(2)
            )
            data_ready &= int(bool(commands))
            self._part("command__ready").value = command_ready
            self._part("data__ready").value = data_ready

    def octets(self, address: int, octets: int) -> bytes:
        """What stands at an aligned address; zeros where nothing was written."""
        words = (self.words.get(at, 0) for at in range(address, address + octets, 8))
        return b"".join(word.to_bytes(8, "little") for word in words)


class Pulses:
    """Counts the cycles in which a one-bit signal is high, or lists the QPs of a QpStrobe."""

    def __init__(self, dut: Any, valid: Any, qp: Any = None) -> None:
        self.dut = dut
        self.count = 0
        self.qps: list[int] = []
        self._valid, self._qp = valid, qp
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            if not self.dut.rst.value and self._valid.value:
                self.count += 1
                if self._qp is not None:
                    self.qps.append(int(self._qp.value))


async def cycles(dut: Any, number: int) -> None:
    """Wait for `number` clock edges."""
    for _ in range(number):
        await RisingEdge(dut.clk)
