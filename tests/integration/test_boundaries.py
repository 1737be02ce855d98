"""The smallest device moves data, with the narrowest and with the widest ports."""

import random
import threading
from dataclasses import replace

import pytest

from stagecoach.gateware.config import DATA_WIDTHS
from stagecoach.host_driver import listen
from stagecoach.sim.build import build_device
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.transport import SimulatedDevice
from tests.integration.pair_traffic import End, draw_operations
from tests.support.sizes import SMALLEST

# Each is built once, which takes minutes on a small machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

OPERATIONS, CQS = 60, 2


@pytest.mark.parametrize("data_width", [min(DATA_WIDTHS), max(DATA_WIDTHS)])
def test_random_operations_on_every_qp(data_width):
    """Write, Send and Read in both directions at random alignments; all memory is compared."""
    config = replace(SMALLEST, data_width=data_width)
    library = build_device(config, level="-O1")
    rng = seeded_random()
    doing = [[draw_operations(rng, OPERATIONS) for _ in range(config.qps)] for _ in range(2)]
    with (
        SimulatedDevice(config, library=library) as one,
        SimulatedDevice(config, library=library, late_writes=True) as other,
    ):
        active = End(one, random.Random(rng.getrandbits(64)), doing[0], doing[1], CQS)
        passive = End(other, random.Random(rng.getrandbits(64)), doing[1], doing[0], CQS)
        attr = active.context.attr
        assert (attr.max_qp, attr.max_cq, attr.max_mr) == (config.qps, config.cqs, config.stags)
        assert attr.counters == config.counters
        with listen(passive.context) as listener:
            accepting = threading.Thread(target=passive.accept, args=(listener,))
            accepting.start()
            active.connect("127.0.0.1", listener.port)
            accepting.join()
        active.wait()
        passive.wait()
        active.check(passive)
        passive.check(active)
        for end, device in ((active, one), (passive, other)):
            end.context.close()
            assert device.statistics()["faults"] == []
