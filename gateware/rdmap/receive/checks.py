"""The checks of a received segment that need no STag lookup."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ddp.checks import (
    CAUSE_BITS,
    Check,
    first_cause,
    header_checks,
    queue_checks,
    untagged_checks,
)
from stagecoach.gateware.ddp.headers import from_wire
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.rdmap.checks import (
    LAST_QN,
    atomic_request_checks,
    atomic_response_checks,
    immediate_checks,
    opcode_checks,
    queue_opcode_checks,
    rdmap_control,
    read_request_length_checks,
    read_response_checks,
    terminate_checks,
    terminate_fits,
    version_checks,
)
from stagecoach.gateware.rdmap.headers import ULPDU_HEADER
from stagecoach.gateware.rdmap.receive.context import CONTEXT
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.wire import TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS


class ReceiveChecks(wiring.Component):
    """Tells for each kind of message what is wrong first with the segment, `Cause.NONE` if nothing.

    Members
    -------
    segment: In, the segment at work.
    rfc7306: In(1), its stream takes the messages of RFC 7306.
    payload: Out(16), its bytes after the DDP header, a cycle later.
    header_failed: Out(1), there is a `header_cause`, which is there a cycle later.
    header_cause: Out, of any segment, two cycles later.
    context: In, of its QP; `ird`: In, of its QP.
    posted, inbound_level, outstanding_level, outstanding_head: In, of the queues of its QP.
    send_cause: Out, of a Send or Immediate Data but for its length, a cycle after `context` and
        `posted`.
    other_opcode: Out(1), it goes on with a Send that began with another opcode; as `send_cause`.
    immediate_cause: Out, of Immediate Data beside `send_cause`; as that.
    strict: In(1), the atomics are those of RFC 7306 only.
    request_cause: Out, of a Read Request, a cycle after `context`, `ird` and `inbound_level`.
    atomic_request_cause: Out, of an Atomic Request; as `request_cause`.
    response_cause: Out, of a Read Response, two cycles after `context` and `outstanding_*`.
    atomic_response_cause: Out, of an Atomic Response; as `response_cause`.
    response_octets: Out(32), received of the RDMA Read with this segment, a cycle after `context`.
    """

    def __init__(self, config: RnicConfig) -> None:
        layouts = Layouts(config)
        levels = range(config.read_queue_depth + 1)
        super().__init__(
            {
                "segment": In(layouts.segment),
                "rfc7306": In(1),
                "payload": Out(16),
                "header_failed": Out(1),
                "header_cause": Out(CAUSE_BITS),
                "context": In(CONTEXT),
                "ird": In(levels),
                "strict": In(1),
                "posted": In(16),
                "inbound_level": In(levels),
                "outstanding_level": In(levels),
                "outstanding_head": In(layouts.outstanding_request),
                "send_cause": Out(CAUSE_BITS),
                "other_opcode": Out(1),
                "immediate_cause": Out(CAUSE_BITS),
                "request_cause": Out(CAUSE_BITS),
                "atomic_request_cause": Out(CAUSE_BITS),
                "response_cause": Out(CAUSE_BITS),
                "atomic_response_cause": Out(CAUSE_BITS),
                "response_octets": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        segment, context, payload = self.segment, self.context, self.payload
        header = data.View(ULPDU_HEADER, segment.header)
        tagged, untagged = header.tagged, header.untagged
        last = tagged.control.last
        msn, mo = from_wire(untagged.msn), from_wire(untagged.mo)

        # Any segment
        header_octets = Mux(tagged.control.tagged, TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS)
        m.d.sync += payload.eq(segment.ulpdu_length - header_octets)
        # The length of a Terminate takes a cycle more, while the segment stands: if it is wrong
        # makes no difference to `header_failed`.
        fits = Signal(2)
        m.d.sync += fits.eq(terminate_fits(header, segment.ulpdu_length))
        *misplaced, malformed, terminated = terminate_checks(header, fits)
        header_failures = _registered(
            m,
            [
                *header_checks(tagged.control, segment.ulpdu_length),
                *version_checks(tagged),
                *opcode_checks(tagged, self.rfc7306),
                *queue_checks(untagged, LAST_QN, self.rfc7306),
                *queue_opcode_checks(untagged),
                *misplaced,
                terminated,
            ],
        )
        header_causes = [*header_failures[:-1], malformed, header_failures[-1]]

        # Sends and Immediate Data
        opcode = rdmap_control(tagged).opcode
        m.d.sync += self.other_opcode.eq(context.send_begun & (opcode != context.send_opcode))
        send_failures = _registered(
            m,
            untagged_checks(
                wrong_msn=msn != context.send_msn,
                no_buffer=self.posted == 0,
                no_buffer_cause=Cause.UNTAGGED_NO_BUFFER,
                wrong_mo=mo != context.send_mo,
            ),
        )

        immediate_failures = _registered(
            m, immediate_checks(payload, last, inside_send=context.send_begun)
        )

        # Read and Atomic Requests
        position_checks = untagged_checks(
            wrong_msn=msn != context.request_msn,
            no_buffer=self.inbound_level >= self.ird,
            no_buffer_cause=Cause.TOO_MANY_READ_REQUESTS,
            wrong_mo=mo != 0,
        )
        request_failures = _registered(
            m, [*position_checks, *read_request_length_checks(payload, last)]
        )
        operation = header.atomic_request.rdmap.operation
        atomic_request_failures = _registered(
            m, [*position_checks, *atomic_request_checks(payload, last, operation, self.strict)]
        )

        # Read Responses
        read = self.outstanding_head
        expected_offset = Signal(64)
        remaining = Signal(32)
        other_stag = Signal()
        none_outstanding = Signal()
        m.d.sync += [
            expected_offset.eq(read.sink_tagged_offset + context.response_octets),
            remaining.eq(read.length - context.response_octets),
            self.response_octets.eq(context.response_octets + payload),
            other_stag.eq(from_wire(tagged.stag) != read.sink_stag),
            none_outstanding.eq((self.outstanding_level == 0) | read.atomic),
        ]
        response_failures = _registered(
            m,
            read_response_checks(
                none_outstanding=none_outstanding,
                other_stag=other_stag,
                other_offset=from_wire(tagged.tagged_offset) != expected_offset,
                payload=payload,
                remaining=remaining,
                last=last,
            ),
        )

        # Atomic Responses
        none_atomic = Signal()
        m.d.sync += none_atomic.eq((self.outstanding_level == 0) | ~read.atomic)
        identifier = from_wire(header.atomic_response.rdmap.identifier)
        atomic_response_failures = _registered(
            m,
            [
                *untagged_checks(
                    wrong_msn=msn != context.atomic_msn,
                    no_buffer=none_atomic,
                    no_buffer_cause=Cause.UNSOLICITED_ATOMIC_RESPONSE,
                    wrong_mo=mo != 0,
                ),
                *atomic_response_checks(
                    payload, last, other_identifier=identifier != context.atomic_msn
                ),
            ],
        )

        m.d.sync += self.header_cause.eq(first_cause(header_causes))
        m.d.comb += [
            self.atomic_request_cause.eq(first_cause(atomic_request_failures)),
            self.atomic_response_cause.eq(first_cause(atomic_response_failures)),
            self.header_failed.eq(Cat(failed for failed, _ in header_failures).any()),
            self.send_cause.eq(first_cause(send_failures)),
            self.immediate_cause.eq(first_cause(immediate_failures)),
            self.request_cause.eq(first_cause(request_failures)),
            self.response_cause.eq(first_cause(response_failures)),
        ]
        return m


def _registered(m: Module, checks: Sequence[Check]) -> list[Check]:
    """The same checks one cycle later."""
    failed = Signal(len(checks))
    m.d.sync += failed.eq(Cat(Value.cast(condition).any() for condition, _ in checks))
    return [(failed[number], cause) for number, (_, cause) in enumerate(checks)]
