"""A host at the streams of a link in cocotb, with a line that may be bad between them."""

import random
from collections.abc import Callable
from typing import Any

from cocotb.triggers import RisingEdge

from stagecoach.host_driver.hostlink.endpoint import Endpoint
from stagecoach.host_driver.hostlink.frames import Deframer, Frame
from stagecoach.hw.interface.hostlink import EVENTS, FLAG, VERSION, WINDOW, Kind
from stagecoach.sim.cosim.streams import StreamMonitor, StreamSink, StreamSource
from tests.hostlink.faults import Faults

CYCLE_SECONDS = 1e-6
RETRY_CYCLES = 4000
CLOCK_HZ = 1_000_000
SERVICE_CYCLES = 7
"""Cycles between looks of the host at the line."""


Answer = Callable[[int, bytes], tuple[int, bytes] | None]


class Host:
    """The host at streams `i` and `o` of a link: answers messages, keeps those that it does not.

    Parameters
    ----------
    answer: returns the answer to a message, or `None`.
    """

    def __init__(self, dut: Any, rng: random.Random, pattern: str, answer: Answer, faults: Faults):
        self._dut = dut
        self._source = StreamSource(dut, "i", rng=rng, pattern=pattern)
        self._sink = StreamSink(dut, "o", rng=rng, pattern=pattern)
        StreamMonitor(dut, "o", keep=False)
        self._answer = answer
        self._faults = faults
        self.endpoint: Endpoint | None = None
        self.other: list[tuple[int, bytes]] = []
        self.cycle = 0

    def send(self, kind: int, payload: bytes = b"") -> None:
        assert self.endpoint is not None
        self.endpoint.send(kind, payload)

    async def make_noise(self, octets: bytes) -> None:
        """Octets that are no frame; the device says nothing to them."""
        self._source.put_all(octets)
        for _ in range(20 * len(octets)):
            await RisingEdge(self._dut.clk)
        assert not self._sink.take_all()

    async def open(self, nonce: int = 0x12345678) -> bytes:
        """Begins a session; returns the payload of HELLO."""
        self.endpoint = None
        deframer = Deframer()
        payload = nonce.to_bytes(4, "little") + bytes([VERSION])
        for _ in range(20):
            frame = bytes([FLAG]) + Frame(Kind.OPEN, 0, 0, payload).pack()
            self._source.put_all(self._faults.apply(frame))
            for _ in range(1500):
                await RisingEdge(self._dut.clk)
                octets = self._faults.apply(bytes(self._sink.take_all()))
                for frame_in in deframer.take(octets):
                    if (
                        frame_in
                        and frame_in.kind == Kind.HELLO
                        and frame_in.payload[:4] == payload[:4]
                    ):
                        self.endpoint = Endpoint(RETRY_CYCLES * CYCLE_SECONDS, 1e9)
                        return frame_in.payload
        raise AssertionError("no HELLO")

    async def run(self) -> None:
        """Serves the line for ever; start it as a task."""
        while True:
            for _ in range(SERVICE_CYCLES):
                await RisingEdge(self._dut.clk)
            self.cycle += SERVICE_CYCLES
            now = self.cycle * CYCLE_SECONDS
            if self.endpoint is None:  # `open` looks at the line
                continue
            octets = self._faults.apply(bytes(self._sink.take_all()))
            for kind, payload in self.endpoint.input(octets, now):
                answer = self._answer(kind, payload)
                if answer is not None:
                    self.endpoint.send(*answer)
            out = self.endpoint.output(now)
            self._source.put_all(self._faults.apply(out))


HELLO_FIELDS = bytes([VERSION, EVENTS, WINDOW, 0]) + CLOCK_HZ.to_bytes(4, "little")
