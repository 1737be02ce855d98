"""Host memory and QPs around the atomic unit."""

from collections import deque
from dataclasses import dataclass

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.host_memory import MEMORY_COMMAND, READ_WORD, WORD
from stagecoach.gateware.layouts import OPERANDS
from stagecoach.gateware.rdmap.atomic.operations import request_layout, response_layout
from stagecoach.sim.cosim.streams import StreamMonitor, StreamSink, StreamSource
from tests.rdmap.atomic.serial_order import Operation

CONFIG = RnicConfig()
DONE, READ_ERROR, WRITE_ERROR = range(3)


@dataclass
class Traffic:
    """How slow host memory is, in cycles, and how often it fails."""

    read_latency: tuple[int, int] = (5, 60)
    write_latency: tuple[int, int] = (5, 60)
    read_errors: float = 0.0
    write_errors: float = 0.0


class HostMemory:
    """Serves the read and the write client of the unit.

    A read takes its value at some time between command and word, a write takes effect at some
    time between command and response; words, and responses, come in order, and so do the effects
    of writes. Nothing orders a read against a write that has no response.
    """

    def __init__(self, dut, rng, traffic, pattern="always"):
        self.words: dict[int, int] = {}
        self.history: dict[int, list[tuple[int, int]]] = {}  # address: (cycle, value)
        self.cycle = 0
        self.reads = self.writes = 0
        self.bad_reads: dict[int, int] = {}  # address: how many of the next reads fail
        self.failed_writes = 0
        self.traffic = traffic
        self._dut, self._rng = dut, rng
        self._read_commands = StreamSink(
            dut, "read__command", MEMORY_COMMAND, rng=rng, pattern=pattern
        )
        self._write_commands = StreamSink(
            dut, "write__command", MEMORY_COMMAND, rng=rng, pattern=pattern
        )
        self._write_words = StreamSink(dut, "write__data", WORD, rng=rng, pattern=pattern)
        self._read_words = StreamSource(dut, "read__data", READ_WORD, rng=rng, pattern=pattern)
        for name in ("read__command", "write__command", "write__data"):
            StreamMonitor(dut, name, keep=False)
        dut.write__done.value = 0
        dut.write__error.value = 0
        cocotb.start_soon(self._run())

    def store(self, address, value):
        """Change a word at once, as somebody else's write does."""
        self.words[address] = value
        self.history.setdefault(address, []).append((self.cycle, value))

    def _reach(self, latency, before):
        """Return when an effect takes place and when it is reported, in order."""
        delay = self._rng.randint(*latency)
        reported = max(self.cycle + delay, before + 1)
        return self._rng.randint(self.cycle, reported), reported

    async def _run(self):
        dut, rng = self._dut, self._rng
        reads: deque[list[int]] = deque()  # taken, reported, address, value
        writes: deque[list[int]] = deque()  # effect, reported, address, value, error
        read_end = write_end = effect_end = 0
        while True:
            await RisingEdge(dut.clk)
            self.cycle += 1
            for command in self._read_commands.take_all():
                assert command["octets"] == 8 and command["address"] % 8 == 0
                taken, read_end = self._reach(self.traffic.read_latency, read_end)
                reads.append([taken, read_end, command["address"], None])
                self.reads += 1
            while len(self._write_commands) and len(self._write_words):
                command = await self._write_commands.get()
                word = await self._write_words.get()
                assert command["octets"] == 8 and command["address"] % 8 == 0 and word["last"]
                effect, write_end = self._reach(self.traffic.write_latency, write_end)
                effect_end = max(effect_end, effect)
                error = rng.random() < self.traffic.write_errors
                lost = error and rng.random() < 0.5
                value = None if lost else word["data"]
                writes.append([effect_end, write_end, command["address"], value, error])
                self.writes += 1
            for write in writes:
                if write[0] is not None and write[0] <= self.cycle:
                    if write[3] is not None:
                        self.store(write[2], write[3])
                    write[0] = None
            for read in reads:
                if read[3] is None and read[0] <= self.cycle:
                    read[3] = self.words[read[2]]
            while reads and reads[0][1] <= self.cycle:
                _, _, address, value = reads.popleft()
                bad = self.bad_reads.get(address, 0)
                self.bad_reads[address] = max(bad - 1, 0)
                error = bad > 0 or rng.random() < self.traffic.read_errors
                word = rng.getrandbits(64) if error else value
                self._read_words.put({"data": word, "last": 1, "error": int(error)})
            answered = bool(writes) and writes[0][1] <= self.cycle
            error = writes.popleft()[4] if answered else rng.getrandbits(1)
            dut.write__done.value = int(answered)
            dut.write__error.value = int(error)
            self.failed_writes += answered and error


class Queues:
    """QPs that send one operation at a time and keep a record of the answers."""

    def __init__(self, dut, rng, memory, pattern="always"):
        self._requests = StreamSource(
            dut, "request", request_layout(CONFIG), rng=rng, pattern=pattern
        )
        self._responses = StreamSink(
            dut, "response", response_layout(CONFIG), rng=rng, pattern=pattern
        )
        StreamMonitor(dut, "response", keep=False)
        self._memory = memory
        self._under_way: dict[int, tuple] = {}
        self.record: dict[int, list[Operation]] = {}  # address: operations
        self.statuses = [0, 0, 0]
        self.idle = set(range(CONFIG.qps))
        self.order: list[int] = []  # QPs as they were answered
        self.latest: dict[int, tuple[int, int]] = {}  # QP: status and original

    def ask(self, qp, address, operation, data=0, mask=0, compare=0, compare_mask=0):
        given = (operation, data, mask, compare, compare_mask)
        names = [name for name, _ in OPERANDS]
        self._requests.put(
            {"qp": qp, "address": address, "operands": dict(zip(names, given, strict=True))}
        )
        assert qp in self.idle
        self.idle.discard(qp)
        self._under_way[qp] = (address, given, self._memory.cycle)

    async def answer(self):
        """Wait for the next answer and return its QP."""
        answer = await self._responses.get()
        qp, status = answer["qp"], answer["status"]
        address, given, asked = self._under_way.pop(qp)
        self.statuses[status] += 1
        self.latest[qp] = status, answer["original"]
        if status != READ_ERROR:
            original = answer["original"] if status == DONE else None
            self.record.setdefault(address, []).append(
                Operation(*given, asked, self._memory.cycle, original)
            )
        self.idle.add(qp)
        self.order.append(qp)
        return qp
