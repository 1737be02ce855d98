"""Linux' end as a test has it: `peer_program` in a process of the test's network namespace."""

import contextlib
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests.linux.ours import PATIENCE

_PROGRAM = Path(__file__).with_name("peer_program.py")
# The program gives up first, and says what it waited for.
_LONGER = PATIENCE + 20


class LinuxError(Exception):
    """A call of a socket failed; `name` is its exception, such as ConnectionResetError."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


class Pending:
    """A call that is under way."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._reply: dict[str, Any] = {}

    @property
    def over(self) -> bool:
        """Whether it has returned."""
        return self._over.is_set()

    def answered(self, reply: dict[str, Any]) -> None:
        """It returned."""
        self._reply = reply
        self._over.set()

    def result(self) -> Any:
        """Wait for what it returns. Raises `LinuxError`."""
        if not self._over.wait(_LONGER):
            raise LinuxError("TimeoutError", "Linux' end does not answer")
        if "error" in self._reply:
            raise LinuxError(self._reply["error"], self._reply["text"])
        return self._reply["value"]


class LinuxPeer:
    """Starts the program. `outer`: a command in front of it, such as `unshare -n`."""

    def __init__(self, *outer: str) -> None:
        command = [*outer, sys.executable, "-I", str(_PROGRAM)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout
        self._lines = self._process.stdout
        self.pid = int(json.loads(self._lines.readline())["pid"])
        self._pending: dict[int, Pending] = {}
        self._requests = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(self, do: str, **arguments: Any) -> Pending:
        """Begin a call of `peer_program.Peer`."""
        self._requests += 1
        pending = self._pending[self._requests] = Pending()
        line = json.dumps({"id": self._requests, "do": do, **arguments})
        assert self._process.stdin
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return pending

    def __call__(self, do: str, **arguments: Any) -> Any:
        """Call it, and wait for its result. Raises `LinuxError`."""
        return self.start(do, **arguments).result()

    def connect(self, host: str, port: int, **arguments: Any) -> int:
        """A connection, when it is established."""
        return self("established", of=self("begin", host=host, port=port, **arguments))

    def close(self) -> None:
        """End the program."""
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._lines.close()

    def _read(self) -> None:
        for line in self._lines:
            reply = json.loads(line)
            self._pending[reply["id"]].answered(reply)
        for pending in list(self._pending.values()):
            if not pending.over:
                pending.answered({"error": "EOFError", "text": "Linux' end has died"})
