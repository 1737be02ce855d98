"""The rights that a message needs at the STags of its pieces, and the cause if one fails."""

from amaranth.hdl import Module, Signal, Value

from stagecoach.gateware.ddp.checks import CAUSE_BITS, first_cause, tagged_status_checks
from stagecoach.gateware.rdmap.checks import atomic_status_checks, read_status_checks
from stagecoach.gateware.rdmap.headers import Opcode
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import Rights


def needed_rights(m: Module, opcode: Value) -> Signal:
    """`Rights` of 4 bits; those of a receive entry's element for every message that takes one."""
    rights = Signal(4)
    with m.Switch(opcode):
        with m.Case(Opcode.RDMA_WRITE):
            m.d.comb += rights.eq(Rights.REMOTE_WRITE)
        with m.Case(Opcode.RDMA_READ_REQUEST):
            m.d.comb += rights.eq(Rights.REMOTE_READ)
        with m.Case(Opcode.ATOMIC_REQUEST):
            m.d.comb += rights.eq(Rights.REMOTE_READ | Rights.REMOTE_WRITE)
        with m.Default():
            m.d.comb += rights.eq(Rights.LOCAL_WRITE)
    return rights


def status_cause(m: Module, opcode: Value, status: Value, misaligned: Value) -> Signal:
    """The `Cause` of a failed lookup; `misaligned` is the target of an Atomic Request."""
    cause = Signal(CAUSE_BITS)
    with m.Switch(opcode):
        with m.Case(Opcode.RDMA_WRITE):
            checks = tagged_status_checks(status, Cause.WRITE_NOT_PERMITTED)
            m.d.comb += cause.eq(first_cause(checks))
        with m.Case(Opcode.RDMA_READ_RESPONSE):
            checks = tagged_status_checks(status, Cause.TAGGED_STAG_INVALID)
            m.d.comb += cause.eq(first_cause(checks))
        with m.Case(Opcode.RDMA_READ_REQUEST):
            m.d.comb += cause.eq(first_cause(read_status_checks(status)))
        with m.Case(Opcode.ATOMIC_REQUEST):
            checks = [*atomic_status_checks(status), (misaligned, Cause.ATOMIC_MISALIGNED)]
            m.d.comb += cause.eq(first_cause(checks))
        with m.Case(Opcode.ATOMIC_RESPONSE):
            m.d.comb += cause.eq(Cause.LOCAL_SEND_PROTECTION)
        with m.Default():
            m.d.comb += cause.eq(Cause.LOCAL_RECEIVE_PROTECTION)
    return cause
