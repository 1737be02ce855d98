"""Drives, receives and watches Amaranth streams in cocotb tests; packs and unpacks payloads.

A stream `name` is the ports `<name>__valid`, `<name>__ready` and `<name>__payload`. The exported
Verilog has a struct payload as one vector, which `pack` and `unpack` turn from and into
dictionaries. Values are sampled at the rising edge as registers see them, and driven after it.
"""

import os
import random
import sys
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from amaranth.hdl import Shape, ShapeCastable
from amaranth.lib import data
from cocotb.clock import Clock
from cocotb.triggers import Event, RisingEdge

from stagecoach.sim.cosim.signals import every_cycle, reader

CLOCK_PERIOD_NS = 10
PATTERNS = ("always", "random", "bursty", "slow")


# Packing


def pack(layout: Any, value: Any = None, /, **fields: Any) -> int:
    """Return the bits of `value` (or of the keyword fields) in `layout`.

    Structures are dictionaries, arrays are sequences, everything else is an integer. Fields that
    are not named are zero. Raises ValueError for an unknown field or a value that does not fit.
    """
    return _pack("payload", layout, fields if value is None else value)


def unpack(layout: Any, bits: int) -> Any:
    """Return the fields of `bits`, the inverse of `pack`."""
    bits = int(bits)
    inner = _as_layout(layout)
    if inner is None:
        shape = Shape.cast(layout)
        bits &= (1 << shape.width) - 1
        return bits - (1 << shape.width) if shape.signed and bits >> (shape.width - 1) else bits
    if isinstance(inner, data.ArrayLayout):
        return [unpack(field.shape, _slice(bits, field)) for _, field in inner]
    return {name: unpack(field.shape, _slice(bits, field)) for name, field in inner}


def width_of(layout: Any) -> int:
    """Return the number of bits of a layout or shape."""
    return Shape.cast(layout).width


def _as_layout(shape: Any) -> data.Layout | None:
    if isinstance(shape, data.Layout):
        return shape
    if isinstance(shape, ShapeCastable):
        try:
            return data.Layout.cast(shape)
        except TypeError:
            return None
    return None


def _slice(bits: int, field: data.Field) -> int:
    return bits >> field.offset & (1 << Shape.cast(field.shape).width) - 1


def _pack(path: str, layout: Any, value: Any) -> int:
    inner = _as_layout(layout)
    if inner is None:
        shape, number = Shape.cast(layout), int(value)
        low = -(1 << (shape.width - 1)) if shape.signed and shape.width else 0
        high = (1 << (shape.width - shape.signed)) - 1 if shape.width else 0
        if not low <= number <= high:
            raise ValueError(f"{path} is {number}, allowed: {low} to {high}")
        return number & ((1 << shape.width) - 1)
    if isinstance(value, int):
        if not 0 <= value < 1 << inner.size:
            raise ValueError(f"{path} is {value:#x}, allowed: {inner.size} bits")
        return value
    known = dict(inner)
    items = value.items() if hasattr(value, "items") else enumerate(value)
    bits = 0
    for name, item in items:
        if name not in known:
            raise ValueError(f"{path} has no field {name!r}, allowed: {', '.join(map(str, known))}")
        bits |= _pack(f"{path}.{name}", known[name].shape, item) << known[name].offset
    return bits


# Seeds, clock and reset


def seeded_random(*salt: object) -> random.Random:
    """Return a generator for the calling test and print its seed.

    The seed is STAGECOACH_SEED if set, otherwise a number made from the test's name, so that a
    plain run always does the same. `salt` tells several generators or parameters apart.
    """
    caller = sys._getframe(1)
    label = ":".join([caller.f_globals["__name__"], caller.f_code.co_name, *map(str, salt)])
    seed = os.environ.get("STAGECOACH_SEED") or str(zlib.crc32(label.encode()))
    print(f"{label}: STAGECOACH_SEED={seed}", flush=True)
    return random.Random(f"{seed}:{':'.join(map(str, salt))}")


