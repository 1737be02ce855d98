"""A device with the ports of a NIC that exercises the runtime around it."""

from enum import IntEnum
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import fifo, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.dma.ports import AxiSignature
from stagecoach.gateware.ethernet.layouts import AxiStreamSignature
from stagecoach.gateware.registers.ports import AxiLiteSignature
from stagecoach.hw.rtlil import export, to_verilog

IDENTITY_VALUE = 0x57A6EC1C
FIFO_WORDS = 4096


class At(IntEnum):
    """Registers; those that are written keep what was written."""

    IDENTITY = 0x00
    SCRATCH = 0x04
    ADDRESS_LOW = 0x08
    ADDRESS_HIGH = 0x0C
    WORD_LOW = 0x10
    WORD_HIGH = 0x14
    START = 0x18  # written: 1 writes the word to the address, 2 reads it; with 4 by m_axi
    STATE = 0x1C  # busy in bit 0, the response in the next two
    READ_LOW = 0x20
    READ_HIGH = 0x24
    DEADLINE = 0x28
    ARMED = 0x2C  # bit 0: network_irq rises at the deadline; bit 1: irq is high
    TIME = 0x30
    CYCLE = 0x34  # free-running
    ECHO = 0x38  # bit 0: send what comes; bit 1: spoil what is sent
    FIRST_BEAT = 0x3C  # CYCLE of the first word since ECHO was written
    LAST_BEAT = 0x40  # of the last one
    BEATS = 0x44
    FIRST_SENT = 0x48
    LAST_SENT = 0x4C
    CAME = 0x50  # the CYCLE and, next, the time in which the deadline had come
    CAME_TIME = 0x54


