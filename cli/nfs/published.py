"""Tells `stagecoach top` of the clients of a server, if the environment names its folder."""

import asyncio
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from stagecoach.host_driver.snapshots.folder import (
    FolderError,
    named_folder,
    remove_dead,
    server_file_of,
    write_file,
)
from stagecoach.host_driver.snapshots.publisher import DEFAULT_INTERVAL, INTERVAL_VARIABLE
from stagecoach.host_driver.snapshots.publisher import parse_interval as parse
from stagecoach.ulp.nfs.server.clients import Clients
from stagecoach.ulp.nfs.threads import in_thread

_LOG = logging.getLogger(__name__)


def snapshot(clients: Clients, is_open: bool) -> dict[str, Any]:
    """What is known of the clients now."""
    rows = [
        {
            "client": each.number,
            "address": each.address,
            "over": each.over,
            "since": each.since,
            "calls": each.calls,
            "octets_received": each.octets_received,
            "octets_sent": each.octets_sent,
            "mounted": [path.decode(errors="backslashreplace") for path in each.mounted],
        }
        for each in clients.connected.values()
    ]
    return {
        "server": os.getpid(),
        "program": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "open": is_open,
        "time": time.time(),
        "clients": rows,
    }


async def publish_clients(clients: Clients) -> None:
    """Writes a snapshot now and then until it is cancelled; then the file is removed.

    A server does not fail because nobody can look at it: what is wrong is logged, once.
    """
    try:
        folder = named_folder()
        if folder is None or not folder.is_dir():
            return
        interval = parse(os.environ.get(INTERVAL_VARIABLE, "") or str(DEFAULT_INTERVAL))
        remove_dead(folder)
    except (FolderError, ValueError) as error:
        _LOG.warning("stagecoach top does not see the clients: %s", error)
        return
    path = server_file_of(folder, os.getpid())
    told = False
    try:
        while True:
            try:
                await in_thread(write_file, path, json.dumps(snapshot(clients, True)))
            except FolderError as error:
                if not told and folder.is_dir():
                    _LOG.warning("stagecoach top does not see the clients: %s", error)
                    told = True
            await asyncio.sleep(interval)
    finally:
        path.unlink(missing_ok=True)
