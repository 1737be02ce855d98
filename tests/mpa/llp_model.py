"""The receive side of an LLP for tests: answers requests and checks what the device promises."""

import random
from collections import deque
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.layouts import Layouts, LlpEventKind
from stagecoach.gateware.mpa.layouts import MpaLayouts
from stagecoach.sim.cosim.streams import StreamMonitor, StreamSink, StreamSource


class LlpReceiveModel:
    """Connections whose octets stand in `octets`; `announce` makes them available."""

    def __init__(
        self,
        dut: Any,
        config: Any,
        rng: random.Random,
        *,
        pattern: str = "always",
        latency: tuple[int, int] = (3, 20),
    ) -> None:
        self._clk = dut.clk
        self._rng = rng
        self.latency = latency
        mpa = MpaLayouts(config)
        self._requests = StreamSink(dut, "rx_request", mpa.rx_request, rng=rng, pattern=pattern)
        self._releases = StreamSink(dut, "rx_release", mpa.rx_release, rng=rng, pattern=pattern)
        self.rx = StreamSource(dut, "rx", rng=rng, pattern=pattern)
        self.events = StreamSource(
            dut, "llp_event", Layouts(config).llp_event, rng=rng, pattern=pattern
        )
        StreamMonitor(dut, "rx_request", mpa.rx_request)
        StreamMonitor(dut, "rx_release", mpa.rx_release)
        self.octets: dict[int, bytearray] = {}
        self.available: dict[int, int] = {}
        self.released: dict[int, int] = {}
        self.requests: deque[dict[str, int]] = deque()
        self.requested_octets = 0
        cocotb.start_soon(self._answer())
        cocotb.start_soon(self._release())

    def attach(self, connection: int) -> None:
        """Begin a new connection with nothing received."""
        self.octets[connection] = bytearray()
        self.available[connection] = 0
        self.released[connection] = 0

    def announce(self, connection: int, octets: int) -> None:
        """Announce so many further octets, or as many as there are."""
        total = min(self.available[connection] + octets, len(self.octets[connection]))
        self.available[connection] = total
        self._event(connection, LlpEventKind.RX_AVAILABLE, total)

    def close(self, connection: int) -> None:
        """Announce that nothing follows."""
        self._event(connection, LlpEventKind.CLOSED, 0)

    def _event(self, connection: int, kind: LlpEventKind, value: int) -> None:
        self.events.put({"connection": connection, "kind": kind.value, "value": value & 0xFFFFFFFF})

    async def _answer(self) -> None:
        while True:
            request = await self._requests.get()
            self.requests.append(request)
            connection, position = request["connection"], request["position"]
            count = request["octets"]
            self.requested_octets += count
            assert position % 4 == 0, f"request at position {position}"
            assert count > 0, "request of no octets"
            # A connection that is unknown or begun anew is answered with anything.
            end = min(position + count, self.available.get(connection, 0))
            if connection in self.available:
                assert position + count <= self.available[connection], f"{request} too far"
                assert position >= self.released[connection], f"{request} was released"
            for _ in range(self._rng.randint(*self.latency)):
                await RisingEdge(self._clk)
            stored = self.octets.get(connection, bytearray())
            chunk = bytes(stored[position:end]).ljust(count, b"\xee")
            for start in range(0, count, 8):
                word = chunk[start : start + 8]
                word += self._rng.randbytes(8 - len(word))
                self.rx.put(int.from_bytes(word, "little"))

    async def _release(self) -> None:
        while True:
            release = await self._releases.get()
            connection, position = release["connection"], release["position"]
            assert position >= self.released[connection], f"{release} goes back"
            assert position <= self.available[connection], f"{release} too far"
            self.released[connection] = position
