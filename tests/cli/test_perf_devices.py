"""`stagecoach perf` with two devices: in one process, and as two."""

import dataclasses
import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from stagecoach.cli.main import main
from stagecoach.cli.perf import client
from stagecoach.cli.perf.both import LOCALHOST, LocalServer
from stagecoach.cli.perf.limit import Framing
from stagecoach.cli.perf.notes import Asked
from stagecoach.cli.perf.operations import OPERATIONS
from stagecoach.cli.perf.result import Point
from stagecoach.cli.perf.settings import LATENCY_MESSAGES, PerfError, Plan
from stagecoach.host_driver import Context
from stagecoach.sim.build import build_device
from stagecoach.sim.transport import SimulatedDevice

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.usefixtures("compiled_device"),
]

ROOT = Path(__file__).parents[2]
CLIENT = "stagecoach perf: a client is measuring\n"
COMMAND = [sys.executable, "-m", "stagecoach.cli", "perf"]
SECONDS = 120


def measure(plan: Plan) -> tuple[list[Point], dict[str, Any], dict[str, Any], int]:
    """The points, what both devices count, and how many messages were told of as progress."""
    library = build_device()
    told: list[int] = []
    device = SimulatedDevice(library=library)
    with Context(device) as context, LocalServer(plan.operation, library) as server:
        points = client.measure(context, plan, LOCALHOST, server.port, told.append)
    assert server.error is None
    return points, device.statistics(), server.device.statistics(), sum(told)


def octets(statistics: dict[str, Any], qps: int) -> int:
    """Octets sent on the measured connections; the first one is for notes."""
    connections = statistics["connections"]
    assert len(connections) == 1 + qps
    return sum(each["tx_octets"] for each in connections[1:])


@pytest.mark.parametrize("qps", [1, 3])
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_each_message_crosses_as_the_limit_has_it(operation, qps):
    sizes = (64, 2000) if operation.size is None else (operation.size,)
    plan = Plan(operation, sizes, 4, qps, Framing(1460), 20)
    points, here, there, told = measure(plan)
    assert here["faults"] == there["faults"] == []
    assert tuple(point.size for point in points) == sizes
    wires = [operation.wire(plan.framing, size) for size in plan.sizes]
    messages = 20 + LATENCY_MESSAGES
    assert octets(here, qps) == sum(messages * wire.there for wire in wires)
    assert octets(there, qps) == sum(messages * wire.back for wire in wires)
    assert told == len(sizes) * messages
    for point in points:
        assert 0 < point.octets_per_cycle <= point.limit_octets_per_cycle
        assert 0 < point.latencies.least <= point.latencies.median <= point.latencies.most
        assert len(point.latencies.cycles) == plan.latency_messages
        # One message after another would take longer.
        assert point.cycles < 20 * point.latencies.median


def test_the_same_measurement_has_the_same_figures():
    plan = Plan(OPERATIONS["read"], (1000,), 4, 2, Framing(1460), 12)
    assert measure(plan)[0] == measure(plan)[0]


@pytest.mark.parametrize("name", ["write", "send"])
def test_a_ping_pong_has_as_many_messages_in_both_directions(name):
    operation, sizes = OPERATIONS[name], (1, 64, 3000)
    # More messages than an octet counts.
    plan = Plan(operation, sizes, 1, 2, Framing(1460), 2, latency_messages=300, pingpong=True)
    points, here, there, told = measure(plan)
    assert here["faults"] == there["faults"] == []
    wires = [operation.wire(plan.framing, size) for size in sizes]
    assert octets(here, 2) == sum(302 * wire.there for wire in wires)
    assert octets(there, 2) == sum(300 * wire.there for wire in wires)
    assert told == 3 * 302
    latencies = [point.latencies for point in points]
    assert [len(each.cycles) for each in latencies] == [300] * 3
    # Two of the 250 cycles of a read of host memory are in each way: of the element, of octets.
    assert all(500 < each.least <= each.most < 2000 for each in latencies)
    # 8 octets per cycle at most, and not seen before they are all there.
    assert latencies[2].median > latencies[0].median + 3000 / 8 / 2


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_both_ends_send_as_many_messages_at_the_same_time(operation):
    sizes = (1, 4000) if operation.size is None else (operation.size,)
    plan = Plan(operation, sizes, 8, 2, Framing(1460), 65, latency_messages=1, bidirectional=True)
    points, here, there, told = measure(plan)
    assert here["faults"] == there["faults"] == []
    wires = [operation.wire(plan.framing, size) for size in sizes]
    assert octets(here, 2) == sum(66 * wire.there + 65 * wire.back for wire in wires)
    assert octets(there, 2) == sum(65 * wire.there + 66 * wire.back for wire in wires)
    assert told == len(sizes) * 66
    assert [point.messages for point in points] == [130] * len(sizes)
    one_way = measure(dataclasses.replace(plan, bidirectional=False))[0]
    for both, one, wire in zip(points, one_way, wires, strict=True):
        assert both.limit_messages_per_cycle == 16 / (wire.there + wire.back)
        assert one.messages_per_cycle < both.messages_per_cycle <= both.limit_messages_per_cycle


