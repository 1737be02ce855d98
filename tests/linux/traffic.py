"""Connections, and streams that both ends know."""

import random
import threading

from tests.linux.network import OURS, Network
from tests.linux.ours import Stream

PORT = 4420
TO_LINUX, FROM_LINUX = 1, 2
"""Seeds of the streams."""

# Linux begins with a window of 64 KiB, whatever its buffer is.
_PIECE = 60_000


def joined(net: Network, *, listens: bool, **buffers: int) -> tuple[Stream, int]:
    """A connection: our end, and Linux'. `listens`: Linux opens it."""
    if listens:
        listener = net.ours.listen(PORT)
        theirs = net.linux.connect(OURS, PORT, **buffers)
        return listener.accept(), theirs
    at = net.linux("listen", port=PORT, **buffers)
    stream = net.ours.open(net.linux_address, PORT)
    return stream, net.linux("accept", of=at)


def exchange(
    net: Network, stream: Stream, theirs: int, to_linux: int, from_linux: int, *, turn: int = 0
) -> None:
    """So many octets each way, at once; each turn has other ones."""
    to, back = TO_LINUX + 2 * turn, FROM_LINUX + 2 * turn
    receiving = net.linux.start("receive", of=theirs, seed=to, count=to_linux)
    sending = net.linux.start("send", of=theirs, seed=back, count=from_linux)
    ours = Sending(stream, known(to, to_linux))
    got = stream.receive_exactly(from_linux)
    ours.result()
    assert receiving.result() == "equal"
    sending.result()
    assert got == known(back, from_linux)


def exchange_in_turns(
    net: Network, stream: Stream, theirs: int, to_linux: int, from_linux: int
) -> None:
    """The same, no more at once than any window takes, whenever its reader gets to run."""
    for turn in range(-(-max(to_linux, from_linux) // _PIECE)):
        pieces = [min(max(all_ - turn * _PIECE, 0), _PIECE) for all_ in (to_linux, from_linux)]
        exchange(net, stream, theirs, *pieces, turn=turn)


class Sending:
    """Our end sends, part after part, in a thread of its own."""

    def __init__(self, stream: Stream, *parts: bytes) -> None:
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(stream, parts), daemon=True)
        self._thread.start()

    def _run(self, stream: Stream, parts: tuple[bytes, ...]) -> None:
        try:
            for part in parts:
                stream.sendall(part)
        except BaseException as error:
            self._error = error

    def result(self) -> None:
        """Wait until all is sent. Raises what `sendall` does."""
        self._thread.join()
        if self._error is not None:
            raise self._error


def known(seed: int, count: int) -> bytes:
    """Octets that both ends know."""
    return random.Random(seed).randbytes(count)


def close_both(net: Network, stream: Stream, theirs: int) -> None:
    """Both ends close; nothing more came."""
    net.linux("shutdown", of=theirs)
    stream.shutdown()
    stream.wait_end()
    assert net.linux("receive_end", of=theirs) == 0
