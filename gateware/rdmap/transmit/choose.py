"""Chooses what a QP sends: the first step of a visit."""

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ddp.checks import CAUSE_BITS
from stagecoach.gateware.layouts import AtomicOperation, Layouts
from stagecoach.gateware.queues.qp_choice import bit_of_qp
from stagecoach.gateware.rdmap.atomic.operations import AtomicStatus
from stagecoach.gateware.rdmap.checks import is_any
from stagecoach.gateware.rdmap.headers import TERMINATE_HEADER_OCTETS
from stagecoach.gateware.rdmap.transmit.context import HALT, progress_layout, sends_bits
from stagecoach.gateware.rdmap.transmit.entry import (
    OPERATION,
    OPERATION_ADDRESS,
    REMOTE_OFFSET_ADDRESS,
    REMOTE_STAG_ADDRESS,
    SEND_ENTRY_WORDS,
    element_offset_address,
    element_range_address,
    takes_two_units,
)
from stagecoach.gateware.rdmap.transmit.message import lookup_layout, message_layout
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import (
    IMMEDIATE_OPERATIONS,
    SCATTER_GATHER_ELEMENTS,
    SendFlags,
    SendOpcode,
)
from stagecoach.hw.interface.wire import (
    ATOMIC_OCTETS,
    ATOMIC_RESPONSE_HEADER_OCTETS,
    TAGGED_HEADER_OCTETS,
    UNTAGGED_HEADER_OCTETS,
)

SHORT_FPDU_OCTETS = 256
"""More than any FPDU without payload from host memory has, whatever the MULPDU is."""


