"""rping of rdmacm-utils with `stagecoach rping`."""

from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from tools.interop.job import Job, JobError
from tools.interop.lab import Lab
from tools.interop.wire import Settled, check

PORT = 7174
_COUNT = 100


@dataclass(frozen=True)
class Rping:
    """Clients that each have `_COUNT` pings, all at the same time, and a server.

    linux_serves: whether the server is the guest's. size: bytes of a ping. clients: how many.
    options: of `stagecoach rping`, about MPA startup. siw: parameters of siw.
    """

    linux_serves: bool
    size: int
    clients: int = 1
    options: tuple[str, ...] = ()
    siw: dict[str, int] = field(default_factory=dict)

    def __call__(self, lab: Lab) -> None:
        """Raises `JobError` if an end fails."""
        with lab.siw(self.siw):
            if self.linux_serves:
                self._to_linux(lab)
            else:
                self._from_linux(lab)

    def check(self, capture: Path) -> None:
        """Raises `JobError` if MPA startup did not settle what the case is about."""
        crc = "--no-crc" not in self.options or self.siw.get("mpa_crc_required") == 1
        peer_to_peer = "--peer-to-peer" in self.options or self.siw.get("peer_to_peer") == 1
        expected = Settled(crc, self.siw.get("mpa_version", 2), peer_to_peer)
        check(capture, expected, self.clients)

    def _from_linux(self, lab: Lab) -> None:
        several = ("-P",) if self.clients > 1 else ()
        arguments = ("-s", "-d", "-p", "0", "-S", str(self.size), *several, *self.options)
        with lab.ours("rping", *arguments) as server, ExitStack() as stack:
            port = server.wait_for("listening at port").split()[-1]
            command = f"rping -c -a {lab.here} -p {port} -C {_COUNT} -S {self.size} -V"
            clients = [stack.enter_context(lab.theirs(command)) for _ in range(self.clients)]
            for client in clients:
                client.finish()
            told = f"has closed after {_COUNT} pings"
            server.wait_for(told, count=self.clients)
            if not several:
                server.finish()

    def _to_linux(self, lab: Lab) -> None:
        several = "-P" if self.clients > 1 else ""
        command = f"rping -s -p {PORT} -S {self.size} {several}"
        address, port = lab.there(PORT)
        sizes = ("-S", str(self.size), "-C", str(_COUNT))
        arguments = ("-c", "-d", "-a", address, "-p", str(port), *sizes, "-V", *self.options)
        with lab.their_server(command, PORT) as server, ExitStack() as stack:
            clients = []
            for number in range(self.clients):
                # rping keeps one connection that asks, and loses the others.
                client = stack.enter_context(lab.ours("rping", *arguments, number=number))
                client.wait_for("connected to")
                clients.append(client)
            for client in clients:
                client.finish()
            if not several:
                finish_server(server)


def finish_server(server: Job) -> None:
    """Waits for the end of Linux' rping, after that of its client.

    One of its threads may look for events in what the other one has closed: it then ends with 255,
    after all pings. Raises `JobError` for another failure.
    """
    try:
        server.finish()
    except JobError:
        closed = any("rdma_get_cm_event: Bad file descriptor" in line for line in server.lines)
        if not (server.status == 255 and closed):
            raise


@dataclass(frozen=True)
class TwoGuests:
    """Two guests ping one device at the same time, each with two clients."""

    size: int

    def __call__(self, lab: Lab) -> None:
        """Raises `JobError` if an end fails."""
        options = ("-s", "-d", "-P", "-p", "0", "-S", str(self.size))
        with (
            closing(lab.boot(lab.guest.wires[-1])) as other,
            lab.ours("rping", *options) as server,
            ExitStack() as stack,
        ):
            port = server.wait_for("listening at port").split()[-1]
            command = f"rping -c -a {lab.here} -p {port} -C {_COUNT} -S {self.size} -V"
            labs = (lab, replace(lab, guest=other)) * 2
            clients = [stack.enter_context(each.theirs(command)) for each in labs]
            for client in clients:
                client.finish()
            server.wait_for(f"has closed after {_COUNT} pings", count=len(clients))
