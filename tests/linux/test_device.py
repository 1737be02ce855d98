"""Messages of a compiled device through the TCP of Linux, to the reference endpoint behind it."""

import random
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stagecoach import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    Context,
    QPInitAttr,
    RecvWR,
    SendWR,
    WCStatus,
    WROpcode,
    connect,
    listen,
)
from stagecoach.sim.model.peer import Peer
from stagecoach.sim.network.nic import SimulatedNic
from tests.linux.device_interface import opened_nic
from tests.linux.expert import findings
from tests.linux.namespace import namespace
from tests.linux.network import LINUX, OURS, PATIENT_MS, TAP, set_up_linux
from tests.linux.ours import PATIENCE
from tests.linux.traffic import PORT

OCTETS = 200_000
TURNS = 3
STAG = 7
ACCESS = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_READ
WIRES = {
    "good": f"&rto_min_ms={PATIENT_MS}",
    "1 % lost": "&rto_min_ms=50&loss=0.01&seed=1",
    "5 %, disorder": "&rto_min_ms=50&loss=0.05&reorder=0.05&duplicate=0.05&rate_gbps=0.05&seed=3",
}

pytestmark = [pytest.mark.usefixtures("compiled_device"), pytest.mark.timeout(600)]


class Device:
    """The device and its memory: what it sends, and what comes."""

    def __init__(self, nic: SimulatedNic, content: bytes) -> None:
        self.nic = nic
        self.context = Context(nic)
        pd = PD(self.context)
        self._cq = CQ(self.context, 64)
        self.qp = QP(pd, QPInitAttr(self._cq, self._cq))
        self.source, self.target = (MR(pd, bytearray(each), ACCESS) for each in (content, OCTETS))

    def element(self, region: MR) -> list[SGE]:
        return [SGE(region.addr, OCTETS, region.lkey)]

    def do(self, opcode: WROpcode, region: MR, completions: int = 1) -> None:
        """A request, until it is done, and so many in all."""
        remote = {} if opcode is WROpcode.SEND else {"remote_addr": 0, "rkey": STAG}
        self.qp.post_send(SendWR(opcode=opcode, sg=self.element(region), **remote))
        found = [self._cq.wait(1, PATIENCE)[0] for _ in range(completions)]
        assert {each.status for each in found} == {WCStatus.SUCCESS}


class Behind:
    """The endpoint at Linux' socket, in a thread of its own until the stream ends."""

    def __init__(self, join: Callable[[], Peer]) -> None:
        self.memory = bytearray(OCTETS)
        self.received: list[bytes] = []
        self._join = join
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._join() as peer:
                peer.endpoint.register(self.memory, stag=STAG)
                for _ in range(TURNS):
                    peer.endpoint.post_receive(OCTETS)
                    peer.run_until(lambda: peer.endpoint.idle, PATIENCE)
                    self._turn(peer)
                while not peer.end_of_stream:
                    peer.pump(0.05)
        except BaseException as error:
            self._error = error

    def _turn(self, peer: Peer) -> None:
        """A Send comes, and is sent back."""
        (completion,) = peer.wait(1, PATIENCE)
        self.received.append(completion.payload)
        peer.endpoint.post_send(completion.payload)
        peer.wait(1, PATIENCE)

    def result(self) -> None:
        """Wait for its end. Raises what went wrong."""
        self._thread.join(PATIENCE)
        if self._error is not None:
            raise self._error
        assert not self._thread.is_alive()


def we_open(device: Device) -> Behind:
    """The device opens the connection and is the MPA Initiator."""
    server = socket.create_server((LINUX, PORT))
    server.settimeout(PATIENCE)

    def join() -> Peer:
        with server:
            return Peer.accept(server.accept()[0], timeout=PATIENCE)

    behind = Behind(join)
    connect(device.qp, LINUX, PORT, timeout=PATIENCE)
    return behind


def linux_opens(device: Device) -> Behind:
    """Linux opens it; the device is the Responder."""
    opening = socket.socket()  # in this thread's namespace
    opening.settimeout(PATIENCE)

    def join() -> Peer:
        opening.connect((OURS, PORT))
        peer = Peer.connect(opening, timeout=PATIENCE)
        # The Responder sends nothing before the first FPDU (RFC 5044, 7.1.2).
        peer.endpoint.rdma_write(b"", STAG, 0)
        peer.wait(1, PATIENCE)
        return peer

    with listen(device.context, "", PORT) as listener:
        behind = Behind(join)
        listener.get_request(PATIENCE).accept(device.qp, timeout=PATIENCE)
    return behind


@pytest.mark.parametrize("joined", [we_open, linux_opens])
@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_messages_arrive_whole(tmp_path: Path, joined: Callable[[Device], Behind], wire: str):
    contents = [random.Random(turn).randbytes(OCTETS) for turn in range(TURNS)]
    capture = tmp_path / "wire.pcapng"
    with namespace():
        set_up_linux(patient="loss" not in wire)
        nic = opened_nic(f"sim://?wire=tap:{TAP}&ip={OURS}/24&tcp=reference&pcap={capture}{wire}")
        device = Device(nic, bytes(OCTETS))
        with device.context:
            behind = joined(device)
            for content in contents:
                device.source.buf[:] = content
                device.qp.post_recv(RecvWR(sg=device.element(device.target)))
                device.do(WROpcode.RDMA_WRITE, device.source)
                device.do(WROpcode.RDMA_READ, device.target)
                assert behind.memory == device.target.buf == content
                device.target.buf[:] = bytes(OCTETS)
                device.do(WROpcode.SEND, device.source, 2)  # it comes back
                assert device.target.buf == content
            (info,) = (each.info for each in nic.stack.connections() if each.info is not None)
            device.qp.disconnect()
            behind.result()
            assert nic.statistics()["faults"] == []
        assert behind.received == contents
        assert info.octets_received > 2 * TURNS * OCTETS
        if "loss" in wire:
            assert info.retransmissions > 0
        else:
            assert findings(capture) == {}
