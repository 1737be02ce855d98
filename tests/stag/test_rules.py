"""Each rule about STags on its own, held to answers that are written down here.

Random entries and requests are held to a model in `test_table.py`.
"""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.layouts import StagStatus
from stagecoach.gateware.stag.table import StagTable
from stagecoach.hw.interface.queue_entries import Rights
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.stag.test_table import CLIENTS, CONFIG, INVALIDATORS, Bench
from tests.support.runner import parameter
from tests.support.verdicts import Verdicts, each_check, shows, simulate

ALL = Rights.LOCAL_READ | Rights.LOCAL_WRITE | Rights.REMOTE_READ | Rights.REMOTE_WRITE
STAG, ADDRESS = 0x0000_0305, 0x7000_1234_5678
"""The low octet of an STag is its key."""
BASE, LENGTH = 2**40 + 3, 100
END = BASE + LENGTH
REGION = {
    "stag": STAG,
    "pd": 5,
    "rights": int(ALL),
    "scoped": 0,
    "qp": 0,
    "base": BASE,
    "length": LENGTH,
    "address": ADDRESS,
    "fast": 0,
}
REQUEST = {
    "stag": STAG,
    "tagged_offset": BASE,
    "octets": LENGTH,
    "rights": int(Rights.REMOTE_WRITE),
    "exclusive": 0,
    "pd": 5,
    "qp": 1,
}


async def begin(dut: Any) -> Bench:
    bench = Bench(dut, seeded_random(parameter("PATTERN")), parameter("PATTERN"))
    await start_clock_and_reset(dut)
    return bench


async def answer(bench: Bench, **changes: int) -> tuple[StagStatus, int]:
    """What the table says; 0 for the address if that counts for nothing."""
    client = bench.clients[0]
    client.answers.clear()
    await client.requests.send(REQUEST | changes)
    while not client.answers:
        await RisingEdge(bench.dut.clk)
    ((status, address),) = client.answers
    return status, address if status is StagStatus.OK else 0


OK = (StagStatus.OK, ADDRESS)
REMOTE = (Rights.REMOTE_WRITE, Rights.REMOTE_READ)


@shows("DDP-4.2-05", "DDP-7.1-09", "RDMAP-7.2-09")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_stag_that_was_not_enabled_is_invalid(dut: Any) -> None:
    bench = await begin(dut)
    refused = (StagStatus.INVALID, 0)
    assert await answer(bench) == refused
    await bench.write(REGION)
    assert await answer(bench) == OK
    # Another key, another index, and one past the table.
    for bit in range(32):
        for right in REMOTE:
            assert await answer(bench, stag=STAG ^ 1 << bit, rights=int(right)) == refused


@shows("DDP-8.3-02", "DDP-8.3.1-06", "RDMAP-3.2-04")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_stag_is_valid_from_its_enabling_until_it_is_revoked(dut: Any) -> None:
    bench = await begin(dut)
    for stag in (STAG, STAG + 1, STAG, 0xFFFF_FFFF):
        await bench.write(REGION | {"stag": stag})
        assert await answer(bench, stag=stag) == OK
        # Disabling takes the STag only.
        await bench.invalidate(stag)
        assert await answer(bench, stag=stag) == (StagStatus.INVALID, 0)


@shows("DDP-8.3-01", "RDMAP-3.2-04")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_the_range_is_that_of_the_last_enabling(dut: Any) -> None:
    bench = await begin(dut)
    for base, length in ((BASE, 10), (BASE + 10, 20), (0, 1), (2**63, 2**32 - 1)):
        await bench.write(REGION | {"base": base, "length": length})
        assert await answer(bench, tagged_offset=base, octets=length) == OK
        last = (StagStatus.OK, ADDRESS + length - 1)
        assert await answer(bench, tagged_offset=base + length - 1, octets=1) == last
        bounds = (StagStatus.BOUNDS, 0)
        assert await answer(bench, tagged_offset=base + length, octets=1) == bounds
        await bench.invalidate(STAG)


async def _only_with(dut: Any, right: Rights) -> None:
    bench = await begin(dut)
    for rights in range(16):
        await bench.write(REGION | {"rights": rights})
        expected = OK if rights & right else (StagStatus.NOT_PERMITTED, 0)
        assert await answer(bench, rights=int(right)) == expected, rights


@shows("DDP-7.1-10", "RDMAP-8.1.1-05", "SEC-6.3.5-01")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_remote_write_needs_its_right(dut: Any) -> None:
    await _only_with(dut, Rights.REMOTE_WRITE)


