"""A segment finds the connection with its ends, and no other; the hash is the published one."""

from itertools import pairwise
from random import Random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.tcp.layouts import KEY
from stagecoach.gateware.tcp.lookup import (
    SECRET_BITS,
    Lookup,
    lookup_command,
    lookup_result,
)
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb
from tests.support.verdicts import Verdicts, each_check, simulate

SIZE, SMALLEST, LARGEST = (8, 3), (2, 2), (256, 16)
"""Connections, and log2 of the slots of a way: few, so that all slots of a way are taken."""

PERIOD, LATENCY = 10, 9
PATTERNS = ("always", "random")

# The verification suite of receive side scaling (Microsoft, "Verifying the RSS Hash Calculation"):
# secret; source, source port, destination, destination port and hash with TCP over IPv4.
SECRET = bytes.fromhex(
    "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa"
)
KNOWN = (
    ("66.9.149.187", 2794, "161.142.100.80", 1766, 0x51CCC178),
    ("199.92.111.2", 14230, "65.69.140.83", 4739, 0xC626B0EA),
    ("24.19.198.95", 12898, "12.22.207.184", 38024, 0x5C2B394A),
    ("38.27.205.30", 48228, "209.142.163.6", 2217, 0xAFC7327F),
    ("153.39.163.191", 44251, "202.188.127.2", 1303, 0x10E828A2),
)


def number(address: str) -> int:
    """An address as a number."""
    return int.from_bytes(bytes(map(int, address.split("."))), "big")


def toeplitz(key: dict[str, int]) -> int:
    """The hash bit by bit: for each 1 of the input, the 32 bits of the secret from its place on."""
    ends = (("remote", 32), ("local", 32), ("remote_port", 16), ("local_port", 16))
    bits = "".join(f"{key[name]:0{width}b}" for name, width in ends)
    secret = "".join(f"{octet:08b}" for octet in SECRET)
    hashed = 0
    for place, bit in enumerate(bits):
        hashed ^= int(bit) * int(secret[place : place + 32], 2)
    return hashed


def random_key(rng: Random) -> dict[str, int]:
    return {name: rng.getrandbits(field.width) for name, field in KEY}


class Bench:
    """The block, and what has to be in it: two ways of slots, as dictionaries."""

    def __init__(self, dut: Any, pattern: str) -> None:
        self.dut, self.rng = dut, seeded_random(pattern)
        self.connections = int(parameter("CONNECTIONS", str(SIZE[0])))
        self.slots_bits = int(parameter("SLOTS_BITS", str(SIZE[1])))
        bits = (self.connections - 1).bit_length()
        layouts = lookup_result(bits), lookup_command(bits)
        options: dict[str, Any] = {"rng": self.rng, "pattern": pattern}
        self.requests = StreamSource(dut, "request", KEY, **options)
        self.commands = StreamSource(dut, "command", layouts[1], **options)
        self.results = StreamSink(dut, "result", layouts[0], **options)
        self.done = StreamSink(dut, "done", layouts[0], **options)
        StreamMonitor(dut, "result", layouts[0])
        StreamMonitor(dut, "done", layouts[0])
        dut.secret.value = int.from_bytes(SECRET, "big") >> 8 * len(SECRET) - SECRET_BITS
        self.ways: list[dict[int, int]] = [{}, {}]
        self.keys: dict[int, dict[str, int]] = {}

    def places(self, key: dict[str, int]) -> list[int]:
        hashed = toeplitz(key)
        return [hashed >> self.slots_bits * way & (1 << self.slots_bits) - 1 for way in range(2)]

    async def find(self, key: dict[str, int]) -> int | None:
        self.requests.put(key)
        result = await self.results.get()
        return result["connection"] if result["found"] else None

    async def insert(self, connection: int, key: dict[str, int]) -> bool:
        """Insert; whether there was room, which the model says, too."""
        self.commands.put({"connection": connection, "key": key})
        result = await self.done.get()
        place = next(
            ((way, at) for way, at in enumerate(self.places(key)) if at not in self.ways[way]), None
        )
        assert bool(result["found"]) == (place is not None)
        if place:
            assert result["connection"] == connection
            self.ways[place[0]][place[1]] = connection
            self.keys[connection] = key
        return place is not None

    async def delete(self, key: dict[str, int]) -> bool:
        self.commands.put({"delete": 1, "key": key})
        result = await self.done.get()
        gone = [number for number, known in self.keys.items() if known == key]
        assert bool(result["found"]) == bool(gone)
        for number in gone:
            assert result["connection"] == number
            del self.keys[number]
            for way in self.ways:
                for at in [at for at, each in way.items() if each == number]:
                    del way[at]
        return bool(gone)


