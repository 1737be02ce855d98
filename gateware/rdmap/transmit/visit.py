"""The registers of a visit of the transmitter."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ddp.checks import CAUSE_BITS
from stagecoach.gateware.interfaces import Layouts
from stagecoach.gateware.rdmap.atomic.operations import AtomicStatus
from stagecoach.gateware.rdmap.headers import Opcode
from stagecoach.gateware.rdmap.transmit.context import (
    HALT,
    progress_layout,
    sends_bits,
    settings_layout,
)
from stagecoach.gateware.rdmap.transmit.entry import OPERANDS, OPERATION
from stagecoach.hw.interface.queue_entries import SendOpcode


class TransmitVisit:
    """What is known in a visit, in the order in which it becomes known."""

    def __init__(self, config: RnicConfig):
        layouts = Layouts(config)
        progress = progress_layout(config)

        # The QP
        self.idle = Signal(init=1)  # the state is IDLE; of its own, for what is asked early
        self.qp = Signal(config.qp_bits)
        self.terminating = Signal()  # it stopped: the visit ends its connection
        self.may_send = Signal()  # not a register: it runs and may send
        self.progress = Signal(progress)  # where it stood before this visit
        self.halt = Signal(HALT)  # it sends nothing any more
        self.alone = Signal()  # no FPDU of an earlier visit was under way when this one began
        self.doomed = Signal()  # an FPDU before it failed: it has to end without a trace
        self.settings = Signal(settings_layout(config))
        self.pd = Signal(16)
        self.window = Signal(32)  # position up to which the LLP takes octets
        self.mulpdu = Signal(16)
        self.retired_count = Signal(sends_bits(config))  # sends that left the completer
        self.room = Signal(32)  # octets from the position to the end of the window
        self.roomy = Signal()  # any FPDU fits the window
        self.sure = Signal()  # the window needs no look at the FPDU, nor does its position
        self.tagged_capacity = Signal(16)  # octets of payload that a tagged FPDU can have
        self.untagged_capacity = Signal(16)  # and an untagged one

        # Its queues. They know the QP by a register of their own, as its reset value says.
        self.asked = Signal(config.qp_bits, init=config.qps - 1)
        self.has_unit = Signal()  # of a send entry, the first unit is there
        self.has_two_units = Signal()
        self.has_three_units = Signal()
        self.is_cut = Signal()  # no second one was posted
        self.entry = Signal(OPERATION)  # the oldest one
        self.index = Signal(16)  # its running number
        self.entry_is = {opcode: Signal(name=f"is_{opcode.name.lower()}") for opcode in SendOpcode}
        self.fenced = Signal()  # it waits until no send is in flight
        self.in_flight = Signal(sends_bits(config))  # sends issued and not retired
        self.some_in_flight = Signal()  # that is not 0
        self.request_allowed = Signal()  # one more RDMA Read or atomic may be outstanding
        self.inbound_waits = Signal()  # there are inbound requests
        self.more_inbound = Signal()  # there is more than one
        self.has_inbound = Signal()  # a request waits for its answer, and something can be done
        self.inbound = Signal(layouts.inbound_read)  # the oldest one; of an atomic its target
        self.leaving = Signal()  # Read Responses are on their way: no atomic begins
        self.answered = Signal()  # the atomic that was begun has ended
        self.original = Signal(64)  # what it found
        self.atomic_status = Signal(AtomicStatus)

        # The message
        self.responding = Signal()  # it is a response; if not, the send entry counts
        self.begins_atomic = Signal()  # not yet: an inbound atomic begins
        self.answers_atomic = Signal()  # it is an Atomic Response
        self.is_read = Signal()  # it is an RDMA Read
        self.is_atomic = Signal()  # it is an Atomic Request
        self.is_immediate = Signal()  # it is Immediate Data
        self.inline = Signal()  # its payload is an inline piece: an RDMAP header or Immediate Data
        self.is_local = Signal()  # it is an operation on a local STag: nothing is sent
        self.registers = Signal()  # that is a FAST_REGISTER, else a LOCAL_INVALIDATE
        self.tagged = Signal()  # it is tagged
        self.remaining = Signal(32)  # octets of it that were not sent
        self.capacity = Signal(16)  # octets of payload that an FPDU of it can have
        self.fits = Signal()  # what remains fits one FPDU
        self.whole = Signal()  # `left` is all of it: that, or it needs no piece of payload
        self.remote_stag = Signal(32)  # of the peer's buffer, or to be invalidated there
        self.remote_offset = Signal(64)  # Tagged Offset of the peer's buffer; Immediate Data
        self.takes_two = Signal()  # its entry has a second unit
        self.bad_opcode = Signal()  # of the entry
        self.bad_count = Signal()  # its number of elements is not allowed
        self.bad_atomic = Signal()  # it is an ATOMIC that is not allowed
        self.bad_entry = Signal()  # one of the three
        self.length_matches = Signal()  # its length is the sum over its elements
        self.summed = Signal()  # `length_matches` is right

        # The FPDU
        self.payload = Signal(32)  # octets behind its DDP header
        # Octets of it, or of the sink of a request, without a piece; 0 for Immediate Data
        self.left = Signal(32)
        self.first_piece = Signal()  # none has a piece so far

        # The element at work
        self.element = Signal.like(self.progress.element)  # its number
        self.later_element = Signal()  # it is not the one with which the visit began
        self.offset = Signal(32)  # octets of it that were sent
        self.element_length = Signal(32)
        self.element_stag = Signal(32)
        self.element_offset = Signal(64)  # Tagged Offset
        self.element_remaining = Signal(32)  # octets of it that were not sent
        self.covers = Signal()  # it has all that is left
        self.exhausted = Signal()  # all that it has is needed
        self.none_left = Signal()  # no octet of the FPDU is without a piece
        self.none_remaining = Signal()  # none of the element was not sent

        # The piece at work
        self.address = Signal(64)  # Tagged Offset
        self.piece_octets = Signal(32)
        self.target = Signal(64)  # host address of the atomic that begins

        # The operands of an Atomic Request, in the order of the send entry
        self.operands = Signal(data.ArrayLayout(64, OPERANDS))

        # What is handed over
        self.asks = Signal()  # the piece is checked by the STag table
        self.failed = Signal()  # nothing but the error with `cause`
        self.handed = Signal()  # a part of the FPDU was handed over
        self.storing = Signal()  # the progress is stored in this cycle

        # How the visit ends
        self.kick = Signal()  # a pulse, not a register: ask for the next visit
        self.end = Signal()  # a pulse, not a register: nothing was handed over
        self.kicked = Signal()  # it was asked for
        self.more = Signal()  # there is something to do when this message has ended
        self.cause = Signal(CAUSE_BITS)  # of the error, if one follows

        # What follows from all this once the FPDU is issued (`transmit_follow.py`)
        self.last = Signal()  # it ends its message
        self.opcode = Signal(Opcode)
        self.msn = Signal(32)
        self.tagged_offset = Signal(64)  # of the peer's buffer, where the payload goes
        self.followed = Signal(progress, reset_less=True)  # where the QP stands behind it


def fail(m: Module, visit: TransmitVisit) -> None:
    """Leave the state: the QP is to be stopped, with the `cause` that stands there next."""
    m.d.sync += [visit.failed.eq(1), visit.asks.eq(0)]
    m.next = "READY"


def go_idle(m: Module, visit: TransmitVisit) -> None:
    """Leave the state for the next visit, command or termination."""
    m.d.sync += visit.idle.eq(1)
    m.next = "IDLE"


def end_visit(m: Module, visit: TransmitVisit) -> None:
    """Leave the state: the visit ends here; only if no FPDU of another one is under way."""
    m.d.comb += visit.end.eq(1)
    go_idle(m, visit)
