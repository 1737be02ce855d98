"""Ping-pong: each end sends when the message of the other one is there.

As perftest's `ib_write_lat` and `ib_send_lat` do it. A Send is there with the completion of its
receive, an RDMA Write when its last byte has changed in memory, which the program polls.
"""

from stagecoach.cli.perf.end import End
from stagecoach.cli.perf.operations import Operation, Remote


class Player:
    """One end of a ping-pong with messages of one size, on the first QP.

    Parameters
    ----------
    remote: the peer's place for messages; half: bytes from where the buffer of `end` has those
    that are sent to where it has those that come.
    """

    def __init__(self, end: End, operation: Operation, remote: Remote, half: int, size: int):
        self._end = end
        self._receives = operation.takes_receive
        self._last_sent = size - 1
        self._last_received = half + size - 1
        self._request = operation.request(end.mr, remote, size)
        self._sent = self._received = 0
        end.poke(self._last_received, 0)

    def send(self) -> None:
        """Posts the next message."""
        self._sent += 1
        self._end.take_sent()
        self._end.poke(self._last_sent, self._sent & 0xFF)
        self._end.qps[0].post_send(self._request)

    def receive(self) -> None:
        """Returns when the next message is there. Raises as `End.completions`."""
        self._received += 1
        if self._receives:
            self._end.await_receive()
        else:
            self._end.await_octet(self._last_received, self._received & 0xFF)
