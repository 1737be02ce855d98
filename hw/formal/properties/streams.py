"""The rules of streams, for every stream of every block of the device.

An output holds valid and payload until it was ready. The block starts in any state whatever; its
inputs and the ready of its outputs are free, but its input streams hold their words, too. That is
no assumption about the device: inside a block of blocks the same is asserted of the inputs of
all its parts, and what is joined in the device itself is asserted of `rnic.Rnic`.

Valid does not wait for ready: besides the paths in the netlist (`valid`), each output is seen to
rise while ready is low, out of a state that fulfils what is asserted.
"""

from typing import Any

from stagecoach.hw.formal.device import Place, block, blocks, class_name, streams
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.invariants import NEEDS, invariants, needs
from stagecoach.hw.formal.property import Property, Rebuilt, in_harness

ASSUMED: dict[str, tuple[str, ...]] = {
    "stream.fork.Fork": ("i",),
    "hostlink.link_core.Dispatcher": ("i",),
    "mpa.receive_requests.ReceiveRequests": ("begin",),
    "mpa.receive_visits.ReceiveVisits": ("begin",),
    "mpa.llp_width.LlpReceiveWidth": ("request", "i"),
    "mpa.llp_width.LlpTransmitWidth": ("i",),
    "queues.ring_fetcher.RingFetcher": ("qp_command",),
    "queues.srq_events.SrqEvents": ("ring_error", "qp_event"),
    "queues.fetch.choose.FetchChoose": ("qp_command",),
    "queues.fetch.lookup.FetchLookup": ("visit",),
    "queues.fetch.doorbell.FetchDoorbell": ("i",),
    "queues.fetch.plan.FetchPlan": ("found",),
    "rdmap.transmit.transmitter.Transmitter": ("qp_command",),
    "rdmap.transmit.choose.TransmitChoose": ("qp_command",),
    "rdmap.transmit.command.TransmitCommand": ("command",),
    "rdmap.transmit.cut.TransmitCut": ("message",),
    "rdmap.transmit.check.TransmitCheck": ("piece",),
    "ethernet.raw_receive.RawReceive": ("raw", "notice"),
    "tcp.receive_ring.ReceiveRing": ("frames",),
    "tcp.ring_reader.RingReader": ("job",),
    "tcp.llp_receive.LlpReceive": ("request",),
    "tcp.receive_path.ReceivePath": ("frames",),
    "tcp.receive_side.ReceiveSide": ("llp_request",),
    "tcp.transmit_ring.TransmitRing": ("words",),
    "tcp.transmit_path.TransmitPath": ("command",),
    "tcp.notice_gate.NoticeGate": ("i",),
    "tcp.engine.TcpEngine": ("transmit_command",),
    "tcp.transmit_processor.TransmitProcessor": ("fpdu", "command"),
}
"""Inputs that must hold their words for the outputs to do so: they pass through."""

FREE: dict[str, tuple[str, ...]] = {
    "mpa.deframer.Deframer": ("remover", "count"),
    "mpa.receiver.MpaReceiver": ("store", "order"),
    "queues.ring_fetcher.RingFetcher": ("units", "lanes"),
    "rdmap.transmit.transmitter.Transmitter": (
        "complete",
        "kick",
        "retired_sends",
        "leaving",
        "lengths",
        "segment",
        "terminate",
        "rdmap_header",
    ),
    "tcp.builder.Builder": ("rows",),
    "tcp.receive_path.ReceivePath": (
        "processor.table",
        "processor.limits",
        "processor.verdict",
        "processor.ranges",
    ),
    "tcp.receive_side.ReceiveSide": (
        "front.sums",
        "front.ip",
        "front.tcp",
        "counters",
        *(f"path.processor.{name}" for name in ("table", "limits", "verdict", "ranges")),
    ),
    "tcp.receive_processor.ReceiveProcessor": ("table", "limits", "verdict", "ranges"),
    "tcp.ring_reader.RingReader": ("rings", "store", "checksum"),
    "tcp.segment_store.SegmentStore": ("words", "lanes", "checksum"),
    "tcp.timers.Timers": ("table",),
    "tcp.transmit_processor.TransmitProcessor": (
        "table",
        "congestion",
        "timeout",
        "segment",
        "grant",
    ),
}
"""Parts without streams that are taken out, since no stream relies on them: what they say may be
any values, others in every cycle, so it holds for what they do say. It saves their arithmetic."""

FREE["tcp.transmit_path.TransmitPath"] = tuple(
    f"{part}.{name}"
    for part, block_name in (
        ("store", "tcp.segment_store.SegmentStore"),
        ("processor", "tcp.transmit_processor.TransmitProcessor"),
        ("timers", "tcp.timers.Timers"),
        ("reader", "tcp.ring_reader.RingReader"),
        ("builder", "tcp.builder.Builder"),
    )
    for name in FREE[block_name]
)

