"""Valid does not wait for ready: no combinational path in the netlists of whole devices."""

from collections.abc import Callable
from functools import partial

from stagecoach.hw.formal.device import DEVICES, stream_names
from stagecoach.hw.formal.harness import TOP, Model
from stagecoach.hw.formal.paths import Netlist
from stagecoach.hw.formal.property import Mutation, Property
from stagecoach.hw.rtlil import export


def _model(device: str) -> Model:
    return Model(
        files={"device.il": export(DEVICES[device](), TOP)},
        script=(
            "read_rtlil device.il",
            f"hierarchy -top {TOP}",
            "proc",
            "flatten",
        ),
    )


def _waiting(device: str, netlist: Netlist) -> list[str]:
    """Streams whose valid depends on their own ready in the same cycle."""
    found = []
    for name in stream_names(device):
        valid = netlist.bits(f"{name}__valid")
        # A ready that its block does not look at is not in the netlist.
        ready = netlist.bits(f"{name}__ready") if f"{name}__ready" in netlist else []
        if netlist.reaches(ready, valid):
            found.append(name)
    return found


OF_RNIC = Mutation(
    "stagecoach.gateware.queues.invalidation_gate",
    "self.o.valid.eq(passing)",
    "self.o.valid.eq(passing & self.o.ready)",
)


def _property(device: str, block: str, *mutations: Mutation) -> Property:
    find: Callable[[Netlist], list[str]] = partial(_waiting, device)
    return Property(
        block=block,
        name=f"valid of no stream waits for its ready, by no path through any block ({device})",
        build=partial(_model, device),
        mutations=mutations or (OF_RNIC,),
        netlist=find,
    )


PROPERTIES = (
    _property("board", "hostlink.serial_rnic.SerialRnic"),
    _property("rnic 32", "rnic.Rnic"),
    _property("rnic 128", "rnic.Rnic"),
    _property(
        "receive side",
        "tcp.receive_side.ReceiveSide",
        Mutation(
            "stagecoach.gateware.tcp.lookup",
            "self.result.valid.eq(finds)",
            "self.result.valid.eq(finds & self.result.ready)",
        ),
        Mutation(
            "stagecoach.gateware.tcp.demultiplexer",
            "self.done.valid.eq(lookup.done.valid & ~self.o.valid)",
            "self.done.valid.eq(lookup.done.valid & ~self.o.valid & self.done.ready)",
        ),
        Mutation(
            "stagecoach.gateware.tcp.receive_ring",
            "self.raw.valid.eq(frames.valid)",
            "self.raw.valid.eq(frames.valid & self.raw.ready)",
        ),
        Mutation(
            "stagecoach.gateware.tcp.llp_receive",
            "self.answer.valid.eq(beat.valid & ~tells)",
            "self.answer.valid.eq(beat.valid & ~tells & self.answer.ready)",
        ),
    ),
)