def test_long_messages_in_both_directions_come_near_the_limit():
    plan = Plan(OPERATIONS["write"], (32 << 10,), 4, 1, Framing(1460), 16, 1, False, True)
    (point,), *_ = measure(plan)
    assert 0.9 * point.limit_octets_per_cycle < point.octets_per_cycle
    assert point.limit_octets_per_cycle > 15.7


@pytest.mark.parametrize("part", ["pingpong", "bidirectional"])
def test_a_server_refuses_a_message_that_is_longer_than_announced(part, monkeypatch):
    from stagecoach.cli.perf import command, measure

    monkeypatch.setattr(measure, "Asked", lambda part, messages, _: Asked(part, messages, 9))
    parts = {"pingpong": part == "pingpong", "bidirectional": part == "bidirectional"}
    plan = Plan(OPERATIONS["write"], (8,), 1, 1, Framing(1460), 1, **parts)
    with pytest.raises(PerfError, match="the client wants a message of 9; allowed: 1 to 8"):
        command.measure_at(plan, "", 0)


def test_a_peer_that_writes_nothing_is_given_up(monkeypatch):
    from stagecoach.cli.perf import command, end, pingpong

    monkeypatch.setattr(pingpong.Player, "send", lambda _: None)
    monkeypatch.setattr(end, "PATIENCE", 0.3)
    plan = Plan(OPERATIONS["write"], (8,), 1, 1, Framing(1460), 1, pingpong=True)
    with pytest.raises(PerfError, match=r"the peer has written nothing for 0\.3 s"):
        command.measure_at(plan, "", 0)


def test_long_messages_come_near_the_limit():
    plan = Plan(OPERATIONS["write"], (32 << 10,), 4, 1, Framing(1460), 8)
    (point,), *_ = measure(plan)
    assert 0.95 * point.limit_octets_per_cycle < point.octets_per_cycle
    assert point.octets_per_cycle <= point.limit_octets_per_cycle


def test_an_error_of_the_server_is_told_before_that_of_the_client(monkeypatch):
    from stagecoach.cli.perf import command, server

    def fail(*_: object) -> None:
        raise PerfError("out of coal")

    monkeypatch.setattr(server, "_post_receives", fail)
    plan = Plan(OPERATIONS["send"], (1,), 1, 1, Framing(1460), 1)
    with pytest.raises(PerfError, match="out of coal"):
        command.measure_at(plan, "", 0)


def test_a_server_that_stands_still_is_given_up(monkeypatch):
    from stagecoach.cli.perf import command, end, server

    over = threading.Event()

    def stand_still(end: end.End, *_: object) -> None:
        end.receive()
        over.wait(SECONDS)

    monkeypatch.setattr(server, "_post_receives", stand_still)
    monkeypatch.setattr(end, "PATIENCE", 0.3)
    monkeypatch.setattr(LocalServer, "first_error", lambda _, error: over.set() or error)
    plan = Plan(OPERATIONS["write"], (1,), 1, 1, Framing(1460), 1)
    with pytest.raises(PerfError, match=r"kept its device from running for 0\.3 s"):
        command.measure_at(plan, "", 0)


def test_a_board_does_not_serve_a_simulated_client(monkeypatch):
    from stagecoach.cli.perf import command, server

    class Board:
        """No device is one."""

    monkeypatch.setattr(server, "SimulatedDevice", Board)
    plan = Plan(OPERATIONS["write"], (1,), 1, 1, Framing(1460), 1)
    with pytest.raises(
        PerfError, match=r"the server's device is a board, .* allowed: a board here"
    ):
        command.measure_at(plan, "", 0)


