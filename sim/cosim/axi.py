"""AXI4 slave of the device's master port: host memory with a latency and full bandwidth."""

import random
from collections import deque
from typing import Any

from cocotb.triggers import RisingEdge

from stagecoach.sim.cosim.drive import Drive
from stagecoach.sim.cosim.host_memory import HostMemory
from stagecoach.sim.cosim.signals import reader

OKAY = 0
SLVERR = 2


INPUTS = (
    *("arready", "rvalid", "rlast", "rid", "rdata", "rresp"),
    *("awready", "wready", "bvalid", "bid", "bresp"),
)
"""Of the device; all have a value from the start, for simulators that know unknown ones."""


_Word = tuple[int, int, int, int]
"""Address, word, strobe, bytes of a word."""


class AxiMemory:
    """Answers the bursts of `<prefix>__ar...` and so on from `memory`, in order, each with its ID.

    The port may have any width; a word is what it moves in a cycle.

    Parameters
    ----------
    dut: the simulated design. prefix: of the port, e.g. `m_axi`. clock: its clock.
    memory: what is read and written.
    read_latency, write_latency: cycles from the address (the last data word) to the answer.
    late_writes: a written word is visible, as AXI allows, only when the write response of its burst
        was taken; else as soon as it is here.
    rng: if given, every channel pauses at random.
    """

    def __init__(
        self,
        dut: Any,
        prefix: str,
        clock: Any,
        memory: HostMemory,
        *,
        read_latency: int = 250,
        write_latency: int = 50,
        late_writes: bool = False,
        rng: random.Random | None = None,
    ):
        self._clock = clock
        self._memory = memory
        self._read_latency = read_latency
        self._write_latency = write_latency
        self._late_writes = late_writes
        self._rng = rng
        self._delayed: list[tuple[range, int]] = []
        self.cycle = 0
        self.words_read = 0
        self.words_written = 0
        self.first_write_cycle: int | None = None
        self.last_write_cycle: int | None = None

        names = (
            "araddr arid arlen arvalid arready rdata rresp rlast rvalid rready rid "
            "awaddr awid awlen awvalid awready wdata wstrb wlast wvalid wready "
            "bresp bvalid bready bid"
        )
        self._p = {name: getattr(dut, f"{prefix}__{name}") for name in names.split()}
        self._octets = len(self._p["wdata"]) // 8
        for name in INPUTS:
            self._p[name].value = 0

    def delay(self, addresses: range, cycles: int) -> None:
        """From now on reads from `addresses` are answered so many cycles later.

        Answers stay in order: a read that comes after such a one is not answered before it.
        """
        self._delayed.append((addresses, cycles))

    def _latency_of(self, address: int) -> int:
        late = (cycles for addresses, cycles in self._delayed if address in addresses)
        return self._read_latency + sum(late)

    def _open(self) -> bool:
        return self._rng is None or self._rng.random() < 0.7

    async def run(self) -> None:
        """Serves the port for ever; start it as a task."""
        p, octets = self._p, self._octets
        drive = Drive(p)
        read = {name: reader(signal) for name, signal in p.items()}
        edge = RisingEdge(self._clock)
        reads: deque[tuple[int, int, int, int]] = deque()  # due, ID, address, words left
        writes: deque[list[int]] = deque()  # address, words left, ID
        words: deque[tuple[int, int, int]] = deque()
        answers: deque[tuple[int, int, int, list[_Word]]] = deque()  # due, ID, response, hidden
        good = True
        hidden: list[_Word] = []  # not yet visible
        answered: list[_Word] = []
        arready = awready = wready = rvalid = bvalid = 0
        while True:
            await edge
            self.cycle += 1
            cycle = self.cycle
            if arready and read["arvalid"]():
                address = read["araddr"]()
                due = cycle + self._latency_of(address)
                reads.append((due, read["arid"](), address, read["arlen"]() + 1))
            if awready and read["awvalid"]():
                writes.append([read["awaddr"](), read["awlen"]() + 1, read["awid"]()])
            if wready and read["wvalid"]():
                words.append((read["wdata"](), read["wstrb"](), read["wlast"]()))
                if self.first_write_cycle is None:
                    self.first_write_cycle = cycle
                self.last_write_cycle = cycle
                self.words_written += 1
            if rvalid and read["rready"]():
                rvalid = 0
            if bvalid and read["bready"]():
                bvalid = 0
                for late in answered:
                    self._memory.write_word(*late)

            while words and writes:
                word, strobe, last = words.popleft()
                burst = writes[0]
                if self._late_writes:
                    good &= self._memory.is_mapped(burst[0], strobe)
                    hidden.append((burst[0], word, strobe, octets))
                else:
                    good &= self._memory.write_word(burst[0], word, strobe, octets)
                burst[0] += octets
                burst[1] -= 1
                assert last == (burst[1] == 0), "WLAST does not fit AWLEN"
                if last:
                    writes.popleft()
                    due = cycle + self._write_latency
                    answers.append((due, burst[2], OKAY if good else SLVERR, hidden))
                    good, hidden = True, []
            if not rvalid and reads and reads[0][0] <= cycle and self._open():
                due, number, address, left = reads.popleft()
                found = self._memory.read_word(address, octets)
                p["rdata"].value = 0 if found is None else found
                p["rresp"].value = SLVERR if found is None else OKAY
                p["rlast"].value = int(left == 1)
                p["rid"].value = number
                rvalid = 1
                self.words_read += 1
                if left > 1:
                    reads.appendleft((due, number, address + octets, left - 1))
            if not bvalid and answers and answers[0][0] <= cycle and self._open():
                _, p["bid"].value, p["bresp"].value, answered = answers.popleft()
                bvalid = 1
            arready = awready = wready = 1
            if self._rng is not None:
                arready, awready, wready = self._open(), self._open(), self._open()
            drive(
                rvalid=rvalid,
                bvalid=bvalid,
                arready=int(arready),
                awready=int(awready),
                wready=int(wready),
            )
