"""The netlist of a board's top runs at its pins: with an echo, and with the device on request.

With the device, `make gatesim-board`, synthesis and the compiler take long.
"""

import os
from threading import Thread

import pytest
from serial import Serial

from stagecoach.host_driver import cm
from stagecoach.host_driver.context import Context
from stagecoach.host_driver.cq import CQ
from stagecoach.host_driver.enums import AccessFlags, WCOpcode, WCStatus, WROpcode
from stagecoach.host_driver.hostlink.serial_device import SerialDevice
from stagecoach.host_driver.mr import MR
from stagecoach.host_driver.pd import PD
from stagecoach.host_driver.qp import QP
from stagecoach.host_driver.qp_attr import QPCap, QPInitAttr
from stagecoach.host_driver.transport.base import Transport
from stagecoach.host_driver.wr import SGE, RecvWR, SendWR
from stagecoach.hw.boards.board import find
from stagecoach.sim.board_netlist import simulate
from stagecoach.sim.transport import SimulatedDevice
from tests.hw.test_boards import Echo

pytestmark = pytest.mark.slow

BOARD = os.environ.get("GATESIM_BOARD", "")
SECONDS = 900.0
OCTETS = 64


def test_octets_pass_the_netlist_of_a_top(monkeypatch):
    """Clock, reset and UART are those of the board, the device is an echo."""
    monkeypatch.setattr("stagecoach.hw.boards.top.SerialRnic", Echo)
    board = find("ecpix5-45")
    with simulate(board) as simulated, Serial(simulated.port, board.baud, timeout=0.2) as port:
        echoed = b""
        while not echoed:  # the board is in reset first
            port.write(b"\0")
            echoed = port.read(1)
        while port.read(1):
            pass
        port.timeout = 60.0
        for octet in range(0, 256, 5):
            port.write(bytes([octet]))
            assert port.read(1) == bytes([octet])


class End:
    """A device with one QP and 2 * OCTETS octets of memory, the second half open to the peer."""

    def __init__(self, transport: Transport):
        self.context = Context(transport, command_seconds=SECONDS, open_seconds=SECONDS)
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 8)
        cap = QPCap(max_send_wr=4, max_recv_wr=2)
        self.qp = QP(self.pd, QPInitAttr(self.cq, self.cq, cap))
        self.memory = bytearray(2 * OCTETS)
        rights = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE
        self.mr = MR(self.pd, self.memory, rights)

    def part(self, half: int) -> SGE:
        return SGE(self.mr.addr + half * OCTETS, OCTETS, self.mr.lkey)

    def write(self, number: int, peer: "End") -> None:
        """RDMA Write of the first half to the second half of the peer's memory."""
        remote = {"remote_addr": peer.mr.addr + OCTETS, "rkey": peer.mr.rkey}
        self.qp.post_send(SendWR(number, WROpcode.RDMA_WRITE, [self.part(0)], **remote))

    def completed(self, number: int, opcode: WCOpcode) -> None:
        (one,) = self.cq.wait(1, SECONDS)
        assert (one.wr_id, one.opcode, one.status) == (number, opcode, WCStatus.SUCCESS)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.skipif(not BOARD, reason="takes long: make gatesim-board")
def test_the_device_opens_and_moves_octets():
    board = find(BOARD)
    patient = dict.fromkeys(("give_up_seconds", "open_seconds", "access_seconds"), SECONDS)
    patient["retry_seconds"] = 5.0
    with simulate(board) as simulated:
        near = End(SerialDevice(simulated.port, board.baud, **patient))
        far = End(SimulatedDevice())
        attr = near.context.query_device()
        assert (attr.max_qp, attr.max_cq) == (board.config.qps, board.config.cqs)
        assert attr.max_mr == board.config.stags
        assert near.context.transport.info["clock_hz"] == board.clock_hz
        with cm.listen(far.context) as listener:
            accepting = Thread(target=lambda: listener.get_request(SECONDS).accept(far.qp))
            accepting.start()
            cm.connect(near.qp, "127.0.0.1", listener.port, timeout=SECONDS)
            accepting.join()

        near.memory[:OCTETS] = bytes(range(OCTETS))
        near.write(1, far)
        near.completed(1, WCOpcode.RDMA_WRITE)
        # The Send comes after what was written, and tells that it is there.
        far.memory[:OCTETS] = bytes(range(100, 100 + OCTETS))
        near.qp.post_recv(RecvWR(2, [near.part(0)]))
        far.write(3, near)
        far.qp.post_send(SendWR(4, WROpcode.SEND, [far.part(0)]))
        near.completed(2, WCOpcode.RECV)
        assert near.memory == bytes(range(100, 100 + OCTETS)) * 2
        far.completed(3, WCOpcode.RDMA_WRITE)
        far.completed(4, WCOpcode.SEND)
        assert far.memory[OCTETS:] == bytes(range(OCTETS))

        before = near.context.cycles
        assert near.context.cycles > before
        link = near.context.transport.info["link"]
        assert link["broken"] == link["out_of_order"] == 0
        near.context.close()
        far.context.close()
        simulated.close()
        print(simulated.counters, link)
