"""What two NICs exchange on one connection, and what has to arrive: of QPs, and of programs."""

import contextlib
import random
import threading
from dataclasses import dataclass
from typing import Protocol

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    Context,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
    WCStatus,
    WROpcode,
    connect,
    listen,
)
from stagecoach.host_driver.network.errors import ConnectionReset
from stagecoach.host_driver.network.stream import NetworkListener, NetworkStream
from stagecoach.host_driver.transport.base import StreamClosed, TransportTimeout
from stagecoach.sim.network.nic import SimulatedNic

SECONDS = 200.0
"""Of simulated time, after which something will not come."""

REGION_OCTETS = 1 << 16
RESET_SECONDS = 0.1
RESETS = 100
"""So often a RST may be lost."""

MOST_MESSAGES = 40
"""Of one end of a QP in a round."""

_ACCESS = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_READ
_OPCODES = (WROpcode.RDMA_WRITE, WROpcode.RDMA_WRITE, WROpcode.SEND, WROpcode.RDMA_READ)


class Traffic(Protocol):
    """Of one connection. Rounds of several of them go on at once."""

    def begin(self) -> None:
        """Begin a round: bytes in both directions."""
        ...

    def finish(self) -> int:
        """Wait for its end; returns how many bytes arrived. Raises `AssertionError` if they are
        not those that were sent.
        """
        ...

    def close(self) -> None:
        """End the connection."""
        ...


def length(rng: random.Random, most: int) -> int:
    """Of a message: most are short, so that a run has many segments."""
    return min(most, int(2 ** rng.uniform(0, 7 if rng.random() < 0.8 else 14)))


@dataclass
class _End:
    """Of a QP: what it sends, what arrives, and what has to have arrived."""

    context: Context
    cq: CQ
    qp: QP
    source: MR
    sink: MR
    expected: bytearray
    used: int = 0
    completions: int = 0

    def place(self, octets: int) -> int:
        """Where in the sink bytes go that no other ones of this round are at."""
        at = self.used
        self.used += octets
        return at


def _end(context: Context, rng: random.Random) -> _End:
    cq, pd = CQ(context, 4 * MOST_MESSAGES), PD(context)
    source = MR(pd, bytearray(rng.randbytes(REGION_OCTETS)), _ACCESS)
    sink = MR(pd, bytearray(REGION_OCTETS), _ACCESS)
    cap = QPCap(MOST_MESSAGES + 1, MOST_MESSAGES)
    return _End(context, cq, QP(pd, QPInitAttr(cq, cq, cap)), source, sink, bytearray(sink.buf))


class QPTraffic:
    """Writes, Reads and Sends of a QP at each NIC.

    Parameters
    ----------
    contexts: of both NICs. address: of the second one. port: a free one.
    """

    def __init__(
        self,
        nics: tuple[SimulatedNic, SimulatedNic],
        contexts: tuple[Context, Context],
        address: str,
        port: int,
        rng: random.Random,
    ) -> None:
        self._rng = rng
        self._ends = here, there = _end(contexts[0], rng), _end(contexts[1], rng)
        with listen(there.context, host="", port=port) as listener:

            def accept() -> None:
                listener.get_request(SECONDS).accept(there.qp)

            server = threading.Thread(target=accept, daemon=True)
            server.start()
            connect(here.qp, address, port, timeout=SECONDS)
            while server.is_alive():
                nics[0].run_cycles(1000)

    def begin(self) -> None:
        """Post the messages of a round, and a Read after them."""
        for end in self._ends:
            end.used = end.completions = 0
        here, there = self._ends
        for near, far in ((here, there), (there, here)):
            for _ in range(self._rng.randint(1, MOST_MESSAGES)):
                self._post(near, far)
        for near, far in ((here, there), (there, here)):
            # A Write is complete when TCP has it; the answer of a Read comes after it was placed.
            element = SGE(near.sink.addr, 0, near.sink.lkey)
            near.qp.post_send(
                SendWR(
                    opcode=WROpcode.RDMA_READ,
                    sg=[element],
                    remote_addr=far.source.addr,
                    rkey=far.source.rkey,
                )
            )
            near.completions += 1

    def _post(self, near: _End, far: _End) -> None:
        rng = self._rng
        opcode = rng.choice(_OPCODES)
        giver, taker = (far, near) if opcode is WROpcode.RDMA_READ else (near, far)
        octets = length(rng, REGION_OCTETS - taker.used)
        start, at = rng.randint(0, REGION_OCTETS - octets), taker.place(octets)
        taker.expected[at : at + octets] = giver.source.buf[start : start + octets]
        source, sink = giver.source.addr + start, taker.sink.addr + at
        near.completions += 1
        if opcode is WROpcode.SEND:
            far.completions += 1
            far.qp.post_recv(RecvWR(sg=[SGE(sink, octets, far.sink.lkey)]))
            request = SendWR(opcode=opcode, sg=[SGE(source, octets, near.source.lkey)])
        elif opcode is WROpcode.RDMA_READ:
            element = SGE(sink, octets, near.sink.lkey)
            request = SendWR(opcode=opcode, sg=[element], remote_addr=source, rkey=far.source.rkey)
        else:
            element = SGE(source, octets, near.source.lkey)
            request = SendWR(opcode=opcode, sg=[element], remote_addr=sink, rkey=far.sink.rkey)
        near.qp.post_send(request)

    def finish(self) -> int:
        """Wait for all completions; compare the regions."""
        for end in self._ends:
            left = end.completions
            while left:
                completions = end.cq.wait(1, SECONDS)
                assert completions, f"{left} completions do not come"
                for each in completions:
                    assert each.status == WCStatus.SUCCESS, each.describe()
                left -= len(completions)
        for end in self._ends:
            assert end.sink.buf == end.expected, "a region is not what was sent to it"
        return sum(end.used for end in self._ends)

    def close(self) -> None:
        """End the connection."""
        here, there = self._ends
        here.qp.disconnect()
        there.context.poll_until(
            lambda: there.qp.state.name != "RTS", SECONDS, "the end of the peer's QP"
        )
        there.qp.close()
        here.qp.close()


