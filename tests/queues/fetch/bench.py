"""What the tests of the parts of a ring fetcher share: sizes of devices, and what is found."""

import random
from typing import Any

import pytest

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.queues.fetch.visit import found_layout
from stagecoach.gateware.queues.prefetch_memory import PrefetchMemory
from stagecoach.sim.cosim.streams import unpack, width_of
from tests.support.runner import parameter, run_cocotb
from tests.support.sizes import LARGEST, SMALLEST

SIZES = {"smallest": SMALLEST, "largest": LARGEST}
MOD = 1 << 16

MEMORIES = {size: PrefetchMemory(config, config.receive_units) for size, config in SIZES.items()}
"""Of the receive rings: the most units of a QP's own, and the fewest."""

both_sizes = pytest.mark.parametrize("size", SIZES)


def run(kind: Any, module: str, size: str, **arguments: Any) -> None:
    """Run the checks of a module on a block of the smallest or the largest device."""
    run_cocotb(
        kind(SIZES[size], **arguments),
        module,
        parameters={"SIZE": size} | {name.upper(): str(value) for name, value in arguments.items()},
    )


def config() -> RnicConfig:
    """The device that the block under test is of."""
    return SIZES[parameter("SIZE")]


def memory() -> PrefetchMemory:
    """Where the units of its receive rings stand."""
    return MEMORIES[parameter("SIZE")]


def random_fields(rng: random.Random, layout: Any, **fields: Any) -> dict[str, Any]:
    """Any values in a layout, but for some."""
    return unpack(layout, rng.getrandbits(width_of(layout))) | fields


def random_found(rng: random.Random, **fields: Any) -> dict[str, Any]:
    """What may be found of a QP, as far as the widths go."""
    found = random_fields(rng, found_layout(memory()))
    found["ring"]["exists"] = int(rng.random() < 0.9)
    return found | fields
