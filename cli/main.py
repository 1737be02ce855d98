"""The `stagecoach` command.

Each command is a folder: `options.py` adds its options to the parser, with what checks them and
what runs it, and `command.py` does it. `options.py` imports `command.py` only when the command
runs: it may need an extra that is not installed, and the other commands start sooner.
"""

import argparse
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from stagecoach.cli.cache.options import add_cache
from stagecoach.cli.capture.options import add_capture
from stagecoach.cli.decode.options import add_decode
from stagecoach.cli.demo.options import add_demo
from stagecoach.cli.devices.options import add_devices
from stagecoach.cli.info.options import add_info
from stagecoach.cli.ip.options import add_ip
from stagecoach.cli.memory.options import add_memory
from stagecoach.cli.memory_server.options import add_memory_server
from stagecoach.cli.nfs.options import add_nfs
from stagecoach.cli.perf.options import add_perf
from stagecoach.cli.perftest.options import add_perftest
from stagecoach.cli.rping.options import add_rping
from stagecoach.cli.top.options import add_top
from stagecoach.cli.verilog.options import add_verilog
from stagecoach.cli.wire.options import add_wire
from stagecoach.host_driver.extras import extra_named
from stagecoach.hw.cache import CacheError

COMMANDS = (
    add_demo,
    add_info,
    add_devices,
    add_top,
    add_rping,
    add_perf,
    add_perftest,
    add_nfs,
    add_memory_server,
    add_memory,
    add_ip,
    add_capture,
    add_wire,
    add_verilog,
    add_cache,
    add_decode,
)
"""What adds each command, in the order of `--help`."""

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """Tells of bad input in one line, and of the first thing that is wrong."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuses an unknown option where a command is wanted.

        What follows it would be taken for the command, and its own value refused.
        """
        given = sys.argv[1:] if args is None else list(args)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction) and not self._takes_first(given):
                options = ", ".join(self._option_string_actions)
                self.error(
                    f"unrecognized arguments: {given[0]}; "
                    f"allowed before {action.metavar}: {options}"
                )
        return super().parse_known_args(given, namespace)

    def _takes_first(self, given: list[str]) -> bool:
        """Whether the first argument is no option, or one of this parser, perhaps shortened."""
        if not given or not given[0].startswith("-"):
            return True
        name, known = given[0].partition("=")[0], self._option_string_actions
        if name.startswith("--"):
            return any(option.startswith(name) for option in known)
        return name[:2] in known

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_INPUT, f"{self.prog}: {message}\n")


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = _Parser(
        prog="stagecoach", description="An open iWARP RNIC, in simulation or on a board."
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"stagecoach {importlib.metadata.version('stagecoach')}",
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in COMMANDS:
        add(subparsers)
    return parser


def _drop_output() -> None:
    """Has the interpreter not fail at its end on what could not be printed."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _follows_interrupt(error: BaseException) -> bool:
    """Whether it came while what was interrupted was closed."""
    before = error.__context__
    return before is not None and (
        isinstance(before, KeyboardInterrupt) or _follows_interrupt(before)
    )


def _text_of(error: Exception) -> str:
    """What is told of an error: its text and notes, and of one of the system what it is about."""
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", []))
    if isinstance(error, OSError) and error.strerror:
        what = [] if error.filename is None else [str(error.filename)]
        return ": ".join([*what, error.strerror]) + notes
    return (str(error).strip() or f"failed with {type(error).__name__}") + notes


def _interrupted(command: str) -> int:
    print(f"stagecoach {command}: interrupted", file=sys.stderr)
    return EXIT_INTERRUPTED


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    from stagecoach.host_driver.errors import StagecoachError
    from stagecoach.sim.build import BuildError
    from stagecoach.sim.capture.file import CaptureError

    parser = build_parser()
    options, unknown = parser.parse_known_args(arguments)
    of_command = _Parser(prog=f"{parser.prog} {options.command}")
    if unknown:
        of_command.error(f"unrecognized arguments: {' '.join(unknown)}")
    if "check" in options:
        options.check(of_command, options)
    try:
        with extra_named():
            status = options.run(options)
        sys.stdout.flush()  # a full disk shall be told here, not at the interpreter's end
        return int(status)
    except BrokenPipeError:
        _drop_output()  # nobody reads what is printed, e.g. `decode | head`
        return 0 if options.command == "decode" else EXIT_FAILED
    except Exception as error:
        if _follows_interrupt(error):
            return _interrupted(options.command)
        told = StagecoachError | OSError | BuildError | CacheError | CaptureError
        if not isinstance(error, told):
            raise
        if isinstance(error, OSError) and error.errno is not None:
            _drop_output()
        first, *rest = _text_of(error).splitlines()
        print(f"stagecoach {options.command}: {first}", file=sys.stderr)
        for line in rest:
            print(line, file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return _interrupted(options.command)


if __name__ == "__main__":
    sys.exit(main())
