"""A segment is of the kind that its control octets say; its payload follows the DDP header."""

import pytest
from amaranth.hdl import Value
from amaranth.sim import Simulator

from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.rdmap.receive.decode import KIND, ReceiveDecode
from stagecoach.hw.interface.wire import TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS
from stagecoach.sim.cosim.streams import pack, seeded_random, unpack, width_of
from stagecoach.sim.model.rdmap import (
    IMMEDIATE_OPCODES,
    INVALIDATE_OPCODES,
    SEND_OPCODES,
    Opcode,
)
from tests.support.sizes import LARGEST, SMALLEST

LENGTH_OCTETS = 2
"""Of an FPDU before its ULPDU (RFC 5044, 4.1)."""


@pytest.mark.parametrize("config", [SMALLEST, LARGEST], ids=["smallest", "largest"])
def test_receive_decode(config):
    dut, rng = ReceiveDecode(config), seeded_random(config.fpdu_store_octets)
    layout = Layouts(config).segment
    last_word = config.fpdu_store_octets // 8 - 1
    cases = [
        (opcode, tagged, last, address)
        for opcode in range(16)
        for tagged in (0, 1)
        for last in (0, 1)
        # The payload of an FPDU at the end of the store begins in the first words.
        for address in (0, rng.randint(1, last_word - 3), last_word - 2, last_word)
    ]
    rng.shuffle(cases)

    async def bench(ctx):
        for opcode, tagged, last, address in cases:
            octets = [
                tagged << 7 | last << 6 | rng.getrandbits(6),
                rng.getrandbits(4) << 4 | opcode,
            ]
            segment = unpack(layout, rng.getrandbits(width_of(layout)))
            segment["header"] = segment["header"] >> 16 << 16 | octets[1] << 8 | octets[0]
            segment["store_address"] = address
            ctx.set(dut.segment.as_value(), pack(layout, segment))
            await ctx.tick()
            request = opcode in (Opcode.RDMA_READ_REQUEST, Opcode.ATOMIC_REQUEST)
            response = opcode in (Opcode.RDMA_READ_RESPONSE, Opcode.ATOMIC_RESPONSE)
            expected = {
                "opcode": opcode,
                "last": last,
                "tagged": tagged,
                "send": opcode in SEND_OPCODES,
                "immediate": opcode in IMMEDIATE_OPCODES,
                "takes_entry": opcode in SEND_OPCODES | IMMEDIATE_OPCODES,
                "request": request,
                "atomic_request": opcode == Opcode.ATOMIC_REQUEST,
                "response": response,
                "atomic_response": opcode == Opcode.ATOMIC_RESPONSE,
                "invalidates": last and opcode in INVALIDATE_OPCODES,
            }
            assert unpack(KIND, ctx.get(Value.cast(dut.kind))) == expected
            header = TAGGED_HEADER_OCTETS if tagged else UNTAGGED_HEADER_OCTETS
            position = 8 * address + LENGTH_OCTETS + header
            assert ctx.get(dut.position) == position % config.fpdu_store_octets

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
