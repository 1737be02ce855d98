"""NFS version 3 (RFC 1813) over RDMA or TCP: `from stagecoach import nfs`.

* clients: `mounted` connects to the server of an `NfsUrl` and mounts its path, `Ways` says over
  which device; `Files` finds, lists and removes files by path, `Files.nfs` has the procedures of
  NFS, `Copier` copies trees;
* servers: `Export` is a directory, `NfsServer` serves it, and with the `handle_key` of a folder the
  mounts of clients survive a restart;
* what a server refuses raises `NfsError` or `MountError`; `MountNotFound` and `HandleKeyError` say
  what is missing before.

docs/nfs.md shows them at work.
"""

from stagecoach.ulp.nfs.attributes import FileAttributes, FileType, SetAttributes
from stagecoach.ulp.nfs.client.connection import Ways, mounted
from stagecoach.ulp.nfs.client.copy import Copier, Progress
from stagecoach.ulp.nfs.client.files import Files, Found
from stagecoach.ulp.nfs.client.procedures import NfsClient
from stagecoach.ulp.nfs.client.url import NfsUrl
from stagecoach.ulp.nfs.mount import MountError, MountNotFound, MountStatus
from stagecoach.ulp.nfs.server.export import Export
from stagecoach.ulp.nfs.server.handle_key import HandleKeyError, handle_key
from stagecoach.ulp.nfs.server.rights import ClientRights, ServerRights, Squash
from stagecoach.ulp.nfs.server.serving import NfsServer
from stagecoach.ulp.nfs.status import NfsError, NfsStatus

__all__ = [
    "ClientRights",
    "Copier",
    "Export",
    "FileAttributes",
    "FileType",
    "Files",
    "Found",
    "HandleKeyError",
    "MountError",
    "MountNotFound",
    "MountStatus",
    "NfsClient",
    "NfsError",
    "NfsServer",
    "NfsStatus",
    "NfsUrl",
    "Progress",
    "ServerRights",
    "SetAttributes",
    "Squash",
    "Ways",
    "handle_key",
    "mounted",
]
