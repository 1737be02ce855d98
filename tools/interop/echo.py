"""The other end of rdma_client, rdma_server and ucmatose of rdmacm-utils: Sends each way.

`echo.py serve` takes the programs that connect, `echo.py connect ADDRESS PORT` asks those that
listen. Who connects sends first; with `--server-first`, as with ucmatose, who listens does. That is
the MPA Responder, so it takes only peers that connect peer-to-peer. Who sends second sends back
what came last: so does a client ucmatose, of which that is compared.
"""

import argparse
import os
from dataclasses import dataclass

from stagecoach import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    WC,
    Context,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
    connect,
    listen,
)
from stagecoach.cli.open_device import open_device
from stagecoach.cli.options import add_device

_SECONDS = 300.0


@dataclass(frozen=True)
class _Settings:
    """How many connections, messages each way on each, and bytes of a message."""

    connections: int
    messages: int
    size: int


class _Ends:
    """QPs with all receives posted, and a message that all of them send."""

    def __init__(self, context: Context, settings: _Settings):
        self._settings = settings
        messages, size = settings.messages, settings.size
        self._total = settings.connections * messages
        pd = PD(context)
        self._sends, self._receives = (CQ(context, self._total) for _ in range(2))
        attributes = QPInitAttr(self._sends, self._receives, QPCap(messages, messages))
        self.qps = [QP(pd, attributes) for _ in range(settings.connections)]
        self._message = bytearray(os.urandom(size))
        self._sent = MR(pd, self._message)
        self._places = [bytearray(messages * size) for _ in self.qps]
        self._came = [MR(pd, place) for place in self._places]
        for qp, came in zip(self.qps, self._came, strict=True):
            for number in range(messages):
                element = SGE(came.addr + number * size, size, came.lkey)
                qp.post_recv(RecvWR(sg=[element]))

    def send(self) -> None:
        """Sends all messages, and waits until they are sent."""
        element = SGE(self._sent.addr, self._settings.size, self._sent.lkey)
        for qp in self.qps:
            for _ in range(self._settings.messages):
                qp.post_send(SendWR(sg=[element]))
        self._complete(self._sends, "SEND")

    def receive(self) -> None:
        """Waits until all messages have come."""
        for found in self._complete(self._receives, "RECV"):
            if found.byte_len != self._settings.size:
                raise SystemExit(f"{found.byte_len} bytes came; expected: {self._settings.size}")

    def echo(self) -> None:
        """Has `send` send what came last."""
        self._message[:] = self._places[-1][-self._settings.size :]

    def compare(self) -> None:
        """Ends the program if what came is not what was sent."""
        if any(place != self._message * self._settings.messages for place in self._places):
            raise SystemExit("what came back is not what was sent")

    def _complete(self, cq: CQ, opcode: str) -> list[WC]:
        done = cq.wait(self._total, _SECONDS)
        for found in done:
            if (found.status.name, found.opcode.name) != ("SUCCESS", opcode):
                raise SystemExit(f"{found.describe()}; expected: {opcode}")
        print(f"{len(done)} times {opcode}", flush=True)
        return done


def main() -> None:
    """All connections, one time."""
    parser = argparse.ArgumentParser(description=__doc__)
    roles = parser.add_subparsers(dest="role", required=True)
    serving, asking = roles.add_parser("serve"), roles.add_parser("connect")
    asking.add_argument("address")
    asking.add_argument("port", type=int)
    asking.add_argument("--revision", type=int, default=2)
    for each in (serving, asking):
        add_device(each)
        each.add_argument("--connections", type=int, default=1)
        each.add_argument("--messages", type=int, default=1)
        each.add_argument("--size", type=int, default=16)  # of rdma_client and rdma_server
        each.add_argument("--server-first", action="store_true")
    options = parser.parse_args()
    settings = _Settings(options.connections, options.messages, options.size)
    with Context(open_device(options.device)) as context:
        ends = _Ends(context, settings)
        serves, first = options.role == "serve", options.server_first
        if serves:
            _accept(context, ends.qps, first)
        else:
            for qp in ends.qps:
                peer = (options.address, options.port)
                connect(qp, *peer, revision=options.revision, peer_to_peer=first)
        if serves == first:
            ends.send()
            ends.receive()
            if first:
                ends.compare()
        else:
            ends.receive()
            ends.echo()
            ends.send()
        for qp in ends.qps:
            qp.disconnect()


def _accept(context: Context, qps: list[QP], first: bool) -> None:
    with listen(context, "") as listener:
        print(f"listening at port {listener.port}", flush=True)
        for qp in qps:
            request = listener.get_request(_SECONDS)
            if first and not request.peer_to_peer:
                request.reject()
                raise SystemExit(
                    "the client does not connect peer-to-peer, so the server may not send first "
                    "(RFC 5044, 7.1.2)"
                )
            request.accept(qp)


if __name__ == "__main__":
    main()
