"""Waits until nothing of a connection is under way that was when it began to wait."""

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.queues.fence import Fence
from stagecoach.gateware.tcp.llp_receive import REQUESTS
from stagecoach.gateware.tcp.places import RECEIVE_PLACES, TRANSMIT_PLACES
from stagecoach.gateware.tcp.receive_processor import ACK_EVENTS
from stagecoach.gateware.tcp.ring_reader import JOBS
from stagecoach.gateware.tcp.segment_store import FPDU_RECORDS
from stagecoach.gateware.tcp.settle import NOTES
from stagecoach.gateware.tcp.transmit_processor import SEND_JOBS

STAGES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("segment", "request", "release"), ("fpdu",)),
    (("ack", "merged"), ()),
    (("write",), ("write",)),
    (("note",), ("event", "send")),
    (("llp_event",), ("segment",)),
    ((), ("failure",)),
)
"""Places of the receiving and of the sending side. Each hands what comes of it to a later stage."""

_MOST = (max(FPDU_RECORDS, REQUESTS), ACK_EVENTS, NOTES + 2, SEND_JOBS, JOBS)
"""Under way in one place of each stage, but failures: notes of jobs wait in `Settle`, after the
ring, and at the processor. Where nothing is said of a place there is one at most."""


class EngineFence(wiring.Component):
    """Counts what begins and ends in each place, and waits for all of it, stage by stage.

    `busy` is high from the cycle after `start` until all that was under way then has ended, with
    nothing under way for 91 cycles; `start` while busy is ignored. What comes later is not waited
    for. If something never ends, because memory answers nothing, the MAC takes nothing, or the
    device takes no answer, `busy` stays high; nothing else waits for the fence. Counts go up and
    down with what is under way, and do not wrap.

    Parameters
    ----------
    connections: 2 to 256; a failure of each may wait, and one more.

    Members
    -------
    start, busy: as said. receive_began, receive_ended, transmit_began, transmit_ended: pulses of
        `places`.
    """

    def __init__(self, connections: int = 64):
        if not 2 <= connections <= 256:
            raise ValueError(f"EngineFence connections is {connections!r}; allowed: 2 to 256")
        self._count_bits = [most.bit_length() for most in (*_MOST, connections + 1)]
        super().__init__(
            {
                "start": In(1),
                "busy": Out(1),
                "receive_began": In(RECEIVE_PLACES),
                "receive_ended": In(RECEIVE_PLACES),
                "transmit_began": In(TRANSMIT_PLACES),
                "transmit_ended": In(TRANSMIT_PLACES),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        sizes = [len(receive) + len(transmit) for receive, transmit in STAGES]
        m.submodules.fence = fence = Fence(sizes, self._count_bits)
        m.d.comb += [fence.start.eq(self.start), self.busy.eq(fence.busy)]
        for number, (receive, transmit) in enumerate(STAGES):
            begin, end = getattr(fence, f"begin_{number}"), getattr(fence, f"end_{number}")
            m.d.comb += begin.eq(
                Cat(
                    *(self.receive_began[name] for name in receive),
                    *(self.transmit_began[name] for name in transmit),
                )
            )
            # A cycle after its begin at the earliest.
            m.d.sync += end.eq(
                Cat(
                    *(self.receive_ended[name] for name in receive),
                    *(self.transmit_ended[name] for name in transmit),
                )
            )
        return m