class Registers(wiring.Component):
    """Written ones as words, read ones from inputs."""

    def __init__(self, driven: dict[At, Signal]):
        self._driven = driven
        self.written = {at: Signal(32, name=at.name.lower()) for at in At}
        self.strobe = {at: Signal(name=f"{at.name.lower()}_strobe") for at in At}
        super().__init__({"bus": In(AxiLiteSignature())})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus = self.bus
        write, read = Signal(), Signal()
        m.d.comb += [
            write.eq(bus.awvalid & bus.wvalid & ~bus.bvalid),
            read.eq(bus.arvalid & ~bus.rvalid),
            bus.awready.eq(write),
            bus.wready.eq(write),
            bus.arready.eq(read),
        ]
        with m.If(bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        with m.If(bus.rready):
            m.d.sync += bus.rvalid.eq(0)
        for strobe in self.strobe.values():
            m.d.sync += strobe.eq(0)
        with m.If(write):
            m.d.sync += [bus.bvalid.eq(1), bus.bresp.eq(2)]
            for at, word in self.written.items():
                with m.If(bus.awaddr == at):
                    m.d.sync += [word.eq(bus.wdata), self.strobe[at].eq(1), bus.bresp.eq(0)]
        with m.If(read):
            m.d.sync += [bus.rvalid.eq(1), bus.rresp.eq(2), bus.rdata.eq(0)]
            for at in At:
                with m.If(bus.araddr == at):
                    value = self._driven.get(at, self.written[at])
                    m.d.sync += [bus.rdata.eq(value), bus.rresp.eq(0)]
        return m


class WordPort(wiring.Component):
    """Writes a word, or reads one."""

    write: In(1)
    read: In(1)
    address: In(64)
    word: In(64)
    busy: Out(1)
    found: Out(64)
    response: Out(2)
    axi: Out(AxiSignature(64))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        axi = self.axi
        m.d.comb += [
            *(axi.awaddr.eq(self.address), axi.araddr.eq(self.address)),
            *(axi.awsize.eq(3), axi.arsize.eq(3), axi.awburst.eq(1), axi.arburst.eq(1)),
            *(axi.wdata.eq(self.word), axi.wstrb.eq(0xFF), axi.wlast.eq(1)),
            *(axi.bready.eq(1), axi.rready.eq(1)),
        ]
        with m.If(self.write):
            m.d.sync += [axi.awvalid.eq(1), axi.wvalid.eq(1), self.busy.eq(1)]
        with m.If(self.read):
            m.d.sync += [axi.arvalid.eq(1), self.busy.eq(1)]
        for valid, ready in (
            (axi.awvalid, axi.awready),
            (axi.wvalid, axi.wready),
            (axi.arvalid, axi.arready),
        ):
            with m.If(valid & ready):
                m.d.sync += valid.eq(0)
        with m.If(axi.bvalid):
            m.d.sync += [self.busy.eq(0), self.response.eq(axi.bresp)]
        with m.If(axi.rvalid):
            m.d.sync += [self.busy.eq(0), self.response.eq(axi.rresp), self.found.eq(axi.rdata)]
        return m


class Echo(wiring.Component):
    """Sends whole frames back, and tells in which cycles words came and went."""

    enable: In(1)
    spoil: In(1)
    clear: In(1)
    cycle: In(32)
    rx: In(AxiStreamSignature())
    tx: Out(AxiStreamSignature())
    first: Out(32)
    last: Out(32)
    beats: Out(32)
    first_sent: Out(32)
    last_sent: Out(32)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rx, tx = self.rx, self.tx
        m.submodules.words = words = fifo.SyncFIFOBuffered(width=73, depth=FIFO_WORDS)
        waiting = Signal(16)
        came, went = Signal(), Signal()
        m.d.comb += [
            rx.tready.eq(words.w_rdy),
            words.w_en.eq(rx.tvalid & self.enable),
            words.w_data.eq(Cat(rx.tdata, rx.tkeep, rx.tlast)),
            tx.tvalid.eq((waiting != 0) & words.r_rdy),
            Cat(tx.tdata, tx.tkeep, tx.tlast).eq(words.r_data),
            tx.tuser.eq(self.spoil),
            words.r_en.eq(tx.tvalid & tx.tready),
            came.eq(words.w_en & words.w_rdy & rx.tlast),
            went.eq(words.r_en & tx.tlast),
        ]
        m.d.sync += waiting.eq(waiting + came - went)
        with m.If(rx.tvalid & rx.tready):
            m.d.sync += [
                self.first.eq(Mux(self.beats == 0, self.cycle, self.first)),
                self.last.eq(self.cycle),
                self.beats.eq(self.beats + 1),
            ]
        sent = Signal()
        with m.If(words.r_en):
            m.d.sync += [
                sent.eq(1),
                self.first_sent.eq(Mux(sent, self.first_sent, self.cycle)),
                self.last_sent.eq(self.cycle),
            ]
        with m.If(self.clear):
            m.d.sync += [self.beats.eq(0), sent.eq(0)]
        return m


class StandIn(wiring.Component):
    """Registers (`At`), an echo of frames, a word that is written or read, and a deadline."""

    s_axi: In(AxiLiteSignature())
    m_axi: Out(AxiSignature(64))
    t_axi: Out(AxiSignature(64))
    rx: In(AxiStreamSignature())
    tx: Out(AxiStreamSignature())
    time_us: In(32)
    deadline: Out(32)
    armed: Out(1)
    irq: Out(1)
    network_irq: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.echo = echo = Echo()
        m.submodules.network_words = network = WordPort()
        m.submodules.device_words = device = WordPort()
        cycle, state, came, came_time = Signal(32), Signal(32), Signal(32), Signal(32)
        found = Signal(64)
        identity = Signal(32, init=IDENTITY_VALUE)
        driven: dict[Any, Any] = {
            At.IDENTITY: identity,
            At.STATE: state,
            At.READ_LOW: found[:32],
            At.READ_HIGH: found[32:],
            At.TIME: self.time_us,
            At.CYCLE: cycle,
            At.FIRST_BEAT: echo.first,
            At.LAST_BEAT: echo.last,
            At.BEATS: echo.beats,
            At.FIRST_SENT: echo.first_sent,
            At.LAST_SENT: echo.last_sent,
            At.CAME: came,
            At.CAME_TIME: came_time,
        }
        m.submodules.registers = registers = Registers(driven)
        written, strobe = registers.written, registers.strobe
        wiring.connect(m, wiring.flipped(self.s_axi), registers.bus)
        wiring.connect(m, wiring.flipped(self.t_axi), network.axi)
        wiring.connect(m, wiring.flipped(self.m_axi), device.axi)
        wiring.connect(m, wiring.flipped(self.rx), echo.rx)
        wiring.connect(m, wiring.flipped(self.tx), echo.tx)
        start = written[At.START]
        for port, chosen in ((network, ~start[2]), (device, start[2])):
            m.d.comb += [
                port.address.eq(Cat(written[At.ADDRESS_LOW], written[At.ADDRESS_HIGH])),
                port.word.eq(Cat(written[At.WORD_LOW], written[At.WORD_HIGH])),
                port.write.eq(strobe[At.START] & start[0] & chosen),
                port.read.eq(strobe[At.START] & start[1] & chosen),
            ]
        reached = Signal()
        reaches = Signal()
        m.d.comb += [
            found.eq(Mux(start[2], device.found, network.found)),
            state.eq(
                Cat(
                    network.busy | device.busy | strobe[At.START],
                    Mux(start[2], device.response, network.response),
                )
            ),
            echo.enable.eq(written[At.ECHO][0]),
            echo.spoil.eq(written[At.ECHO][1]),
            echo.clear.eq(strobe[At.ECHO]),
            echo.cycle.eq(cycle),
            self.deadline.eq(written[At.DEADLINE]),
            self.armed.eq(written[At.ARMED][0] & ~reached),
            self.irq.eq(written[At.ARMED][1]),
            self.network_irq.eq(reached),
            reaches.eq(self.armed & ~(self.time_us - self.deadline)[31]),
        ]
        m.d.sync += cycle.eq(cycle + 1)
        with m.If(strobe[At.ARMED]):
            m.d.sync += reached.eq(0)
        with m.Elif(reaches):
            m.d.sync += [reached.eq(1), came.eq(cycle), came_time.eq(self.time_us)]
        return m


def stand_in_verilog() -> str:
    """The module `nic`."""
    return to_verilog(export(StandIn(), "nic"))
