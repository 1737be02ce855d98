"""Judges a Read or Atomic Request but for its source or target."""

from amaranth.hdl import Module, Mux, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ddp.checks import CAUSE_BITS
from stagecoach.gateware.ddp.headers import from_wire
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.rdmap.headers import ULPDU_HEADER
from stagecoach.gateware.rdmap.receive.decode import KIND
from stagecoach.gateware.rdmap.receive.record import VERDICT
from stagecoach.hw.interface.causes import Cause


class ReceiveRequest(wiring.Component):
    """Gives the verdict about a request a cycle after it came, and waits for nobody.

    Members
    -------
    segment: In(stream KIND), taken with the verdict about it.
    header: In, its `ULPDU_HEADER`, as long as it is at work.
    read_cause, atomic_cause: In, of the checks, a cycle after it; which one counts is its kind.
    item: Out(inbound_request), what it asks for, in the cycle of `header`.
    verdict: Out, `VERDICT`. A request of nothing has no piece.
    """

    def __init__(self, config: RnicConfig) -> None:
        super().__init__(
            {
                "segment": In(stream.Signature(KIND)),
                "header": In(ULPDU_HEADER),
                "read_cause": In(CAUSE_BITS),
                "atomic_cause": In(CAUSE_BITS),
                "item": Out(Layouts(config).inbound_request),
                "verdict": Out(VERDICT),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        is_atomic, verdict = self.segment.payload.atomic_request, self.verdict
        read_octets = from_wire(self.header.read_request.rdmap.length)
        _fill_inbound_request(m, self.item, self.header, is_atomic)
        m.d.comb += self.segment.ready.eq(verdict.valid)
        with m.FSM():
            # Waits for a segment, and for the checks of its context.
            with m.State("IDLE"), m.If(self.segment.valid):
                m.next = "CHECK"
            # Judges it.
            with m.State("CHECK"):
                cause = Mux(is_atomic, self.atomic_cause, self.read_cause)
                good = cause == Cause.NONE
                m.d.comb += [
                    verdict.valid.eq(1),
                    verdict.cause.eq(cause),
                    verdict.pieces.eq((is_atomic | (read_octets != 0)) & good),
                    verdict.delivers.eq(good),
                ]
                m.next = "IDLE"
        return m


def _fill_inbound_request(m: Module, item: data.View, header: data.View, is_atomic: Value) -> None:
    """Drives `item`, an `inbound_request`, with the fields of the `ULPDU_HEADER` `header`."""
    read, atomic = item.of.read, item.of.atomic
    read_request = header.read_request.rdmap
    atomic_request = header.atomic_request.rdmap
    m.d.comb += [
        item.atomic.eq(is_atomic),
        atomic.stag.eq(from_wire(atomic_request.stag)),
        atomic.tagged_offset.eq(from_wire(atomic_request.tagged_offset)),
        atomic.identifier.eq(from_wire(atomic_request.identifier)),
        atomic.operands.operation.eq(atomic_request.operation),
    ]
    for name in ("data", "mask", "compare", "compare_mask"):
        m.d.comb += getattr(atomic.operands, name).eq(from_wire(getattr(atomic_request, name)))
    # What only an atomic has keeps whatever stands there: no logic for bits that mean nothing.
    with m.If(~is_atomic):
        m.d.comb += [
            read.source_stag.eq(from_wire(read_request.source_stag)),
            read.source_tagged_offset.eq(from_wire(read_request.source_tagged_offset)),
            read.sink_stag.eq(from_wire(read_request.sink_stag)),
            read.sink_tagged_offset.eq(from_wire(read_request.sink_tagged_offset)),
            read.length.eq(from_wire(read_request.length)),
        ]
