"""What the engine is joined to: memory, the device of an LLP user, and a driver's rings."""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from stagecoach.gateware.ethernet.layouts import HOST_RING
from stagecoach.gateware.layouts import LlpEventKind
from stagecoach.hw.interface.network_entries import (
    FRAME_DESCRIPTOR,
    FRAME_DESCRIPTOR_OCTETS,
    NETWORK_ENTRY,
    NETWORK_ENTRY_OCTETS,
    NetworkKind,
    slot_octets,
)
from stagecoach.sim.cosim.axi import AxiMemory
from stagecoach.sim.cosim.host_memory import HostMemory
from stagecoach.sim.cosim.signals import every_cycle, reader
from stagecoach.sim.cosim.streams import pack


class StrictMemory(HostMemory):
    """Memory in which nothing is read or written that is not mapped, but for what has to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = range(0)

    def map_aligned(self, ring: bytearray) -> int:
        """Map a ring of 2^n octets at a multiple of that."""
        self._next += -self._next % len(ring)
        return self.map(ring)

    def read_word(self, address: int, octets: int = 8) -> int | None:
        word = None if address in self.failing else super().read_word(address, octets)
        assert word is not None or address in self.failing, f"read of 0x{address:X}"
        return word

    def write_word(self, address: int, word: int, strobe: int, octets: int = 8) -> bool:
        if address in self.failing:
            return False
        good = super().write_word(address, word, strobe, octets)
        assert good, f"write of 0x{address:X}"
        return good


class Axi(AxiMemory):
    """The memory port; while `stopped` it answers nothing and takes nothing."""

    stopped = False

    def _open(self) -> bool:
        return not self.stopped and super()._open()


class Device:
    """The device at the LLP port: it sends as it may, asks for all that comes, and frees it."""

    def __init__(self, dut: Any, rng: Random) -> None:
        self.dut, self.rng = dut, rng
        self.beats: deque[dict[str, int]] = deque()
        self.requests: deque[dict[str, int]] = deque()
        self.releases: deque[dict[str, int]] = deque()
        self.asked: deque[tuple[int, int, int]] = deque()  # lane, position, octets
        self.words: list[int] = []
        self.events: dict[int, list[tuple[LlpEventKind, int]]] = {}
        self.received: dict[int, bytearray] = {}
        self.takes_answers = True
        self.moved = False
        dut.llp__rx_ready.value = dut.llp__event_ready.value = 0
        self._ports = {
            "tx": (self.beats, reader(dut.llp__tx_ready)),
            "rx_request": (self.requests, reader(dut.llp__rx_request_ready)),
            "rx_release": (self.releases, reader(dut.llp__rx_release_ready)),
        }
        self._offered = dict.fromkeys(self._ports, False)
        for name in self._ports:
            getattr(dut, f"llp__{name}_valid").value = 0
        self._answers = reader(dut.llp__rx_valid), reader(dut.llp__rx_data)
        self._event = reader(dut.llp__event_valid)
        self._ready = self._event_ready = 0
        every_cycle(dut, self._step)

    @property
    def pending(self) -> bool:
        return any(queue for queue, _ in self._ports.values()) or bool(self.asked)

    def attach(self, lane: int) -> None:
        self.events[lane], self.received[lane] = [], bytearray()

    def fpdu(self, lane: int, octets: bytes, *, close: bool = False) -> None:
        count = len(octets)
        for at in range(0, max(count, 1), 8):
            part = octets[at : at + 8]
            word = part + self.rng.randbytes(8 - len(part))
            last = at + 8 >= count
            beat = {"connection": lane, "data": int.from_bytes(word, "little"), "last": int(last)}
            beat |= {"octets": len(part), "first": int(at == 0), "close": int(close and last)}
            self.beats.append(beat)

    def value(self, lane: int, kind: LlpEventKind) -> int:
        """The last one that was said, 0 before."""
        said = [value for each, value in self.events[lane] if each is kind]
        return said[-1] if said else 0

    def closed(self, lane: int) -> bool:
        return any(kind is LlpEventKind.CLOSED for kind, _ in self.events[lane])

    def _step(self, in_reset: bool) -> None:
        if in_reset:
            return
        dut, rng = self.dut, self.rng
        self.moved = False
        for name, (queue, is_ready) in self._ports.items():
            if self._offered[name] and is_ready():
                queue.popleft()
                self._offered[name], self.moved = False, True
                getattr(dut, f"llp__{name}_valid").value = 0
            if queue and not self._offered[name] and rng.random() < 0.9:
                for field, value in queue[0].items():
                    getattr(dut, f"llp__{name}_{field}").value = value
                getattr(dut, f"llp__{name}_valid").value = 1
                self._offered[name] = True
        valid, data = self._answers
        if self._ready and valid():
            self.moved = True
            self._answer(data())
        if self._event_ready and self._event():
            self.moved = True
            self._told()
        self._ready = int(self.takes_answers and rng.random() < 0.9)
        self._event_ready = int(rng.random() < 0.5)
        dut.llp__rx_ready.value, dut.llp__event_ready.value = self._ready, self._event_ready

    def _told(self) -> None:
        dut = self.dut
        lane, value = int(dut.llp__event_connection.value), int(dut.llp__event_value.value)
        kind = LlpEventKind(int(dut.llp__event_kind.value))
        if kind is LlpEventKind.RX_AVAILABLE:
            position = self.value(lane, kind)
            while position < value:
                octets = min(self.rng.randint(1, 2048), value - position)
                ask = {"connection": lane, "position": position, "octets": octets}
                self.requests.append(ask)
                self.asked.append((lane, position, octets))
                position += octets
        self.events[lane].append((kind, value))

    def _answer(self, word: int) -> None:
        self.words.append(word)
        lane, position, octets = self.asked[0]
        if len(self.words) < -(-octets // 8):
            return
        self.asked.popleft()
        found = b"".join(each.to_bytes(8, "little") for each in self.words)[:octets]
        self.words.clear()
        assert len(self.received[lane]) == position
        self.received[lane] += found
        self.releases.append({"connection": lane, "position": position + octets})


class Driver:
    """The driver's rings: it reads entries and frees them and slots some time later."""

    def __init__(
        self, dut: Any, rng: Random, memory: StrictMemory, mtu: int, log2: int = 5
    ) -> None:
        self.dut, self.rng, self.log2 = dut, rng, log2
        places, number = 1 << log2, rng.getrandbits(16)
        self.slot_octets = slot_octets(mtu)
        self.queue = bytearray(places * NETWORK_ENTRY_OCTETS)
        self.slots = bytearray(places * self.slot_octets)
        self.descriptors = bytearray(places * FRAME_DESCRIPTOR_OCTETS)
        self.sending = bytearray(places * self.slot_octets)
        self.address = {}
        for name, ring in (
            ("queue", self.queue),
            ("slots", self.slots),
            ("frames", self.descriptors),
            ("sending", self.sending),
        ):
            self.address[name] = address = memory.map_aligned(ring)
            if name != "sending":
                getattr(dut, name).value = pack(HOST_RING, base=address, log2=log2)
        self.next = self.freed = self.next_slot = self.freed_slots = number
        self.producer = number
        for place in range(places):
            at = number - number % places + place + (places if place < number % places else 0)
            self.queue[(place + 1) * NETWORK_ENTRY_OCTETS - 1] = 1 - self._phase(at)
        self.reads = True
        self.frames: list[bytes] = []
        self.told: list[dict[str, int]] = []
        self.heard: Callable[[dict[str, int]], None] = lambda _: None
        self.dropped = self.failed = self.refused = 0
        dut.receive_enable.value = dut.transmit_enable.value = 0
        self._show()
        every_cycle(dut, self._step)

    def start(self) -> None:
        self.dut.receive_enable.value = self.dut.transmit_enable.value = 1

    def _phase(self, number: int) -> int:
        return 1 - (number >> self.log2 & 1)

    def _show(self) -> None:
        dut = self.dut
        dut.queue_consumer.value = self.freed % 2**16
        dut.slot_consumer.value = self.freed_slots % 2**16
        dut.producer.value = self.producer % 2**16

    def send(self, frame: bytes) -> None:
        """A frame; there is a place for it."""
        assert (self.producer - int(self.dut.consumer.value)) % 2**16 < 1 << self.log2
        place = self.producer % (1 << self.log2)
        at = place * self.slot_octets
        self.sending[at : at + len(frame)] = frame
        fields = {"address": self.address["sending"] + at, "octets": len(frame)}
        entry = b"".join(
            fields.get(name, 0).to_bytes(size, "little") for name, size, _ in FRAME_DESCRIPTOR
        )
        at = place * FRAME_DESCRIPTOR_OCTETS
        self.descriptors[at : at + FRAME_DESCRIPTOR_OCTETS] = entry
        self.producer += 1
        self._show()

    def _step(self, in_reset: bool) -> None:
        if in_reset:
            return
        dut, rng = self.dut, self.rng
        self.dropped += int(dut.dropped.value)
        self.failed += int(dut.failed.value)
        self.refused += int(dut.refused.value)
        if not self.reads:
            return
        while True:
            at = self.next % (1 << self.log2) * NETWORK_ENTRY_OCTETS
            entry = _fields(self.queue[at : at + NETWORK_ENTRY_OCTETS])
            if entry["phase"] & 1 != self._phase(self.next):
                break
            self.next += 1
            if entry["kind"] == NetworkKind.FRAME:
                assert entry["slot"] == self.next_slot % 2**16
                at = self.next_slot % (1 << self.log2) * self.slot_octets
                self.next_slot += 1
                self.frames.append(bytes(self.slots[at : at + entry["octets"]]))
            else:
                self.told.append(entry)
            self.heard(entry)
        if rng.random() < 0.05 and (self.freed, self.freed_slots) != (self.next, self.next_slot):
            self.freed, self.freed_slots = self.next, self.next_slot
            self._show()


def _fields(entry: bytes) -> dict[str, int]:
    found, at = {}, 0
    for name, octets, _ in NETWORK_ENTRY:
        found[name] = int.from_bytes(entry[at : at + octets], "little")
        at += octets
    return found
