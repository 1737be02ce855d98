"""Round-robin choice, for the arbiters of the DMA engines."""

from collections.abc import Sequence

from amaranth.hdl import Module, Signal, Value


def choose_round_robin(
    m: Module, requests: Sequence[Value], latest: Signal, choice: Signal
) -> None:
    """Drive `choice` with the requester that comes next after `latest` in circular order.

    Without a request `choice` is 0.
    """
    count = len(requests)
    with m.Switch(latest):
        for start in range(count):
            with m.Case(start):
                # The last assignment wins, so the nearest requester comes last.
                for distance in range(count, 0, -1):
                    candidate = (start + distance) % count
                    with m.If(requests[candidate]):
                        m.d.comb += choice.eq(candidate)
