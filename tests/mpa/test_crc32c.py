"""CRC32c in steps of 64 and 32 bits equals the known answers."""

from typing import Any

import cocotb
import pytest
from amaranth.hdl import Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge

from stagecoach.gateware.mpa.crc32c import INITIAL_STATE, RESIDUE, next_state
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.mpa.vectors import all_vectors
from tests.support.runner import run_cocotb

LARGEST = 0xFFFFFFFF


class Crc32c(wiring.Component):
    """The register alone."""

    word: In(64)
    half: In(1)
    enable: In(1)
    state: Out(32, init=INITIAL_STATE)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with m.If(self.enable):
            m.d.sync += self.state.eq(
                Mux(
                    self.half,
                    next_state(self.state, self.word[:32]),
                    next_state(self.state, self.word),
                )
            )
        return m


@pytest.mark.requirement("DDP-3-08", "MPA-4.4-01", "MPA-4.4-10")
def test_crc32c() -> None:
    run_cocotb(Crc32c(), __name__)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_known_crcs(dut: Any) -> None:
    rng = seeded_random()
    known = [(v["name"], v["data_hex"], v["wire_crc"]) for v in all_vectors("crc32c")]
    known += [
        (v["name"], v["crc_cover_hex"], v["crc"])
        for v in all_vectors("fpdu")
        if v["crc_on"] and v["crc_cover_hex"]
    ]
    tried = []
    dut.enable.value = 0
    await start_clock_and_reset(dut)
    for name, covered, crc in known:
        octets = bytes.fromhex(covered)
        if len(octets) % 4:
            continue
        tried.append(name)
        dut.rst.value = 1
        await RisingEdge(dut.clk)
        dut.rst.value = 0
        assert await run(dut, rng, octets) ^ LARGEST == int.from_bytes(
            bytes.fromhex(crc), "little"
        ), name
        assert await run(dut, rng, bytes.fromhex(crc)) == RESIDUE, name
    assert {"RFC 5044 Figure 5", "RFC 5044 Figure 6", "32 octets 00"} <= set(tried)


async def run(dut: Any, rng: Any, octets: bytes) -> int:
    """Step over octets in random steps; return the register."""
    while octets:
        half = len(octets) == 4 or rng.random() < 0.3
        step = 4 if half else 8
        dut.word.value = int.from_bytes(octets[:step], "little") | (
            rng.getrandbits(32) << 32 if half else 0
        )
        dut.half.value = half
        dut.enable.value = 1
        await RisingEdge(dut.clk)
        octets = octets[step:]
    dut.enable.value = 0
    await RisingEdge(dut.clk)
    return int(dut.state.value)
