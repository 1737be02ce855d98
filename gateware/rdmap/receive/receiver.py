"""Checks received segments, places them and delivers their messages.

RFC 5041, 7; RFC 5040, 7; RFC 7306, 8.
"""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpStrobe
from stagecoach.gateware.queues.ports import QpFifoReader, QpFifoWriter, ReceiveEntryPort
from stagecoach.gateware.rdmap.receive.access import ReceiveAccess
from stagecoach.gateware.rdmap.receive.judge import ReceiveJudge
from stagecoach.gateware.rdmap.receive.scan import ENTRY_WORDS
from stagecoach.gateware.stag.ports import StagClient


class Receiver(wiring.Component):
    """Takes segments in order and ends each FPDU of the store with one releasing placement.

    Every check of a segment is made before its first placement. The first failure stops the QP:
    `error` tells the cause once, nothing of the segment is placed, and later segments of the QP
    are only released until it is connected anew. So are segments of QPs that are not `running`.
    A delivery leaves after the last placement of its message and counts in `after` all placements
    with bytes so far, which `queues/delivery_gate.py` waits for. A Read or Atomic Request is
    delivered, too: it may be answered when all that came before it is visible (RFC 5040, 5.5). The
    original value in an Atomic Response is placed in the byte order of the host.
    The STag that a Send invalidates is checked last, and is invalid before the last segment of the
    Send is placed. Immediate Data takes a receive entry as a Send does, and is in its delivery.

    Two segments are at work, in two steps: `ReceiveJudge` makes the checks that need no STag while
    `ReceiveAccess` looks up the STags of the segment before, places and delivers it. What the first
    step takes from the queues of a QP, and pushes there, is not taken back if the second one fails
    it: the QP has stopped.

    In a backlog, if everything else is ready and the STag table answers in 5 cycles: 4 cycles for
    an empty RDMA Write, 8 for any other, 10 for a Send of one element or a Read or Atomic Request
    that asks for something, 9 for a response. The placement comes 10 cycles after a RDMA Write was
    taken.

    Members
    -------
    qp_command: In(stream): CREATE sets the PD, CONNECT the IRD and whether the messages of RFC 7306
        are taken, and starts MSN and MO anew; taken when no segment is at work, two cycles after it
        came at the earliest.
    segment: In(stream) from the MPA receiver.
    running: In(config.qps), bit n for QP n.
    receive_entries: of each QP, from its receive ring or a shared one.
    stag: client of the STag table. invalidate: STags that the peer invalidates.
    placement, delivery, error: Out(stream).
    strict: In(1), the atomics are those of RFC 7306 only.
    inbound_requests: Read and Atomic Requests for the transmitter, each before its delivery. One
        whose STag is refused is pushed, too, but not delivered, and nor is any after it.
    outstanding_requests: RDMA Reads and atomics that the transmitter asked for, oldest first;
        `read_space` pulses when the last segment of a response came, a cycle after the pop.
    first_segment: pulses at the first FPDU of a connection.
    placing: Out(1), from two cycles after the first lookup of a segment was accepted until a cycle
        after its last placement: host addresses are held. Low between segments.
    dropped: Out(1), a pulse for an FPDU that is dropped.
    begin, end: Out(1), a pulse when a segment is taken, and a cycle after all about it has been
        issued.
    """

    def __init__(self, config: RnicConfig) -> None:
        self._config = config
        layouts = Layouts(config)
        depth = config.read_queue_depth
        super().__init__(
            {
                "qp_command": In(stream.Signature(layouts.qp_command)),
                "segment": In(stream.Signature(layouts.segment)),
                "running": In(config.qps),
                "strict": In(1),
                "receive_entries": Out(ReceiveEntryPort(config, ENTRY_WORDS)),
                "stag": Out(StagClient(layouts)),
                "invalidate": Out(stream.Signature(layouts.stag)),
                "placement": Out(stream.Signature(layouts.placement)),
                "delivery": Out(stream.Signature(layouts.delivery)),
                "inbound_requests": Out(QpFifoWriter(config, layouts.inbound_request, depth)),
                "outstanding_requests": Out(
                    QpFifoReader(config, layouts.outstanding_request, depth)
                ),
                "first_segment": Out(QpStrobe(config)),
                "read_space": Out(QpStrobe(config)),
                "error": Out(stream.Signature(layouts.qp_error)),
                "placing": Out(1),
                "dropped": Out(1),
                "begin": Out(1),
                "end": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.judge = judge = ReceiveJudge(self._config)
        m.submodules.access = access = ReceiveAccess(self._config)
        for step, names in ((judge, _JUDGE), (access, _ACCESS)):
            for name in names:
                wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(step, name))
        wiring.connect(m, judge.record, access.record)
        m.d.comb += [
            judge.running.eq(self.running),
            judge.strict.eq(self.strict),
            judge.idle.eq(access.idle),
            judge.stop.valid.eq(access.stop.valid),
            judge.stop.qp.eq(access.stop.qp),
            access.piece.eq(judge.piece),
            self.begin.eq(judge.begin),
            self.dropped.eq(judge.dropped),
            self.end.eq(access.end),
            self.placing.eq(access.placing),
        ]
        return m


_JUDGE = (
    "qp_command",
    "segment",
    "receive_entries",
    "inbound_requests",
    "outstanding_requests",
    "read_space",
)
_ACCESS = ("stag", "invalidate", "placement", "delivery", "error", "first_segment")
"""The ports of the `Receiver` that are those of a step."""
