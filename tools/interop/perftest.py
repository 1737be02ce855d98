"""The tools of perftest with `stagecoach perftest`."""

from dataclasses import dataclass, field

from tools.interop.lab import Lab

PORT = 18515
TOOLS = ("ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_read_lat", "ib_send_bw", "ib_send_lat")
_SIZE = 4096
_COUNT = 200


@dataclass(frozen=True)
class Perftest:
    """One test of a tool.

    linux_serves: whether the server is the guest's. siw: parameters of siw.
    """

    linux_serves: bool
    tool: str
    siw: dict[str, int] = field(default_factory=dict)

    def __call__(self, lab: Lab) -> None:
        """Raises `JobError` if an end fails."""
        with lab.siw(self.siw):
            self._test(lab)

    def _test(self, lab: Lab) -> None:
        test = ("-s", str(_SIZE), "-n", str(_COUNT))
        theirs = f"{self.tool} -R -F -d {lab.siw_device} {' '.join(test)}"
        if self.linux_serves:
            address, port = lab.there(PORT)
            with (
                lab.their_server(f"{theirs} -p {PORT}", PORT) as server,
                lab.ours("perftest", self.tool, address, "-p", str(port), *test) as client,
            ):
                client.finish()
                server.finish()
            return
        with lab.ours("perftest", self.tool, "-p", "0", *test) as server:
            port_told = server.wait_for("Waiting for a client at port").split()[-1]
            with lab.theirs(f"{theirs} -p {port_told} {lab.here}") as client:
                client.finish()
                server.finish()


@dataclass(frozen=True)
class RefusedWriteLat:
    """`ib_write_lat` of a client that does not connect peer-to-peer is refused, and told why.

    Its server would have to send first, which RFC 5044 (7.1.2) forbids the MPA Responder.
    """

    def __call__(self, lab: Lab) -> None:
        """Raises `JobError` if it is not."""
        tool = "ib_write_lat"
        with lab.ours("perftest", tool, "-p", "0") as server:
            port = server.wait_for("Waiting for a client at port").split()[-1]
            command = f"{tool} -R -F -d {lab.siw_device} -p {port} {lab.here}"
            with lab.theirs(command) as client:
                server.wait_for("allowed: a client that connects peer-to-peer")
                client.wait_for("Failed to connect RDMA CM events")
