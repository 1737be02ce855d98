"""Where messages are in memory, and how many are posted, without a device."""

import pytest

from stagecoach.host_driver import WROpcode
from stagecoach.ulp.perftest.memory import Places
from stagecoach.ulp.perftest.results import Bandwidth, Latency
from stagecoach.ulp.perftest.tools import TOOLS
from tests.ulp.perftest.foreign import HANDSHAKES
from tests.ulp.perftest.rig import settings


@pytest.mark.parametrize(
    ("size", "page", "line", "octets", "offsets"),
    [
        (1, 4096, 64, 4096, range(0, 4096, 64)),
        (64, 4096, 64, 4096, range(0, 4096, 64)),
        (65, 4096, 64, 4096, range(0, 4096, 128)),
        (1000, 4096, 64, 4096, range(0, 4096, 1024)),
        (1400, 4096, 64, 4096, [0, 1408]),
        (2048, 4096, 64, 4096, [0, 2048]),
        (2049, 4096, 64, 4096, [0]),
        (4096, 4096, 64, 4096, [0]),
        (4097, 4096, 64, 4097, [0]),
        (2049, 65536, 128, 65536, range(0, 65536 - 2175, 2176)),
        (1, 4096, 4096, 4096, [0]),
        (1, 4096, 4095, 4096, [0]),
    ],
)
def test_small_messages_take_turns_in_a_page(size, page, line, octets, offsets):
    places = Places(size, page, line)
    assert places.octets == octets
    assert places.offsets == list(offsets)
    assert places.offsets[-1] + size <= octets


@pytest.mark.parametrize("size", [1, 63, 64, 65, 100, 2047, 2048, 2049])
@pytest.mark.parametrize("page", [1, 64, 4096, 65536])
@pytest.mark.parametrize("line", [1, 7, 64, 128, 4096])
def test_no_message_leaves_its_half(size, page, line):
    places = Places(size, page, line)
    assert places.octets == max(size, page)
    assert all(offset + size <= places.octets for offset in places.offsets)


def test_the_tools_are_those_of_the_release():
    assert {name: tool.handshakes for name, tool in TOOLS.items()} == HANDSHAKES
    assert [name for name, tool in TOOLS.items() if tool.reports] == ["ib_write_bw", "ib_read_bw"]
    assert [name for name, tool in TOOLS.items() if not tool.ends_together] == ["ib_write_lat"]
    assert [name for name, tool in TOOLS.items() if tool.server_first] == ["ib_write_lat"]
    assert [name for name, tool in TOOLS.items() if tool.ping_pong] == [
        "ib_write_lat",
        "ib_send_lat",
    ]
    found = {name: (tool.iterations, tool.size, tool.tx_depth) for name, tool in TOOLS.items()}
    assert found == {
        "ib_write_bw": (5000, 65536, 128),
        "ib_write_lat": (1000, 2, 50),
        "ib_read_bw": (1000, 65536, 128),
        "ib_read_lat": (1000, 2, 50),
        "ib_send_bw": (1000, 65536, 128),
        "ib_send_lat": (1000, 2, 50),
    }
    assert TOOLS["ib_read_lat"].title == "RDMA_Read Latency Test"
    assert TOOLS["ib_write_bw"].title == "RDMA_Write BW Test"
    assert TOOLS["ib_send_bw"].title == "Send BW Test"
    assert TOOLS["ib_send_lat"].opcode is WROpcode.SEND


@pytest.mark.parametrize(
    ("tool", "options", "depth", "moderation", "receives"),
    [
        ("ib_write_bw", {"iters": 5, "size": 1}, 5, 5, 1),
        ("ib_write_bw", {"iters": 1000, "size": 8192}, 128, 100, 1),
        ("ib_write_bw", {"iters": 1000, "size": 8193}, 128, 1, 1),
        ("ib_send_bw", {"iters": 1000, "size": 2}, 128, 100, 512),
        ("ib_send_bw", {"iters": 200, "size": 2, "cq_mod": 1}, 128, 1, 200),
        ("ib_send_lat", {"iters": 1000, "size": 2, "rx_depth": 7}, 50, 50, 7),
    ],
)
def test_no_more_is_posted_than_there_are_messages(tool, options, depth, moderation, receives):
    plan = settings(tool, **{"size": 65536} | options).plan
    assert (plan.depth, plan.moderation, plan.receives) == (depth, moderation, receives)


def test_a_bandwidth_is_that_of_the_whole_test_and_its_peak_that_of_the_best_part():
    mib = 1 << 20
    found = Bandwidth.of(mib, [0.0, 1.0, 3.0], [1.0, 1.5, 5.0], 77)
    assert (found.size, found.iterations, found.cycles) == (mib, 3, 77)
    assert found.average == pytest.approx(3 / 5)
    assert found.rate == pytest.approx(3 / 5 / 1e6)
    assert found.peak == pytest.approx(2)  # the second message alone
    assert Bandwidth.over(mib, 4, 2.0, None).peak == 0.0


@pytest.mark.parametrize(("number", "peak"), [(20_000, True), (20_001, False)])
def test_a_peak_is_looked_for_in_few_messages(number, peak):
    times = [each / 1000 for each in range(number)]
    found = Bandwidth.of(1, times, [each + 0.0005 for each in times], 1)
    assert found.average > 0 and bool(found.peak) == peak


def test_a_latency_of_a_ping_pong_is_half_of_the_round_trip():
    posted = [0.0, 10e-6, 30e-6, 60e-6, 160e-6]
    whole = Latency.of(2, posted, 500, ping_pong=False)
    assert (whole.least, whole.typical) == pytest.approx((10, 25))
    assert whole.most == pytest.approx(30)  # the longest two apart from one are left out
    assert (whole.average, whole.cycles) == pytest.approx((40, 100))
    assert whole.per_cent_99 == whole.per_mille_999 == pytest.approx(100)
    half = Latency.of(2, posted, 500, ping_pong=True)
    assert (half.average, half.cycles) == pytest.approx((20, 50))
