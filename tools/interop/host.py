"""Commands of `stagecoach` on this machine."""

import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread

from tools.interop.job import Job

_GRACE = 10.0


def start(*arguments: str, folder: Path, program: str = "") -> Job:
    """Starts `stagecoach ARGUMENTS`, or a program of Python, in a folder.

    Its lines are those of both outputs.
    """
    process = subprocess.Popen(
        [sys.executable, *([program] if program else ["-m", "stagecoach.cli"]), *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="backslashreplace",
    )

    def stop() -> None:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    job = Job(f"{Path(program).name or 'stagecoach'} {' '.join(arguments[:2])}", stop)

    def follow() -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                job.feed(line.rstrip("\n"))
        job.end(process.wait())

    Thread(target=follow, name=job.name, daemon=True).start()
    return job
