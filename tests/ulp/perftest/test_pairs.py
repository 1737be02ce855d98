"""Each tool as client and as server: two ends of ours."""

import pytest

from stagecoach.host_driver import QP
from stagecoach.ulp.perftest import ends
from stagecoach.ulp.perftest.ends import Met
from stagecoach.ulp.perftest.results import Bandwidth, Latency
from stagecoach.ulp.perftest.tools import TOOLS
from tests.ulp.perftest.rig import Devices, Serving, settings

pytestmark = pytest.mark.usefixtures("compiled_device")


def run(devices: Devices, tool: str, **options):
    """Both results, and what the client met."""
    met: list[Met] = []
    with Serving(devices.theirs, settings(tool, **options)) as server:
        asked = settings(tool, **options | {"host": "127.0.0.1", "port": server.port})
        result = ends.ask(devices.ours, asked, met.append)
    assert server.error is None
    devices.check_clean()
    assert server.met[0].mine == met[0].remote and server.met[0].remote == met[0].mine
    return result, server.result, met[0]


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(
    ("size", "iters"),
    [
        (1, 5),
        (63, 70),
        pytest.param(2049, 7, marks=pytest.mark.slow),
        pytest.param(4097, 6, marks=pytest.mark.slow),
        (65536, 5),
    ],
)
def test_both_ends_finish(devices, tool, size, iters):
    client, server, _ = run(devices, tool, size=size, iters=iters)
    assert (client.size, client.iterations) == (size, iters)
    kind = Latency if TOOLS[tool].latency else Bandwidth
    assert isinstance(client, kind) and client.cycles > 0
    assert client.average > 0
    if tool == "ib_read_lat":
        assert server is None
        return
    assert isinstance(server, kind) and (server.size, server.iterations) == (size, iters)
    if TOOLS[tool].reports:
        assert (server.peak, server.average, server.rate) == (
            client.peak,
            client.average,
            client.rate,
        )
        assert server.cycles is None


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["ib_write_lat", "ib_send_lat"])
def test_more_messages_than_an_octet_counts(devices, tool):
    client, server, _ = run(devices, tool, iters=260, rx_depth=8)
    assert client.iterations == server.iterations == 260


@pytest.mark.slow
def test_the_largest_message(devices):
    run(devices, "ib_send_lat", size=1 << 20, iters=5)


@pytest.mark.parametrize(("rx_depth", "tx_depth"), [(3, 1), (4, 128), (9, 2), (100, 128)], ids=str)
def test_credits_hold_back_sends_for_which_no_receive_is_posted(devices, rx_depth, tx_depth):
    client, _, _ = run(
        devices, "ib_send_bw", size=100, iters=101, rx_depth=rx_depth, tx_depth=tx_depth
    )
    assert client.iterations == 101


@pytest.mark.parametrize("cq_mod", [1, 7, 20])
def test_completions_of_some_messages_stand_for_all(devices, cq_mod):
    client, _, _ = run(devices, "ib_write_bw", size=64, iters=50, tx_depth=20, cq_mod=cq_mod)
    assert client.iterations == 50


@pytest.mark.parametrize(("outs", "told"), [(1, 1), (3, 3), (200, 8), (None, 8)])
def test_reads_under_way_are_told(devices, outs, told):
    _, _, met = run(devices, "ib_read_bw", size=64, iters=20, outs=outs)
    assert met.mine.out_reads == told


@pytest.mark.parametrize(
    ("tool", "options"),
    [
        ("ib_read_bw", {"crc": False, "markers": True, "revision": 1}),
        ("ib_write_lat", {"crc": False}),
        ("ib_send_bw", {"markers": True}),
    ],
)
def test_both_connections_are_made_as_they_are_asked_for(devices, tool, options, monkeypatch):
    made = []
    connect = QP.connect

    def record(qp, stream, **told):
        connect(qp, stream, **told)
        made.append((told["crc"], told["markers_tx"], told["markers_rx"]))

    monkeypatch.setattr(QP, "connect", record)
    run(devices, tool, size=5000, iters=6, **options)
    markers = options.get("markers", False)
    assert made == [(options.get("crc", True), markers, markers)] * 4


def test_keys_are_drawn_anew(devices):
    met = [run(devices, "ib_read_lat")[2] for _ in range(3)]
    for end in ("mine", "remote"):
        assert len({getattr(each, end).rkey for each in met}) == 3
        assert len({getattr(each, end).psn for each in met}) == 3
