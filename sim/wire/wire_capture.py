"""The capture of a wire: a pcapng file of all frames that arrived."""

import errno
import os

from stagecoach.sim.capture.pcapng import PcapngWriter
from stagecoach.sim.wire.errors import WireError
from stagecoach.sim.wire.impairments import PS_PER_NS


class WireCapture:
    """A file that the wire's frames go to.

    A frame that cannot be written ends the capture and not the wire: `close` tells of it.

    path: is overwritten. Raises `WireError` if it cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._failure: OSError | None = None
        try:
            self._writer = PcapngWriter(path)
        except OSError as error:
            raise _error(path, error) from None

    def frame(self, time_ps: int, frame: bytes, *, inbound: bool) -> None:
        """A frame that arrived."""
        if self._failure is not None:
            return
        try:
            self._writer.frame(frame, time_ps // PS_PER_NS, inbound=inbound)
        except OSError as error:
            self._failure = error

    def close(self) -> None:
        """Closes the file. Raises `WireError` if not all frames are in it."""
        try:
            self._writer.close()
        except OSError as error:
            self._failure = self._failure or error
        if self._failure is not None:
            raise _error(self._path, self._failure)


def require_writable(path: str) -> None:
    """Raises `WireError` if a capture cannot be opened, as far as can be seen; touches nothing."""
    place = os.path.realpath(path)
    folder = os.path.dirname(place)
    if os.path.isdir(place):
        why = errno.EISDIR
    elif not os.path.exists(folder):
        why = errno.ENOENT
    elif not os.path.isdir(folder):
        why = errno.ENOTDIR
    elif not os.access(place if os.path.exists(place) else folder, os.W_OK):
        why = errno.EACCES
    else:
        return
    raise _error(path, OSError(why, os.strerror(why)))


def _error(path: str, error: OSError) -> WireError:
    return WireError(f"pcap={path}: {error.strerror}")
