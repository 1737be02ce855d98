"""AXI slaves and monitors for the DMA tests: memory made by a rule, fixed latency, errors."""

import random
import zlib
from collections import deque
from collections.abc import Iterator
from typing import Any

from cocotb import start_soon
from cocotb.triggers import RisingEdge

OKAY, SLVERR = 0, 2


def host_octets(address: int, octets: int) -> bytes:
    """Return what host memory holds: octets that depend on their whole address."""
    begin, end = address & ~7, -(-(address + octets) // 8) * 8
    words = b"".join(host_word(word) for word in range(begin, end, 8))
    return words[address - begin : address - begin + octets]


def host_word(address: int) -> bytes:
    """Return the eight octets of host memory at an address that is a multiple of 8."""
    check = zlib.crc32(address.to_bytes(8, "little"))
    return check.to_bytes(4, "little") + (check * 0x9E3779B1 >> 7 & 0xFFFFFFFF).to_bytes(
        4, "little"
    )


def words_of(address: int, octets: int) -> int:
    """Return how many 64-bit words contain the octets."""
    return (address + octets - 1) // 8 - address // 8 + 1


def random_pauses(rng: random.Random, share: float) -> Iterator[bool]:
    """Yield for each cycle whether a channel pauses, in runs, `share` of the time."""
    while True:
        yield from [True] * int(rng.expovariate(1 / (1 + 16 * share)))
        yield from [False] * (1 + int(rng.expovariate(1 / (1 + 16 * (1 - share)))))


class RuleMemory:
    """Target of a foreign AXI slave model: reads follow `host_octets`, writes are kept."""

    def __init__(self) -> None:
        self.written: dict[int, int] = {}
        self.writes = 0
        self.bad: set[int] = set()  # addresses of words that fail

    def _check(self, address: int) -> None:
        if address & ~7 in self.bad:
            raise ValueError(f"word {address & ~7:#x} fails")

    async def read(self, address: int, length: int) -> bytes:
        self._check(address)
        return host_octets(address, length)

    async def write(self, address: int, data: bytes) -> None:
        self._check(address)
        for offset, octet in enumerate(data):
            self.written[address + offset] = octet
            self.writes += 1


class HeldMonitor:
    """Asserts that what a channel of a port offers stays offered, and as it is, until taken.

    clock, reset: those of the port; `clk` and `rst` unless they are named.
    """

    def __init__(
        self, dut: Any, channel: str, port: str = "m_axi", clock: str = "clk", reset: str = "rst"
    ) -> None:
        payload = {
            "ar": ("araddr", "arlen", "arsize", "arburst", "arid"),
            "aw": ("awaddr", "awlen", "awsize", "awburst", "awid"),
            "w": ("wdata", "wstrb", "wlast"),
            "r": ("rdata", "rresp", "rlast", "rid"),
            "b": ("bresp", "bid"),
        }[channel]
        self._signals = [getattr(dut, f"{port}__{name}") for name in payload]
        self._valid = getattr(dut, f"{port}__{channel}valid")
        self._ready = getattr(dut, f"{port}__{channel}ready")
        self._edge, self._reset = RisingEdge(getattr(dut, clock)), getattr(dut, reset)
        self._channel = f"{port} {channel}"
        start_soon(self._run())

    async def _run(self) -> None:
        held = None
        while True:
            await self._edge
            if self._reset.value:
                held = None
                continue
            offered = None
            if self._valid.value:
                offered = [int(signal.value) for signal in self._signals]
            assert held in (None, offered), f"{self._channel} changed from {held} to {offered}"
            held = None if self._ready.value else offered


class BurstMonitor:
    """Asserts the rules of AR or AW, and counts the bursts that were issued and not ended."""

    def __init__(self, dut: Any, channel: str, max_beats: int, max_outstanding: int) -> None:
        self.bursts: list[tuple[int, int]] = []
        self.outstanding = 0
        self.most_outstanding = 0
        self._max_beats = max_beats
        self._max_outstanding = max_outstanding
        start_soon(self._run(dut, channel))

    async def _run(self, dut: Any, channel: str) -> None:
        def port(name: str) -> Any:
            return getattr(dut, f"m_axi__{name}")

        valid, ready = port(f"{channel}valid"), port(f"{channel}ready")
        fields = [port(channel + name) for name in ("addr", "len", "size", "burst", "id")]
        octets = len(port("rdata" if channel == "ar" else "wdata")) // 8
        end = "r" if channel == "ar" else "b"
        ends = [port(f"{end}valid"), port(f"{end}ready")]
        if channel == "ar":
            ends.append(port("rlast"))
        held = None
        edge = RisingEdge(dut.clk)
        while True:
            await edge
            if dut.rst.value:
                continue
            if all(signal.value for signal in ends):
                self.outstanding -= 1
            if not valid.value:
                assert held is None, f"{channel}valid dropped before {channel}ready"
                continue
            offered = tuple(int(field.value) for field in fields)
            assert held in (None, offered), f"{channel} changed from {held} to {offered}"
            held = offered
            if not ready.value:
                continue
            held = None
            address, length, size, burst, number = offered
            assert (1 << size, burst, number) == (octets, 1, 0)
            assert address % octets == 0
            assert length < self._max_beats
            end = address % 4096 + octets * (length + 1)
            assert end <= 4096, f"{address:#x} + {length + 1} beats"
            self.bursts.append((address, length + 1))
            self.outstanding += 1
            self.most_outstanding = max(self.most_outstanding, self.outstanding)
            assert self.outstanding <= self._max_outstanding


class LatencyReadSlave:
    """Answers every burst `latency` cycles after its AR, one beat per cycle, any number at once."""

    def __init__(self, dut: Any, latency: int) -> None:
        self.words = 0  # of the port's width
        self.first = self.final = 0  # cycles of the first and the last word
        self.stalls = 0  # cycles in which RREADY was low
        self._octets = len(dut.m_axi__rdata) // 8
        self._dut, self._latency = dut, latency
        for name in ("rvalid", "rdata", "rresp", "rlast", "rid"):
            getattr(dut, f"m_axi__{name}").value = 0
        dut.m_axi__arready.value = 1
        start_soon(self._run())

    async def _run(self) -> None:
        dut = self._dut
        edge = RisingEdge(dut.clk)
        due: deque[tuple[int, int, int]] = deque()
        cycle = 0
        offered = False
        while True:
            await edge
            cycle += 1
            if offered:
                if dut.m_axi__rready.value:
                    self.words += 1
                    self.first = self.first or cycle
                    self.final = cycle
                    offered = False
                else:
                    self.stalls += 1
            if dut.m_axi__arvalid.value and not dut.rst.value:
                address, beats = int(dut.m_axi__araddr.value), int(dut.m_axi__arlen.value) + 1
                due.extend(
                    (cycle + self._latency, address + self._octets * beat, beat == beats - 1)
                    for beat in range(beats)
                )
            if offered:
                continue
            if due and due[0][0] <= cycle:
                _, address, last = due.popleft()
                octets = host_octets(address, self._octets)
                dut.m_axi__rdata.value = int.from_bytes(octets, "little")
                dut.m_axi__rlast.value = last
                dut.m_axi__rvalid.value = 1
                offered = True
            else:
                dut.m_axi__rvalid.value = 0


class OrderedWriteSlave:
    """Takes writes with a fixed order between AW and W, answers after `latency` cycles.

    order: "any" takes both at once; "aw_first" takes a burst's words only after its address;
    "w_first" takes an address only after the burst's last word.
    """

    def __init__(self, dut: Any, order: str, latency: int) -> None:
        self.memory: dict[int, int] = {}
        self.first = self.final = 0  # cycles of the first and the last word
        self.words = 0  # of the port's width
        self._octets = len(dut.m_axi__wdata) // 8
        self._dut, self._order, self._latency = dut, order, latency
        for name in ("awready", "wready", "bvalid", "bresp", "bid"):
            getattr(dut, f"m_axi__{name}").value = 0
        start_soon(self._run())

    async def _run(self) -> None:
        dut, order = self._dut, self._order
        edge = RisingEdge(dut.clk)
        addresses: deque[tuple[int, int]] = deque()
        words: deque[tuple[int, int, int]] = deque()
        due: deque[int] = deque()
        taken_addresses = taken_bursts = cycle = 0
        aw_ready = w_ready = answering = False
        while True:
            await edge
            if dut.rst.value:
                continue
            cycle += 1
            if answering and dut.m_axi__bready.value:
                answering = False
            if aw_ready and dut.m_axi__awvalid.value:
                addresses.append((int(dut.m_axi__awaddr.value), int(dut.m_axi__awlen.value) + 1))
                taken_addresses += 1
            if w_ready and dut.m_axi__wvalid.value:
                last = int(dut.m_axi__wlast.value)
                words.append((int(dut.m_axi__wdata.value), int(dut.m_axi__wstrb.value), last))
                taken_bursts += last
                self.words += 1
                self.first = self.first or cycle
                self.final = cycle
            while addresses and len(words) >= addresses[0][1]:
                address, beats = addresses.popleft()
                for beat in range(beats):
                    data, strobe, last = words.popleft()
                    assert last == (beat == beats - 1), "WLAST is not with the burst's last beat"
                    for lane in range(self._octets):
                        if strobe >> lane & 1:
                            place = address + self._octets * beat + lane
                            self.memory[place] = data >> 8 * lane & 0xFF
                due.append(cycle + self._latency)
            aw_ready = order != "w_first" or taken_bursts > taken_addresses
            w_ready = order != "aw_first" or len(words) < sum(beats for _, beats in addresses)
            dut.m_axi__awready.value = int(aw_ready)
            dut.m_axi__wready.value = int(w_ready)
            if not answering and due and due[0] <= cycle:
                due.popleft()
                answering = True
            dut.m_axi__bvalid.value = int(answering)
