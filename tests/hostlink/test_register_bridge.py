"""Each register access is made once and answered once, after what the device said before."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.hostlink.octets import OCTET
from stagecoach.gateware.hostlink.register_bridge import ACCESS, SETTLE_CYCLES, RegisterBridge
from stagecoach.hw.interface.hostlink import Kind
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    active_cycles,
    seeded_random,
    start_clock_and_reset,
)
from tests.hostlink.flat_ports import Sink, Source
from tests.support.runner import parameter, run_cocotb

ADDRESS_BITS = 12


@pytest.mark.parametrize("pattern", ["always", "random", "slow"])
def test_register_bridge(pattern: str) -> None:
    run_cocotb(RegisterBridge(), __name__, parameters={"PATTERN": pattern})


class Bench:
    """The host, and registers that say something else each time."""

    def __init__(self, dut: Any) -> None:
        self.dut, self.pattern = dut, parameter("PATTERN")
        self.rng = rng = seeded_random(self.pattern)
        pattern = self.pattern
        self.accesses = StreamSource(dut, "access", ACCESS, rng=rng, pattern=pattern)
        self.sink = StreamSink(dut, "o", OCTET, rng=rng, pattern=pattern)
        StreamMonitor(dut, "o", OCTET)
        self.aw = Sink(dut, "bus__aw", ("addr",), rng, pattern)
        self.w = Sink(dut, "bus__w", ("data", "strb"), rng, pattern)
        self.ar = Sink(dut, "bus__ar", ("addr",), rng, pattern)
        self.b = Source(dut, "bus__b", ("resp",), rng, pattern)
        self.r = Source(dut, "bus__r", ("resp", "data"), rng, pattern)
        self.made: list[dict[str, int]] = []
        self.answered: list[dict[str, int]] = []
        self.marks = 0
        dut.passed.value = 0

    async def start(self) -> None:
        await start_clock_and_reset(self.dut)
        cocotb.start_soon(self._registers())
        cocotb.start_soon(self._watch())

    async def _registers(self) -> None:
        """Takes accesses, and answers each when all of it is there."""
        rng = self.rng
        while True:
            await RisingEdge(self.dut.clk)
            if self.ar.items:
                answer = {"resp": rng.getrandbits(2), "data": rng.getrandbits(32)}
                self.made.append({"address": self.ar.items.popleft()["addr"], "write": 0})
                self.answered.append(answer)
                self.r.items.append(answer)
            if self.aw.items and self.w.items:
                word = self.w.items.popleft()
                assert word["strb"] == 0xF
                address = self.aw.items.popleft()["addr"]
                self.made.append({"address": address, "write": 1, "value": word["data"]})
                self.answered.append({"resp": rng.getrandbits(2), "data": 0})
                self.b.items.append({"resp": self.answered[-1]["resp"]})

    async def _watch(self) -> None:
        """One mark for each answer, in its cycle; nothing is said before `passed` after it."""
        dut = self.dut
        willing = active_cycles(self.pattern, self.rng)
        since = None  # cycles from the answer
        allowed = begun = 0  # messages
        inside = passed = False
        while True:
            await RisingEdge(dut.clk)
            since = None if since is None else since + 1
            assert bool(dut.mark.value) == (since == SETTLE_CYCLES)
            if dut.o__valid.value:
                begun += not inside
                assert begun <= allowed
                inside = not (dut.o__ready.value and int(dut.o__payload.value) >> 8)
            if passed and since is not None and since > SETTLE_CYCLES:
                allowed, since = allowed + 1, None
            self.marks += int(dut.mark.value)
            for channel in ("b", "r"):
                valid, ready = (getattr(dut, f"bus__{channel}{one}") for one in ("valid", "ready"))
                if valid.value and ready.value:
                    assert since is None and not dut.access__ready.value
                    since = 0
            passed = next(willing)
            dut.passed.value = int(passed)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_accesses_are_made_and_answered_in_order(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    rng, wanted = bench.rng, []
    for _ in range(60):
        address, write = rng.getrandbits(ADDRESS_BITS), rng.getrandbits(1)
        item = {"address": address, "write": write}
        if write:
            item["value"] = rng.getrandbits(32)
        wanted.append(item)
        # The device decodes fewer bits than the message has.
        high = rng.getrandbits(16 - ADDRESS_BITS) << ADDRESS_BITS
        bench.accesses.put(item | {"address": address | high})
    for number in range(len(wanted)):
        message = bytes(item["octet"] for item in await bench.sink.get_until())
        answer = bench.answered[number]
        expected = bytes([Kind.REGISTER_DONE, answer["resp"]])
        assert message == expected + answer["data"].to_bytes(4, "little")
        assert bench.made[number] == wanted[number]
    assert bench.marks == len(wanted) == len(bench.made)