def test_one_command_leaves_table_plots_and_figures(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    stem = tmp_path / "plot"
    arguments = ["--sizes", "1-4", "--messages", "4", "--markers", "--clock", "100"]
    files = ["--plot", str(stem), "--json", str(tmp_path / "x.json")]
    assert main(["perf", "send", *arguments, *files]) == 0
    out = capsys.readouterr().out
    assert "Send, queue depth 128 on 1 QP, EMSS 1460, Markers" in out and "…" not in out
    assert all(stem.with_suffix(suffix).stat().st_size for suffix in (".png", ".svg"))
    found = json.loads((tmp_path / "x.json").read_text())
    assert [point["size"] for point in found["points"]] == [1, 2, 4]
    for point in found["points"]:
        assert point["messages_per_second"] == pytest.approx(4 / point["cycles"] * 1e8)


def test_atomics_of_their_only_size_are_measured_once(tmp_path):
    path = tmp_path / "x.json"
    options = ["--sizes", "8,8", "--messages", "4", "--latency-messages", "3"]
    assert (
        main(["perf", "atomic", *options, "--plot", str(tmp_path / "x"), "--json", str(path)]) == 0
    )
    (point,) = json.loads(path.read_text())["points"]
    assert (point["size"], point["messages"], len(point["latencies"])) == (8, 4, 3)


class Server:
    """A server in a process of its own."""

    def __init__(self, operation: str):
        self.process = subprocess.Popen(
            [*COMMAND, operation, "-s", "-a", LOCALHOST, "-p", "0"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell may have told its background jobs to ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        found = re.fullmatch(r"stagecoach perf: listening at port (\d+)\n", self.line())
        assert found
        self.port = found[1]

    def line(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, out, err


@pytest.fixture
def server():
    server = Server("write")
    yield server
    server.process.kill()
    server.process.communicate()


@pytest.mark.parametrize("more", [[], ["--pingpong"]])
def test_two_processes_find_what_one_finds(more, server, tmp_path):
    options = ["--sizes", "100,3000", "--depth", "2", "--messages", "8", *more]
    found = []
    for name, side in (
        ("one", []),
        ("two", ["-c", "-a", LOCALHOST, "-p", server.port]),
    ):
        path = tmp_path / f"{name}.json"
        assert (
            main(
                [
                    "perf",
                    "write",
                    *side,
                    *options,
                    "--plot",
                    str(tmp_path / name),
                    "--json",
                    str(path),
                ]
            )
            == 0
        )
        found.append(json.loads(path.read_text()))
    assert found[0] == found[1]
    assert server.end() == (0, "", CLIENT)


def test_a_client_that_measures_something_else_is_one_line_at_both_ends(server, capsys):
    side = ["-c", "-a", LOCALHOST, "-p", server.port]
    assert main(["perf", "read", *side]) == 1
    out, err = capsys.readouterr()
    why = "the client measures read, the server write"
    assert (out, err) == ("", f"stagecoach perf: the server refused: {why}\n")
    assert server.end() == (1, "", f"stagecoach perf: {why}\n")


def test_a_client_that_is_killed_ends_the_server(server):
    side = ["-c", "-a", LOCALHOST, "-p", server.port]
    killed = subprocess.Popen(
        [*COMMAND, "write", *side, "--sizes", "16MiB"], cwd=ROOT, stderr=subprocess.PIPE
    )
    assert server.line() == CLIENT
    time.sleep(0.2)
    assert killed.poll() is None
    killed.kill()
    killed.communicate()
    status, out, err = server.end()
    assert (status, out) == (1, "")
    assert err.startswith("stagecoach perf: the peer closed") and err.count("\n") == 1


def test_an_interrupted_server_ends(server):
    server.process.send_signal(signal.SIGINT)
    status, out, err = server.end()
    assert (status, out) == (130, ""), err
    assert err.splitlines()[-1] == "stagecoach perf: interrupted"


def test_no_server_is_one_line_and_status_1(server, capsys):
    server.process.kill()
    server.process.communicate()
    assert main(["perf", "write", "-c", "-a", LOCALHOST, "-p", server.port]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert "Connection refused" in err
