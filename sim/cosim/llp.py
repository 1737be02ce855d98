"""The LLP side of the device in cocotb: byte streams that links carry elsewhere."""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from cocotb.triggers import RisingEdge

from stagecoach.hw.interface.llp import LlpEventKind
from stagecoach.sim.cosim.drive import Drive
from stagecoach.sim.cosim.signals import reader

MASK = 0xFFFFFFFF
RX_AVAILABLE, TX_WINDOW, EMSS, CLOSED = LlpEventKind
WINDOW_OCTETS = 1 << 20
ANNOUNCE_EVERY = 4096
LLP_LATENCY = 4
"""Cycles to the first beat, if nothing else is asked for."""


INPUTS = (
    *("tx_ready", "rx_request_ready", "rx_valid", "rx_data", "rx_release_ready"),
    *("event_valid", "event_connection", "event_kind", "event_value"),
)
"""Of the device; all have a value from the start, for simulators that know unknown ones."""


class _Connection:
    """One attached connection: what was received and is not released, and who gets what is sent."""

    def __init__(self, send: Callable[[bytes], None], end: Callable[[], None] | None):
        self.send = send
        self.end = end
        self.received = bytearray()  # from position `released` on
        self.released = 0
        self.announced = 0
        self.sent = 0
        self.window = 0
        self.closed = False


