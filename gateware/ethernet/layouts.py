"""Frames on their way through the device, and what became of them."""

from typing import Any

from amaranth.hdl import Cat, Const, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.encodings import encoding
from stagecoach.hw.interface import network_entries

INDEX_BITS = 5
"""Words of a frame are counted up to 31: all headers are in the first 17."""

FRAME_WORD_AT = data.StructLayout(
    {"data": 64, "octets": 4, "index": INDEX_BITS, "first": 1, "last": 1, "error": 1}
)
"""A word of a frame and its place.

octets: 8, or those of the last word. index: its number, 31 for all after that. error: on the last
word, the MAC or the link says that the frame is bad.
"""

FRAME_WORD = data.StructLayout({"data": 64, "last": 1})
"""A word of a frame that was kept; on the last one, lanes after the frame mean nothing."""

FRAME_BEAT = data.StructLayout({"data": 64, "octets": 4, "last": 1})
"""As `FRAME_WORD`, with its bytes: 8, or those of the last word."""

OCTETS_BITS = 14
"""Of the length of a frame: up to 16,383."""

RAW_WORD = data.StructLayout({"data": 64, "octets": OCTETS_BITS, "last": 1})
"""As `FRAME_WORD`, of a frame for the driver; octets: those of the frame from this word on."""

ETHERNET_OCTETS = 14
"""Of the header of a frame: two addresses and the EtherType."""

NetworkKind = encoding(
    "NetworkKind",
    network_entries.NetworkKind.__members__,
    4,
    "What an entry of the network queue tells.",
)

RAW_NOTICE = data.StructLayout(
    {"kind": NetworkKind, "connection": 8, "sequence": 32, "acknowledgment": 32, "fin": 1}
)
"""What the driver is told of a connection, as in an entry of the network queue; fin: its flag."""

HOST_RING = data.StructLayout({"base": 64, "log2": 4})
"""A ring of 2^0 to 2^15 places in host memory. It begins at a multiple of its bytes: the bits of
`base` below are not looked at."""


def ring_mask(log2: Value) -> Value:
    """Return which bits of a running number, modulo 2^16, are its place in a ring."""
    return Cat(bit < log2 for bit in range(16))


def ring_place(ring: Any, number: Value, place_bits: int) -> Value:
    """Return the address of the place, of 2^place_bits bytes, of a running number."""
    mask, base = ring_mask(ring.log2), ring.base[place_bits:]
    return Cat(Const(0, place_bits), (base[:16] & ~mask) | (number & mask), base[16:])


FrameFate = encoding(
    "FrameFate",
    network_entries.FrameFate.__members__,
    unsigned(5),
    "What became of a received frame: it is kept, or the first check that it failed.",
)

KEPT = (FrameFate.SEGMENT, FrameFate.RAW)
"""Frames that are in the store, each with a record."""


class FrameBus(wiring.Signature):
    """Words of frames as they come, seen from their source: nothing here waits."""

    def __init__(self) -> None:
        super().__init__({"valid": Out(1), "p": Out(FRAME_WORD_AT)})


class AnswersSignature(wiring.Signature):
    """Answers to requests for this station, seen from the engine, which sends them.

    enable: requests that are found from now on are answered, and do not go to the driver; those
    that were found before are answered in any case. address: IPv4 address of this station, its
    first byte is the highest; it stands while `enable` is high. frame: to `FrameOutput`.
    answered, dropped: a pulse for each request.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "enable": Out(1),
                "address": Out(32),
                "frame": In(stream.Signature(FRAME_BEAT)),
                "answered": In(1),
                "dropped": In(1),
            }
        )


class AxiStreamSignature(wiring.Signature):
    """AXI4-Stream of Ethernet frames without FCS, seen from the sender.

    `tuser`, with `tlast`: the frame is bad. `tkeep` is contiguous from lane 0, and all of a word
    but the last.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "tvalid": Out(1),
                "tready": In(1),
                "tdata": Out(64),
                "tkeep": Out(8),
                "tlast": Out(1),
                "tuser": Out(1),
            }
        )
