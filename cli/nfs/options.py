"""Options of `stagecoach nfs`."""

import argparse
import os
import re
from pathlib import Path
from typing import Any

from stagecoach.cli.options import add_device, add_startup, check_startup, number, startup_options
from stagecoach.ulp.nfs.client.url import DEFAULT_PORTS, RDMA, TCP, NfsUrl

_PROFILES = ("rfc8166", "rfc5666")
_MAXIMUM_ID = (1 << 32) - 2
STANDARD_OUTPUT = "-"
"""Where `get` may copy to; a file of that name is ./-."""
_URL = "nfs+rdma://HOST[:PORT]/PATH or, without a device, nfs+tcp://HOST[:PORT]/PATH"


def _parse_url(text: str) -> NfsUrl:
    try:
        return NfsUrl.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _parse_directory(text: str) -> Path:
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is not a directory")
    return path


def _parse_export(text: str) -> str:
    if not text.startswith("/") or re.search(r"/\.\.(/|$)|\0", text):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: an absolute path without ..")
    return text


def add_nfs(subparsers: Any) -> None:
    """Adds the command and its own commands."""
    nfs = subparsers.add_parser(
        "nfs",
        help="NFS version 3 over RDMA: a server, and copies from and to servers",
        description="NFS version 3 over RPC-over-RDMA or over TCP.",
    )
    commands = nfs.add_subparsers(dest="nfs_command", required=True, metavar="COMMAND")
    _add_serve(commands)
    _add_client(commands, "ls", "list a directory").add_argument(
        "-l", dest="long", action="store_true", help="with mode, owner, size and time"
    )
    _add_client(commands, "stat", "show what is known of a file")
    _add_recursive(_add_client(commands, "rm", "remove a file"))
    get = _add_client(commands, "get", "copy from a server")
    get.add_argument(
        "local",
        nargs="?",
        default=".",
        metavar="LOCAL",
        help="directory or new name (%(default)s); - is standard output",
    )
    _add_recursive(get)
    put = commands.add_parser("put", help="copy to a server", description=f"URL is {_URL}.")
    put.add_argument("local", type=Path, metavar="LOCAL")
    _add_ways(put)
    _add_recursive(put)
    nfs.set_defaults(check=_check, run=_run)


def _add_client(commands: Any, name: str, what: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=what, description=f"URL is {_URL}. Symbolic links are not followed."
    )
    _add_ways(parser)
    return parser


