"""After an FPDU its QP stands where the octets, messages and requests so far say."""

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.rdmap.transmit.complete import TransmitComplete
from stagecoach.gateware.rdmap.transmit.context import progress_layout, sends_bits
from stagecoach.gateware.rdmap.transmit.message import piece_layout
from stagecoach.sim.cosim.streams import (
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
    width_of,
)
from tests.support.runner import run_cocotb

CONFIG = RnicConfig()
FPDUS = 2000
PULSES = ("handed", "begun", "restart", "store_restarted")
KINDS = ("write", "send", "read", "atomic", "local", "response", "atomic_response", "begins_atomic")
MOD = 2**32


def test_transmit_complete():
    run_cocotb(TransmitComplete(CONFIG), __name__)


def _kind(message: dict, kind: str) -> dict:
    """The message with the flags of one kind."""
    flags = {
        "responding": kind in ("response", "atomic_response", "begins_atomic"),
        "begins_atomic": kind == "begins_atomic",
        "answers_atomic": kind == "atomic_response",
        "is_read": kind == "read",
        "is_atomic": kind == "atomic",
        "is_local": kind == "local",
        "tagged": kind in ("write", "response"),
        "terminating": False,
    }
    return message | {name: int(value) for name, value in flags.items()}


def _followed(kind: str, before: dict, piece: dict, offset: int, last: int, sent: int) -> dict:
    """Where the QP stands, in words: what counts of it."""
    after = dict(before)
    begins, responds = kind == "begins_atomic", "response" in kind or kind == "begins_atomic"
    after["position"] = (
        before["position"] + (0 if kind in ("local", "begins_atomic") else sent)
    ) % MOD
    after["active"] = int(not last and not begins)
    after["atomic_begun"] = 1 if begins else (before["atomic_begun"] & (kind != "atomic_response"))
    after["read_msn"] = (before["read_msn"] + (kind in ("read", "atomic"))) % MOD
    after["atomic_identifier"] = (before["atomic_identifier"] + (kind == "atomic")) % MOD
    after["atomic_response_msn"] = (
        before["atomic_response_msn"] + (kind == "atomic_response")
    ) % MOD
    after["send_msn"] = (before["send_msn"] + (kind == "send" and last)) % MOD
    after["response_msn"] = (before["response_msn"] + (responds and last)) % MOD
    after["issued"] = (before["issued"] + (not responds and last)) % 2 ** sends_bits(CONFIG)
    if last or begins:
        after["prefer_response"], after["done"] = int(not responds), 0
    else:
        after["done"] = (before["done"] + piece["payload"]) % MOD
    if after["active"]:
        after["responding"] = int(responds)
        after["remaining"] = (piece["message"]["remaining"] - piece["payload"]) % MOD
        if responds or piece["exhausted"]:
            after["offset"] = 0
        else:
            after["offset"] = (offset + piece["octets"]) % MOD
        after["element"] = 0 if responds else (piece["element"] + piece["exhausted"]) % 8
    else:
        # Nothing tells these before another message begins.
        for name in ("responding", "remaining", "offset", "element"):
            del after[name]
    return after


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_progress_and_queues_follow_an_fpdu(dut):
    rng = seeded_random()
    layout, progress = piece_layout(CONFIG), progress_layout(CONFIG)
    asked = Layouts(CONFIG).outstanding_request
    for name in PULSES:
        getattr(dut, name).value = 0
    await start_clock_and_reset(dut)
    for number in range(FPDUS):
        kind = KINDS[number % len(KINDS)]
        piece = unpack(layout, rng.getrandbits(width_of(layout)))
        piece["element"] %= 4
        message = piece["message"] = _kind(piece["message"], kind)
        last = 0 if kind == "begins_atomic" else 1
        if kind in ("write", "send", "response"):
            last = rng.getrandbits(1)
        offset, sent = rng.getrandbits(32), rng.getrandbits(17)
        dut.piece.value = pack(layout, piece)
        dut.offset.value, dut.last.value, dut.sent_length.value = offset, last, sent
        await RisingEdge(dut.clk)
        begins = kind == "begins_atomic"
        dut.handed.value, dut.begun.value = not begins, begins
        await RisingEdge(dut.clk)
        assert not dut.store.value
        dut.handed.value = dut.begun.value = 0
        await RisingEdge(dut.clk)
        assert dut.store.value
        found = unpack(progress, dut.followed.value)
        expected = _followed(kind, message["progress"], piece, offset, last, sent)
        assert {name: found[name] for name in expected} == expected, kind
        responds = bool(message["responding"])
        assert bool(dut.pop.value) == bool(dut.popping.value) == (last and not responds)
        assert bool(dut.pop_inbound.value) == (last and responds)
        assert int(dut.pop_both.value) == message["takes_two"]
        is_request = kind in ("read", "atomic")
        assert bool(dut.push.value) == is_request
        if is_request:
            assert unpack(asked, dut.asked.value) == {
                "atomic": int(kind == "atomic"),
                "sink_stag": piece["element_stag"],
                "sink_tagged_offset": piece["element_offset"],
                "length": message["index"] if kind == "atomic" else message["entry"]["length"],
            }
        dut.piece.value = rng.getrandbits(width_of(layout))
        await RisingEdge(dut.clk)
        assert not any(getattr(dut, name).value for name in ("store", "pop", "pop_inbound", "push"))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_connection_begins_anew(dut):
    rng = seeded_random()
    progress = progress_layout(CONFIG)
    for name in PULSES:
        getattr(dut, name).value = 0
    dut.piece.value = (1 << width_of(piece_layout(CONFIG))) - 1
    await start_clock_and_reset(dut)
    for _ in range(20):
        retired = rng.getrandbits(sends_bits(CONFIG))
        dut.retired.value, dut.restart.value = retired, 1
        await RisingEdge(dut.clk)
        dut.restart.value, dut.store_restarted.value = 0, 1
        await RisingEdge(dut.clk)
        dut.store_restarted.value = 0
        assert dut.store.value
        firsts = (
            "send_msn",
            "read_msn",
            "response_msn",
            "atomic_response_msn",
            "atomic_identifier",
        )
        expected = pack(progress, dict.fromkeys(firsts, 1) | {"issued": retired})
        assert int(dut.followed.value) == expected
        await RisingEdge(dut.clk)
