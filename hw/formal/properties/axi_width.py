"""The converters to AXI ports of 32 and 128 bits: bursts in 4 KiB that contain the same words.

What is assumed of the addresses of the engines is proved of them (`axi`): words are aligned, and
no burst crosses 4 KiB. At 32 bits, strobes and beats of the W channel, too.
"""

from typing import Any

from amaranth.hdl import Cat, Mux, Signal

from stagecoach.gateware.dma.axi_width import AxiReadWidth, AxiWriteWidth
from stagecoach.gateware.dma.bursts import WORD_BITS
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.property import Mutation, Property, in_harness

BOUNDARY_BITS = 12
"""A burst must not cross a 4 KiB boundary (AMBA AXI4, A3.4.1)."""

MODULE = "stagecoach.gateware.dma.axi_width"


def _burst(h: Harness, width: int, words: Any, port: Any) -> None:
    """Address, length, size and valid of a burst of words, and of what the converter makes of it.

    Each is a tuple (valid, address, length as AxLEN, size as AxSIZE).
    """
    valid, address, length, _ = words
    shown, port_address, port_length, port_size = port
    size_bits = (width // 8).bit_length() - 1
    last = address[WORD_BITS:BOUNDARY_BITS] + length  # the number of the last word in 4 KiB
    aligned = address[:WORD_BITS] == 0
    h.assume(~valid | (aligned & (last < 1 << (BOUNDARY_BITS - WORD_BITS))))
    if width == 32:
        h.assume(~valid | (length < 128))
    first_beat = port_address[size_bits:BOUNDARY_BITS]
    last_beat = first_beat + port_length
    # Number in 4 KiB of the last octet of the words and of the beats
    end = Cat(~address[:WORD_BITS], last)
    port_end = (last_beat + 1 << size_bits) - 1
    slack = Mux(last[0], 0, 8) if width == 128 else 0
    h.check("no burst without words", ~shown | valid)
    h.check("size", port_size == size_bits)
    h.check("aligned", ~shown | (port_address[:size_bits] == 0))
    h.check("in 4 KiB", ~shown | (last_beat < 1 << (BOUNDARY_BITS - size_bits)))
    low = max(size_bits, WORD_BITS)
    h.check("begins with the first word", ~shown | (port_address[low:] == address[low:]))
    if width == 32:
        h.check("not before it", ~shown | (port_address == address))
    h.check("ends with the last word", ~shown | (port_end == end + slack))
    h.cover("burst", shown & (length == 3))


def _read(h: Harness, width: int) -> None:
    dut = AxiReadWidth(width)
    h.block(dut)
    words, port = (
        (axi.arvalid, axi.araddr, axi.arlen, axi.arsize) for axi in (dut.words, dut.m_axi)
    )
    _burst(h, width, words, port)


def _write(h: Harness, width: int) -> None:
    dut = AxiWriteWidth(width)
    inside = h.block(dut)
    words, port = (
        (axi.awvalid, axi.awaddr, axi.awlen, axi.awsize) for axi in (dut.words, dut.m_axi)
    )
    _burst(h, width, words, port)
    if width == 32:
        _narrow_words(h, inside)


def _narrow_words(h: Harness, inside: Inside) -> None:
    """Each word is two beats, its lower half first; the last one of a burst ends it."""
    words, axi = inside.ports.words, inside.ports.m_axi
    second = Signal(name="second")
    h.invariant("which half", inside.signal("upper") == second)
    moves = axi.wvalid & axi.wready
    h.m.d.sync += second.eq(second ^ moves)
    h.check("beats of words", axi.wvalid == words.wvalid)
    h.check("strobes", axi.wstrb == Mux(second, words.wstrb[4:], words.wstrb[:4]))
    h.check("data", axi.wdata == Mux(second, words.wdata[32:], words.wdata[:32]))
    h.check("last", axi.wlast == (words.wlast & second))
    h.check("word is taken", (words.wvalid & words.wready) == (moves & second))
    h.cover("second beat", moves & second & axi.wlast)


def _property(width: int, block: str, name: str, build: Any, *changes: tuple[str, str]) -> Property:
    return Property(
        f"dma.axi_width.{block}",
        f"{name} (port of {width} bits)",
        in_harness(lambda h: build(h, width)),
        mutations=tuple(Mutation(MODULE, *change) for change in changes),
        covered=6,
    )


BURSTS = "a burst has the octets of its words and no more beats than contain them, in 4 KiB"

PROPERTIES = (
    _property(
        32,
        "AxiReadWidth",
        BURSTS,
        _read,
        ("axi.arlen.eq(Cat(1, words", "axi.arlen.eq(Cat(0, words"),
    ),
    _property(
        128, "AxiReadWidth", BURSTS, _read, ("axi.arlen.eq(beats[1:])", "axi.arlen.eq(beats)")
    ),
    _property(
        32,
        "AxiWriteWidth",
        f"{BURSTS}; each word is two beats with its strobes",
        _write,
        ("axi.awlen.eq(Cat(1, words", "axi.awlen.eq(Cat(0, words"),
        ("words.wstrb.word_select(upper, len(axi.wstrb))", "words.wstrb[:4]"),
        ("axi.wlast.eq(words.wlast & upper)", "axi.wlast.eq(words.wlast)"),
    ),
    _property(
        128,
        "AxiWriteWidth",
        BURSTS,
        _write,
        ("(words.awlen + begins_upper) >> 1", "words.awlen >> 1"),
    ),
)