FREE["tcp.engine.TcpEngine"] = (
    *(f"receive.{name}" for name in FREE["tcp.receive_side.ReceiveSide"]),
    *(f"transmit.{name}" for name in FREE["tcp.transmit_path.TransmitPath"]),
)

RESTARTS: dict[str, str] = {
    "hostlink.frame_receiver.FrameReceiver": "restart",
    "hostlink.link_core.LinkCore": "restart",
}
"""Ports that reset the outputs of a block as the reset does; what follows them is reset, too."""

NOT_HELD: dict[str, dict[str, str]] = {
    "rdmap.receive.judge.ReceiveJudge": {
        "record": "`dropped` may rise while it waits: the QP stopped",
    },
    "rdmap.receive.record.ReceiveRecord": {
        "record": "as that of the judge, and what it says of the segment are inputs",
    },
}
"""Outputs of which the payload is not asserted here, and why."""

ALWAYS_TAKEN: dict[str, tuple[str, ...]] = {
    "dma.read.ReadEngine": ("clients[1].data", "clients[2].data"),
}
"""Outputs whose ready is never low: clients without a buffer take every word (`invariants`)."""

JOINED: dict[str, tuple[str, ...]] = {
    "rdmap.receive.receiver.Receiver": ("access",),
    "rdmap.atomic.unit.AtomicUnit": ("accept",),
}
"""Parts whose needs have a property of their own (`receive_steps.py`, `atomic_unit.py`)."""

ELSEWHERE: dict[str, tuple[str, ...]] = {
    "rdmap.atomic.unit.AtomicUnit": ("write.data",),
    "rdmap.atomic.compute.AtomicCompute": ("data",),
}
"""Outputs that have a property of their own."""


def _left_out(place: Place) -> set[str]:
    """Outputs that are not in the property of a block."""
    return set(ELSEWHERE.get(place.name, ()))


def _parts(h: Harness, inside: Inside, path: str) -> None:
    """What is assumed of the inputs of the parts of a block."""
    for name, part in list(inside.children()):
        kind = class_name(part.ports)
        restarted = h.past(part.reset)
        for stream_name, _, stream in streams(part.ports):
            if stream_name in ASSUMED.get(kind, ()):
                h.check(f"{path}{name}.{stream_name}", restarted | h.held(stream))
        for what, condition in needs(h, kind, part):
            if name in JOINED.get(class_name(inside.ports), ()):
                h.assume(restarted | condition)
            else:
                h.check(f"{path}{name} {what}", restarted | condition)
        _parts(h, part, f"{path}{name}.")


def rises(h: Harness, name: str, stream: Any) -> None:
    """Cover that valid rises while ready is low."""
    risen = h.started & stream.valid & ~h.past(stream.valid)
    h.cover(name, risen & ~stream.ready & ~h.past(stream.ready))


def _build(h: Harness, place: Place, broken: str) -> None:
    component: Any = block(place.path)
    inside = h.block(component)
    for part in FREE.get(place.name, ()):
        *path, name = part.split(".")
        owner = inside
        for step in path:
            owner = owner.child(step)
        taken_out = h.free_part(owner, name)
        if any(streams(taken_out)) or class_name(taken_out) in NEEDS:
            raise ValueError(f"{part!r} of {place.name} has streams or needs, which would be lost")
    invariants(h, place.name, inside)
    _parts(h, inside, "")
    for _, condition in needs(h, place.name, inside):
        h.assume(condition)
    restart = h.past(getattr(component, RESTARTS[place.name])) if place.name in RESTARTS else 0
    for name, is_output, stream in streams(component):
        if is_output and name not in ALWAYS_TAKEN.get(place.name, ()):
            rises(h, name, stream)
        if name in _left_out(place):
            continue
        if not is_output:
            if name in ASSUMED.get(place.name, ()):
                h.assume(h.held(stream))
            continue
        ready = stream.ready
        if name == broken:
            h.m.d.comb += stream.ready.eq(1)
            ready = h.free(1, "taken")
        if name in NOT_HELD.get(place.name, {}):
            h.check(f"{name} valid", restart | ~h.past(stream.valid & ~ready) | stream.valid)
        else:
            h.check(name, restart | h.held(stream, ready))


def _property(place: Place) -> Property:
    def model(broken: str = "") -> Any:
        return in_harness(lambda h: _build(h, place, broken))

    outputs = [output for output in place.outputs if output not in _left_out(place)]
    return Property(
        block=place.name,
        name=f"streams hold until taken: {', '.join(outputs)} ({place.path})",
        build=model(),
        mutations=tuple(
            Rebuilt(f"{output} does not look at ready", model(output)) for output in outputs
        ),
        reached=1,
    )


PROPERTIES = tuple(_property(place) for place in blocks() if place.outputs)
