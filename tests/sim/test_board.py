"""The driver opens a board's terminal: the whole device behind a UART, on good and bad lines."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from stagecoach.cli.demo.end import End
from stagecoach.host_driver import cm
from stagecoach.host_driver.context import Context
from stagecoach.host_driver.enums import AccessFlags, QPState, WCStatus, WROpcode
from stagecoach.host_driver.hostlink.serial_device import SerialDevice
from stagecoach.host_driver.transport.base import DeviceClosed
from stagecoach.host_driver.wr import SGE, SendWR
from stagecoach.hw.boards.configs import SMALL
from stagecoach.hw.interface.causes import Cause
from stagecoach.sim.board import BAUD, CLOCK_HZ, SimulatedBoard
from stagecoach.sim.transport import SimulatedDevice
from stagecoach.ulp.rping.ends import Settings, ping
from stagecoach.ulp.rping.serving import serve

ROOT = Path(__file__).parents[2]
SECONDS = 120.0
PATIENT = {"retry_seconds": 1.0, "give_up_seconds": SECONDS, "open_seconds": SECONDS}
"""Of a board that is simulated on a machine that has other things to do, too."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("compiled_device", "compiled_board"),
]


def open_board(board: SimulatedBoard, **options) -> SerialDevice:
    return SerialDevice(board.port, BAUD, **(PATIENT | options))


@pytest.fixture
def board() -> Iterator[SimulatedBoard]:
    with SimulatedBoard() as board:
        yield board


def test_a_board_opens_as_what_it_is(board):
    for _ in range(2):  # whatever the last program left
        with Context(open_board(board)) as context:
            attr = context.query_device()
            assert (attr.max_qp, attr.max_cq, attr.max_mr) == (SMALL.qps, SMALL.cqs, SMALL.stags)
            assert context.transport.info["clock_hz"] == CLOCK_HZ
            before = context.cycles
            assert context.cycles > before
            link = context.transport.info["link"]
            assert link["messages_received"] and not link["broken"]
    device = open_board(board)
    Context(device)  # and is not closed
    device._port.close()
    with pytest.raises((DeviceClosed, ValueError)):
        device.close()
        device.read_register(0)
    with Context(open_board(board)) as context:
        assert context.query_device() == attr


class Pair:
    """A board, and a simulated device in this process that serves rping."""

    def __init__(self, board: SimulatedBoard):
        self.device = open_board(board)
        self.context = Context(self.device)
        self.peer = Context(SimulatedDevice())
        self.ports: list[int] = []
        self.error: Exception | None = None
        self._thread = Thread(target=self._serve)

    def _serve(self) -> None:
        try:
            serve(self.peer, Settings("127.0.0.1", 0, 600), self.ports.append)
        except Exception as error:
            self.error = error

    def ping(self, **options) -> None:
        self._thread.start()
        while not self.ports:
            assert self.error is None
            time.sleep(0.01)
        settings = Settings("127.0.0.1", self.ports[0], validate=True, **options)
        ping(self.context, settings)
        self._thread.join(SECONDS)
        assert not self._thread.is_alive() and self.error is None

    def __enter__(self) -> "Pair":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()
        if self._thread.is_alive():
            self._thread.join(SECONDS)
        self.peer.close()


BAD_LINE = 300
"""Octets in a million that are lost, as many that are changed, and as many that are inserted."""


@pytest.fixture
def bad_board() -> Iterator[SimulatedBoard]:
    seed = int(os.environ.get("STAGECOACH_SEED", "1"))
    print(f"STAGECOACH_SEED={seed}")
    with SimulatedBoard(fault_rate=BAD_LINE, seed=seed) as board:
        yield board


def test_rping_over_a_bad_line(bad_board):
    with Pair(bad_board) as pair:
        pair.ping(size=500, count=2)
        link = pair.device.info["link"]
    bad_board.close()
    counted = bad_board.counters
    print(counted, link)
    assert counted["lost"] and counted["changed"] and counted["inserted"]
    assert link["broken"] and link["rejects_sent"]