class StreamTraffic:
    """Bytes of programs, on a connection that ends now and then by FIN or RST, and opens again."""

    def __init__(
        self,
        nics: tuple[SimulatedNic, SimulatedNic],
        address: str,
        listener: NetworkListener,
        rng: random.Random,
    ) -> None:
        self._nics, self._address, self._listener, self._rng = nics, address, listener, rng
        self.opened = 0
        self._streams = self._open()
        self._sent = b"", b""

    def _open(self) -> tuple[NetworkStream, NetworkStream]:
        self.opened += 1
        active = self._nics[0].connect(self._address, self._listener.address[1], SECONDS)
        return active, self._listener.accept(SECONDS)

    def begin(self) -> None:
        """Have both ends send."""
        if self._rng.random() < 0.1:
            self._end(reset=self._rng.random() < 0.5)
            self._streams = self._open()
        rng = self._rng
        self._sent = rng.randbytes(length(rng, 1 << 14)), rng.randbytes(length(rng, 1 << 14))
        for stream, octets in zip(self._streams, self._sent, strict=True):
            at = 0
            while at < len(octets):
                piece = octets[at : at + rng.choice((7, 64, 500, 20_000))]
                stream.sendall(piece, SECONDS)
                at += len(piece)

    def finish(self) -> int:
        """Take all bytes at both ends."""
        for stream, octets in zip(self._streams, self._sent[::-1], strict=True):
            came = stream.receive_exactly(len(octets), SECONDS)
            assert came == octets, "octets of a stream are not those that were sent"
        return sum(map(len, self._sent))

    def _end(self, *, reset: bool) -> None:
        near, far = self._rng.choice((self._streams, self._streams[::-1]))
        if reset:
            # RFC 9293, SHLD-3: octets that nobody has read.
            near.sendall(b"never read", SECONDS)
            far.wait_readable(SECONDS)
            far.close()
            self._wait_for_reset(near)
            near.close()
            return
        near.close()
        try:
            far.receive_exactly(1, SECONDS)
        except StreamClosed:
            far.close()
            return
        raise AssertionError("an octet came that nobody has sent")

    @staticmethod
    def _wait_for_reset(near: NetworkStream) -> None:
        """A RST that is lost comes again only if this end says something."""
        for _ in range(RESETS):
            try:
                near.receive_exactly(1, RESET_SECONDS)
            except ConnectionReset:
                return
            except TransportTimeout:
                with contextlib.suppress(ConnectionReset):
                    near.sendall(b"still there?", SECONDS)
        raise AssertionError("a connection was not reset")

    def close(self) -> None:
        """End the connection."""
        self._end(reset=False)
