"""A Read or Atomic Request is judged a cycle after it came; what it asks for is what it says."""

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.rdmap.receive.decode import KIND
from stagecoach.gateware.rdmap.receive.record import VERDICT
from stagecoach.gateware.rdmap.receive.request import ReceiveRequest
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.wire import UNTAGGED_HEADER_OCTETS
from stagecoach.sim.cosim.streams import (
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
    width_of,
)
from stagecoach.sim.model import rdmap
from stagecoach.sim.model.atomics import AtomicRequest
from tests.rdmap.receive import segments
from tests.rdmap.requests import unpack_request
from tests.support.runner import run_cocotb

CONFIG = RnicConfig(qps=4)
REQUESTS = 500
NOTHING = unpack(VERDICT, 0)


def test_receive_request():
    run_cocotb(ReceiveRequest(CONFIG), __name__)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_requests(dut):
    rng = seeded_random()
    dut.segment__valid.value = 0
    await start_clock_and_reset(dut)
    seen = set()
    for number in range(REQUESTS):
        for _ in range(rng.randint(1, 3)):
            await RisingEdge(dut.clk)
            assert not int(dut.verdict.value) and not dut.segment__ready.value
        is_atomic, octets = rng.getrandbits(1), rng.choice([0, 1, rng.getrandbits(32)])
        good = rng.random() < 0.7
        if is_atomic:
            ulpdu = segments.atomic_request(rng, number)
        else:
            ulpdu = segments.read_request(rng, number, octets)
        kind = unpack(KIND, rng.getrandbits(width_of(KIND))) | {"atomic_request": is_atomic}
        junk = rng.randbytes(len(dut.header) // 8 - len(ulpdu))
        dut.header.value = int.from_bytes(ulpdu + junk, "little")
        dut.segment__valid.value, dut.segment__payload.value = 1, pack(KIND, kind)
        cause = Cause.NONE if good else Cause.UNTAGGED_MSN
        other = rng.choice([Cause.NONE, Cause.UNTAGGED_NO_BUFFER])
        # The checks answer a cycle later.
        for name in ("read_cause", "atomic_cause"):
            getattr(dut, name).value = rng.choice([Cause.NONE, Cause.UNTAGGED_MSN]).value
        await RisingEdge(dut.clk)
        assert not int(dut.verdict.value) and not dut.segment__ready.value
        causes = (other, cause) if is_atomic else (cause, other)
        dut.read_cause.value, dut.atomic_cause.value = (each.value for each in causes)
        await RisingEdge(dut.clk)
        assert dut.segment__ready.value
        pieces = int(good and (is_atomic or octets != 0))
        told = {"cause": cause.value, "pieces": pieces, "delivers": int(good)}
        assert unpack(VERDICT, dut.verdict.value) == NOTHING | {"valid": 1} | told
        item = unpack_request(Layouts(CONFIG), int(dut.item.value))
        said = ulpdu[UNTAGGED_HEADER_OCTETS:]
        _compare(item, said, is_atomic)
        seen.add((is_atomic, good, octets == 0))
        dut.segment__valid.value = 0
    assert len(seen) == 8


def _compare(item, said, is_atomic):
    """The item has what the RDMAP header says."""
    assert item["atomic"] == is_atomic
    item = item["of"]
    if is_atomic:
        request = AtomicRequest.decode(said)
        assert (item["stag"], item["tagged_offset"]) == (request.stag, request.tagged_offset)
        assert item["identifier"] == request.identifier
        for name in ("operation", "data", "mask", "compare", "compare_mask"):
            assert item["operands"][name] == getattr(request, name)
    else:
        request = rdmap.ReadRequest.decode(said)
        for name in ("sink_stag", "sink_tagged_offset", "source_stag", "source_tagged_offset"):
            assert item[name] == getattr(request, name)
        assert item["length"] == request.size
