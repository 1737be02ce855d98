"""Where a case runs: the guest, one of the two ways to it, and commands of both sides."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.interop import host
from tools.interop.guest import ADDRESS, HOST, Guest
from tools.interop.job import Job

SOCKETS = "host's TCP"
"""Transport: the device's LLP is a TCP socket of this machine, reached by QEMU's user network."""

OWN = "device's TCP"
"""Transport: the device has its own network, and the wire goes to the guest."""

_OURS = "192.0.2.1"
_PARAMETERS = "/sys/module/siw/parameters"


@dataclass(frozen=True)
class Way:
    """How device and guest reach each other: `SOCKETS` or `OWN`; for `OWN`, how much is lost."""

    transport: str
    loss: float = 0.0


@dataclass(frozen=True)
class Lab:
    """A guest, a way to it, and a folder in which commands run.

    boot: another guest, which who calls it closes. seed: of what the wire loses.
    """

    guest: Guest
    way: Way
    folder: Path
    boot: Callable[[], Guest]
    seed: int = 1

    @property
    def here(self) -> str:
        """The address of this end, as the guest has it."""
        return HOST if self.way.transport == SOCKETS else _OURS

    def there(self, port: int) -> tuple[str, int]:
        """Address and port of a server in the guest, as this end has them."""
        if self.way.transport == OWN:
            return ADDRESS, port
        return "127.0.0.1", self.guest.forwarded[port]

    @property
    def network(self) -> str:
        """The guest's interface of this way, for `Guest.captured`."""
        return "user" if self.way.transport == SOCKETS else "wire"

    @property
    def siw_device(self) -> str:
        """The device of siw on that interface."""
        return "siw0" if self.way.transport == SOCKETS else "siw1"

    @contextmanager
    def ours(self, *arguments: str, program: str = "") -> Iterator[Job]:
        """A command of `stagecoach` with this end's device, which ends with the block.

        program: another one of Python, which has `--device`, too.
        """
        device = []
        if self.way.transport == OWN:
            wire = f"sim://?wire=unix:{self.guest.wire}&ip={_OURS}/24&tcp=reference"
            device = ["--device", f"{wire}&loss={self.way.loss}&seed={self.seed}"]
        job = host.start(*arguments, *device, folder=self.folder, program=program)
        try:
            yield job
        finally:
            job.stop()

    @contextmanager
    def theirs(self, command: str) -> Iterator[Job]:
        """A command line of the guest; its program ends with the block at the latest."""
        with self._stopped(self.guest.start(command), command) as job:
            yield job

    @contextmanager
    def their_server(self, command: str, port: int) -> Iterator[Job]:
        """A program of the guest that listens at a TCP port. Raises `JobError` if it ends first."""
        with self._stopped(self.guest.start(f"serve {port} {command}"), command) as job:
            job.wait_for("LISTENING")
            yield job

    @contextmanager
    def _stopped(self, job: Job, command: str) -> Iterator[Job]:
        try:
            yield job
        finally:
            if job.status is None:
                self.guest.run(f"killall -q {command.split()[0]}; true")

    @contextmanager
    def siw(self, parameters: Mapping[str, int]) -> Iterator[None]:
        """Parameters of siw, which are what they were before after the block."""
        before = {name: self.guest.run(f"cat {_PARAMETERS}/{name}")[0] for name in parameters}
        self._set(parameters)
        try:
            yield
        finally:
            self._set(before)

    def _set(self, parameters: Mapping[str, object]) -> None:
        for name, value in parameters.items():
            self.guest.run(f"echo {value} > {_PARAMETERS}/{name}")
