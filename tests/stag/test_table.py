"""The STag table answers every request as a plain model does, whatever comes between.

The rules one by one are in `test_rules.py` and `test_association.py`.
"""

from dataclasses import dataclass
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, StagStatus
from stagecoach.gateware.stag.table import LOOKUP_CYCLES, STAG_KEY_BITS, StagTable
from stagecoach.hw.interface.queue_entries import Rights
from stagecoach.sim.cosim.streams import (
    StreamSource,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig(qps=4, cqs=4, stags=16)
LAYOUTS = Layouts(CONFIG)
CLIENTS = int(parameter("CLIENTS", "2"))
INVALIDATORS = int(parameter("INVALIDATORS", "2"))
TO_LIMIT = 2**64


@pytest.mark.parametrize("pattern", ["always", "random", "bursty"])
def test_table(pattern: str) -> None:
    run_cocotb(
        StagTable(CONFIG, clients=CLIENTS, invalidators=INVALIDATORS),
        __name__,
        parameters={"PATTERN": pattern},
    )


def test_table_of_one_client_and_one_invalidator() -> None:
    run_cocotb(
        StagTable(CONFIG, clients=1, invalidators=1),
        __name__,
        parameters={"PATTERN": "random", "CLIENTS": "1", "INVALIDATORS": "1"},
    )


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_unusable_number_of_clients_is_refused() -> None:
    with pytest.raises(ValueError, match="clients is 0"):
        StagTable(CONFIG, clients=0)


@dataclass
class Model:
    """The table in plain words."""

    entries: dict[int, dict[str, int]]

    @staticmethod
    def index(stag: int) -> int:
        return stag >> STAG_KEY_BITS & (CONFIG.stags - 1)

    def write(self, entry: dict[str, int]) -> None:
        self.entries[self.index(entry["stag"])] = entry | {"valid": not entry["fast"]}

    def invalidate(self, stag: int, first: bool) -> None:
        """By the first invalidator or by another one."""
        slot = self.region(stag)
        if first and slot and slot["fast"]:
            del self.entries[self.index(stag)]
        elif self.find(stag):
            self._end(stag)

    def _end(self, stag: int) -> None:
        index = self.index(stag)
        if self.entries[index]["fast"]:
            self.entries[index]["valid"] = 0
        else:
            del self.entries[index]

    def change(self, change: dict[str, Any]) -> bool:
        """Whether the change is made."""
        asked = change["entry"]
        slot = self.region(asked["stag"])
        if (
            slot is None
            or slot["pd"] != asked["pd"]
            or (slot["scoped"] and slot["qp"] != asked["qp"])
        ):
            return False
        if not change["register"]:
            if not self.find(asked["stag"]):
                return False
            self._end(asked["stag"])
            return True
        if slot["valid"] or not slot["fast"]:
            return False
        kept = {name: slot[name] for name in ("scoped", "qp", "fast")}
        self.entries[self.index(asked["stag"])] = asked | kept | {"valid": 1}
        return True

    def region(self, stag: int) -> dict[str, int] | None:
        """What has the STag but for its key, valid or not."""
        entry = self.entries.get(self.index(stag))
        same = entry is not None and entry["stag"] >> STAG_KEY_BITS == stag >> STAG_KEY_BITS
        return entry if same else None

    def find(self, stag: int) -> dict[str, int] | None:
        entry = self.entries.get(self.index(stag))
        return entry if entry and entry["valid"] and entry["stag"] == stag else None

    def check(self, request: dict[str, int]) -> tuple[StagStatus, int]:
        entry = self.find(request["stag"])
        if entry is None:
            return StagStatus.INVALID, 0
        if entry["pd"] != request["pd"] or (entry["scoped"] and entry["qp"] != request["qp"]):
            return StagStatus.NOT_ASSOCIATED, 0
        if request["rights"] & ~entry["rights"] or (
            request.get("exclusive") and not entry["scoped"]
        ):
            return StagStatus.NOT_PERMITTED, 0
        end = request["tagged_offset"] + request["octets"]
        if end >= TO_LIMIT:
            return StagStatus.WRAP, 0
        position = request["tagged_offset"] - entry["base"]
        if position < 0 or end > entry["base"] + entry["length"]:
            return StagStatus.BOUNDS, 0
        return StagStatus.OK, (entry["address"] + position) % 2**64


def random_entry(rng: Any) -> dict[str, int]:
    length = rng.choice([0, 1, 7, 4096, 2**32, 2**48 - 1, rng.randrange(2**20)])
    base = rng.choice([0, TO_LIMIT - length, rng.randrange(TO_LIMIT - length)])
    return {
        "stag": rng.randrange(CONFIG.stags * 2) << STAG_KEY_BITS | rng.randrange(2),
        "pd": rng.randrange(2),
        "rights": rng.randrange(16),
        "scoped": rng.randrange(2),
        "qp": rng.randrange(CONFIG.qps),
        "base": base % TO_LIMIT,
        "length": length,
        "address": rng.getrandbits(64),
        "fast": rng.randrange(2),
    }


def random_change(rng: Any, model: Model) -> dict[str, Any]:
    """Mostly of an entry that exists, by one that may."""
    entry = random_entry(rng)
    if model.entries and rng.random() < 0.9:
        slot = rng.choice(list(model.entries.values()))
        entry |= {name: slot[name] for name in ("stag", "pd", "qp")}
        entry["stag"] ^= rng.choice([0, 0, 1, 0x80, 1 << rng.randrange(32)])
        if rng.random() < 0.2:
            entry |= {"pd": rng.randrange(2), "qp": rng.randrange(CONFIG.qps)}
    return {"register": rng.randrange(2), "entry": entry}


def random_request(rng: Any, model: Model) -> dict[str, int]:
    """Mostly near a boundary of an entry that exists."""
    entry = rng.choice(list(model.entries.values())) if model.entries else random_entry(rng)
    stag = entry["stag"]
    if rng.random() < 0.2:
        stag ^= 1 << rng.randrange(32)
    octets = rng.choice([0, 1, entry["length"], entry["length"] + 1, rng.randrange(2**12)])
    octets &= 2**32 - 1
    start = rng.choice(
        [
            entry["base"],
            entry["base"] - 1,
            entry["base"] + entry["length"] - octets,
            entry["base"] + entry["length"] - octets + 1,
            rng.getrandbits(64),
            TO_LIMIT - rng.randrange(16),
        ]
    )
    usual = rng.random() < 0.8
    return {
        "stag": stag,
        "tagged_offset": start % TO_LIMIT,
        "octets": octets,
        "rights": entry["rights"] & rng.randrange(16) if usual else rng.randrange(16),
        "exclusive": int(rng.random() < 0.2),
        "pd": entry["pd"] if usual else rng.randrange(2),
        "qp": entry["qp"] if usual else rng.randrange(CONFIG.qps),
    }


class Client:
    """Asks the table, and keeps the answers in order."""

    def __init__(self, dut: Any, number: int, rng: Any, pattern: str) -> None:
        self._dut, self._prefix = dut, f"clients__{number}__"
        self.requests = StreamSource(
            dut, f"{self._prefix}request", LAYOUTS.stag_request, rng=rng, pattern=pattern
        )
        self.answers: list[tuple[StagStatus, int]] = []
        cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        valid = getattr(self._dut, f"{self._prefix}response_valid")
        status = getattr(self._dut, f"{self._prefix}response")
        while True:
            await RisingEdge(self._dut.clk)
            if valid.value:
                answer = unpack(LAYOUTS.stag_response, int(status.value))
                self.answers.append((StagStatus(answer["status"]), answer["address"]))


class Bench:
    """The table with its clients, in step with the model."""

    def __init__(self, dut: Any, rng: Any, pattern: str) -> None:
        self.dut, self.rng, self.model = dut, rng, Model({})
        dut.clear.value = 0
        self._write = StreamSource(dut, "write", LAYOUTS.stag_entry)
        self._invalidate = [
            StreamSource(dut, f"invalidate__{number}", LAYOUTS.stag)
            for number in range(INVALIDATORS)
        ]
        self._change = StreamSource(dut, "change", LAYOUTS.stag_change)
        self.changes: set[tuple[int, bool]] = set()  # kind, and whether it was made
        self.clients = [Client(dut, number, rng, pattern) for number in range(CLIENTS)]
        self.seen: set[StagStatus] = set()

    async def write(self, entry: dict[str, int]) -> None:
        await self._write.send(entry)
        self.model.write(entry)

    async def invalidate(self, stag: int) -> None:
        number = self.rng.randrange(INVALIDATORS)
        await self._invalidate[number].send({"stag": stag})
        self.model.invalidate(stag, first=number == 0)

    async def change(self, change: dict[str, Any]) -> None:
        made = self.model.change(change)
        self._change.put(change)
        await RisingEdge(self.dut.clk)
        while not (self.dut.change__valid.value and self.dut.change__ready.value):
            await RisingEdge(self.dut.clk)
        assert bool(self.dut.refused.value) is not made, change
        await self._change.wait_idle()
        self.changes.add((change["register"], made))

    async def ask(self, requests: list[dict[str, int]]) -> None:
        """Ask from all clients at once and compare every answer."""
        expected: list[list[tuple[StagStatus, int]]] = [[] for _ in self.clients]
        for client in self.clients:
            client.answers.clear()
        for request in requests:
            number = self.rng.randrange(CLIENTS)
            self.clients[number].requests.put(request)
            expected[number].append(self.model.check(request))
        for client in self.clients:
            await client.requests.wait_idle()
        await ClockCycles(self.dut.clk, LOOKUP_CYCLES + 1)
        for client, answers in zip(self.clients, expected, strict=True):
            got = [(s, a if s is StagStatus.OK else 0) for s, a in client.answers]
            assert got == answers
            self.seen.update(status for status, _ in answers)


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def check_random_entries_and_requests(dut: Any) -> None:
    rng = seeded_random(parameter("PATTERN"))
    bench = Bench(dut, rng, parameter("PATTERN"))
    await start_clock_and_reset(dut)
    for _ in range(120):
        for _ in range(rng.randrange(4)):
            await bench.write(random_entry(rng))
        if rng.random() < 0.4:
            stag = random_entry(rng)["stag"]
            if bench.model.entries and rng.random() < 0.7:
                stag = rng.choice(list(bench.model.entries.values()))["stag"]
            await bench.invalidate(stag)
        for _ in range(rng.randrange(3)):
            await bench.change(random_change(rng, bench.model))
        if rng.random() < 0.03:
            dut.clear.value = 1
            await RisingEdge(dut.clk)
            dut.clear.value = 0
            bench.model.entries.clear()
        await bench.ask([random_request(rng, bench.model) for _ in range(rng.randrange(12))])
    assert bench.seen == set(StagStatus)
    assert bench.changes == {(kind, made) for kind in (0, 1) for made in (False, True)}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_every_bit_of_the_stag_counts(dut: Any) -> None:
    rng = seeded_random(parameter("PATTERN"))
    bench = Bench(dut, rng, parameter("PATTERN"))
    await start_clock_and_reset(dut)
    entry = random_entry(rng) | {"stag": rng.getrandbits(32), "rights": int(Rights.LOCAL_WRITE)}
    entry["fast"] = 0
    await bench.write(entry)
    wrong = [entry["stag"] ^ 1 << bit for bit in range(32)]
    for stag in wrong:
        await bench.invalidate(stag)
        await bench.change({"register": rng.randrange(2), "entry": entry | {"stag": stag}})
    good = {
        "stag": entry["stag"],
        "tagged_offset": entry["base"],
        "octets": 0,
        "rights": int(Rights.LOCAL_WRITE),
        "pd": entry["pd"],
        "qp": entry["qp"],
    }
    assert bench.model.check(good)[0] is StagStatus.OK
    await bench.ask([good] + [good | {"stag": stag} for stag in wrong])


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_change_during_a_sweep_does_not_survive_it(dut: Any) -> None:
    rng = seeded_random(parameter("PATTERN"))
    bench = Bench(dut, rng, parameter("PATTERN"))
    await start_clock_and_reset(dut)
    for delay in range(12):
        entry = random_entry(rng) | {"fast": 1, "rights": 15}
        await bench.write(entry)
        if delay % 2:
            assert bench.model.change({"register": 1, "entry": entry})
            await bench._change.send({"register": 1, "entry": entry})
        bench._change.put({"register": 1 - delay % 2, "entry": entry})
        await ClockCycles(dut.clk, delay)
        dut.clear.value = 1
        await RisingEdge(dut.clk)
        dut.clear.value = 0
        await bench._change.wait_idle()
        bench.model.entries.clear()
        # Neither valid nor to be registered; a change that comes after the sweep is refused.
        await bench.ask([random_request(rng, bench.model) | {"stag": entry["stag"]}])
        await bench.change({"register": 1, "entry": entry})
        await bench.ask([random_request(rng, bench.model) | {"stag": entry["stag"]}])
    assert bench.seen == {StagStatus.INVALID}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_reset_forgets_everything(dut: Any) -> None:
    rng = seeded_random(parameter("PATTERN"))
    bench = Bench(dut, rng, parameter("PATTERN"))
    await start_clock_and_reset(dut)
    entries = [random_entry(rng) for _ in range(20)]
    for entry in entries:
        await bench.write(entry)
    dut.rst.value = 1
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    bench.model.entries.clear()
    await bench.ask([random_request(rng, bench.model) | {"stag": e["stag"]} for e in entries])
    assert bench.seen == {StagStatus.INVALID}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_answer_takes_lookup_cycles(dut: Any) -> None:
    rng = seeded_random(parameter("PATTERN"))
    dut.clear.value = 0
    dut.write__valid.value = 0
    dut.change__valid.value = 0
    for number in range(INVALIDATORS):
        getattr(dut, f"invalidate__{number}__valid").value = 0
    for number in range(CLIENTS):
        getattr(dut, f"clients__{number}__request__valid").value = 0
    await start_clock_and_reset(dut)
    await ClockCycles(dut.clk, CONFIG.stags + 1)
    request = random_request(rng, Model({}))
    dut.clients__0__request__payload.value = pack(LAYOUTS.stag_request, request)
    dut.clients__0__request__valid.value = 1
    await RisingEdge(dut.clk)
    assert dut.clients__0__request__ready.value
    dut.clients__0__request__valid.value = 0
    for _ in range(LOOKUP_CYCLES - 1):
        await RisingEdge(dut.clk)
        assert not dut.clients__0__response_valid.value
    await RisingEdge(dut.clk)
    assert dut.clients__0__response_valid.value
