"""Host memory behind the DMA clients, and pulses, for the tests of the queues."""

import random
from collections import deque
from typing import Any

from stagecoach.gateware.host_memory import MEMORY_COMMAND, READ_WORD, WORD
from stagecoach.sim.cosim.drive import Drive
from stagecoach.sim.cosim.signals import every_cycle, reader
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
        self._read = {part: reader(signal) for part, signal in self._port.items()}
        self._waiting: deque[tuple[int, int]] = deque()  # cycle from which on, word
        self._cycle = 0
        self._ready = self._offering = False
        every_cycle(dut, self._step)

    def _step(self, in_reset: bool) -> None:
        port, read, rng, waiting = self._port, self._read, self._rng, self._waiting
        self._cycle += 1
        if in_reset:
            return
        if self._ready and read["command__valid"]():
            command = unpack(MEMORY_COMMAND, read["command__payload"]())
            self.commands.append(command)
            when = self._cycle + rng.randint(*self.latency)
            address, octets = command["address"], command["octets"]
            assert address % 8 == 0 and octets % 8 == 0
            for at in range(address, address + octets, 8):
                word = {
                    "data": int.from_bytes(self.memory.get(at, b""), "little"),
                    "last": at + 8 == address + octets,
                    "error": at in self.failing,
                }
                waiting.append((when, pack(READ_WORD, word)))
        if self._offering and read["data__ready"]():
            self._offering = False
            waiting.popleft()
        if not self._offering:
            due = bool(waiting) and waiting[0][0] <= self._cycle
            self._offering = due and (self.quick or rng.random() < 0.8)
            port["data__valid"].value = int(self._offering)
            bits = waiting[0][1] if self._offering else rng.getrandbits(66)
            port["data__payload"].value = bits
        self._ready = self.quick or rng.random() < 0.7
        port["command__ready"].value = int(self._ready)


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
        driven = ("command__ready", "data__ready", "done", "error")
        self._drive = Drive({part: getattr(dut, f"{name}__{part}") for part in driven})
        self._drive(**dict.fromkeys(driven, 0))
        looked = ("command__valid", "command__payload", "data__valid", "data__payload")
        self._read = {part: reader(getattr(dut, f"{name}__{part}")) for part in looked}
        self._commands: deque[dict] = deque()
        self._data: list[int] = []
        self._done: deque[tuple[int, int, list[int]]] = deque()
        self._cycle = 0
        self._command_ready = self._data_ready = 0
        every_cycle(dut, self._step)

    def _step(self, in_reset: bool) -> None:
        rng, read, commands, done = self._rng, self._read, self._commands, self._done
        self._cycle += 1
        if in_reset:
            return
        if self._command_ready and read["command__valid"]():
            commands.append(unpack(MEMORY_COMMAND, read["command__payload"]()))
        if self._data_ready and read["data__valid"]():
            word = unpack(WORD, read["data__payload"]())
            self._data.append(word["data"])
            assert word["last"] == (len(self._data) * 8 == commands[0]["octets"])
            if word["last"]:
                when = self._cycle + rng.randint(*self.latency)
                done.append((when, commands.popleft()["address"], self._data))
                self._data = []
        ends = failed = False
        if done and done[0][0] <= self._cycle and not self.held:
            _, address, stored = done.popleft()
            ends, failed = True, address in self.failing
            self.writes += 1
            if not failed:
                for i, value in enumerate(stored):
                    self.words[address + 8 * i] = value
        self._command_ready, self._data_ready = (
            int(self.always_ready or rng.random() < 0.7) for _ in range(2)
        )
        self._data_ready &= int(bool(commands))
        self._drive(
            command__ready=self._command_ready,
            data__ready=self._data_ready,
            done=int(ends),
            error=int(failed),
        )

    def octets(self, address: int, octets: int) -> bytes:
        """What stands at an aligned address; zeros where nothing was written."""
        words = (self.words.get(at, 0) for at in range(address, address + octets, 8))
        return b"".join(word.to_bytes(8, "little") for word in words)


class Pulses:
    """Counts the cycles in which a one-bit signal is high, or lists the QPs of a QpStrobe."""

    def __init__(self, dut: Any, valid: Any, qp: Any = None) -> None:
        self.count = 0
        self.qps: list[int] = []
        self._valid, self._qp = reader(valid), qp
        every_cycle(dut, self._step)

    def _step(self, in_reset: bool) -> None:
        if not in_reset and self._valid():
            self.count += 1
            if self._qp is not None:
                self.qps.append(int(self._qp.value))