@shows("RDMAP-7.2-14", "RDMAP-8.1.1-05", "SEC-6.3.5-01")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_remote_read_needs_its_right(dut: Any) -> None:
    await _only_with(dut, Rights.REMOTE_READ)


async def _out_of_bounds(dut: Any, *ranges: tuple[int, int]) -> None:
    bench = await begin(dut)
    await bench.write(REGION)
    for right in REMOTE:
        assert await answer(bench, rights=int(right)) == OK
        for start, octets in ranges:
            asked = {"tagged_offset": start, "octets": octets, "rights": int(right)}
            assert await answer(bench, **asked) == (StagStatus.BOUNDS, 0), (start, octets)


@shows("DDP-7.1-11", "DDP-8.3.1-04", "RDMAP-7.2-11", "RDMAP-8.1.1-03", "SEC-6.2.1-01")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_nothing_begins_out_of_bounds(dut: Any) -> None:
    await _out_of_bounds(dut, (BASE - 1, 1), (BASE - 1, 2), (END, 1), (END + 2**32, 1), (0, 1))


@shows("DDP-7.1-12", "DDP-8.3.1-04", "RDMAP-7.2-12", "RDMAP-8.1.1-03", "SEC-6.2.1-01")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_nothing_ends_out_of_bounds(dut: Any) -> None:
    await _out_of_bounds(dut, (BASE, LENGTH + 1), (END - 1, 2), (BASE + 50, 51), (BASE, 2**32 - 1))


@shows("DDP-7.1-13", "RDMAP-7.2-13")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_nothing_wraps(dut: Any) -> None:
    """An end of 2^64, which is 0 in 64 bits, has wrapped."""
    bench = await begin(dut)
    base = 2**64 - LENGTH
    await bench.write(REGION | {"base": base})
    for right in REMOTE:
        assert await answer(bench, tagged_offset=base, octets=99, rights=int(right)) == OK
        for start, octets in ((base, 100), (2**64 - 1, 1), (2**64 - 1, 2), (base, 2**32 - 1)):
            asked = {"tagged_offset": start, "octets": octets, "rights": int(right)}
            assert await answer(bench, **asked) == (StagStatus.WRAP, 0), (start, octets)


INVALIDATION = {"exclusive": 1, "rights": 0, "tagged_offset": 0, "octets": 0}
"""What the receiver asks of the STag of a Send with Invalidate; it does not look at the range."""


async def _may_invalidate(bench: Bench, **changes: int) -> StagStatus:
    status, _ = await answer(bench, **INVALIDATION | changes)
    return StagStatus.OK if status is StagStatus.BOUNDS else status


@shows("RDMAP-8.1.1-07", "SEC-6.4.5-01")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_peer_may_not_invalidate_what_streams_share(dut: Any) -> None:
    bench = await begin(dut)
    for scoped, expected in ((0, StagStatus.NOT_PERMITTED), (1, StagStatus.OK)):
        await bench.write(REGION | {"scoped": scoped, "qp": 1})
        assert await _may_invalidate(bench) is expected


@shows("RDMAP-7.2-04")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_peer_may_not_invalidate_what_is_not_valid(dut: Any) -> None:
    bench = await begin(dut)
    await bench.write(REGION | {"scoped": 1, "qp": 1})
    assert await _may_invalidate(bench, stag=STAG ^ 1) is StagStatus.INVALID
    await bench.invalidate(STAG)
    assert await _may_invalidate(bench) is StagStatus.INVALID


@shows("RDMAP-7.2-05", "RDMAP-5.3-13")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_peer_may_invalidate_what_is_of_its_stream_alone(dut: Any) -> None:
    bench = await begin(dut)
    for qp in range(CONFIG.qps):
        await bench.write(REGION | {"scoped": 1, "qp": qp})
        for other in range(CONFIG.qps):
            expected = StagStatus.OK if other == qp else StagStatus.NOT_ASSOCIATED
            assert await _may_invalidate(bench, qp=other) is expected
        assert await _may_invalidate(bench, qp=qp, pd=4) is StagStatus.NOT_ASSOCIATED
        await bench.invalidate(STAG)
        assert await answer(bench, qp=qp) == (StagStatus.INVALID, 0)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    table = StagTable(CONFIG, clients=CLIENTS, invalidators=INVALIDATORS)
    return simulate(tmp_path_factory, table, __name__, "always", ["always"])


@each_check(globals())
def test_rule(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)
