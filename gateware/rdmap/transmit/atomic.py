"""The Responder's side of atomics: what the atomic unit is asked and what it found."""

from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.bursts import WORD_BITS
from stagecoach.gateware.interfaces import QpStrobe
from stagecoach.gateware.rdmap.atomic.operations import AtomicStatus
from stagecoach.gateware.rdmap.atomic.unit import response_layout
from stagecoach.gateware.rdmap.transmit.back import TransmitBack
from stagecoach.gateware.rdmap.transmit.context import TransmitContexts
from stagecoach.gateware.rdmap.transmit.visit import TransmitVisit, end_visit, fail, go_idle
from stagecoach.hw.interface.causes import Cause

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


def connect_atomic(
    m: Module, ports: wiring.Component, visit: TransmitVisit, answers: AtomicAnswers
) -> None:
    """What the unit is asked, out of registers that hold until it takes it."""
    request = ports.atomic_request.payload
    m.d.comb += [
        request.qp.eq(visit.qp),
        request.address.eq(visit.target),
        request.operands.eq(ports.inbound_requests.head.of.atomic.operands),
        ports.atomic_begun.qp.eq(visit.qp),
        ports.atomic_refused.qp.eq(visit.qp),
        answers.clear.qp.eq(visit.qp),
    ]


def atomic_states(
    m: Module,
    ports: wiring.Component,
    visit: TransmitVisit,
    contexts: TransmitContexts,
    answers: AtomicAnswers,
    back: TransmitBack,
) -> None:
    """From the check of a target to the end of the visit, from an answer to `READY`."""

    # Wait for the result of the check, with which an error has ended the visit.
    with m.State("TARGET_CHECK"):
        m.d.sync += visit.target.eq(back.address)
        with m.If(back.free):
            m.next = "TARGET"
            with m.If(visit.doomed):
                m.d.comb += ports.atomic_refused.valid.eq(1)
                go_idle(m, visit)

    # Its address is looked at out of a register: it comes late from the STag table.
    with m.State("TARGET"):
        m.d.sync += visit.cause.eq(Cause.ATOMIC_MISALIGNED)
        m.next = "ATOMIC"
        with m.If(visit.target[:WORD_BITS].any()):
            m.d.comb += ports.atomic_refused.valid.eq(1)
            fail(m, visit)

    # The unit takes it in bounded time, whatever the LLP does.
    with m.State("ATOMIC"):
        m.d.comb += ports.atomic_request.valid.eq(1)
        with m.If(ports.atomic_request.ready):
            m.d.comb += [
                contexts.store.eq(1),
                answers.clear.valid.eq(1),
                visit.kick.eq(~visit.kicked & visit.more),
            ]
            end_visit(m, visit)

    # There is an answer, or it was host memory that failed.
    with m.State("ATOMIC_ANSWER"):
        m.d.sync += [
            visit.asks.eq(0),
            visit.sure.eq(visit.roomy & ~visit.settings.transmit_markers),
            visit.cause.eq(
                Mux(
                    visit.atomic_status == AtomicStatus.READ_ERROR,
                    Cause.HOST_READ_ERROR,
                    Cause.HOST_WRITE_ERROR,
                )
            ),
        ]
        m.next = "READY"
        with m.If(visit.atomic_status != AtomicStatus.DONE):
            fail(m, visit)