async def start_clock_and_reset(dut: Any, *, cycles: int = 3) -> None:
    """Start `clk`, hold `rst` for some cycles, and return just after it was released."""
    dut.rst.value = 1
    Clock(dut.clk, CLOCK_PERIOD_NS, unit="ns").start()
    for _ in range(cycles):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    await RisingEdge(dut.clk)


def active_cycles(pattern: str, rng: random.Random | None) -> Iterator[bool]:
    """Yield for each cycle whether this side of a stream is willing.

    always: every cycle; random: half of them; bursty: runs of up to 20 cycles of each kind;
    slow: one in eight.
    """
    if pattern not in PATTERNS:
        raise ValueError(f"pattern is {pattern!r}, allowed: {', '.join(PATTERNS)}")
    if pattern == "always":
        while True:
            yield True
    if rng is None:
        raise ValueError(f"pattern {pattern!r} needs rng=seeded_random()")
    # A generator of its own keeps the cycles independent of what the test draws.
    own = random.Random(rng.getrandbits(64))
    while True:
        if pattern == "random":
            yield own.random() < 0.5
        elif pattern == "slow":
            yield own.random() < 0.125
        else:
            for willing in (True, False):
                for _ in range(own.randint(1, 20)):
                    yield willing


# Streams


class _Stream:
    """The ports of one stream, found once."""

    def __init__(self, dut: Any, name: str, layout: Any = None) -> None:
        self.name = name
        self.valid = getattr(dut, f"{name}__valid")
        # A stream whose ready (or valid) is constant has no such port.
        self.ready: Any = getattr(dut, f"{name}__ready", None)
        self.payload = getattr(dut, f"{name}__payload")
        self.is_valid = reader(self.valid)
        self.is_ready = (lambda: 1) if self.ready is None else reader(self.ready)
        self.read_payload = reader(self.payload)
        self.width = len(self.payload)
        if layout is not None and width_of(layout) != self.width:
            raise ValueError(
                f"the layout of stream {name!r} has {width_of(layout)} bits, "
                f"the port has {self.width}"
            )
        self.layout = layout

    def encode(self, item: Any) -> int:
        return int(item) if self.layout is None else pack(self.layout, item)

    def decode(self, bits: int) -> Any:
        return bits if self.layout is None else unpack(self.layout, bits)


class StreamSource:
    """Sends items into the stream `name` of the DUT; create it before the reset.

    With a layout, items are dictionaries; without, integers. While valid is low the payload holds
    random bits, so that a block that looks at it too early is found out.
    """

    def __init__(
        self,
        dut: Any,
        name: str,
        layout: Any = None,
        *,
        rng: random.Random | None = None,
        pattern: str = "always",
    ) -> None:
        self._stream = _Stream(dut, name, layout)
        self._items: deque[tuple[int, Event | None]] = deque()
        self._idle = Event()
        self._idle.set()
        self.set_pattern(pattern, rng)
        self._noise = random.Random(zlib.crc32(name.encode()))
        self.sent = 0
        self._offering = False
        self._stream.valid.value = 0
        self._stream.payload.value = self._noise.getrandbits(self._stream.width)
        every_cycle(dut, self._step)

    def set_pattern(self, pattern: str, rng: random.Random | None = None) -> None:
        """Change when this source offers items."""
        self._active = active_cycles(pattern, rng)

    def put(self, item: Any) -> None:
        """Queue one item and return at once."""
        self._items.append((self._stream.encode(item), None))
        self._idle.clear()

    def put_all(self, items: Iterable[Any]) -> None:
        """Queue items and return at once."""
        for item in items:
            self.put(item)

    async def send(self, item: Any) -> None:
        """Queue one item and wait until the DUT has taken it."""
        taken = Event()
        self._items.append((self._stream.encode(item), taken))
        self._idle.clear()
        await taken.wait()

    async def wait_idle(self) -> None:
        """Wait until the DUT has taken every queued item."""
        await self._idle.wait()

    @property
    def pending(self) -> int:
        """How many items the DUT has not taken yet."""
        return len(self._items)

    def _step(self, in_reset: bool) -> None:
        stream, items = self._stream, self._items
        if in_reset:
            stream.valid.value = 0
            self._offering = False
            return
        taken = self._offering and stream.is_ready()
        if taken:
            _, event = items.popleft()
            self.sent += 1
            self._offering = False
            if event is not None:
                event.set()
            if not items:
                self._idle.set()
        if self._offering:
            return
        if len(items) > 0 and next(self._active):
            stream.payload.value = items[0][0]
            stream.valid.value = 1
            self._offering = True
        elif taken:
            stream.payload.value = self._noise.getrandbits(stream.width)
            stream.valid.value = 0


