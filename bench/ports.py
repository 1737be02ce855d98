"""What crosses the ports of the device, and at which clock edge."""

from collections import deque
from collections.abc import Callable
from typing import Any

from bench.rig import reach
from bench.stamps import Stamp
from stagecoach.sim.cosim.device import CocotbDevice
from stagecoach.sim.cosim.signals import every_cycle, reader
from stagecoach.sim.model.ddp import FLAG_LAST, header_octets
from stagecoach.sim.model.mpa import parse_fpdu

Handler = Callable[..., None]
Reader = Callable[[], int]


class Ports:
    """Watches channels: calls a handler with the values of some of their signals when one moves.

    `cycle` counts clock edges; that of a transfer is the edge at which valid and ready are high.
    """

    def __init__(self, dut: Any):
        self._dut = dut
        self._channels: list[tuple[Reader, Reader, list[Reader], Handler]] = []
        self.cycle = 0
        every_cycle(dut, self._step)

    def watch(self, channel: str, names: str, handler: Handler) -> None:
        """Calls `handler` at each transfer of `<channel>valid` with the signals `names`."""
        valid, ready, *values = (
            reader(getattr(self._dut, channel + name))
            for name in ("valid", "ready", *names.split())
        )
        self._channels.append((valid, ready, values, handler))

    def _step(self, in_reset: bool) -> None:
        self.cycle += 1
        for valid, ready, values, handler in self._channels:
            if valid() and ready():
                handler(*(value() for value in values))


class HostWrites:
    """The data words of all AXI write bursts with their addresses.

    `handler(address, strobe)` is called at the edge of the word, or of the address if that comes
    after it.
    """

    def __init__(self, ports: Ports, handler: Callable[[int, int], None]):
        self._handler = handler
        self._bursts: deque[int] = deque()
        self._words: deque[tuple[int, int]] = deque()  # strobe, last
        ports.watch("m_axi__aw", "addr", self._take_address)
        ports.watch("m_axi__w", "strb last", self._take_word)

    def _take_address(self, address: int) -> None:
        self._bursts.append(address)
        self._pair()

    def _take_word(self, strobe: int, last: int) -> None:
        self._words.append((strobe, last))
        self._pair()

    def _pair(self) -> None:
        while self._bursts and self._words:
            strobe, last = self._words.popleft()
            self._handler(self._bursts[0], strobe)
            if last:
                self._bursts.popleft()
            else:
                self._bursts[0] += 8


class SentFpdus:
    """Stamps of the FPDUs that leave, at their last beats."""

    def __init__(self, device: CocotbDevice, markers: bool = False):
        self._device = device
        self._markers = markers
        self._positions: dict[int, int] = {}
        self.stamps: list[Stamp] = []
        self.messages = 0
        self.on_ulpdu: Callable[[int, bytes], None] | None = None
        device.llp.on_fpdu = self._take

    def _take(self, connection: int, fpdu: bytes) -> None:
        position = self._positions.get(connection, 0)
        self._positions[connection] = position + len(fpdu)
        ulpdu = parse_fpdu(fpdu, markers=self._markers, position=position).ulpdu
        last = bool(ulpdu[0] & FLAG_LAST)
        octets = len(ulpdu) - header_octets(ulpdu[0])
        self.stamps.append(Stamp(self._device.llp.cycle, octets, int(last)))
        self.messages += last
        if self.on_ulpdu is not None:
            self.on_ulpdu(connection, ulpdu)

    async def reach(self, dut: Any, messages: int) -> None:
        """Waits until so many messages have left."""
        await reach(dut, "messages sent", messages, lambda: self.messages, lambda: len(self.stamps))
