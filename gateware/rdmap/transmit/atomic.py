"""The Responder's side of atomics: what the atomic unit is asked and what it found."""

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.bursts import WORD_BITS
from stagecoach.gateware.interfaces import OPERANDS, Layouts, QpStrobe
from stagecoach.gateware.rdmap.atomic.operations import AtomicStatus
from stagecoach.gateware.rdmap.atomic.unit import request_layout, response_layout

FOUND = data.StructLayout({"original": 64, "status": AtomicStatus})


class AtomicAnswers(wiring.Component):
    """Keeps the unit's answer for each QP until its visit.

    Members
    -------
    response: In(stream) from the atomic unit; always ready.
    select: In(qp); `answered`, `original` and `status` are those of QP `select` a cycle ago.
    clear: In(QpStrobe), the QP has no answer, from two cycles later on.
    kick: Out(QpStrobe), the QP has one.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        super().__init__(
            {
                "response": In(stream.Signature(response_layout(config))),
                "select": In(config.qp_bits),
                "answered": Out(1),
                "original": Out(64),
                "status": Out(AtomicStatus),
                "clear": In(QpStrobe(config)),
                "kick": Out(QpStrobe(config)),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        qps = self._config.qps
        m.submodules.found = found = Memory(shape=FOUND, depth=qps, init=[])
        write, read = found.write_port(), found.read_port()
        m.d.sync += [
            write.addr.eq(self.response.p.qp),
            write.data.original.eq(self.response.p.original),
            write.data.status.eq(self.response.p.status),
            write.en.eq(self.response.valid),
        ]
        m.d.comb += [
            self.response.ready.eq(1),
            read.addr.eq(self.select),
            self.original.eq(read.data.original),
            self.status.eq(read.data.status),
        ]
        bits = Signal(qps)
        clear = QpStrobe(self._config).create(path=("clear_late",))
        m.d.sync += [clear.valid.eq(self.clear.valid), clear.qp.eq(self.clear.qp)]
        with m.If(clear.valid):
            m.d.sync += bits.bit_select(clear.qp, 1).eq(0)
        with m.If(write.en):
            m.d.sync += bits.bit_select(write.addr, 1).eq(1)
        m.d.sync += [
            self.answered.eq(bits.bit_select(self.select, 1)),
            self.kick.valid.eq(write.en),
            self.kick.qp.eq(write.addr),
        ]
        return m


class TransmitAtomic(wiring.Component):
    """Hands an inbound atomic to the atomic unit when the STag table has allowed its target.

    Latency: the request 2 cycles after `free`. One atomic at a time; while the unit does not take
    it, `target` stands. The unit takes it in bounded time, whatever the LLP does.

    Members
    -------
    target: In(stream qp_number), a QP whose target is being checked. It is taken with `failed`,
        Out(1), if it is misaligned, with `begun`, Out(1), if the unit has the atomic, with none of
        them if the check failed.
    free, doomed: In(1), the check is done; and has failed. address: In(64), what it said.
    operands: In, of the oldest inbound request; they stand while `target` does.
    request: Out(stream) to the atomic unit.
    refused: Out(QpStrobe), the atomic does not go to the unit.
    """

    def __init__(self, config: RnicConfig):
        super().__init__(
            {
                "target": In(stream.Signature(Layouts(config).qp_number)),
                "failed": Out(1),
                "begun": Out(1),
                "free": In(1),
                "doomed": In(1),
                "address": In(64),
                "operands": In(OPERANDS),
                "request": Out(stream.Signature(request_layout(config))),
                "refused": Out(QpStrobe(config)),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        address = Signal(64)
        m.d.comb += [
            self.request.p.qp.eq(self.target.p.qp),
            self.request.p.address.eq(address),
            self.request.p.operands.eq(self.operands),
            self.refused.qp.eq(self.target.p.qp),
        ]
        with m.FSM():
            # Wait for the result of the check, with which an error has ended the visit.
            with m.State("CHECK"), m.If(self.target.valid):
                m.d.sync += address.eq(self.address)
                with m.If(self.free):
                    m.next = "TARGET"
                    with m.If(self.doomed):
                        m.d.comb += [self.target.ready.eq(1), self.refused.valid.eq(1)]
                        m.next = "CHECK"

            # The address is looked at out of a register: it comes late from the STag table.
            with m.State("TARGET"):
                m.next = "REQUEST"
                with m.If(address[:WORD_BITS].any()):
                    m.d.comb += [
                        self.target.ready.eq(1),
                        self.failed.eq(1),
                        self.refused.valid.eq(1),
                    ]
                    m.next = "CHECK"

            # Wait until the unit takes it.
            with m.State("REQUEST"):
                m.d.comb += self.request.valid.eq(1)
                with m.If(self.request.ready):
                    m.d.comb += [self.target.ready.eq(1), self.begun.eq(1)]
                    m.next = "CHECK"
        return m