def test_the_peer_refuses_what_it_did_not_allow(bad_board):
    """The Terminate comes back over the link, and the QP of the board stops."""
    with End(open_board(bad_board)) as source, End(SimulatedDevice()) as sink:
        memory = bytearray(64)
        mr = sink.register(memory, AccessFlags.REMOTE_READ)
        assert mr is not None
        with cm.listen(sink.context) as listener:
            accepting = Thread(target=lambda: listener.get_request(SECONDS).accept(sink.qp))
            accepting.start()
            cm.connect(source.qp, "127.0.0.1", listener.port, timeout=SECONDS)
            accepting.join()
        data = bytearray(b"x" * 64)
        local = source.register(data, AccessFlags.LOCAL_WRITE)
        assert local is not None
        sge = SGE(local.addr, 64, local.lkey)
        source.qp.post_send(
            SendWR(11, WROpcode.RDMA_WRITE, [sge], remote_addr=mr.addr, rkey=mr.rkey)
        )
        source.qp.post_send(
            SendWR(12, WROpcode.RDMA_READ, [sge], remote_addr=mr.addr, rkey=mr.rkey)
        )
        found = []
        end = time.monotonic() + SECONDS
        while len(found) < 2:
            # Receives are flushed, too.
            found += [one for one in source.cq.poll(8) if one.wr_id > 10]
            source.context.process_events()
            assert time.monotonic() < end
            source.context.wait(0.01)
        assert [one.wr_id for one in found] == [11, 12]
        assert found[1].status == WCStatus.WR_FLUSH_ERR
        assert source.qp.state == QPState.ERR
        assert source.qp.cause == Cause.TERMINATE_RECEIVED
        assert memory == bytes(64)


def run(command: str, board: SimulatedBoard, *options: str) -> str:
    """What a command of `stagecoach` prints that has the board as its device."""
    device = f"{board.url}&retry=1&give_up={SECONDS}&open={SECONDS}"
    words = [
        sys.executable,
        "-m",
        "stagecoach.cli.main",
        command,
        *options,
        "--device",
        device,
    ]
    result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_file_moves_there_and_back_over_a_bad_line(bad_board):
    """`stagecoach demo` with the board as its source."""
    shown = json.loads(run("demo", bad_board, "--json", "--size", "3000"))
    assert [row["operation"] for row in shown["operations"]] == ["RDMA Write", "Send", "RDMA Read"]
    assert shown["capture_complete"]


def test_perf_measures_in_cycles_of_the_board(board, tmp_path):
    options = [
        "--sizes",
        "64",
        "--messages",
        "2",
        "--latency-messages",
        "8",
        "--plot",
        str(tmp_path / "plot"),
    ]
    shown = run("perf", board, "send", *options, "--json", str(tmp_path / "perf.json"))
    assert "Rates per second at 0.5 MHz" in shown
    found = json.loads((tmp_path / "perf.json").read_text())
    assert found["device"].startswith(board.url)
    (point,) = found["points"]
    # Each message crosses the line at least once, 40 cycles for an octet.
    assert point["cycles"] > 2 * 64 * 40 and point["latency_least"] > 64 * 40


def test_a_board_that_hangs_is_told_of(board):
    with Context(open_board(board, retry_seconds=0.1, give_up_seconds=1.0)) as context:
        board.process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(DeviceClosed, match=r"is lost: the device acknowledges nothing"):
                context.query_device()
                context.cycles  # noqa: B018
        finally:
            board.process.send_signal(signal.SIGCONT)
            with pytest.raises(DeviceClosed):
                context.close()


def test_devices_lists_it(board):
    command = [sys.executable, "-m", "stagecoach.cli", "devices", "--json"]
    result = subprocess.run(
        [*command, "--device", f"{board.url}&open={SECONDS}", "--device", "serial:///dev/no-port"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    simulated, found, missing = json.loads(result.stdout)[:3]
    assert (simulated["device"], simulated["state"]) == ("simulation", "ready")
    assert simulated["configuration"]["qps"] == simulated["configuration"]["max_qp"] == 64
    assert found["state"] == "ready" and found["clock_hz"] == CLOCK_HZ
    assert found["configuration"]["max_qp"] == SMALL.qps
    assert found["capabilities"] == simulated["capabilities"]
    assert "ATOMIC_FETCH_AND_ADD" in found["capabilities"]["operations"]
    assert missing["state"].startswith("cannot open /dev/no-port")
