"""What the blocks of the device need of each other where `rnic.Rnic` joins them.

Its blocks are left out: their outputs are free, but for what is proved of them. What is assumed in
the proof of a block about its inputs is asserted here of the logic that drives them.
"""

from typing import Any

from amaranth.hdl import Signal, Value

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.queues.ring_fetcher import RingFetcher
from stagecoach.gateware.rnic import Rnic
from stagecoach.hw.formal.device import class_name, is_block, streams
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.invariants import llp_holds
from stagecoach.hw.formal.properties.streams import ASSUMED
from stagecoach.hw.formal.property import Mutation, Property, in_harness

HELD: dict[str, tuple[str, ...]] = {
    "stag.table.StagTable": ("write", "change", "invalidate[0]", "invalidate[1]"),
    "queues.ring_writer.RingWriter": ("cq_command",),
    "rdmap.receive.receiver.Receiver": ("segment", "qp_command"),
    "queues.shared_entries.SharedEntries": ("qp_command",),
    "queues.completer.SendCompleter": ("sent", "read_done", "qp_command"),
}
"""Inputs that hold their words in the proofs of other properties than those of streams."""


def without_blocks(h: Harness, device: Any) -> dict[str, Any]:
    """Put a device in the harness, but leave out its blocks; all of their outputs are free."""
    inside = h.block(device)
    left_out = {}
    for name, (submodule, _) in list(inside.module._named_submodules.items()):
        if is_block(submodule):
            del inside.module._named_submodules[name]
            submodule._MustUse__used = True
            left_out[name] = submodule
            for _, _, port in submodule.signature.flatten(submodule):
                if isinstance(signal := Value.cast(port), Signal):
                    h.expose(signal, f"{name}__{signal.name}")
    return left_out


def _build(h: Harness, config: RnicConfig) -> None:
    device = Rnic(config)
    blocks = without_blocks(h, device)
    # The LLP port holds an event, and received bytes, until the device took them.
    llp = device.llp
    for valid, ready, shown in (
        (llp.event_valid, llp.event_ready, (llp.event_connection, llp.event_kind, llp.event_value)),
        (llp.rx_valid, llp.rx_ready, (llp.rx_data,)),
    ):
        waits = h.past(valid & ~ready)
        h.assume(~waits | valid)
        for each in shown:
            h.assume(~waits | (each == h.past(each)))
    for name, each in blocks.items():
        kind = class_name(each)
        for stream_name, is_output, stream in streams(each):
            if is_output:
                h.assume(h.held(stream))
            elif stream_name in (*ASSUMED.get(kind, ()), *HELD.get(kind, ())):
                h.check(f"{name}.{stream_name}", h.held(stream))
        if isinstance(each, RingFetcher):
            h.assume(each.read.data.ready)
    for name, condition in llp_holds(h, llp):
        h.check(f"LLP port: {name}", condition)
    engine = blocks["read_engine"]
    for number, depth in enumerate(engine._buffer_beats):
        if not depth:
            h.check(f"read client {number} takes every word", engine.clients[number].data.ready)


def _property(config: RnicConfig, *mutations: Mutation) -> Property:
    return Property(
        block="rnic.Rnic",
        name="what is assumed of the streams between blocks holds where they are joined "
        f"(ports of {config.data_width} bits)",
        build=in_harness(lambda h: _build(h, config)),
        mutations=mutations,
    )


PROPERTIES = (
    _property(
        RnicConfig(),
        Mutation(
            "stagecoach.gateware.rnic",
            "events.i.valid.eq(llp.event_valid)",
            "events.i.valid.eq(llp.event_valid & llp.tx_ready)",
        ),
        *(
            Mutation("stagecoach.gateware.rnic", old, new)
            for old, new in (
                (
                    "llp.rx_request_valid.eq(request.valid)",
                    "llp.rx_request_valid.eq(request.valid & llp.tx_ready)",
                ),
                ("llp.tx_valid.eq(tx.valid)", "llp.tx_valid.eq(tx.valid & llp.rx_valid)"),
            )
        ),
        *(
            Mutation(
                "stagecoach.gateware.rnic",
                f"wiring.connect(m, {stream}, {port})",
                f"m.d.comb += {port}.valid.eq({stream}.valid & self.receiver.placing)",
            )
            for stream, port in (
                ("commands.cq_command", "self.ring_writer.cq_command"),
                ("commands.stag_invalidate", "self.stag_table.invalidate[0]"),
                ("transmitter.stag_change", "self.stag_table.change"),
            )
        ),
    ),
    _property(
        RnicConfig(data_width=32),
        Mutation(
            "stagecoach.gateware.rnic",
            "answers.payload.eq(llp.rx_data)",
            "answers.payload.eq(llp.tx_data)",
        ),
    ),
    _property(
        RnicConfig(data_width=128),
        Mutation(
            "stagecoach.gateware.rnic",
            "wiring.connect(m, self.gather.read, clients[0])\n        "
            "wiring.connect(m, self.send_fetcher.read, clients[1])",
            "wiring.connect(m, self.gather.read, clients[1])\n        "
            "wiring.connect(m, self.send_fetcher.read, clients[0])",
        ),
    ),
)
