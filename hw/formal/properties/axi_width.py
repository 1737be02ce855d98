"""The converters to AXI ports of 32 and 128 bits: bursts in 4 KiB that contain the same words.

What is assumed of the addresses of the engines is proved of them (`axi`): words are aligned, no
burst crosses 4 KiB, and AW stays until it is taken. At 128 bits a FIFO tells where each burst
begins and ends: what goes in is proved here, that it comes out in order is proved of it (`fifos`).
"""

from typing import Any

from amaranth.hdl import Cat, Mux, Signal

from stagecoach.gateware.dma.axi_width import AxiReadWidth, AxiWriteWidth
from stagecoach.gateware.dma.bursts import WORD_BITS
from stagecoach.gateware.dma.ports import RESPONSE_OKAY
from stagecoach.hw.formal.device import class_name
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.invariants import invariants
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
    # Number in 4 KiB of the last byte of the words and of the beats
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
    inside = h.block(dut)
    words, port = (
        (axi.arvalid, axi.araddr, axi.arlen, axi.arsize) for axi in (dut.words, dut.m_axi)
    )
    _burst(h, width, words, port)
    (_narrow_reads if width == 32 else _wide_reads)(h, inside)


def _write(h: Harness, width: int) -> None:
    dut = AxiWriteWidth(width)
    inside = h.block(dut)
    words, port = (
        (axi.awvalid, axi.awaddr, axi.awlen, axi.awsize) for axi in (dut.words, dut.m_axi)
    )
    _burst(h, width, words, port)
    (_narrow_words if width == 32 else _wide_words)(h, inside)


def _narrow_reads(h: Harness, inside: Inside) -> None:
    """Two beats are a word, its lower half first; RRESP is the first one that is not OKAY."""
    words, axi = inside.ports.words, inside.ports.m_axi
    second = Signal(name="second")
    lower, response = Signal(32), Signal(2)
    moves = axi.rvalid & axi.rready
    h.m.d.sync += second.eq(second ^ moves)
    with h.m.If(moves):
        h.m.d.sync += [lower.eq(axi.rdata), response.eq(axi.rresp)]
    h.invariant("which half", inside.signal("upper") == second)
    h.invariant("lower half", ~second | (inside.signal("lower_data") == lower))
    h.invariant("its response", ~second | (inside.signal("lower_resp") == response))
    h.check("a word with its second beat", words.rvalid == (axi.rvalid & second))
    h.check("both beats are taken", (words.rvalid & words.rready) == (moves & second))
    h.check("data", ~words.rvalid | (words.rdata == Cat(lower, axi.rdata)))
    worse = Mux(response != RESPONSE_OKAY, response, axi.rresp)
    h.check("response", ~words.rvalid | (words.rresp == worse))
    h.check("last", words.rlast == axi.rlast)
    h.cover("word", words.rvalid & words.rready & words.rlast)


def _wide_reads(h: Harness, inside: Inside) -> None:
    """A word is its half of its beat; a beat is taken with its last word, and none twice."""
    words, axi = inside.ports.words, inside.ports.m_axi
    fifo = inside.child("bursts")
    noted, burst = fifo.ports.i, fifo.ports.o
    invariants(h, class_name(fifo.ports), fifo)
    h.invariant("burst stays", h.held(burst))

    # A burst is noted with AR: the half of its first word, and in halves of beats the last one.
    begins, ends = noted.p.start, Cat(noted.p.end, noted.p.length)
    announced = axi.arvalid & axi.arready
    h.check("announced", announced == (words.arvalid & words.arready))
    h.check("noted", announced == (noted.valid & noted.ready))
    h.check("begins", ~announced | (begins == words.araddr[WORD_BITS]))
    h.check("ends", ~announced | (ends == (words.arlen + begins)[:9]))
    last_half = Cat(burst.p.end, burst.p.length)
    h.assume(~burst.valid | (last_half >= burst.p.start))

    number = Signal(9, name="number")  # of the word in its burst
    half = number + burst.p.start  # from the beginning of its first beat
    moves = words.rvalid & words.rready
    h.m.d.sync += number.eq(Mux(moves, Mux(words.rlast, 0, number + 1), number))
    shown = words.rvalid
    h.check("a word of a beat", ~shown | axi.rvalid)
    h.check("data", ~shown | (words.rdata == Mux(half[0], axi.rdata[64:], axi.rdata[:64])))
    h.check("response", words.rresp == axi.rresp)
    h.check("last", ~shown | (words.rlast == (half == last_half)))
    h.check("beat is taken", (axi.rvalid & axi.rready) == (moves & (half[0] | words.rlast)))
    h.cover("two beats", moves & words.rlast & (half == 2))

    inner = number != 0
    h.invariant("first", inside.signal("first") == ~inner)
    h.invariant("follows", ~inner | (inside.signal("follows") == half[0]))
    h.invariant("beat", inside.signal("beat") == Mux(inner, half[1:9], 0))
    h.invariant("in a burst", ~inner | (burst.valid & (half <= last_half)))


