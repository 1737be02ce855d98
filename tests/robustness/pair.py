"""QPs of a device whose ports can be disturbed, with peers that see all they send."""

import socket
import time
from collections.abc import Callable

from stagecoach.host_driver import SGE, WC, Context, RecvWR, SendWR, WCStatus, WROpcode
from stagecoach.host_driver.transport.sockets import SocketStream
from stagecoach.sim.model.endpoint import Endpoint
from stagecoach.sim.model.peer import Peer
from stagecoach.sim.model.startup import StartupFrame
from tests.integration.rig import READS, End
from tests.robustness.rig import device_of

SECONDS = 120.0


class Pair:
    """A QP with regions of its own, and the reference endpoint as its peer.

    `source` and `target` are the halves of the QP's region: what it sends, and where it receives.
    `theirs` is the region of the peer.
    """

    def __init__(self, context: Context, octets: int = 4096, *, emss: int = 1460):
        device, self.octets = device_of(context), octets
        self.device = device
        first = len(device.mapped)
        self.end = End(context, 2 * octets)
        # In the order of `End`: a CQ, the two rings of a QP, a region.
        self.completion_ring, self.send_ring, self.receive_ring, region = device.mapped[first:]
        self.source = (region[0], octets)
        self.target = (region[0] + octets, octets)
        self.qp, self.cq, self.mr = self.end.qp, self.end.cq, self.end.mr
        self.theirs = bytearray(octets)
        ours, other = socket.socketpair()
        self.qp.connect(
            SocketStream(other), initiator=True, crc=True, ord=READS, ird=READS, emss=emss
        )
        frames = [StartupFrame(reply=reply) for reply in (False, True)]
        self.endpoint = Endpoint(seed=1, mulpdu=emss - 6)
        self.peer = Peer(ours, self.endpoint, request=frames[0], reply=frames[1])
        self.stag = self.endpoint.register(self.theirs).stag
        self.completions: list[WC] = []

    def element(self, offset: int, length: int) -> SGE:
        """An element of the QP's region."""
        return SGE(self.mr.addr + offset, length, self.mr.lkey)

    def post_all(self, length: int) -> None:
        """Work of every kind in both directions: a Write, a Send and a Read each."""
        self.qp.post_recv(RecvWR(1, [self.element(self.octets, length)]))
        self.qp.post_send(
            SendWR(2, WROpcode.RDMA_WRITE, [self.element(0, length)], rkey=self.stag),
            SendWR(3, WROpcode.SEND, [self.element(0, length)]),
            SendWR(
                4,
                WROpcode.RDMA_READ,
                [self.element(self.octets + length, length)],
                rkey=self.stag,
                remote_addr=2 * length,
            ),
        )
        self.endpoint.post_receive(length, 11)
        octets = bytes(self.theirs[3 * length : 4 * length])
        start = self.mr.addr + self.octets
        self.endpoint.rdma_write(octets, self.mr.rkey, start + 2 * length, 12)
        self.endpoint.post_send(octets, 13)
        self.endpoint.rdma_read(self.stag, length, length, self.mr.rkey, self.mr.addr, 14)

    def pump(self) -> None:
        """Moves octets and takes completions."""
        self.peer.pump(0.0005)
        self.completions += self.cq.poll()

    def pump_until(self, done: Callable[[], bool], what: str) -> None:
        """Goes on until `done()`."""
        end = time.monotonic() + SECONDS
        while not done():
            assert time.monotonic() < end, f"{what}: not within {SECONDS} s"
            self.pump()

    def finish(self, length: int) -> None:
        """Everything that `post_all` posted comes to a good end, octet by octet."""
        before = bytes(self.theirs)
        mine: list[object] = []

        def done() -> bool:
            mine.extend(self.endpoint.poll())
            return len(self.completions) >= 4 and len(mine) >= 4

        self.pump_until(done, "all work")
        assert sorted((wc.wr_id, wc.status) for wc in self.completions) == [
            (number, WCStatus.SUCCESS) for number in (1, 2, 3, 4)
        ]
        buffer, octets = self.end.buffer, self.octets
        sent = buffer[:length]
        assert self.theirs[: 2 * length] == sent + sent
        received = before[3 * length : 4 * length]
        assert buffer[octets : octets + length] == received
        assert buffer[octets + length : octets + 2 * length] == before[2 * length : 3 * length]
        assert buffer[octets + 2 * length : octets + 3 * length] == received
        self.completions.clear()

    def close(self) -> None:
        """Ends the connection."""
        self.end.close()
        self.peer.close()
