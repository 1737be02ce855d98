"""The first step of the receiver leaves to the second one what that needs."""

from stagecoach.gateware.rdmap.receive.receiver import Receiver
from stagecoach.hw.formal import receiver
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.judge import CONFIG, inside_judge
from stagecoach.hw.formal.property import Mutation, Property, in_harness


def _joined(h: Harness) -> None:
    inside = h.block(Receiver(CONFIG))
    first, second = inside.child("judge"), inside.child("access")
    inside_judge(h, first)
    h.invariant("access state", second.legal_state())
    for name, condition in receiver.access(h, second):
        h.invariant(f"access {name}", condition)
    for name, condition in receiver.receiver(h, inside):
        h.invariant(name, condition)
    for name, condition in receiver.access_needs(h, second):
        h.check(f"needs {name}", condition)


PROPERTIES = (
    Property(
        "rdmap.receive.receiver.Receiver",
        "only a good FPDU has pieces, at most 4, and they stand while its record is dealt with",
        in_harness(_joined),
        mutations=tuple(
            Mutation(f"stagecoach.gateware.rdmap.{module}", old, new)
            for module, old, new in (
                ("receive.record", "Mux(record.dropped, 0, verdict.pieces)", "verdict.pieces"),
                (
                    "receive.request",
                    "(is_atomic | (read_octets != 0)) & good",
                    "is_atomic | (read_octets != 0)",
                ),
                ("receive.send", "Mux(good, self.count, 0)", "self.count"),
                ("receive.header", "with m.Elif(failed):", "with m.Elif(self.failed):"),
                ("receive.record", "self.bank.eq(~self.bank)", "self.bank.eq(self.bank)"),
                (
                    "receive.decode",
                    "last & is_any(opcode, INVALIDATING_OPCODES)",
                    "last & is_any(opcode, REQUEST_OPCODES)",
                ),
                ("receive.scan", "arriving_next.eq(0),", "arriving_next.eq(1),"),
            )
        ),
        depth=1,
    ),
)
