"""What proofs say of an AXI port: the channels stay, and how many bursts were counted."""

from typing import Any

from amaranth.hdl import Signal, Value

from stagecoach.gateware.dma.axi import channel_payload
from stagecoach.hw.formal.harness import Harness


def valid(axi: Any, channel: str) -> Signal:
    """VALID of a channel."""
    signal: Signal = getattr(axi, f"{channel}valid")
    return signal


def moves(axi: Any, channel: str) -> Value:
    """What a channel shows is taken."""
    return valid(axi, channel) & getattr(axi, f"{channel}ready")


def stays(h: Harness, axi: Any, channel: str) -> Value:
    """What a channel shows while valid and not ready stays (AMBA AXI4, A3.2.1)."""
    shown = channel_payload(axi, channel)
    waits = h.past(valid(axi, channel) & ~getattr(axi, f"{channel}ready"))
    return ~waits | (valid(axi, channel) & (shown == h.past(shown)))


def counted(h: Harness, name: str, bits: int, up: Any, down: Any) -> Signal:
    """How often `up` was 1 less how often `down` was, since the reset."""
    count = Signal(bits, name=name)
    h.m.d.sync += count.eq(count + up - down)
    return count
