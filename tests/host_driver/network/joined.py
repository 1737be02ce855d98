"""Two ports on one wire, in the wall's time: fakes whose engines hand octets to each other, or
those of two NICs in Python, whose engines send segments.
"""

import contextlib
import queue
import threading
import time

from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.transport.base import DeviceClosed
from tests.host_driver.network.fake_nic import FakeNic
from tests.host_driver.network.hardware_fake import HardwareFake
from tests.host_driver.network.port import EngineStream, FakePort


class WallPort(FakePort):
    """One of the two; `other` is the other one."""

    other: "WallPort"

    def now_us(self) -> int:
        return time.monotonic_ns() // 1000

    def wait(self, until_us: int | None) -> None:
        with self._changed:
            if not (self._frames or self._ended or self._woken or self.closed):
                left = 10.0 if until_us is None else max(0.0, (until_us - self.now_us()) / 1e6)
                self._changed.wait(left)
            self._woken = False
        if self.closed:
            raise DeviceClosed("the device was closed")

    def send_frame(self, frame: bytes) -> bool:
        self.other.frame(frame)
        return super().send_frame(frame)

    def _twin(self, handle: int) -> tuple[int, EngineStream] | None:
        """The other end of a connection, if it is established there."""
        ends = self.streams[handle].established
        for number, stream in list(self.other.streams.items()):
            if stream.established.remote == ends.local and stream.established.local == ends.remote:
                return number, stream
        return None

    def send(self, handle: int, octets: bytes) -> int:
        twin = self._twin(handle)
        if twin is None:  # its handshake is not over: it comes again
            self.wake()
            return 0
        taken = super().send(handle, octets)
        twin[1].received += octets[:taken]
        self.other.tell()
        return taken

    def shutdown(self, handle: int) -> None:
        super().shutdown(handle)
        if twin := self._twin(handle):
            twin[1].peer_closed = True
            self.other.tell()

    def abort(self, handle: int) -> None:
        if handle in self.streams and (twin := self._twin(handle)):
            self.other.end(twin[0], StreamEnd.RESET)
        super().abort(handle)


class WallNic(FakeNic):
    """One of the two; `other` is the other one. A thread carries frames, and lets timers expire."""

    other: "WallNic"

    def __init__(self, connections: int) -> None:
        super().__init__(connections)
        self._under_way: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.wire = self._under_way.put
        self._thread = threading.Thread(target=self._carry, daemon=True)

    def now_us(self) -> int:
        return time.monotonic_ns() // 1000

    def start(self) -> None:
        self._thread.start()

    def _carry(self) -> None:
        while self.closed is None:
            with contextlib.suppress(queue.Empty):
                self.other.frame(self._under_way.get(timeout=0.001))
            self.run_to(self.now_us())

    def wait_network(self, until_us: int | None) -> None:
        with self.lock:
            if not self._woken and not self.interrupt and self.closed is None:
                left = 10.0 if until_us is None else max(0.0, (until_us - self.now_us()) / 1e6)
                self.lock.wait(left)
            self._woken = False
            if self.closed is not None:
                raise DeviceClosed(self.closed)


def joined_fakes() -> tuple[WallPort, WallPort]:
    """Both ends."""
    here, there = WallPort(), WallPort()
    here.other, there.other = there, here
    return here, there


def joined_hardware() -> tuple[HardwareFake, HardwareFake]:
    """Both ends."""
    nics = WallNic(16), WallNic(16)
    for number, nic in enumerate(nics):
        nic.other = nics[1 - number]
        nic.start()
    macs = (bytes((2, 0, 0, 0, 0, number)) for number in (1, 2))
    here, there = (HardwareFake(nic=nic, mac=mac) for nic, mac in zip(nics, macs, strict=True))
    return here, there
