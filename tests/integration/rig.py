"""What the tests of the whole device share: opening it, and a raw peer on the other end of a QP."""

import fcntl
import select
import socket
import struct
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    CompChannel,
    Context,
    QPCap,
    QPInitAttr,
    WROpcode,
)
from stagecoach.host_driver.transport.sockets import SocketStream
from stagecoach.sim.model import mpa
from stagecoach.sim.transport import SimulatedDevice

ALL = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_READ
RECEIVE_OCTETS = 1 << 16
READS = 8
"""IRD and ORD of the default device."""

OPCODES = (WROpcode.RDMA_WRITE, WROpcode.RDMA_READ, WROpcode.SEND)
"""Of random traffic: an invalidation would end what comes after it."""


def open_device(
    library: Path | None = None, *, strict_rfc7306: bool = False, **latencies: int
) -> Context:
    """A compiled device of the default sizes, opened; it is built if `library` is not given."""
    device = SimulatedDevice(library=library, **latencies)
    return Context(device, strict_rfc7306=strict_rfc7306)


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    return one, other


class RawPeer:
    """A peer that sends any octets to a QP and takes apart what the QP sends.

    Parameters
    ----------
    qp: is connected here. initiator: role of the QP.
    tcp: a TCP connection instead of a socket pair; only a pair shows when the device took all.

    Attributes
    ----------
    ulpdus: what the QP has sent. ended: the QP's end of the stream has been closed.
    """

    def __init__(
        self,
        qp: QP,
        *,
        initiator: bool = True,
        crc: bool = True,
        emss: int = 1460,
        tcp: bool = False,
    ):
        self.socket, theirs = tcp_pair() if tcp else socket.socketpair()
        self.ulpdus: list[bytes] = []
        self.ended = False
        self.framer = mpa.Framer(crc=crc)
        self._deframer = mpa.Deframer(crc=crc)
        qp.connect(
            SocketStream(theirs), initiator=initiator, crc=crc, ord=READS, ird=READS, emss=emss
        )

    def send(self, *ulpdus: bytes) -> None:
        """Sends ULPDUs as FPDUs."""
        self.send_octets(b"".join(map(self.framer.frame, ulpdus)))

    def send_octets(self, octets: bytes) -> None:
        """Sends octets as they are, and takes what comes meanwhile."""
        self.socket.setblocking(False)
        rest = memoryview(octets)
        while rest:
            _, writable, _ = select.select([], [self.socket], [], 10)
            assert writable, f"the device takes nothing more, {len(rest)} octets are left"
            rest = rest[self.socket.send(rest) :]
            self.pump(0)

    def wait_taken(self, timeout: float = 10.0) -> None:
        """Waits until the device has read all that was sent: what follows comes separately."""
        end = time.monotonic() + timeout
        waiting = bytearray(4)
        while True:
            fcntl.ioctl(self.socket, termios.TIOCOUTQ, waiting)
            if not struct.unpack("i", waiting)[0]:
                return
            assert time.monotonic() < end, "the device does not read"
            time.sleep(0)

    def pump(self, timeout: float) -> None:
        """Takes what the QP sends, waiting at most `timeout` seconds for it."""
        if self.ended:
            time.sleep(min(timeout, 0.001))
            return
        readable, _, _ = select.select([self.socket], [], [], timeout)
        if readable:
            try:
                octets = self.socket.recv(RECEIVE_OCTETS)
            except ConnectionResetError:
                octets = b""
            self.ended = not octets
            self.ulpdus += self._deframer.feed(octets)

    def pump_until(self, done: Callable[[], bool], timeout: float = 10.0) -> None:
        """Takes what the QP sends until `done()`."""
        end = time.monotonic() + timeout
        while not done():
            assert time.monotonic() < end, f"not within {timeout} s; {len(self.ulpdus)} ULPDUs came"
            self.pump(0.01)

    def reset(self) -> None:
        """Ends a TCP connection with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        """Closes the socket."""
        self.socket.close()


class End:
    """A QP of a device with a CQ and a registered buffer of its own, and a PD if none is given.

    Parameters
    ----------
    access: rights of the region. channel: of the CQ. attr: of the QP, as `QPInitAttr` has it.
    """

    def __init__(
        self,
        context: Context,
        octets: int = 4096,
        access: AccessFlags = ALL,
        channel: CompChannel | None = None,
        *,
        pd: PD | None = None,
        **attr: Any,
    ):
        self.context = context
        self.pd = PD(context) if pd is None else pd
        self.cq = CQ(context, channel=channel)
        attr = {"cap": QPCap(16, 16), "rfc7306": True} | attr
        self.qp = QP(self.pd, QPInitAttr(self.cq, self.cq, **attr))
        self.buffer = bytearray(octets)
        self.mr = MR(self.pd, self.buffer, access)

    def element(self, offset: int = 0, length: int | None = None) -> SGE:
        """An element of the buffer."""
        length = len(self.buffer) - offset if length is None else length
        return SGE(self.mr.addr + offset, length, self.mr.lkey)

    def close(self) -> None:
        """Closes all of it, in the order that is needed."""
        self.qp.close()
        self.mr.close()
        self.cq.close()
        self.pd.close()