def _wide_words(h: Harness, inside: Inside) -> None:
    """Two words that are in one beat go together; where there is none nothing has a strobe."""
    words, axi = inside.ports.words, inside.ports.m_axi
    fifo = inside.child("bursts")
    noted, burst = fifo.ports.i, fifo.ports.o
    invariants(h, class_name(fifo.ports), fifo)
    h.invariant("burst stays", h.held(burst))

    # Where a burst begins is noted once for each AW, then or before.
    waits = h.past(words.awvalid & ~words.awready)
    h.assume(~waits | (words.awvalid & (words.awaddr == h.past(words.awaddr))))
    told = Signal(name="told")
    notes = noted.valid & noted.ready
    announced = axi.awvalid & axi.awready
    h.m.d.sync += told.eq((told | notes) & ~announced)
    h.invariant("told", (inside.signal("noted") == told) & (~told | waits))
    h.check("announced", announced == (words.awvalid & words.awready))
    h.check("noted once", ~(notes & told))
    h.check("noted before", ~announced | told | notes)
    h.check("begins", ~notes | (words.awvalid & (noted.payload == words.awaddr[WORD_BITS])))

    begun, second = Signal(name="begun"), Signal(name="second")  # of a burst; its half of the beat
    kept, strobes = Signal(64), Signal(8)  # of the word before it in this beat
    upper = Mux(begun, second, burst.payload)
    moves, beat = words.wvalid & words.wready, axi.wvalid & axi.wready
    whole = upper | words.wlast
    with h.m.If(moves):
        h.m.d.sync += [
            begun.eq(~words.wlast),
            second.eq(~upper),
            kept.eq(words.wdata),
            strobes.eq(Mux(whole, 0, words.wstrb)),
        ]
    h.check("a beat of words", axi.wvalid == (words.wvalid & burst.valid & whole))
    h.check("word is taken with it", beat == (moves & whole))
    h.check("last", axi.wlast == words.wlast)
    shown = axi.wvalid
    h.check("lower strobes", ~shown | (axi.wstrb[:8] == Mux(upper, strobes, words.wstrb)))
    h.check("upper strobes", ~shown | (axi.wstrb[8:] == Mux(upper, words.wstrb, 0)))
    lower = Mux(upper, kept, words.wdata)
    h.check("lower data", ~shown | (axi.wstrb[:8] == 0) | (axi.wdata[:64] == lower))
    h.check("upper data", ~shown | ~upper | (axi.wdata[64:] == words.wdata))
    h.cover("both halves", beat & (strobes == 0xF0) & (words.wstrb == 1))

    h.invariant("first", inside.signal("first") == ~begun)
    h.invariant("follows", ~begun | (inside.signal("follows") == second))
    h.invariant("in a burst", ~begun | burst.valid)
    h.invariant("kept", (strobes == 0) | (inside.signal("lower_data") == kept))
    h.invariant("kept strobes", inside.signal("lower_strobe") == strobes)
    h.invariant("none is kept", (strobes == 0) | (begun & second))


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


READS = "; words are those of the beats, each once"
BURSTS = "a burst has the bytes of its words and no more beats than contain them, in 4 KiB"

PROPERTIES = (
    _property(
        32,
        "AxiReadWidth",
        BURSTS + READS,
        _read,
        ("axi.arlen.eq(Cat(1, words", "axi.arlen.eq(Cat(0, words"),
        ("axi.rready.eq(words.rready | ~upper)", "axi.rready.eq(1)"),
        ("lower_resp != RESPONSE_OKAY, lower_resp, axi.rresp", "upper, lower_resp, axi.rresp"),
    ),
    _property(
        128,
        "AxiReadWidth",
        BURSTS + READS,
        _read,
        ("axi.arlen.eq(beats[1:])", "axi.arlen.eq(beats)"),
        ("ends_beat.eq(upper | (last_beat & ~bursts.o.p.end))", "ends_beat.eq(upper)"),
        ("beat.eq(Mux(last_beat, 0, beat + 1))", "beat.eq(beat + 1)"),
        ("words.arready.eq(axi.arready & bursts.i.ready)", "words.arready.eq(axi.arready)"),
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
        f"{BURSTS}; its beats are the words, with their strobes",
        _write,
        ("(words.awlen + begins_upper) >> 1", "words.awlen >> 1"),
        ("Mux(upper, lower_strobe, words.wstrb)", "Mux(upper, 0, words.wstrb)"),
        ("lower_strobe.eq(Mux(ends_beat, 0, words.wstrb))", "lower_strobe.eq(words.wstrb)"),
        ("bursts.i.valid.eq(words.awvalid & ~noted)", "bursts.i.valid.eq(words.awvalid)"),
    ),
)