def _add_ways(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", type=_parse_url, metavar="URL")
    parser.add_argument(
        "--mount-port",
        type=number("port", 1, 65535),
        metavar="PORT",
        help="of the server's MOUNT program over TCP, if it is not on the connection of NFS and "
        "the server's rpcbind does not tell it",
    )
    _add_rdma(parser)
    add_startup(parser)


def _add_recursive(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-r", dest="recursive", action="store_true", help="directories, with all that is in them"
    )


def _add_rdma(parser: argparse.ArgumentParser) -> None:
    add_device(parser, "for RDMA")
    parser.add_argument(
        "--profile",
        choices=_PROFILES,
        default=_PROFILES[0],
        help="of RPC-over-RDMA; both sides have the same (%(default)s)",
    )


def _add_serve(commands: Any) -> None:
    serve = commands.add_parser(
        "serve",
        help="export a directory read-write",
        description="Serves NFS and MOUNT, version 3, for one directory, until it is interrupted. "
        "Everything is done with the rights of the user who runs it, or, if that is root, of the "
        "user whom the client names. Nothing proves who that is: serve nothing to networks whose "
        "machines may not all write it.",
    )
    serve.add_argument("directory", type=_parse_directory, metavar="DIR")
    serve.add_argument(
        "--export",
        type=_parse_export,
        metavar="PATH",
        help="that clients mount (the path of DIR)",
    )
    serve.add_argument(
        "-a", dest="address", default="", metavar="ADDRESS", help="where to listen (everywhere)"
    )
    for name, scheme in (("rdma", RDMA), ("tcp", TCP)):
        serve.add_argument(
            f"--{name}-port",
            type=number("port", 0, 65535),
            default=DEFAULT_PORTS[scheme],
            metavar="PORT",
            help="%(default)s; 0 chooses one",
        )
        serve.add_argument(
            f"--no-{name}", dest=name, action="store_false", help=f"do not serve {scheme}"
        )
    serve.add_argument(
        "-v", dest="verbose", action="store_true", help="tell of clients that connect, mount and go"
    )
    serve.add_argument("--read-only", action="store_true", help="refuse changes")
    _add_squash(serve)
    _add_rdma(serve)
    add_startup(serve)


def _add_squash(serve: argparse.ArgumentParser) -> None:
    """Options with the names and defaults of exports(5)."""
    whom = serve.add_mutually_exclusive_group()
    whom.add_argument(
        "--root-squash",
        dest="squash",
        action="store_const",
        const="root",
        default="root",
        help="a server run by root treats root of clients as the anonymous user (default)",
    )
    whom.add_argument(
        "--no-root-squash",
        dest="squash",
        action="store_const",
        const="none",
        help="... treats root of clients as root",
    )
    whom.add_argument(
        "--all-squash",
        dest="squash",
        action="store_const",
        const="all",
        help="... treats everyone as the anonymous user",
    )
    for name, what in (("uid", "user"), ("gid", "group")):
        serve.add_argument(
            f"--anon{name}",
            type=number(name, 0, _MAXIMUM_ID),
            metavar=name.upper(),
            help=f"of the anonymous {what} (65534)",
        )


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    parser.prog += f" {options.nfs_command}"
    if options.nfs_command == "serve" and not options.rdma and not options.tcp:
        parser.error("--no-rdma with --no-tcp; allowed: one of them")
    if options.nfs_command == "serve" and os.geteuid() != 0:
        for name in ("anonuid", "anongid"):
            if getattr(options, name) is not None:
                parser.error(f"--{name} without root; allowed: if root runs the server")
        if options.squash == "all":
            parser.error("--all-squash without root; allowed: if root runs the server")
    check_startup(parser, options)
    if options.nfs_command == "get" and options.local == STANDARD_OUTPUT and options.recursive:
        parser.error("-r with -; allowed: one file")
    if options.nfs_command == "put" and not (options.local.is_symlink() or options.local.exists()):
        parser.error(f"{options.local} is not there")


def _run(options: argparse.Namespace) -> int:
    # Only now: the other commands need nothing of this.
    from stagecoach.cli.nfs import command
    from stagecoach.cli.open_device import open_device
    from stagecoach.host_driver.context import Context
    from stagecoach.ulp.nfs.client.connection import Ways
    from stagecoach.ulp.nfs.server.export import Export
    from stagecoach.ulp.nfs.server.rights import NOBODY, Squash
    from stagecoach.ulp.rpcrdma.settings import ClientSettings, Profile, ServerSettings

    profile = Profile[options.profile.upper()]
    startup = startup_options(options)
    wanted: dict[str, Any] = {
        "connect_timeout": startup.timeout,
        "crc": startup.crc,
        "markers": startup.markers,
        "revision": startup.revision,
        "peer_to_peer": startup.peer_to_peer,
    }
    if options.nfs_command == "serve":
        squash = Squash(
            root=options.squash != "none",
            everybody=options.squash == "all",
            uid=NOBODY if options.anonuid is None else options.anonuid,
            gid=NOBODY if options.anongid is None else options.anongid,
        )
        rights = command.rights_of(squash)
        command.serve(
            Export(
                options.directory, options.export, options.read_only, rights, command.key_of_user()
            ),
            options.address,
            options.rdma_port if options.rdma else None,
            options.tcp_port if options.tcp else None,
            ServerSettings(profile=profile, **wanted),
            options.device,
            options.verbose,
        )
        return 0
    ways = Ways(
        lambda: Context(open_device(options.device, options.url.host)),
        ClientSettings(profile=profile, **wanted),
        options.mount_port,
    )
    if options.nfs_command == "ls":
        command.list_files(options.url, ways, options.long)
    elif options.nfs_command == "stat":
        command.show_status(options.url, ways)
    elif options.nfs_command == "rm":
        command.remove(options.url, ways, options.recursive)
    else:
        if options.nfs_command == "get" and options.local == STANDARD_OUTPUT:
            copied = command.get_to_output(options.url, ways)
        elif options.nfs_command == "get":
            copied = command.get(options.url, Path(options.local), ways, options.recursive)
        else:
            copied = command.put(options.local, options.url, ways, options.recursive)
        return 0 if copied.files else 1  # all that was asked for is no file
    return 0
