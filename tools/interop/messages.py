"""rdma_client and rdma_server of rdmacm-utils with `echo.py`: one Send each way."""

from dataclasses import dataclass
from pathlib import Path

from tools.interop.lab import Lab

PORT = 7471
_ECHO = str(Path(__file__).with_name("echo.py"))


@dataclass(frozen=True)
class Messages:
    """One run. linux_serves: with rdma_server. revision: of MPA, of the end that connects."""

    linux_serves: bool
    revision: int = 2

    def __call__(self, lab: Lab) -> None:
        """Raises `JobError` if an end fails."""
        if self.linux_serves:
            address, port = lab.there(PORT)
            arguments = ("connect", address, str(port), "--revision", str(self.revision))
            with (
                lab.their_server(f"rdma_server -p {PORT}", PORT) as server,
                lab.ours(*arguments, program=_ECHO) as client,
            ):
                client.finish()
                server.finish()
            return
        with lab.siw({"mpa_version": self.revision}), lab.ours("serve", program=_ECHO) as server:
            told = server.wait_for("listening at port").split()[-1]
            with lab.theirs(f"rdma_client -s {lab.here} -p {told}") as client:
                client.finish()
                server.finish()
