"""Server and client in one process, with a device each."""

import threading
from pathlib import Path
from typing import Self

from stagecoach.cli.perf.end import PeerClosed
from stagecoach.cli.perf.operations import Operation
from stagecoach.cli.perf.server import serve
from stagecoach.host_driver.context import Context
from stagecoach.sim.transport import SimulatedDevice

LOCALHOST = "127.0.0.1"

GRACE_SECONDS = 2.0
"""How long the server may take to end when its client has."""


class LocalServer:
    """A server in a thread, at any free port.

    Parameters
    ----------
    library: the built device.

    Attributes
    ----------
    error: why it has failed, or None. device: its device, a simulated one.
    """

    def __init__(self, operation: Operation, library: Path):
        self.error: Exception | None = None
        self._port = 0
        self._listening = threading.Event()
        self.device = SimulatedDevice(library=library)
        self._context = Context(self.device)
        self._thread = threading.Thread(target=self._run, args=(operation,))

    def _run(self, operation: Operation) -> None:
        try:
            with self._context:
                serve(self._context, operation, LOCALHOST, 0, self._tell)
        except Exception as error:
            self.error = error
        finally:
            self._listening.set()

    def _tell(self, port: int) -> None:
        self._port = port
        self._listening.set()

    @property
    def port(self) -> int:
        """Where it listens. Raises what has kept it from that."""
        self._listening.wait()
        if self.error is not None:
            raise self.error
        return self._port

    def first_error(self, error: Exception) -> Exception:
        """The error of the client, or that of the server if it is the reason.

        A lost connection is what a failure of the other end looks like.
        """
        self._thread.join(GRACE_SECONDS)
        if self.error is None or isinstance(self.error, PeerClosed):
            return error
        return self.error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Nothing to do for a server that has served its client; it ends one that has none.
        self._thread.join(GRACE_SECONDS)
        if self._thread.is_alive():
            self._context.close()
        self._thread.join()
