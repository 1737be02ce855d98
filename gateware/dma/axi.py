"""The read half and the write half of the AXI master port, and how they are joined."""

from collections.abc import Collection
from typing import Any

from amaranth.hdl import Cat, Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from stagecoach.gateware.config import WORD_WIDTH
from stagecoach.gateware.dma.ports import AxiSignature


def _half(prefixes: tuple[str, ...], *widths: int) -> dict[str, wiring.Member]:
    members = AxiSignature(*widths).members
    return {name: member for name, member in members.items() if name.startswith(prefixes)}


class AxiReadSignature(wiring.Signature):
    """The AR and R channels of `AxiSignature`."""

    def __init__(self, data_width: int = WORD_WIDTH, id_width: int = 1):
        super().__init__(_half(("ar", "r"), data_width, id_width))


class AxiWriteSignature(wiring.Signature):
    """The AW, W and B channels of `AxiSignature`."""

    def __init__(self, data_width: int = WORD_WIDTH, id_width: int = 1):
        super().__init__(_half(("aw", "w", "b"), data_width, id_width))


def connect_axi(m: Module, outer: Any, *halves: Any, except_for: Collection[str] = ()) -> None:
    """Join engines' halves of the port to `outer`, the `AxiSignature` port of the component.

    Signals named in `except_for` are left to the caller.

    `connect_axi(m, self.m_axi, read_engine.m_axi, write_engine.m_axi)`
    """
    for half in halves:
        for name, member in half.signature.members.items():
            if name not in except_for:
                inner, port = getattr(half, name), getattr(outer, name)
                m.d.comb += inner.eq(port) if member.flow == In else port.eq(inner)


def channel_names(axi: Any, channel: str) -> list[str]:
    """Signals of a channel of the port but VALID and READY.

    `channel` is "aw", "w", "b", "ar" or "r".
    """
    handshake = (f"{channel}valid", f"{channel}ready")
    names = (name for name in axi.signature.members if name.startswith(channel))
    return [name for name in names if name not in handshake]


def channel_payload(axi: Any, channel: str) -> Value:
    """The same signals as one value, which can be assigned, too.

    Of two ports of one width the bits are the same ones.
    """
    return Cat(getattr(axi, name) for name in channel_names(axi, channel))
