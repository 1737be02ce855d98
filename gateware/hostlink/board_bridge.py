"""Accesses of the host to the board's memory, as messages."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_OCTETS
from stagecoach.gateware.dma.ports import RESPONSE_OKAY, RESPONSE_SLVERR, AxiSignature
from stagecoach.gateware.hostlink.octets import OCTET, OctetBuffer
from stagecoach.hw.interface.hostlink import MAXIMUM_BEATS, Kind

ADDRESS_OCTETS = 8

AXI_SIZE = WORD_OCTETS.bit_length() - 1
AXI_INCR = 1


class BoardBridge(wiring.Component):
    """An AXI burst for each BOARD_ACCESS, one at a time and in order, and a BOARD_ANSWER for each.

    There is room for `BOARD_ACCESSES` of them, whatever the memory does, and for their answers; if
    a host has more under way, words of the memory may wait for the line. An answer leaves when it
    is complete. So a memory that never answers stops these accesses for ever, and nothing else of
    the link.

    A word that is read takes 9 cycles, one that is written 20: so long a burst occupies a memory
    that several ports share, unless an arbiter collects the words that are written. Words and their
    address do not wait for each other.

    An access of 0 or more than 32 words, or of a message that is too short to have an address, is
    not made, and answered with SLVERR. A write whose message is too short writes only the words
    that are there; what a message has too much is dropped. No counter.

    Members
    -------
    i: BOARD_ACCESS, without its kind.
    o: BOARD_ANSWER messages.
    axi: INCR bursts of 1 to 32 words. The host lets none cross 4 KiB.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "i": In(stream.Signature(OCTET)),
                "o": Out(stream.Signature(OCTET)),
                "axi": Out(AxiSignature()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        axi = self.axi
        m.submodules.asked = asked = OctetBuffer()
        m.submodules.answers = answers = OctetBuffer()
        wiring.connect(m, wiring.flipped(self.i), asked.i)
        wiring.connect(m, answers.o, wiring.flipped(self.o))
        octet, item = asked.o, answers.i
        m.d.comb += [asked.commit.eq(1), answers.commit.eq(item.valid & item.ready & item.p.last)]

        address = Signal(8 * ADDRESS_OCTETS)
        length = Signal(8)  # beats of the burst, without the first one
        beats = Signal(8)  # still to come, without the one under way
        offers = Signal()  # the address of a write
        count = Signal(range(ADDRESS_OCTETS + 1))
        ended = Signal()  # the message is over
        wanted = Signal()  # it asks for an access
        word = Signal(8 * WORD_OCTETS)
        strobes = Signal(WORD_OCTETS)
        response = Signal(2)
        m.d.comb += [
            axi.araddr.eq(address),
            axi.arlen.eq(length),
            axi.arsize.eq(AXI_SIZE),
            axi.arburst.eq(AXI_INCR),
            axi.awaddr.eq(address),
            axi.awlen.eq(length),
            axi.awvalid.eq(offers),
            axi.awsize.eq(AXI_SIZE),
            axi.awburst.eq(AXI_INCR),
            axi.wdata.eq(word),
            axi.wstrb.eq(strobes),
            axi.wlast.eq(beats == 0),
        ]
        with m.If(octet.valid & octet.ready):
            m.d.sync += ended.eq(octet.p.last)
        with m.If(axi.awready):
            m.d.sync += offers.eq(0)
        with m.FSM():
            with m.State("ADDRESS"):  # waits for address and count
                m.d.comb += octet.ready.eq(1)
                m.d.sync += [response.eq(RESPONSE_SLVERR), wanted.eq(0)]
                with m.If(octet.valid):
                    m.d.sync += count.eq(count + 1)
                    with m.If(count == ADDRESS_OCTETS):
                        words = octet.p.octet
                        is_allowed = (words != 0) & (words <= MAXIMUM_BEATS)
                        m.d.sync += [
                            length.eq(words - 1),
                            beats.eq(words - 1),
                            wanted.eq(is_allowed),
                        ]
                        m.next = "KIND"
                    with m.Else():
                        m.d.sync += address.eq(Cat(address[8:], octet.p.octet))
                        with m.If(octet.p.last):
                            m.next = "KIND"
            with m.State("KIND"):  # begins the answer
                m.d.comb += [item.p.octet.eq(Kind.BOARD_ANSWER), item.valid.eq(1)]
                m.d.sync += count.eq(0)
                with m.If(item.ready):
                    m.next = "REST"
                    with m.If(wanted):
                        m.d.sync += response.eq(RESPONSE_OKAY)
                        with m.If(ended):
                            m.next = "READ"
                        with m.Else():
                            m.d.sync += offers.eq(1)
                            m.next = "STROBES"
            with m.State("READ"):  # waits until the memory takes the burst
                m.d.comb += axi.arvalid.eq(1)
                with m.If(axi.arready):
                    m.next = "WORD"
            with m.State("WORD"):  # waits for a word
                m.d.comb += axi.rready.eq(1)
                with m.If(axi.rvalid):
                    m.d.sync += [word.eq(axi.rdata), count.eq(0)]
                    with m.If(axi.rresp != RESPONSE_OKAY):
                        m.d.sync += response.eq(axi.rresp)
                    m.next = "TELL"
            with m.State("TELL"):  # answers with its bytes
                m.d.comb += [item.p.octet.eq(word[:8]), item.valid.eq(1)]
                with m.If(item.ready):
                    m.d.sync += [word.eq(word >> 8), count.eq(count + 1)]
                    with m.If(count == WORD_OCTETS - 1):
                        m.d.sync += beats.eq(beats - 1)
                        m.next = "WORD"
                        with m.If(beats == 0):
                            m.next = "RESPONSE"
            with m.State("STROBES"):  # waits for those of a word
                m.d.sync += [count.eq(0), strobes.eq(0)]
                with m.If(ended):
                    m.next = "BEAT"
                with m.Else():
                    m.d.comb += octet.ready.eq(1)
                    with m.If(octet.valid):
                        m.d.sync += strobes.eq(octet.p.octet)
                        m.next = "BYTES"
            with m.State("BYTES"):  # waits for the bytes of a word
                with m.If(ended):
                    m.d.sync += strobes.eq(0)
                    m.next = "BEAT"
                with m.Else():
                    m.d.comb += octet.ready.eq(1)
                    with m.If(octet.valid):
                        m.d.sync += [word.eq(Cat(word[8:], octet.p.octet)), count.eq(count + 1)]
                        with m.If(count == WORD_OCTETS - 1):
                            m.next = "BEAT"
            with m.State("BEAT"):  # waits until the memory takes the word
                m.d.comb += axi.wvalid.eq(1)
                with m.If(axi.wready):
                    m.d.sync += beats.eq(beats - 1)
                    m.next = "STROBES"
                    with m.If(beats == 0):
                        m.next = "WRITTEN"
            with m.State("WRITTEN"):  # waits until the memory has answered
                m.d.comb += axi.bready.eq(1)
                with m.If(axi.bvalid):
                    m.d.sync += response.eq(axi.bresp)
                    m.next = "REST"
            with m.State("REST"):  # drops what the message has too much
                m.d.comb += octet.ready.eq(~ended)
                with m.If(ended):
                    m.next = "RESPONSE"
            with m.State("RESPONSE"):  # ends the answer
                m.d.comb += [item.p.octet.eq(response), item.p.last.eq(1), item.valid.eq(1)]
                m.d.sync += count.eq(0)
                with m.If(item.ready):
                    m.next = "ADDRESS"
        return m