class LlpPort:
    """Serves the LLP port `<prefix>__tx_valid` and so on of a device.

    Parameters
    ----------
    dut, prefix, clock: the port.
    latency: cycles from a request for received bytes to their first beat.
    rng: if given, every channel pauses at random.

    Attributes
    ----------
    fpdus: number of FPDUs sent. cycle: cycles run.
    """

    def __init__(
        self,
        dut: Any,
        prefix: str,
        clock: Any,
        *,
        latency: int = LLP_LATENCY,
        rng: random.Random | None = None,
    ):
        self._clock = clock
        self._latency = latency
        self._rng = rng
        self._connections: dict[int, _Connection] = {}
        self._events: deque[tuple[int, int, int]] = deque()
        self.fpdus = 0
        self.cycle = 0
        self.on_fpdu: Callable[[int, bytes], None] | None = None
        names = (
            "tx_valid tx_ready tx_connection tx_data tx_octets tx_first tx_last tx_close "
            "rx_request_valid rx_request_ready rx_request_connection rx_request_position "
            "rx_request_octets rx_valid rx_ready rx_data rx_release_valid rx_release_ready "
            "rx_release_connection rx_release_position event_valid event_ready event_connection "
            "event_kind event_value"
        )
        self._p = {name: getattr(dut, f"{prefix}__{name}") for name in names.split()}
        self._octets = len(self._p["tx_data"]) // 8  # of a beat
        for name in INPUTS:
            self._p[name].value = 0

    def attach(
        self,
        connection: int,
        send: Callable[[bytes], None],
        emss: int = 0,
        end: Callable[[], None] | None = None,
        *,
        shut: bool = False,
    ) -> None:
        """Starts a connection in Full Operation; what the device sends goes to `send`.

        `end` is called when the device has asked for the close. If the window is `shut`, the device
        may send nothing.
        """
        if connection in self._connections:
            raise ValueError(f"connection {connection} is attached already")
        self._connections[connection] = state = _Connection(send, end)
        state.window = 0 if shut else WINDOW_OCTETS
        self._events.append((connection, TX_WINDOW, state.window))
        if emss:
            self._events.append((connection, EMSS, emss))

    def announce_emss(self, connection: int, emss: int) -> None:
        """The EMSS of a connection has changed."""
        self._events.append((connection, EMSS, emss))

    def detach(self, connection: int) -> None:
        """Ends a connection; what the device still sends on it is discarded."""
        self._connections.pop(connection, None)

    def receive(self, connection: int, octets: bytes) -> None:
        """Bytes arrive on a connection; they are dropped if it is not attached."""
        state = self._connections.get(connection)
        if state is None or state.closed or not octets:
            return
        state.received += octets
        state.announced = (state.released + len(state.received)) & MASK
        self._events.append((connection, RX_AVAILABLE, state.announced))

    def close(self, connection: int) -> None:
        """The peer closes the connection."""
        state = self._connections.get(connection)
        if state is not None and not state.closed:
            state.closed = True
            self._events.append((connection, CLOSED, 0))

    def _open(self) -> bool:
        return self._rng is None or self._rng.random() < 0.7

    def _answer(self, connection: int, position: int, octets: int) -> list[int]:
        """The beats of a request; zeros if the connection is gone."""
        state = self._connections.get(connection)
        data = bytes(octets)
        if state is not None:
            offset = (position - state.released) & MASK
            assert offset + octets <= len(state.received), (
                f"request for {octets} bytes at {position} of connection {connection}: "
                f"available are {state.released} to {state.announced}"
            )
            data = bytes(state.received[offset : offset + octets])
        step = self._octets
        data += bytes(-len(data) % step)
        return [int.from_bytes(data[i : i + step], "little") for i in range(0, len(data), step)]

    def _take_fpdu(self, connection: int, octets: bytes) -> None:
        self.fpdus += 1
        if self.on_fpdu is not None:
            self.on_fpdu(connection, octets)
        state = self._connections.get(connection)
        if state is None:
            return
        state.sent = (state.sent + len(octets)) & MASK
        assert (state.window - state.sent) & MASK <= WINDOW_OCTETS, "sent past the window"
        target = (state.sent + WINDOW_OCTETS) & MASK
        if (target - state.window) & MASK >= ANNOUNCE_EVERY:
            state.window = target
            self._events.append((connection, TX_WINDOW, target))
        if not state.closed:
            state.send(octets)

    def _take_close(self, connection: int) -> None:
        state = self._connections.get(connection)
        if state is not None and state.end is not None and not state.closed:
            state.end()

    async def run(self) -> None:
        """Serves the port for ever; start it as a task."""
        p = self._p
        drive = Drive(p)
        read = {name: reader(signal) for name, signal in p.items()}
        edge = RisingEdge(self._clock)
        fpdu = bytearray()
        owner: int | None = None
        beats: deque[tuple[int, int]] = deque()  # due, data
        tx_ready = request_ready = release_ready = rx_valid = event_valid = 0
        while True:
            await edge
            self.cycle += 1
            cycle = self.cycle
            if tx_ready and read["tx_valid"]():
                connection = read["tx_connection"]()
                first = read["tx_first"]()
                assert first == (owner is None), "tx_first and tx_last do not alternate"
                assert first or owner == connection, "two FPDUs interleave"
                owner = connection
                count = read["tx_octets"]()
                fpdu += read["tx_data"]().to_bytes(self._octets, "little")[:count]
                last = read["tx_last"]()
                assert count == self._octets or last, "a beat that is not the last one is not full"
                assert count % 4 == 0, f"{count} bytes"
                if last:
                    if fpdu:
                        self._take_fpdu(connection, bytes(fpdu))
                    if read["tx_close"]():
                        self._take_close(connection)
                    fpdu.clear()
                    owner = None
            if request_ready and read["rx_request_valid"]():
                connection = read["rx_request_connection"]()
                position = read["rx_request_position"]()
                octets = read["rx_request_octets"]()
                due = cycle + self._latency
                beats.extend((due, word) for word in self._answer(connection, position, octets))
            if release_ready and read["rx_release_valid"]():
                state = self._connections.get(read["rx_release_connection"]())
                if state is not None:
                    position = read["rx_release_position"]()
                    freed = (position - state.released) & MASK
                    assert freed <= len(state.received), "released what was not received"
                    del state.received[:freed]
                    state.released = position
            if rx_valid and read["rx_ready"]():
                rx_valid = 0
            if event_valid and read["event_ready"]():
                event_valid = 0

            if not rx_valid and beats and beats[0][0] <= cycle and self._open():
                p["rx_data"].value = beats.popleft()[1]
                rx_valid = 1
            if not event_valid and self._events and self._open():
                connection, kind, value = self._events.popleft()
                p["event_connection"].value = connection
                p["event_kind"].value = kind
                p["event_value"].value = value
                event_valid = 1
            tx_ready, request_ready, release_ready = 1, 1, 1
            if self._rng is not None:
                tx_ready, request_ready = int(self._open()), int(self._open())
                release_ready = int(self._open())
            drive(
                rx_valid=rx_valid,
                event_valid=event_valid,
                tx_ready=tx_ready,
                rx_request_ready=request_ready,
                rx_release_ready=release_ready,
            )
