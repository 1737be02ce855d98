"""What the TCP engine needs of its neighbours where `nic.RnicNic` joins them.

The blocks are left out: their outputs are free, but for what is proved of them.
"""

from stagecoach.gateware.nic import RnicNic
from stagecoach.hw.formal.device import class_name, streams
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.invariants import llp_holds
from stagecoach.hw.formal.properties.rnic import without_blocks
from stagecoach.hw.formal.properties.streams import ASSUMED
from stagecoach.hw.formal.property import Mutation, Property, in_harness


def _build(h: Harness) -> None:
    blocks = without_blocks(h, RnicNic())
    for each in blocks.values():
        for _, is_output, stream in streams(each):
            if is_output:
                h.assume(h.held(stream))
    for _, condition in llp_holds(h, blocks["rnic"].llp):
        h.assume(condition)
    engine = blocks["engine"]
    for name, _, stream in streams(engine):
        if name in ASSUMED[class_name(engine)]:
            h.check(name, h.held(stream))
    for name, condition in llp_holds(h, engine.llp):
        h.check(f"LLP port: {name}", condition)


NIC = "stagecoach.gateware.nic"

PROPERTIES = (
    Property(
        "nic.RnicNic",
        "what the TCP engine needs of its requests, FPDUs and commands holds where it is joined",
        in_harness(_build),
        mutations=(
            Mutation(
                NIC,
                "wiring.connect(m, rnic.llp, engine.llp)",
                "m.d.comb += engine.llp.rx_request_valid.eq(engine.deadline.armed)",
            ),
            Mutation(
                NIC,
                "wiring.connect(m, rnic.llp, engine.llp)",
                "m.d.comb += engine.llp.tx_valid.eq(rnic.llp.tx_valid & engine.deadline.armed)",
            ),
            Mutation(
                NIC,
                "self._control(m, network, engine)",
                "m.d.comb += engine.transmit_command.valid.eq(engine.deadline.armed)",
            ),
        ),
    ),
)
