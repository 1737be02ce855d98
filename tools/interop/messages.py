"""rdma_client, rdma_server and ucmatose of rdmacm-utils with `echo.py`: Sends each way."""

from dataclasses import dataclass
from pathlib import Path

from tools.interop.lab import Lab
from tools.interop.wire import Settled, check

PORT = 7471
ECHO = str(Path(__file__).with_name("echo.py"))


@dataclass(frozen=True)
class Messages:
    """One run. linux_serves: with rdma_server. revision: of MPA, of the end that connects."""

    linux_serves: bool
    revision: int = 2

    def __call__(self, lab: Lab) -> None:
        """Raises `JobError` if an end fails."""
        if self.linux_serves:
            _to_linux(lab, "rdma_server", ("--revision", str(self.revision)))
        else:
            with lab.siw({"mpa_version": self.revision}):
                _from_linux(lab, "rdma_client", ())


@dataclass(frozen=True)
class Ucmatose:
    """Messages each way on some connections at once. The server sends first, so the client has to
    connect peer-to-peer. A client on Linux sends back what it got, which is compared.
    """

    linux_serves: bool
    connections: int = 4
    messages: int = 50
    size: int = 10_001

    def __call__(self, lab: Lab) -> None:
        """Raises `JobError` if an end fails."""
        counts = (self.connections, self.messages, self.size)
        theirs = "ucmatose -c {} -C {} -S {}".format(*counts)
        names = ("--connections", "--messages", "--size")
        told = (text for pair in zip(names, map(str, counts), strict=True) for text in pair)
        ours = ("--server-first", *told)
        if self.linux_serves:
            _to_linux(lab, theirs, ours)
        else:
            with lab.siw({"peer_to_peer": 1}):
                _from_linux(lab, theirs, ours)

    def check(self, capture: Path) -> None:
        """Raises `JobError` if the connections were not peer-to-peer."""
        check(capture, Settled(peer_to_peer=True), self.connections)


@dataclass(frozen=True)
class RefusedUcmatose:
    """ucmatose that does not connect peer-to-peer is refused: RFC 5044 (7.1.2) forbids its server,
    the MPA Responder, to send first.
    """

    def __call__(self, lab: Lab) -> None:
        """Raises `JobError` if it is not."""
        with lab.ours("serve", "--server-first", program=ECHO) as server:
            port = server.wait_for("listening at port").split()[-1]
            with lab.theirs(f"ucmatose -s {lab.here} -p {port}") as client:
                server.wait_for("does not connect peer-to-peer")
                client.wait_for("RDMA_CM_EVENT_REJECTED")


def _from_linux(lab: Lab, program: str, options: tuple[str, ...]) -> None:
    """A program of Linux connects."""
    with lab.ours("serve", *options, program=ECHO) as server:
        port = server.wait_for("listening at port").split()[-1]
        with lab.theirs(f"{program} -s {lab.here} -p {port}") as client:
            client.finish()
            server.finish()


def _to_linux(lab: Lab, program: str, options: tuple[str, ...]) -> None:
    """A program of Linux listens."""
    address, port = lab.there(PORT)
    arguments = ("connect", address, str(port), *options)
    with (
        lab.their_server(f"{program} -p {PORT}", PORT) as server,
        lab.ours(*arguments, program=ECHO) as client,
    ):
        client.finish()
        server.finish()