class TransmitChoose(wiring.Component):
    """Takes a QP from the scheduler, a termination or a command, and says what is to be done.

    Which QP is next is decided by `queues/scheduler.py`; which message of the QP, here: the one
    that has begun, else its oldest inbound request or its oldest send entry, in turns. A command
    goes before a termination, that before a QP, and both wait until nothing is under way.

    Latency: `message` comes 6 cycles after `work`, 4 after `termination`, one more for an Atomic
    Response; the inbound request and the send entry are looked at as they are 3 cycles after
    `work`. Throughput: one message at a time, 2 cycles after the one before was taken and 4 for
    the look-ups. While `message` is not taken nothing else is: no QP, termination or command. While
    no QP can send, each visit ends after 6 cycles, when what is under way is `free`.

    Members
    -------
    work: In(stream qp_number). termination: In(stream termination), taken when its message is.
    qp_command: In(stream qp_command), taken by `command`: Out(stream), when nothing is under way.
    message: Out(stream message_layout). Its payload holds for a cycle more, its `progress` for
        three, its `entry` and what is known of the queues for four.
    free: In(1), no FPDU is under way in the later steps.
    may_begin: In(1), a visit may begin: no error waits to be taken.
    qp, asked: Out(qp), from the cycle after `work` was seen on; two registers for far memories.
    progress, halt: In, of QP `qp` a cycle ago. lookup: In(lookup_layout), of `qp` or `asked`.
    running, may_send: In, one bit a QP.
    coming: Out(qp), what `qp` is in the next cycle, or is not.
    word, level, posted, index: In, of the `EntryPort`. word_address: Out, for its register.
    inbound_head, inbound_level, outstanding_level: In, of the FIFOs of QP `asked`.
    strict: In(1), the atomics are those of RFC 7306 only.
    speak: In(1), there is a Terminate to send, of `terminate_octets`: In(6).
    bare_octets: Out, payload of the FPDU if the message is bare.
    measure, unlimited: Out(1), a pulse: lengths are asked for, of `bare_octets` so far; with
        `unlimited` the window does not matter.
    begin, end: Out(1), pulses: a visit begins, and ends without a message.
    fresh: Out(1), what failed before does not matter for the message to come.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        self._message = message_layout(config)
        layouts = Layouts(config)
        depth = config.read_queue_depth
        super().__init__(
            {
                "work": In(stream.Signature(layouts.qp_number)),
                "termination": In(stream.Signature(layouts.termination)),
                "qp_command": In(stream.Signature(layouts.qp_command)),
                "command": Out(stream.Signature(layouts.qp_command)),
                "message": Out(stream.Signature(self._message)),
                "free": In(1),
                "may_begin": In(1),
                "qp": Out(config.qp_bits),
                "asked": Out(config.qp_bits),
                "progress": In(progress_layout(config)),
                "halt": In(HALT),
                "lookup": In(lookup_layout(config)),
                "running": In(config.qps),
                "may_send": In(config.qps),
                "coming": Out(config.qp_bits),
                "word": In(64),
                "level": In(8),
                "posted": In(16),
                "index": In(16),
                "word_address": Out(range(SEND_ENTRY_WORDS)),
                "inbound_head": In(layouts.inbound_request),
                "inbound_level": In(range(depth + 1)),
                "outstanding_level": In(range(depth + 1)),
                "strict": In(1),
                "speak": In(1),
                "terminate_octets": In(range(TERMINATE_HEADER_OCTETS + 1)),
                "bare_octets": Out(range(TERMINATE_HEADER_OCTETS + 1)),
                "measure": Out(1),
                "unlimited": Out(1),
                "begin": Out(1),
                "end": Out(1),
                "fresh": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        config, lookup = self._config, self.lookup
        idle = Signal(init=1)  # the state is IDLE; of its own, for what is asked early
        before = Signal(config.qp_bits)  # the QP of the visit before, the only one that may go on
        alone = Signal()  # no FPDU of the QP was under way when this visit began
        halt = Signal(HALT)
        has_unit = Signal()  # of a send entry, the first unit is there
        has_two_units = Signal()
        has_three_units = Signal()
        is_cut = Signal()  # no second one was posted
        fenced = Signal()  # the entry waits until no send is in flight
        in_flight = Signal(sends_bits(config))  # sends issued and not retired
        some_in_flight = Signal()  # that is not 0
        request_allowed = Signal()  # one more RDMA Read or atomic may be outstanding
        inbound_waits = Signal()  # there are inbound requests
        more_inbound = Signal()  # there is more than one
        has_inbound = Signal()  # a request waits for its answer, and something can be done
        bad_opcode = Signal()  # of the entry
        bad_count = Signal()  # its number of elements is not allowed
        bad_atomic = Signal()  # it is an ATOMIC that is not allowed
        entry_is = {opcode: Signal(name=f"is_{opcode.name.lower()}") for opcode in SendOpcode}

        # What is offered stands in registers from before `valid` on; these are not among them.
        message = Signal(self._message)
        failed, cause = Signal(), Signal(CAUSE_BITS)
        offered = self.message.payload
        m.d.comb += [
            offered.eq(message),
            offered.qp.eq(self.qp),
            offered.bad_entry.eq(~message.responding & (bad_opcode | bad_count | bad_atomic)),
            offered.failed.eq(failed),
            offered.cause.eq(cause),
            self.command.payload.eq(self.qp_command.payload),
            self.coming.eq(Mux(idle, self.work.p.qp, self.qp)),
            self.bare_octets.eq(
                Mux(message.terminating, self.terminate_octets, ATOMIC_RESPONSE_HEADER_OCTETS)
            ),
            self.word_address.eq(REMOTE_OFFSET_ADDRESS),
        ]
        runs = bit_of_qp(m, self.running, self.asked) & bit_of_qp(m, self.may_send, self.asked)

        def go_idle() -> None:
            m.d.sync += idle.eq(1)
            m.next = "IDLE"

        with m.FSM():
            # Wait for a command, or a QP to terminate or to visit; the first two wait for all
            # FPDUs before them. No visit begins before an error of another one is out of the way.
            with m.State("IDLE"):
                m.d.comb += self.word_address.eq(OPERATION_ADDRESS)
                m.d.sync += [message.terminating.eq(0), self.asked.eq(self.work.p.qp)]
                with m.If(self.qp_command.valid):
                    with m.If(self.free):
                        m.d.sync += [self.qp.eq(self.qp_command.p.qp), idle.eq(0)]
                        m.next = "COMMAND"
                with m.Elif(self.termination.valid):
                    with m.If(self.free):
                        m.d.sync += [
                            self.qp.eq(self.termination.p.qp),
                            idle.eq(0),
                            message.terminating.eq(1),
                            message.responding.eq(0),
                            message.begins_atomic.eq(0),
                            message.answers_atomic.eq(0),
                            message.is_read.eq(0),
                            message.is_atomic.eq(0),
                            message.is_local.eq(0),
                            message.tagged.eq(0),
                            failed.eq(0),
                        ]
                        m.next = "TERMINATE_CONTEXT"
                with m.Elif(self.may_begin):
                    m.d.sync += self.qp.eq(self.work.p.qp)
                    with m.If(self.work.valid):
                        m.d.sync += idle.eq(0)
                        m.next = "ADDRESS"

            # The memories and queues see the QP number; it is taken from the scheduler.
            with m.State("ADDRESS"):
                m.d.comb += [self.work.ready.eq(1), self.begin.eq(1), self.fresh.eq(1)]
                m.d.sync += [alone.eq(self.free | (before != self.qp)), before.eq(self.qp)]
                m.next = "CONTEXT"

            # The context comes out of the memories.
            with m.State("CONTEXT"):
                m.d.comb += self.word_address.eq(element_range_address(self.progress.element))
                m.d.sync += [message.progress.eq(self.progress), halt.eq(self.halt)]
                m.next = "QUEUES"

            # The queues answer.
            with m.State("QUEUES"):
                entry = data.View(OPERATION, self.word)
                progress = message.progress
                m.d.comb += [
                    self.word_address.eq(element_offset_address(progress.element)),
                    self.measure.eq(1),
                ]
                m.d.sync += [
                    message.entry.eq(entry),
                    *(entry_is[opcode].eq(entry.opcode == opcode) for opcode in SendOpcode),
                    fenced.eq((entry.flags & SendFlags.FENCE).any()),
                    message.index.eq(self.index),
                    has_unit.eq(self.level != 0),
                    has_two_units.eq(self.level >= 2),
                    is_cut.eq(self.posted == 1),
                    has_three_units.eq(self.level >= 3),
                    message.takes_two.eq(takes_two_units(entry)),
                    inbound_waits.eq(self.inbound_level != 0),
                    more_inbound.eq(self.inbound_level > 1),
                    has_inbound.eq(
                        (self.inbound_level != 0) & (~progress.atomic_begun | lookup.answered)
                    ),
                    request_allowed.eq(self.outstanding_level < lookup.settings.ord),
                    in_flight.eq((progress.issued - lookup.retired)[: len(in_flight)]),
                    some_in_flight.eq(progress.issued != lookup.retired),
                    message.room.eq(lookup.window - progress.position),
                    message.remaining.eq(Mux(progress.active, progress.remaining, entry.length)),
                    message.tagged_capacity.eq(lookup.mulpdu - TAGGED_HEADER_OCTETS),
                    message.untagged_capacity.eq(lookup.mulpdu - UNTAGGED_HEADER_OCTETS),
                    failed.eq(0),
                    # As if it were an Atomic Response, which is not cut off anything.
                    message.tagged.eq(0),
                ]
                m.next = "CHOOSE"
                with m.If(halt.halted | ~runs):
                    m.next = "NOTHING"

            # Go on, or begin with what waits and may be sent.
            with m.State("CHOOSE"):
                m.d.comb += self.word_address.eq(REMOTE_STAG_ADDRESS)
                head = self.inbound_head
                active, atomic_begun = message.progress.active, message.progress.atomic_begun
                entry, room = message.entry, message.room
                is_read, is_atomic = entry_is[SendOpcode.RDMA_READ], entry_is[SendOpcode.ATOMIC]
                is_immediate = Cat(entry_is[opcode] for opcode in IMMEDIATE_OPERATIONS).any()
                registers = entry_is[SendOpcode.FAST_REGISTER]
                is_local = entry_is[SendOpcode.LOCAL_INVALIDATE] | registers
                can_respond = Signal()
                can_send = Signal()
                respond = Signal()
                m.d.comb += [
                    # What the Reads before an atomic found is from before it.
                    can_respond.eq(has_inbound & ~(head.atomic & ~atomic_begun & lookup.leaving)),
                    # Fewer than config.pending_sends, which is the top bit, are in flight.
                    can_send.eq(
                        has_unit
                        # What never comes is not waited for.
                        & (~message.takes_two | has_two_units | is_cut)
                        & ~in_flight[-1]
                        & (~(is_read | is_atomic) | request_allowed)
                        & ~(fenced & some_in_flight)
                    ),
                    respond.eq(
                        Mux(
                            active,
                            message.progress.responding,
                            can_respond & (~can_send | message.progress.prefer_response),
                        )
                    ),
                ]
                m.d.sync += [
                    message.responding.eq(respond),
                    message.begins_atomic.eq(respond & head.atomic & ~atomic_begun),
                    message.answers_atomic.eq(respond & head.atomic & atomic_begun),
                    message.is_read.eq(~respond & is_read),
                    message.is_atomic.eq(~respond & is_atomic),
                    message.is_immediate.eq(~respond & is_immediate),
                    message.inline.eq(
                        Mux(respond, head.atomic & atomic_begun, is_read | is_atomic | is_immediate)
                    ),
                    message.is_local.eq(~respond & is_local),
                    message.registers.eq(registers),
                    message.tagged.eq(Mux(respond, ~head.atomic, entry_is[SendOpcode.RDMA_WRITE])),
                    # Of an atomic that begins nothing leaves the queue.
                    message.more.eq(
                        Mux(
                            respond,
                            has_unit | (more_inbound & ~(head.atomic & ~atomic_begun)),
                            inbound_waits | Mux(message.takes_two, has_three_units, has_two_units),
                        )
                    ),
                    message.inbound.eq(head.of.read),
                    # No FPDU is longer than 2 * MULPDU, with its Markers too.
                    message.roomy.eq(
                        ~room[-1] & (room[:-1] >= (Cat(0, lookup.mulpdu) | SHORT_FPDU_OCTETS))
                    ),
                    bad_opcode.eq(~Cat(entry_is.values()).any()),
                    bad_count.eq(
                        (message.takes_two & is_cut)
                        | (entry.element_count > SCATTER_GATHER_ELEMENTS)
                        | (is_read & (entry.element_count > 1))
                        | (is_immediate & (entry.element_count != 0))
                        | (is_atomic & (entry.element_count != 1))
                        | (is_local & (entry.element_count != registers))
                    ),
                    bad_atomic.eq(
                        is_atomic
                        & (
                            (entry.length != ATOMIC_OCTETS)
                            | ~is_any(entry.atomic_operation, AtomicOperation)
                            | (self.strict & (entry.atomic_operation == AtomicOperation.SWAP.value))
                        )
                    ),
                ]
                with m.If(head.atomic):
                    m.d.sync += message.inbound.length.eq(ATOMIC_OCTETS)
                with m.If(respond & ~active):
                    m.d.sync += message.remaining.eq(
                        Mux(head.atomic, ATOMIC_OCTETS, head.of.read.length)
                    )
                # A window that was taken back is closed.
                with m.If(room[-1]):
                    m.d.sync += room.eq(0)
                with m.If(active | can_respond | can_send):
                    m.next = "MESSAGE"
                    with m.If(respond & head.atomic):
                        # What an FPDU under way is of is not known to `leaving` yet.
                        with m.If(atomic_begun):
                            m.next = "ATOMIC_ANSWER"
                        with m.Elif(~alone):
                            m.next = "AGAIN"
                with m.Else():
                    m.next = "NOTHING"

            # Begin anew when nothing else is under way any more, and the first word is asked for.
            with m.State("AGAIN"):
                m.d.comb += [self.word_address.eq(OPERATION_ADDRESS), self.fresh.eq(1)]
                m.d.sync += alone.eq(1)
                with m.If(self.free & alone):
                    m.next = "CONTEXT"

            # There is an answer, or it was host memory that failed.
            with m.State("ATOMIC_ANSWER"):
                m.d.sync += [
                    failed.eq(lookup.atomic_status != AtomicStatus.DONE),
                    cause.eq(
                        Mux(
                            lookup.atomic_status == AtomicStatus.READ_ERROR,
                            Cause.HOST_READ_ERROR,
                            Cause.HOST_WRITE_ERROR,
                        )
                    ),
                ]
                m.next = "BARE_MESSAGE"

            # Wait until the message is done with for this visit.
            with m.State("MESSAGE"):
                m.d.comb += self.message.valid.eq(1)
                with m.If(self.message.ready):
                    go_idle()

            # The same of one without elements.
            with m.State("BARE_MESSAGE"):
                m.d.comb += [
                    self.message.valid.eq(1),
                    offered.bare.eq(1),
                    self.termination.ready.eq(message.terminating & self.message.ready),
                ]
                with m.If(self.message.ready):
                    go_idle()

            # Visits end in the order in which they began.
            with m.State("NOTHING"), m.If(self.free):
                m.d.comb += self.end.eq(1)
                go_idle()

            # The memories see the QP number.
            with m.State("TERMINATE_CONTEXT"):
                m.d.comb += [self.begin.eq(1), self.fresh.eq(1)]
                m.next = "TERMINATE_LOAD"

            # The context comes out of the memories; the Terminate is a message of its own.
            with m.State("TERMINATE_LOAD"):
                m.d.sync += [
                    message.progress.eq(self.progress),
                    message.progress.done.eq(0),
                    halt.eq(self.halt),
                    message.inline.eq(self.speak),
                ]
                m.next = "TERMINATE_POSITION"

            # The FPDU that failed was not sent, nor was any after it.
            with m.State("TERMINATE_POSITION"):
                with m.If(halt.halted):
                    m.d.sync += message.progress.position[2:9].eq(halt.units)
                m.d.comb += [self.measure.eq(1), self.unlimited.eq(1)]
                m.next = "BARE_MESSAGE"

            # Wait until the command is done.
            with m.State("COMMAND"):
                m.d.comb += [
                    self.command.valid.eq(1),
                    self.qp_command.ready.eq(self.command.ready),
                ]
                with m.If(self.command.ready):
                    go_idle()
        return m