class StreamSink:
    """Receives the stream `name` of the DUT; create it before the reset."""

    def __init__(
        self,
        dut: Any,
        name: str,
        layout: Any = None,
        *,
        rng: random.Random | None = None,
        pattern: str = "always",
    ) -> None:
        self._stream = _Stream(dut, name, layout)
        if self._stream.ready is None:
            raise ValueError(f"stream {name!r} has no port {name}__ready: watch it, do not sink it")
        self._items: deque[Any] = deque()
        self._arrival = Event()
        self.set_pattern(pattern, rng)
        self._stream.ready.value = 0
        self._ready = False
        self.paused = False
        every_cycle(dut, self._step)

    def set_pattern(self, pattern: str, rng: random.Random | None = None) -> None:
        """Change when this sink is ready."""
        self._active = active_cycles(pattern, rng)

    def __len__(self) -> int:
        """Return how many items arrived and were not fetched."""
        return len(self._items)

    async def get(self) -> Any:
        """Return the next item; wait for it."""
        while not self._items:
            self._arrival.clear()
            await self._arrival.wait()
        return self._items.popleft()

    async def get_many(self, count: int) -> list[Any]:
        """Return the next `count` items; wait for them."""
        return [await self.get() for _ in range(count)]

    async def get_until(self, field: str = "last") -> list[Any]:
        """Return items up to and with the first whose `field` is set."""
        items = [await self.get()]
        while not items[-1][field]:
            items.append(await self.get())
        return items

    def take_all(self) -> list[Any]:
        """Return what arrived so far without waiting."""
        items = list(self._items)
        self._items.clear()
        return items

    def _step(self, in_reset: bool) -> None:
        stream = self._stream
        wanted = False
        if not in_reset:
            if self._ready and stream.is_valid():
                self._items.append(stream.decode(stream.read_payload()))
                self._arrival.set()
            wanted = next(self._active) and not self.paused
        if wanted != self._ready:
            stream.ready.value = int(wanted)
            self._ready = wanted


class StreamMonitor:
    """Asserts the rules of the stream `name`: an offered item stays offered and unchanged.

    It works on inputs and outputs of the DUT and keeps what was transferred in `items`. A broken
    rule fails the test.
    """

    def __init__(self, dut: Any, name: str, layout: Any = None, *, keep: bool = True) -> None:
        self._stream = _Stream(dut, name, layout)
        self._keep = keep
        self.items: list[Any] = []
        self.cycles = 0
        self.transfers = 0
        self._held: int | None = None
        every_cycle(dut, self._step)

    def _step(self, in_reset: bool) -> None:
        stream, held = self._stream, self._held
        if in_reset:
            self._held = None
            return
        self.cycles += 1
        if not stream.is_valid():
            assert held is None, f"stream {stream.name}: valid dropped before ready was given"
            return
        payload = stream.read_payload()
        assert held is None or held == payload, (
            f"stream {stream.name}: payload changed from {held:#x} to {payload:#x} "
            f"while it waited for ready"
        )
        self._held = payload
        if stream.is_ready():
            self._held = None
            self.transfers += 1
            if self._keep:
                self.items.append(stream.decode(payload))
