"""Two devices back to back in one deterministic simulation, driven through the verbs."""

import json
import random
from pathlib import Path

import cocotb
import pytest

from stagecoach.sim.cosim.device import CocotbDevice, start_clock
from stagecoach.sim.cosim.runner import parameter, run_cocotb
from stagecoach.sim.cosim.streams import seeded_random
from tests.integration.pair_traffic import draw_operations, run_ends
from tests.support.pair import PAIR

# The two devices are built once for all tests, which takes minutes on a small machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

QPS = 3
OPERATIONS = 20


def run_pair(mode: str, tmp_path: Path, name: str | None = None) -> dict:
    result = tmp_path / f"{name}.json"
    run_cocotb(
        PAIR,
        __name__,
        parameters={"MODE": mode, "RESULT": str(result)},
        name=name,
        ports_only=True,
    )
    return json.loads(result.read_text())


@pytest.mark.requirement("RDMAP-5.3-11", "RDMAP-5.5-12", "DDP-5.2-03", "DDP-5.2-04", "DDP-5.2-09")
@pytest.mark.requirement("RPCRDMA-2-02")
@pytest.mark.parametrize("mode", ["steady", "paused", "foreign"])
def test_random_operations_between_two_devices(mode, tmp_path):
    run_pair(mode, tmp_path)


def test_a_second_run_takes_the_same_cycles(tmp_path):
    first, second = (run_pair("paused", tmp_path, name) for name in ("first", "second"))
    assert first["cycles"] > 1000
    assert first == second


def make_devices(dut, mode: str, rng: random.Random) -> tuple[CocotbDevice, CocotbDevice]:
    """steady: fixed latencies, no pauses; paused: every port pauses at random, and the memory of
    device a shows writes as late as it may; foreign: device a has pausing AXI models of others,
    device b ours.
    """
    options: dict = {}
    if mode != "steady":
        options = {"read_latency": rng.randint(1, 300), "write_latency": rng.randint(1, 100)}
    emss = rng.choice((512, 1460, 8960))
    return tuple(
        CocotbDevice(
            dut,
            prefix,
            emss=emss,
            rng=None if mode == "steady" else random.Random(rng.getrandbits(64)),
            foreign=mode == "foreign" and prefix == "a_",
            late_writes=mode == "paused" and prefix == "a_",
            **options,
        )
        for prefix in ("a_", "b_")
    )


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def check_random_operations(dut):
    mode = parameter("MODE")
    rng = seeded_random(mode)
    devices = make_devices(dut, mode, rng)
    doing = [[draw_operations(rng, OPERATIONS) for _ in range(QPS)] for _ in devices]
    fpdus: list[tuple[int, int, int, int]] = []
    for number, device in enumerate(devices):
        device.llp.on_fpdu = lambda connection, octets, device=device, number=number: fpdus.append(
            (device.llp.cycle, number, connection, len(octets))
        )
    await start_clock(dut)
    for device in devices:
        device.start()
    await run_ends(devices, [rng.getrandbits(64) for _ in devices], doing)
    result = {"cycles": devices[0].llp.cycle, "fpdus": fpdus}
    Path(parameter("RESULT")).write_text(json.dumps(result))
