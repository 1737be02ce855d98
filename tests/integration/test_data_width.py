"""A device with ports of 32 bits and one with ports of 128 move the same data as every other."""

import json
import random
from pathlib import Path

import cocotb
import pytest

from stagecoach.gateware.config import RnicConfig
from stagecoach.sim.cosim.device import CocotbDevice, start_clock
from stagecoach.sim.cosim.pair import RnicPair
from stagecoach.sim.cosim.runner import parameter, run_cocotb
from stagecoach.sim.cosim.streams import seeded_random
from tests.integration.pair_traffic import draw_operations, run_ends

# One build for both tests, of two small devices. `test_boundaries` moves data at both widths, too.
pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

PAIR = RnicPair(
    *(
        RnicConfig(
            data_width=width,
            qps=2,
            cqs=2,
            stags=16,
            read_queue_depth=4,
            prefetch_lanes=2,
            pending_sends=16,
            payload_buffer_octets=1024,
            counters=False,
        )
        for width in (32, 128)
    )
)
QPS = 2
OPERATIONS = 16


@pytest.mark.parametrize("mode", ["steady", "foreign"])
def test_devices_of_other_widths_understand_each_other(mode, tmp_path):
    result = tmp_path / "result.json"
    parameters = {"MODE": mode, "RESULT": str(result)}
    run_cocotb(PAIR, __name__, parameters=parameters, name=mode, ports_only=True, quick=True)
    done = json.loads(result.read_text())
    assert min(done["fpdus"]) > 10


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_random_operations(dut):
    """Write, Send and Read in both directions at random alignments; all memory is compared.

    foreign: AXI models of others at both devices, and every channel pauses at random.
    """
    mode = parameter("MODE")
    rng = seeded_random(mode)
    devices = [
        CocotbDevice(
            dut,
            prefix,
            emss=1460,
            rng=random.Random(rng.getrandbits(64)) if mode == "foreign" else None,
            foreign=mode == "foreign",
        )
        for prefix in ("a_", "b_")
    ]
    assert [len(dut.a_m_axi__rdata), len(dut.b_llp__tx_data)] == [32, 128]
    doing = [[draw_operations(rng, OPERATIONS) for _ in range(QPS)] for _ in devices]
    await start_clock(dut)
    for device in devices:
        device.start()
    await run_ends(devices, [rng.getrandbits(64) for _ in devices], doing)
    result = {"cycles": devices[0].llp.cycle, "fpdus": [device.llp.fpdus for device in devices]}
    Path(parameter("RESULT")).write_text(json.dumps(result))