async def begin(dut: Any) -> Bench:
    bench = Bench(dut, parameter("PATTERN"))
    await start_clock_and_reset(dut)
    return bench


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_the_hash_is_that_of_the_verification_suite(dut: Any) -> None:
    """The model is held to published values; a full table then shows what the block computes."""
    bench = await begin(dut)
    for source, source_port, destination, port, hashed in KNOWN:
        ends = {"remote": number(source), "local": number(destination)}
        key = {**ends, "remote_port": source_port, "local_port": port}
        assert toeplitz(key) == hashed
        assert await bench.find(key) is None
        assert await bench.insert(len(bench.keys), key)
        assert await bench.find(key) == len(bench.keys) - 1


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def check_what_was_inserted_is_found_until_it_is_deleted(dut: Any) -> None:
    bench = await begin(dut)
    rng = bench.rng
    refused = 0
    for _ in range(150):
        known = list(bench.keys.values())
        free = [number for number in range(bench.connections) if number not in bench.keys]
        if free and rng.random() < 0.5:
            refused += not await bench.insert(rng.choice(free), random_key(rng))
        elif rng.random() < 0.3:
            await bench.delete(rng.choice([*known, random_key(rng)]))
        for connection, key in bench.keys.items():
            assert await bench.find(key) == connection
        assert await bench.find(random_key(rng)) is None
    assert refused


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_a_key_that_differs_in_one_bit_is_another(dut: Any) -> None:
    """Also one that falls into the same slots: all of it is compared."""
    bench = await begin(dut)
    key = random_key(bench.rng)
    last = bench.connections - 1
    await bench.insert(last, key)
    same_slot = 0
    for name, field in KEY:
        for bit in range(field.width):
            other = {**key, name: key[name] ^ 1 << bit}
            same_slot += bench.places(other)[0] == bench.places(key)[0]
            assert await bench.find(other) is None
    assert same_slot > 3 or bench.slots_bits == LARGEST[1]
    assert await bench.find(key) == last


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_a_command_comes_before_a_request_that_waits(dut: Any) -> None:
    bench = await begin(dut)
    for source in (bench.requests, bench.commands):
        source.set_pattern("always")
    key, last = random_key(bench.rng), bench.connections - 1
    for delete in (0, 1):
        # The clearing of the slots, or the request before, ends with both there.
        bench.requests.put_all([random_key(bench.rng), key] if delete else [key])
        bench.commands.put({"delete": delete, "connection": last, "key": key})
        results = [await bench.results.get() for _ in range(1 + delete)]
        assert (await bench.done.get())["found"]
        assert results[-1]["found"] == 1 - delete


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_rate_and_latency(dut: Any) -> None:
    bench = await begin(dut)
    for source in (bench.requests, bench.commands):
        source.set_pattern("always")
    for sink in (bench.results, bench.done):
        sink.set_pattern("always")
    await bench.insert(1, random_key(bench.rng))
    cycle, taken, came = 0, [], []
    bench.requests.put_all(random_key(bench.rng) for _ in range(10))
    while len(came) < 10:
        await RisingEdge(dut.clk)
        cycle += 1
        if dut.request__valid.value and dut.request__ready.value:
            taken.append(cycle)
        if dut.result__valid.value and dut.result__ready.value:
            came.append(cycle)
    assert {after - before for before, after in zip(taken, came, strict=False)} == {LATENCY}
    assert {after - before for before, after in pairwise(came)} == {PERIOD}


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    block = Lookup(*SIZE)
    return simulate(tmp_path_factory, block, __name__, request.param, PATTERNS)


@each_check(globals())
def test_lookup(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)


@pytest.mark.parametrize("size", [SMALLEST, LARGEST])
def test_lookup_of_other_sizes(size: tuple[int, int]) -> None:
    run_cocotb(
        Lookup(*size),
        __name__,
        test_filter="check_a_key",
        parameters={
            "PATTERN": "always",
            "CONNECTIONS": str(size[0]),
            "SLOTS_BITS": str(size[1]),
        },
    )
