"""A board of a few lines of Python at a pseudo-terminal: registers that keep what is written."""

import os
import threading
import time
import tty
from collections.abc import Callable

from stagecoach.host_driver.hostlink.endpoint import Endpoint
from stagecoach.host_driver.hostlink.frames import Deframer, Frame
from stagecoach.hw.interface.hostlink import EVENTS, FLAG, VERSION, WINDOW, Kind

CLOCK_HZ = 12_345_678


class FakeBoard:
    """Answers OPEN and register accesses; the rest is done by a test.

    Parameters
    ----------
    version, window, events, memory_log2: of HELLO. spoil: what becomes of the octets that it sends.
    """

    def __init__(
        self,
        version: int = VERSION,
        spoil: Callable[[bytes], bytes] = bytes,
        window: int = WINDOW,
        events: int = EVENTS,
        memory_log2: int = 0,
    ):
        self._master, self._slave = os.openpty()
        tty.setraw(self._slave)
        os.set_blocking(self._master, False)
        self.port = os.ttyname(self._slave)
        self.version = version
        self.window = window
        self.events, self.memory_log2 = events, memory_log2
        self.spoil = spoil
        self.registers: dict[int, int] = {}
        self.mute: set[int] = set()  # registers of which an access is never answered
        self.came: list[tuple[int, bytes]] = []
        self.nonces: list[bytes] = []
        self.silent = False
        self.to_send: list[tuple[int, bytes]] = []
        self._endpoint: Endpoint | None = None
        self._stop = False
        self._unplugging = threading.Lock()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        deframer = Deframer()
        while not self._stop:
            try:
                octets = os.read(self._master, 4096)
            except BlockingIOError:
                octets = b""
                time.sleep(0.001)
            if self.silent:
                continue
            now = time.monotonic()
            # OPEN is not part of the numbered messages.
            for frame in deframer.take(octets):
                if frame is not None and frame.kind == Kind.OPEN:
                    self._open(frame.payload[:4])
            if self._endpoint is None:
                continue
            for kind, payload in self._endpoint.input(octets, now):
                self._take(kind, payload)
            self.serve()
            while self.to_send:
                self._endpoint.send(*self.to_send.pop(0))
            if out := self._endpoint.output(now):
                os.write(self._master, self.spoil(out))

    def serve(self) -> None:
        """What else the board does, again and again while it has a session."""

    def _open(self, nonce: bytes) -> None:
        if nonce not in self.nonces:
            self._endpoint = Endpoint(0.05, 1e9)
            self.nonces.append(nonce)
        fields = [self.version, self.events, self.window, self.memory_log2]
        hello = nonce + bytes(fields) + CLOCK_HZ.to_bytes(4, "little")
        octets = bytes([FLAG]) + Frame(Kind.HELLO, 0, 0, hello).pack()
        os.write(self._master, self.spoil(octets))

    def _take(self, kind: int, payload: bytes) -> None:
        address = int.from_bytes(payload[:2], "little")
        if kind in (Kind.REGISTER_READ, Kind.REGISTER_WRITE) and address in self.mute:
            return
        if kind == Kind.REGISTER_READ:
            bad = address not in self.registers
            value = self.registers.get(address, 0)
            answer = bytes([2 if bad else 0]) + value.to_bytes(4, "little")
            self.to_send.append((Kind.REGISTER_DONE, answer))
        elif kind == Kind.REGISTER_WRITE:
            self.registers[address] = int.from_bytes(payload[2:6], "little")
            self.to_send.append((Kind.REGISTER_DONE, bytes(5)))
        else:
            self.came.append((kind, payload))

    def wait(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + 10
        while not done():
            assert time.monotonic() < end
            time.sleep(0.002)

    def unplug(self) -> None:
        """The terminal ends, as that of a board whose cable is pulled."""
        self._stop = True
        self._thread.join()
        # A test's timer and the end of the test may both come here.
        with self._unplugging:
            if self._master >= 0:
                os.close(self._master)
            self._master = -1

    def close(self) -> None:
        self.unplug()
        os.close(self._slave)

    def __enter__(self) -> "FakeBoard":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
