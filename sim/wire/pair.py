"""A wire between two devices of one machine, in one process or two, found by its name."""

import os
import socket
import struct
import time

from stagecoach.sim.wire.errors import WireInUse, WireNotPermitted
from stagecoach.sim.wire.stream import StreamEnd, new_socket

# The other process may be between bind() and listen().
_ATTEMPTS = 50
_PAUSE_SECONDS = 0.002
_CREDENTIALS = struct.Struct("3i")  # struct ucred of unix(7): pid, uid, gid


def open_pair(name: str) -> StreamEnd:
    """One end of a pair: the first to come listens, the second one connects, a third is refused.

    The name is that of a user in a network namespace of Linux. It is free again when the first end
    is closed. Raises `WireInUse`, and `WireNotPermitted` if another user took the name.
    """
    # An abstract address of unix(7): no file is left, whatever happens.
    place = f"\0stagecoach-wire-{os.geteuid()}-{name}"
    text = f"pair:{name}"
    for _ in range(_ATTEMPTS):
        made = new_socket()
        try:
            made.connect(place)
        except ConnectionRefusedError:
            made.close()
        except BlockingIOError:
            made.close()
            break
        else:
            if not _is_of_this_user(made):
                made.close()
                raise WireNotPermitted(f"{text}: a program of another user has the name")
            return StreamEnd(text, connected=made)
        made = new_socket()
        try:
            made.bind(place)
        except OSError:
            made.close()
            time.sleep(_PAUSE_SECONDS)
            continue
        made.listen(0)
        return StreamEnd(text, listener=made, accepts=_is_of_this_user)
    raise WireInUse(f"{text}: it has two ends already; allowed: another name")


def _is_of_this_user(peer: socket.socket) -> bool:
    octets = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(octets)
    return bool(uid == os.geteuid())
