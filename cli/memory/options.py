"""The options of `stagecoach memory`."""

import argparse
from pathlib import Path
from typing import Any

from stagecoach.cli.options import (
    add_device,
    add_startup,
    check_startup,
    number,
    parse_file,
    size,
    startup_options,
)
from stagecoach.hw.interface.device_memory import MOST_MEMORY
from stagecoach.ulp.memory_server.protocol import DEFAULT_PORT

_MOST_MESSAGE = 64 << 10
_MOST_MESSAGES = 1 << 20


def add_memory(subparsers: Any) -> None:
    """Adds the command and its own commands."""
    memory = subparsers.add_parser(
        "memory",
        help="read and write the memory of a memory server",
        description="The client of `stagecoach memory-server`.",
    )
    commands = memory.add_subparsers(dest="memory_command", required=True, metavar="COMMAND")

    put = _add(commands, "put", "copy a file into the server's memory")
    put.add_argument("file", type=parse_file, metavar="FILE")
    _add_offset(put)

    get = _add(commands, "get", "copy a part of the server's memory into a file")
    get.add_argument("file", type=Path, metavar="FILE", help="is replaced if it exists")
    _add_offset(get)
    get.add_argument(
        "--size",
        type=size("size", 0, MOST_MEMORY),
        metavar="SIZE",
        help="of the part, such as 64KiB (all from --offset on)",
    )

    bench = _add(
        commands,
        "bench",
        "measure throughput and latency; OVERWRITES the server's memory from --offset on",
    )
    _add_offset(bench)
    bench.add_argument(
        "--size",
        type=size("size", 1, _MOST_MESSAGE),
        default=_MOST_MESSAGE,
        metavar="SIZE",
        help="of a message of the throughput (64KiB, the most)",
    )
    bench.add_argument(
        "--messages",
        type=number("messages", 1, _MOST_MESSAGES),
        default=256,
        help="of each throughput (%(default)s)",
    )
    bench.add_argument(
        "--latency-messages",
        type=number("latency-messages", 1, _MOST_MESSAGES),
        default=100,
        help="of each latency (%(default)s)",
    )
    bench.add_argument("--json", action="store_true", help="print the result as JSON")
    memory.set_defaults(check=_check, run=_run)


def _add(commands: Any, name: str, what: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=what, description=f"{what[0].upper()}{what[1:]}."
    )
    parser.add_argument("host", metavar="HOST", help="address of the server")
    parser.add_argument(
        "-p",
        "--port",
        type=number("port", 1, 65535),
        default=DEFAULT_PORT,
        help="of the server (%(default)s)",
    )
    add_startup(parser)
    add_device(parser)
    return parser


def _add_offset(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--offset",
        type=size("offset", 0, MOST_MEMORY),
        default=0,
        metavar="OFFSET",
        help="in the server's memory, such as 1MiB (%(default)s)",
    )


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    check_startup(parser, options)
    if options.memory_command == "bench" and options.offset % 8:
        parser.error(f"offset is {options.offset}; allowed: a multiple of 8 (FetchAdd)")


def _run(options: argparse.Namespace) -> int:
    from stagecoach.cli.memory import command

    server = command.Server(options.device, options.host, options.port, startup_options(options))
    match options.memory_command:
        case "put":
            command.put(server, options.file, options.offset)
        case "get":
            command.get(server, options.file, options.offset, options.size)
        case _:
            command.bench(
                server,
                options.offset,
                options.size,
                options.messages,
                options.latency_messages,
                as_json=options.json,
            )
    return 0
