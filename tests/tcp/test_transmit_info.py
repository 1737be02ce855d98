"""INFO tells the words of hw/interface of a state, in their order."""

from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.tcp.transmit_info import SENDING_WORDS, TransmitInfo
from stagecoach.gateware.tcp.transmit_state import TRANSMIT_STATE
from stagecoach.hw.interface.network_entries import CONNECTION_INFO, InfoFlags
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset, unpack
from tests.support.runner import run_cocotb

STATES = 100


def words_of(state: Any) -> dict[str, int]:
    """As an operator reads them."""
    numbers, rto = state["numbers"], state["times"]["rto"]
    congestion = state["path"]["congestion"]
    flags = [
        flag
        for flag, is_set in (
            (InfoFlags.ALIVE, numbers["alive"]),
            (InfoFlags.ATTACHED, numbers["attached"]),
            (InfoFlags.CLOSING, numbers["closing"]),
            (InfoFlags.FIN_ACKNOWLEDGED, numbers["fin_acknowledged"]),
            (InfoFlags.PEER_FIN, numbers["peer_fin"]),
            (InfoFlags.SAMPLED, rto["sampled"]),
        )
        if is_set
    ]
    return {
        **{name: numbers[name] for name in ("una", "next", "max", "end", "emss")},
        "window": state["windows"]["window"],
        **{name: congestion[name] for name in ("cwnd", "ssthresh")},
        "srtt8": rto["srtt8"],
        "rttvar4": rto["rttvar4"],
        "rto": rto["timeout"],
        "flags": sum(flags),
        "edge": state["windows"]["edge"],
    }


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_words_of_a_state(dut: Any) -> None:
    """One in each cycle, from the second one after `begin` on; `done` with the last."""
    rng = seeded_random()
    dut.begin.value = 0
    await start_clock_and_reset(dut)
    names = [field.name for field in CONNECTION_INFO[:SENDING_WORDS]]
    for _ in range(STATES):
        bits = rng.getrandbits(TRANSMIT_STATE.size)
        # A register of every width, all ones among them.
        if rng.random() < 0.1:
            bits = (1 << TRANSMIT_STATE.size) - 1
        dut.state.value, dut.begin.value = bits, 1
        await RisingEdge(dut.clk)
        dut.begin.value = 0
        await RisingEdge(dut.clk)
        assert not dut.write.value
        found = {}
        for place in range(SENDING_WORDS):
            await RisingEdge(dut.clk)
            assert dut.write.value and int(dut.place.value) == place
            assert dut.done.value == (place == SENDING_WORDS - 1)
            found[names[place]] = int(dut.word.value)
        assert found == words_of(unpack(TRANSMIT_STATE, bits))
        await RisingEdge(dut.clk)
        assert not dut.write.value and not dut.done.value
        await cycles(dut, rng.randrange(3))


def test_transmit_info() -> None:
    run_cocotb(TransmitInfo(), __name__)
