"""The driver opens a board's NIC at a terminal; a peer on its wire reads and writes over RDMA."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagecoach.host_driver import cm
from stagecoach.host_driver.board_memory.errors import NoBoardMemory
from stagecoach.host_driver.board_memory.memory import BoardMemory
from stagecoach.host_driver.context import Context
from stagecoach.host_driver.cq import CQ
from stagecoach.host_driver.device_memory import DeviceMemory
from stagecoach.host_driver.enums import AccessFlags, WCStatus, WROpcode
from stagecoach.host_driver.hostlink.serial_device import SerialDevice
from stagecoach.host_driver.hostlink.serial_link import LinkTimes
from stagecoach.host_driver.hostlink.serial_nic import SerialNic
from stagecoach.host_driver.mr import MR
from stagecoach.host_driver.network.address_claim import SHORT
from stagecoach.host_driver.network.settings import NetworkSettings
from stagecoach.host_driver.pd import PD
from stagecoach.host_driver.qp import QP
from stagecoach.host_driver.qp_attr import QPCap, QPInitAttr
from stagecoach.host_driver.transport.base import Transport, TransportError
from stagecoach.host_driver.transport.network import NetworkTransport
from stagecoach.host_driver.wr import SGE, SendWR
from stagecoach.sim.board import BAUD, CLOCK_HZ
from stagecoach.sim.network.nic import SimulatedNic
from stagecoach.sim.nic_board import CONFIG, MEMORY_LOG2, SimulatedNicBoard

FAST = False  # a whole NIC

ROOT = Path(__file__).parents[2]
SECONDS = 300.0
PATIENT = LinkTimes(1.0, SECONDS, SECONDS, SECONDS)
"""Of a board that is simulated on a machine that has other things to do, too."""

ADDRESS, PEER_ADDRESS = "192.0.2.10", "192.0.2.1"
SETTINGS = NetworkSettings.parse(f"{ADDRESS}/24", bytes([2, 0, 192, 0, 2, 10]))
RTO_MS = 10_000
"""Of the peer: seconds of the wall are a fraction of one for a board that is simulated."""

EVERYTHING = (
    AccessFlags.LOCAL_WRITE
    | AccessFlags.REMOTE_WRITE
    | AccessFlags.REMOTE_READ
    | AccessFlags.REMOTE_ATOMIC
)

OCTETS = 200
BEFORE = 41

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.usefixtures("compiled_device", "compiled_nic_board"),
]


@pytest.fixture
def wire(tmp_path: Path) -> str:
    return f"pair:{os.getpid()}-{tmp_path.name}"


@pytest.fixture
def board(wire: str) -> Iterator[SimulatedNicBoard]:
    with SimulatedNicBoard(wire) as board:
        yield board


class End:
    """An open device with a QP, and memory that the other end may reach."""

    def __init__(self, transport: Transport, access: AccessFlags):
        self.context = Context(transport)
        self.pd, self.cq = PD(self.context), CQ(self.context, 8)
        attributes = QPInitAttr(self.cq, self.cq, QPCap(8, 8), rfc7306=True)
        self.qp = QP(self.pd, attributes)
        self.memory = bytearray(2 * OCTETS)
        self.mr = MR(self.pd, self.memory, access)

    def __enter__(self) -> "End":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def do(self, opcode: WROpcode, octets: int, peer: MR, at: int, **operands: int) -> None:
        """One work request between the beginning of our memory and a place of the peer's."""
        sge = SGE(self.mr.addr, octets, self.mr.lkey)
        self.qp.post_send(
            SendWR(1, opcode, [sge], remote_addr=peer.addr + at, rkey=peer.rkey, **operands)
        )
        (done,) = self.cq.wait(1, SECONDS)
        assert done.status == WCStatus.SUCCESS, done.describe()


def reach(client: End, region: MR) -> None:
    """The client writes, reads and adds in a region of the board."""
    content = bytes(range(OCTETS))
    client.memory[:OCTETS] = content
    client.do(WROpcode.RDMA_WRITE, OCTETS, region, OCTETS)
    client.memory[:OCTETS] = bytes(OCTETS)
    client.do(WROpcode.RDMA_READ, OCTETS, region, OCTETS)
    assert client.memory[:OCTETS] == content == region.read(OCTETS, OCTETS)
    region.write(BEFORE.to_bytes(8, "little"), 8)
    client.do(WROpcode.ATOMIC_FETCH_AND_ADD, 8, region, 0, compare_add=1)
    assert client.memory[:8] == BEFORE.to_bytes(8, "little")
    assert region.read(8) == (BEFORE + 1).to_bytes(8, "little")


def test_a_peer_writes_reads_and_adds_in_both_memories(board, wire):
    device = SerialNic(board.port, SETTINGS, BAUD, link_times=PATIENT, times=SHORT)
    assert isinstance(device, NetworkTransport)
    with End(device, EVERYTHING) as server:
        info = device.info
        assert (info["kind"], info["tcp"], info["ip"]) == (
            "serial NIC",
            "gateware",
            f"{ADDRESS}/24",
        )
        assert (info["clock_hz"], info["board_memory"]) == (CLOCK_HZ, 1 << MEMORY_LOG2)
        # Without the rings of all connections, and a page and more of the driver's frames.
        rings = CONFIG.qps * (1 << 19)
        assert (1 << MEMORY_LOG2) - rings > device.memory_octets > (1 << MEMORY_LOG2) - 2 * rings
        assert server.context.query_device().max_dm_size == device.memory_octets
        assert server.context.query_device().max_qp == CONFIG.qps
        with pytest.raises(NoBoardMemory, match="no MEMORY_ID"):
            BoardMemory(server.context)
        address = f"sim://?wire={wire}&ip={PEER_ADDRESS}/24&tcp=reference&rto_min_ms={RTO_MS}"
        with End(SimulatedNic(address), AccessFlags.LOCAL_WRITE) as client:
            # ARP and echo are answered by the gateware.
            assert client.context.transport.stack.ping(ADDRESS, SECONDS) > 0
            assert device.network.frame_fates["answered"] >= 2
            with cm.listen(server.context, ADDRESS) as listener:
                accepting = threading.Thread(
                    target=lambda: listener.get_request(SECONDS).accept(server.qp)
                )
                accepting.start()
                cm.connect(client.qp, ADDRESS, listener.port, timeout=SECONDS)
                accepting.join(SECONDS)
            of_host = MR(server.pd, server.memory, EVERYTHING)
            reach(client, of_host)
            # The host has nothing at addresses of the board's memory: it is the board that answers.
            with DeviceMemory(server.context, 2 * OCTETS) as memory:
                reach(client, MR(server.pd, memory, EVERYTHING))
            (connection,) = device.stack.connections()
            assert connection.info is not None and connection.info.state == "ESTABLISHED"
    board.close()
    counted = board.counters
    assert counted["frames_to_board"] and counted["frames_from_board"]


def test_the_kind_of_a_board_has_to_be_named(board):
    with pytest.raises(TransportError, match=r"has a network of its own, and needs an address"):
        SerialDevice(board.port, BAUD, open_seconds=SECONDS)


def test_info_shows_the_network(board):
    device = f"{board.url}&ip={ADDRESS}/24&retry=1&give_up={SECONDS}&open={SECONDS}"
    command = [sys.executable, "-m", "stagecoach.cli", "info", "--json", "--device", device]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["network"] == {
        "tcp": "gateware",
        "ip": f"{ADDRESS}/24",
        "gateway": "none",
        "mac": "02:00:c0:00:02:0a",
        "mtu": 1500,
    }
    assert found["device"]["max_qp"] == CONFIG.qps
