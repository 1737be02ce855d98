"""The next segment of a QP is told what the good ones before it left, whatever others do."""

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.rdmap.receive.context import CONTEXT
from stagecoach.gateware.rdmap.receive.decode import KIND
from stagecoach.gateware.rdmap.receive.following import ReceiveFollowing
from stagecoach.sim.cosim.streams import (
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
    width_of,
)
from stagecoach.sim.model.rdmap import Opcode
from tests.support.runner import run_cocotb

CONFIG = RnicConfig(qps=4)
COMMAND = Layouts(CONFIG).qp_command
SEGMENTS = 1500
MOD = 2**32
NEW = unpack(CONTEXT, 0) | {"send_msn": 1, "request_msn": 1, "atomic_msn": 1}
REQUESTS = (Opcode.RDMA_READ_REQUEST, Opcode.ATOMIC_REQUEST)
RESPONSES = (Opcode.RDMA_READ_RESPONSE, Opcode.ATOMIC_RESPONSE)
IMMEDIATE = (Opcode.IMMEDIATE_DATA, Opcode.IMMEDIATE_DATA_WITH_SE)
SENDS = (
    Opcode.SEND,
    Opcode.SEND_WITH_INVALIDATE,
    Opcode.SEND_WITH_SE,
    Opcode.SEND_WITH_SE_AND_INVALIDATE,
)


def test_receive_following():
    run_cocotb(ReceiveFollowing(CONFIG), __name__)


def _followed(context: dict, opcode: Opcode, last: int, octets: int) -> dict:
    """The context after a good segment, in words."""
    after = context | {"started": 1}
    if opcode in (*SENDS, *IMMEDIATE):
        after["send_msn"] = (context["send_msn"] + last) % MOD
    if opcode in SENDS:
        after["send_mo"] = 0 if last else (context["send_mo"] + octets) % MOD
        after |= {"send_begun": int(not last), "send_opcode": opcode.value}
    if opcode in REQUESTS:
        after["request_msn"] = (context["request_msn"] + 1) % MOD
    if opcode in RESPONSES:
        after["response_octets"] = 0 if last else (context["response_octets"] + octets) % MOD
    if opcode == Opcode.ATOMIC_RESPONSE:
        after["atomic_msn"] = (context["atomic_msn"] + 1) % MOD
    return after


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_what_stays(dut):
    rng = seeded_random()
    for name in ("connect", "create", "leaving"):
        getattr(dut, name).value = 0
    await start_clock_and_reset(dut)
    clock = RisingEdge(dut.clk)
    known: list[dict] = [{} for _ in range(CONFIG.qps)]

    async def command(number: int, connects: int) -> None:
        pd, ird, rfc7306 = rng.getrandbits(16), rng.randint(0, 4), rng.getrandbits(1)
        dut.command.value = pack(COMMAND, qp=number, pd=pd, ird=ird, rfc7306=rfc7306)
        dut.connect.value, dut.create.value = connects, 1 - connects
        dut.qp.value = rng.randrange(CONFIG.qps)
        await clock
        dut.connect.value = dut.create.value = 0
        if connects:
            known[number] |= {"context": dict(NEW), "ird": ird, "rfc7306": rfc7306}
        else:
            known[number]["pd"] = pd

    for number in range(CONFIG.qps):
        await command(number, 0)
        await command(number, 1)
    counts = dict.fromkeys(Opcode, 0)
    for _ in range(SEGMENTS):
        if rng.random() < 0.05:
            await command(rng.randrange(CONFIG.qps), rng.getrandbits(1))
        number, opcode = rng.randrange(CONFIG.qps), rng.choice(list(Opcode))
        last, octets, of = rng.getrandbits(1), rng.getrandbits(16), known[number]
        context = of["context"]
        dut.coming.value = number
        dut.kind.value, dut.payload.value = rng.getrandbits(width_of(KIND)), rng.getrandbits(16)
        await clock
        # The segment comes.
        dut.qp.value = number
        await clock
        assert dut.rfc7306.value == of["rfc7306"]
        dut.payload.value = octets
        dut.kind.value = pack(
            KIND,
            opcode=opcode.value,
            last=last,
            send=int(opcode in SENDS),
            immediate=int(opcode in IMMEDIATE),
            takes_entry=int(opcode in (*SENDS, *IMMEDIATE)),
            request=int(opcode in REQUESTS),
            response=int(opcode in RESPONSES),
            atomic_response=int(opcode == Opcode.ATOMIC_RESPONSE),
        )
        await clock
        assert dut.started.value == context["started"]
        is_write, refused = opcode == Opcode.RDMA_WRITE, rng.random() < 0.1
        leaves = int(not refused)
        if is_write:
            dut.leaving.value = leaves
        await clock
        dut.leaving.value = 0
        assert unpack(CONTEXT, dut.context.value) == context
        assert (int(dut.pd.value), int(dut.ird.value)) == (of["pd"], of["ird"])
        if not is_write:
            dut.response_octets.value = (context["response_octets"] + octets) % MOD
            await clock
            assert int(dut.message_end.value) == context["send_mo"] + octets
            for _ in range(rng.randint(0, 3)):
                await clock
            dut.leaving.value = leaves
            await clock
            dut.leaving.value = 0
        if leaves:
            of["context"] = _followed(context, opcode, last, octets)
        counts[opcode] += leaves
    assert min(counts.values()) > SEGMENTS // 50
