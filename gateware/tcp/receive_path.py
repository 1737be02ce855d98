"""From records of frames to bytes in memory that may be acknowledged: the receiving side."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import FRAME_WORD, RAW_WORD
from stagecoach.gateware.host_memory import WriteClient
from stagecoach.gateware.tcp.layouts import (
    LIMITS,
    ack_event,
    receive_command,
    received_segment,
    release_layout,
    settled_layout,
)
from stagecoach.gateware.tcp.places import offered
from stagecoach.gateware.tcp.ranges import ranges_layout
from stagecoach.gateware.tcp.receive_processor import ReceiveProcessor
from stagecoach.gateware.tcp.receive_ring import ReceiveRing
from stagecoach.gateware.tcp.settle import SETTLED, Settle


class ReceivePath(wiring.Component):
    """Joins `ReceiveProcessor`, `ReceiveRing` and `Settle`.

    Parameters
    ----------
    connections: 2 to 256. mtu: bytes of the longest IP packet.

    Members
    -------
    segment, frames: records with what the lookup says, and the frames of those that are not
        `placed`, in the same order.
    release, command, limits_write, limits_connection, limits, event, asked, out_of_order, ask,
        ranges: of the processor.
    write, raw: of the ring. o, connection_read, settled: of `Settle`.
    queued: of the processor. began, ended: pulses, a job with a note is offered to the ring; its
        note is said, or nothing is.
    """

    def __init__(self, connections: int = 64, mtu: int = 1500):
        self._connections = connections
        self._mtu = mtu
        bits = (connections - 1).bit_length()
        super().__init__(
            {
                "segment": In(stream.Signature(received_segment(bits))),
                "frames": In(stream.Signature(FRAME_WORD)),
                "release": In(stream.Signature(release_layout(bits))),
                "command": In(stream.Signature(receive_command(bits))),
                "limits_write": In(1),
                "limits_connection": In(bits),
                "limits": In(LIMITS),
                "event": Out(stream.Signature(ack_event(bits))),
                "asked": In(bits),
                "out_of_order": Out(1),
                "ask": In(stream.Signature(bits)),
                "ranges": Out(ranges_layout()),
                "write": Out(WriteClient()),
                "raw": Out(stream.Signature(RAW_WORD)),
                "o": Out(stream.Signature(settled_layout(bits))),
                "connection_read": In(bits),
                "settled": Out(SETTLED),
                "queued": Out(1),
                "began": Out(1),
                "ended": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.processor = processor = ReceiveProcessor(self._connections, self._mtu)
        m.submodules.ring = ring = ReceiveRing(self._connections)
        m.submodules.settle = settle = Settle(self._connections)
        for name in ("segment", "release", "command", "event", "ask"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(processor, name))
        for name in ("frames", "raw"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(ring, name))
        wiring.connect(m, processor.job, ring.job)
        wiring.connect(m, ring.note, settle.note)
        wiring.connect(m, ring.write, wiring.flipped(self.write))
        wiring.connect(m, wiring.flipped(self.o), settle.o)
        m.d.comb += [
            processor.limits_write.eq(self.limits_write),
            processor.limits_connection.eq(self.limits_connection),
            processor.limits.eq(self.limits),
            processor.asked.eq(self.asked),
            self.out_of_order.eq(processor.out_of_order),
            self.ranges.eq(processor.ranges),
            settle.done.eq(self.write.done),
            settle.error.eq(self.write.error),
            settle.connection_read.eq(self.connection_read),
            self.settled.eq(settle.settled),
            self.queued.eq(processor.queued),
            self.began.eq(offered(m, processor.job) & processor.job.p.settle),
            self.ended.eq(settle.left),
        ]
        return m
