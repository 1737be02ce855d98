"""Scripts of packetdrill: where they are, which are excused, what running one gives."""

import contextlib
import os
import re
import socket
import subprocess
import tempfile
import threading
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.packetdrill.server import Server, serve
from tools.packetdrill.trace import Recorder, Trace
from tools.packetdrill.world import LOCAL, REMOTE, AnyWorld, World

EXCUSED = Path(__file__).with_name("excused.toml")
EXCUSED_ENGINE = Path(__file__).with_name("excused_engine.toml")
# Of one script, in seconds of the wall clock.
_SECONDS = 60
_TIMESTAMPS = [
    (re.compile(r"sackOK,TS val \d+ ecr \d+"), "nop,nop,sackOK"),
    (re.compile(r"<nop,nop,TS val \d+ ecr \d+>"), ""),
]
_PUSHED = re.compile(r"> P\.")


@dataclass(frozen=True)
class Excuse:
    """Why a script does not pass: it ends at ``line``, 0 if before its first one.

    ``message`` is part of what packetdrill says of that, so that another failure there is none.
    ``unpushed`` are lines that pass if PSH is not expected there; with ``timestamps`` the rest
    passes if that option is left out. With either, the script so changed has to pass, or to get as
    far as line ``then``.
    """

    name: str
    line: int
    reason: str
    message: str
    unpushed: tuple[int, ...] = ()
    timestamps: bool = False
    then: int | None = None

    @property
    def changes(self) -> bool:
        """Whether there is a changed script, too."""
        return bool(self.unpushed) or self.timestamps

    def change(self, text: str) -> str:
        """The script without what it is excused for."""
        lines = text.splitlines()
        for number in self.unpushed:
            lines[number - 1] = _PUSHED.sub("> .", lines[number - 1])
        if self.timestamps:
            for pattern, instead in _TIMESTAMPS:
                lines = [pattern.sub(instead, line) for line in lines]
        return "\n".join([*lines, ""])


@dataclass(frozen=True)
class Outcome:
    """What a run gave: the line at which it failed and the message, if it did; what it accepted."""

    passed: bool
    line: int
    message: str
    trace: Trace


def read_excuses(text: str) -> dict[str, Excuse]:
    """The rows of excused.toml by the script's name. Raises ``ValueError`` for a bad row."""
    rows: dict[str, Excuse] = {}
    for row in tomllib.loads(text).get("script", []):
        try:
            excuse = Excuse(**{**row, "unpushed": tuple(row.get("unpushed", ()))})
        except TypeError as error:
            raise ValueError(f"row {row}: {error}") from error
        if excuse.name in rows:
            raise ValueError(f"{excuse.name} has two rows")
        if not excuse.message.strip():
            raise ValueError(f"{excuse.name} has no message")
        if not excuse.reason.strip():
            raise ValueError(f"{excuse.name} has no reason")
        rows[excuse.name] = excuse
    return rows


def find(folder: Path) -> dict[str, Path]:
    """All scripts below a folder, by the last folder and the file of each, or by the whole path if
    there is another one of that name.
    """
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.pkt")):
        short = f"{path.parent.name}/{path.name}"
        found[short if short not in found else str(path.relative_to(folder))] = path
    return found


def run(
    program: Path,
    shared_object: Path,
    name: str,
    text: str,
    make_world: Callable[[Recorder], AnyWorld] = World,
) -> Outcome:
    """Run a script in simulated time."""
    with contextlib.closing(make_world(Recorder(name))) as world:
        return _run(program, shared_object, name, text, Server(world))


def _run(program: Path, shared_object: Path, name: str, text: str, server: Server) -> Outcome:
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    theirs = [pair[1].fileno() for pair in pairs]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / Path(name).name
        script.write_text(text)
        process = subprocess.Popen(
            [
                str(program),
                "--ip_version=ipv4",
                f"--local_ip={LOCAL.ip}",
                f"--remote_ip={REMOTE}",
                f"--so_filename={shared_object}",
                f"--so_flags={theirs[0]},{theirs[1]}",
                str(script),
            ],
            cwd=folder,
            env={**os.environ, "LD_PRELOAD": str(shared_object)},
            pass_fds=theirs,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for pair in pairs:
            pair[1].close()
        watch = threading.Timer(_SECONDS, process.kill)
        watch.start()
        try:
            serve(server, pairs[0][0], pairs[1][0])
            output, _ = process.communicate()
        finally:
            watch.cancel()
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
            for pair in pairs:
                pair[0].close()
    message = " ".join(output.replace(str(script), name).split())
    if server.refused:
        message = f"{message} (not done here: {'; '.join(server.refused)})"
    at = re.search(re.escape(name) + r":(\d+):", message)
    passed = process.returncode == 0
    line = int(at[1]) if at else 0
    return Outcome(passed, line, message, server.trace(passed))
