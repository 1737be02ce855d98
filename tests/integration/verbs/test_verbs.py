"""All checks of this folder, each on two compiled devices and on two devices in cocotb.

A check is a function `check_*` of a file of this folder; it gets a `Pair`. In cocotb the checks of
a file are one simulation, and a failure names those that failed.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import cocotb
import pytest
from cocotb.task import bridge, resume

from stagecoach.sim.cosim.device import start_pair
from stagecoach.sim.cosim.runner import run_cocotb
from stagecoach.sim.transport import SimulatedDevice
from tests.integration.verbs import (
    completions,
    connections,
    failures,
    objects,
    operations,
    shared_receives,
)
from tests.integration.verbs.pair import SECONDS, Pair, Result
from tests.support.pair import PAIR

SUBJECTS = {
    module.__name__.rpartition(".")[2]: module
    for module in (objects, operations, failures, completions, shared_receives, connections)
}


def checks_of(subject: str, module: ModuleType) -> Iterator[tuple[str, Callable[[Pair], None]]]:
    for name, check in vars(module).items():
        if name.startswith("check_"):
            yield f"{subject}.{name.removeprefix('check_')}", check


CHECKS = dict(each for subject in SUBJECTS.items() for each in checks_of(*subject))


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ThreadPoolExecutor() as pool:

        def begin(function: Callable[[], Result]) -> Callable[[], Result]:
            future = pool.submit(function)
            return lambda: future.result(SECONDS)

        pair = Pair((SimulatedDevice(), SimulatedDevice()), begin)
        yield pair
        pair.close()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.requirement(*ids) if ids else ())
        for name, ids in ((name, getattr(check, "shows", ())) for name, check in CHECKS.items())
    ],
)
def test_in_simulation(name: str, pair: Pair) -> None:
    CHECKS[name](pair)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # the two devices may have to be built
@pytest.mark.parametrize("subject", SUBJECTS)
def test_in_cocotb(subject: str) -> None:
    run_cocotb(PAIR, __name__, test_filter=rf"check_verbs/name={subject}\.", ports_only=True)


@cocotb.test(timeout_time=20, timeout_unit="ms")
@cocotb.parametrize(name=[cocotb.Param(name, name) for name in CHECKS])
async def check_verbs(dut: Any, name: str) -> None:
    devices = await start_pair(dut)

    def begin(function: Callable[[], Result]) -> Callable[[], Result]:
        async def start() -> Any:
            return cocotb.start_soon(bridge(function)())

        task = resume(start)()

        async def wait() -> Result:
            return await task

        return resume(wait)

    def run() -> None:
        pair = Pair(devices, begin)
        CHECKS[name](pair)
        pair.close()

    await bridge(run)()
