"""Messages of the transmitter: each is of one kind, and there is a cycle between two of them."""

from amaranth.hdl import Cat, Value

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.rdmap.transmit.choose import TransmitChoose
from stagecoach.gateware.rdmap.transmit.message import message_layout
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.invariants import invariants
from stagecoach.hw.formal.property import Mutation, Property, in_harness
from stagecoach.hw.interface.wire import ATOMIC_OCTETS

CONFIG = RnicConfig(qps=4)
NAME = "rdmap.transmit.choose.TransmitChoose"


def _messages(h: Harness) -> None:
    choose = TransmitChoose(CONFIG)
    inside = h.block(choose)
    h.assume(h.held(choose.qp_command))
    h.assume(h.held(choose.termination))
    invariants(h, NAME, inside)
    valid, message = choose.message.valid, choose.message.p
    taken = h.past(valid & choose.message.ready)
    h.check("a cycle between two messages", ~taken | ~valid)
    for name in ("inline", "begins_atomic", "terminating", "is_local", "entry"):
        value = Value.cast(message[name])
        h.check(f"{name} for a cycle more", ~h.past(valid) | (value == h.past(value)))
    begins = message.begins_atomic
    others = Cat(
        message[name]
        for name in (
            "bare",
            "is_local",
            "inline",
            "terminating",
            "is_immediate",
            "is_atomic",
            "is_read",
            "answers_atomic",
        )
    )
    h.check("an atomic that begins is nothing else", ~(valid & begins) | ~others.any())
    h.check("it is a response", ~(valid & begins) | message.responding)
    h.check("an Atomic Request is inline", ~(valid & message.is_atomic) | message.inline)
    silent = message.bare & ~message.is_local
    h.check("a Terminate is bare", ~(valid & message.terminating) | silent)
    h.check("it has 8 bytes", ~(valid & begins) | (message.inbound.length == ATOMIC_OCTETS))
    now = inside.view("message", message_layout(CONFIG))
    chosen = inside.in_state("MESSAGE", "ATOMIC_ANSWER", "BARE_MESSAGE") & ~now.terminating
    ends = inside.in_state("TERMINATE_CONTEXT", "TERMINATE_LOAD", "TERMINATE_POSITION")
    ends |= inside.in_state("BARE_MESSAGE") & now.terminating
    asks = now.is_read | now.is_atomic | now.is_immediate
    h.invariant("of the peer", ~chosen | ~(now.responding & (asks | now.is_local)))
    h.invariant("inline", ~chosen | (now.inline == (asks | now.answers_atomic)))
    of_atomic = now.begins_atomic | now.answers_atomic
    h.invariant("of an atomic", ~chosen | ~of_atomic | now.responding)
    h.invariant("one of them", ~chosen | ~(now.begins_atomic & now.answers_atomic))
    h.invariant("8 bytes", ~chosen | ~of_atomic | (now.inbound.length == ATOMIC_OCTETS))
    nothing_else = now.begins_atomic | now.is_local | now.is_atomic | now.is_read | now.responding
    h.invariant("a Terminate", ~ends | (now.terminating & ~nothing_else))
    others = ~inside.in_state("IDLE", "COMMAND") & ~ends
    h.invariant("no Terminate", ~others | ~now.terminating)
    bare = inside.in_state("BARE_MESSAGE", "ATOMIC_ANSWER") & ~now.terminating
    h.invariant("bare", ~bare | now.answers_atomic)
    h.cover("an atomic begins", valid & begins)
    h.cover("a Terminate", valid & message.terminating)


MODULE = "stagecoach.gateware.rdmap.transmit.choose"

PROPERTIES = (
    Property(
        NAME,
        "a message is of one kind, and there is a cycle between two of them",
        in_harness(_messages),
        mutations=(
            Mutation(
                MODULE, "is_local.eq(~respond & is_local)", "is_local.eq(registers | is_local)"
            ),
            Mutation(MODULE, "is_read | is_atomic | is_immediate)\n", "is_read | is_immediate)\n"),
            Mutation(
                MODULE, "inbound.length.eq(ATOMIC_OCTETS)", "inbound.length.eq(ATOMIC_OCTETS + 1)"
            ),
            Mutation(
                MODULE,
                "m.d.comb += self.word_address.eq(OPERATION_ADDRESS)",
                "m.d.comb += self.message.valid.eq(1)",
            ),
        ),
        depth=1,
        reached=6,
    ),
)
