"""Accesses of the device to host memory: AXI4 to messages, and their answers."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_OCTETS
from stagecoach.gateware.dma.axi import AxiReadSignature, AxiWriteSignature
from stagecoach.gateware.dma.ports import RESPONSE_OKAY, RESPONSE_SLVERR
from stagecoach.gateware.hostlink.octets import DEPTH, OCTET, MessageSlot, OctetBuffer
from stagecoach.gateware.stream.fifo import StreamFifo
from stagecoach.hw.interface.hostlink import MAXIMUM_BEATS, Kind

BURSTS = 16
"""Reads, and writes, under way."""

BURST = data.StructLayout({"length": 8, "id": 1})


class ReadBridge(wiring.Component):
    """The read channels: MEMORY_READ for each burst, and R from the READ_DATA that comes.

    Up to 16 bursts, and what they read in 2 KiB, are under way. A word every 16 cycles, when its
    bytes are there. An answer that is too short ends with SLVERR; what is too long is dropped.

    Members
    -------
    axi: AR and R, INCR bursts of at most 32 words, answered in order.
    o: MEMORY_READ messages.
    i: READ_DATA, from its response on. It never waits for long: there is room for all that
        was asked for.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "axi": In(AxiReadSignature()),
                "o": Out(stream.Signature(OCTET)),
                "i": In(stream.Signature(OCTET)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        axi = self.axi
        m.submodules.slot = slot = MessageSlot(Kind.MEMORY_READ, 10)
        m.submodules.buffer = buffer = OctetBuffer(DEPTH)
        m.submodules.lengths = lengths = StreamFifo(BURST, BURSTS)
        wiring.connect(m, slot.o, wiring.flipped(self.o))
        wiring.connect(m, wiring.flipped(self.i), buffer.i)
        m.d.comb += buffer.commit.eq(1)

        # Bytes that are on their way or here, a response for each burst included.
        reserved = Signal(range(DEPTH))
        cost = Signal(range(DEPTH))
        room = Signal()
        taken = Signal()
        left_cost = Signal(range(DEPTH))
        finished = Signal()
        most = WORD_OCTETS * MAXIMUM_BEATS + 1
        m.d.comb += [
            taken.eq(axi.arvalid & axi.arready),
            axi.arready.eq(slot.i.ready & lengths.i.ready & room),
            slot.i.valid.eq(axi.arvalid & lengths.i.ready & room),
            slot.i.payload.eq(
                Cat(
                    Const(0, 3),
                    axi.araddr[3:],
                    Const(0, 3),
                    (axi.arlen + 1)[:13],
                )
            ),
            lengths.i.valid.eq(taken),
            lengths.i.p.length.eq(axi.arlen),
            lengths.i.p.id.eq(axi.arid),
            cost.eq(Cat(Const(0, 3), axi.arlen + 1) + 1),
            left_cost.eq(Cat(Const(0, 3), lengths.o.p.length + 1) + 1),
        ]
        m.d.sync += [
            # Not in the cycle after a burst, which is not counted yet.
            room.eq((reserved < DEPTH - 8 - most) & ~taken),
            reserved.eq(reserved + Mux(taken, cost, 0) - Mux(finished, left_cost, 0)),
        ]

        octet = buffer.o
        response = Signal(2)
        beats = Signal(8)
        lane = Signal(3)
        ended = Signal()
        m.d.comb += axi.rresp.eq(response)
        with m.FSM():
            with m.State("RESPONSE"):  # waits for an answer
                m.d.sync += [
                    beats.eq(lengths.o.p.length),
                    axi.rid.eq(lengths.o.p.id),
                    lane.eq(0),
                ]
                with m.If(octet.valid & lengths.o.valid):
                    m.d.comb += octet.ready.eq(1)
                    m.d.sync += [
                        response.eq(
                            Mux(
                                octet.p.last & (octet.p.octet == RESPONSE_OKAY),
                                RESPONSE_SLVERR,
                                octet.p.octet,
                            )
                        ),
                        ended.eq(octet.p.last),
                    ]
                    m.next = "WORD"
            with m.State("WORD"):  # waits for the bytes of a word
                with m.If(ended):
                    m.d.sync += [axi.rvalid.eq(1), axi.rlast.eq(beats == 0), axi.rdata.eq(0)]
                    m.next = "HAND"
                with m.Elif(octet.valid):
                    m.d.comb += octet.ready.eq(1)
                    m.d.sync += [axi.rdata.eq(Cat(axi.rdata[8:], octet.p.octet)), lane.eq(lane + 1)]
                    with m.If(octet.p.last):
                        m.d.sync += ended.eq(1)
                        with m.If(lane != WORD_OCTETS - 1):
                            m.d.sync += response.eq(RESPONSE_SLVERR)
                    with m.If(octet.p.last | (lane == WORD_OCTETS - 1)):
                        m.d.sync += [axi.rvalid.eq(1), axi.rlast.eq(beats == 0)]
                        m.next = "HAND"
            with m.State("HAND"):  # waits until the device takes the word
                with m.If(axi.rready):
                    m.d.sync += [axi.rvalid.eq(0), beats.eq(beats - 1)]
                    with m.If(beats == 0):
                        m.next = "END"
                    with m.Else():
                        with m.If(ended & (response == RESPONSE_OKAY)):
                            m.d.sync += response.eq(RESPONSE_SLVERR)
                        m.next = "WORD"
            with m.State("END"):  # drops what is too much
                with m.If(ended):
                    m.d.comb += [finished.eq(1), lengths.o.ready.eq(1)]
                    m.next = "RESPONSE"
                with m.Elif(octet.valid):
                    m.d.comb += octet.ready.eq(1)
                    m.d.sync += ended.eq(octet.p.last)
        return m


class WriteBridge(wiring.Component):
    """The write channels: MEMORY_WRITE for each burst, and B for each WRITE_DONE.

    Up to 16 bursts are under way; a word every 9 cycles.

    Members
    -------
    axi: AW, W and B, INCR bursts of at most 32 words, answered in order.
    o: MEMORY_WRITE messages.
    done: a WRITE_DONE came, with `response`.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "axi": In(AxiWriteSignature()),
                "o": Out(stream.Signature(OCTET)),
                "done": In(1),
                "response": In(2),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        axi = self.axi
        m.submodules.buffer = buffer = OctetBuffer()
        m.submodules.responses = responses = StreamFifo(2, BURSTS)
        m.submodules.ids = ids = StreamFifo(1, BURSTS + 2)
        wiring.connect(m, buffer.o, wiring.flipped(self.o))
        under_way = Signal(range(BURSTS + 1))
        begun = Signal()
        ended = Signal()
        m.d.comb += [
            responses.i.valid.eq(self.done),
            responses.i.payload.eq(self.response),
            axi.bvalid.eq(responses.o.valid),
            axi.bresp.eq(responses.o.payload),
            axi.bid.eq(ids.o.payload),
            ids.i.payload.eq(axi.awid),
            ids.i.valid.eq(begun),
            ids.o.ready.eq(ended),
            responses.o.ready.eq(axi.bready),
            ended.eq(axi.bvalid & axi.bready),
        ]
        m.d.sync += under_way.eq(under_way + begun - ended)

        shift = Signal(64)
        left = Signal(range(10))
        beats = Signal(8)
        item = buffer.i
        m.d.comb += [
            item.p.octet.eq(shift[:8]),
            item.p.last.eq((left == 0) & (beats == 0)),
            buffer.commit.eq(item.valid & item.ready & item.p.last),
        ]
        with m.FSM():
            with m.State("BURST"):  # waits for a burst, and sends the kind
                m.d.comb += [item.p.octet.eq(Kind.MEMORY_WRITE), item.p.last.eq(0)]
                with m.If(axi.awvalid & (under_way != BURSTS)):
                    m.d.comb += item.valid.eq(1)
                    m.d.sync += [
                        shift.eq(Cat(Const(0, 3), axi.awaddr[3:])),
                        beats.eq(axi.awlen),
                        left.eq(WORD_OCTETS - 1),
                    ]
                    with m.If(item.ready):
                        m.d.comb += [axi.awready.eq(1), begun.eq(1)]
                        m.next = "ADDRESS"
            with m.State("ADDRESS"):  # sends the address
                m.d.comb += [item.valid.eq(1), item.p.last.eq(0)]
                with m.If(item.ready):
                    m.d.sync += [shift.eq(shift >> 8), left.eq(left - 1)]
                    with m.If(left == 0):
                        m.next = "STROBES"
            with m.State("STROBES"):  # waits for a word, and sends its strobes
                m.d.comb += [
                    item.valid.eq(axi.wvalid),
                    item.p.octet.eq(axi.wstrb),
                    item.p.last.eq(0),
                ]
                m.d.sync += [shift.eq(axi.wdata), left.eq(WORD_OCTETS - 1)]
                with m.If(axi.wvalid & item.ready):
                    m.d.comb += axi.wready.eq(1)
                    m.next = "WORD"
            with m.State("WORD"):  # sends the word
                m.d.comb += item.valid.eq(1)
                with m.If(item.ready):
                    m.d.sync += [shift.eq(shift >> 8), left.eq(left - 1)]
                    with m.If(left == 0):
                        m.d.sync += beats.eq(beats - 1)
                        m.next = "STROBES"
                        with m.If(beats == 0):
                            m.next = "BURST"
        return m
