"""Round-robin choice, for the arbiters of the DMA engines."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Signal, Value


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


def grant_round_robin(m: Module, requests: Sequence[Value], latest: Signal) -> Signal:
    """Return the same choice as one bit per requester, none without a request.

    Each is one gate wide: the choice does not have to be made before it is decoded.
    """
    count = len(requests)
    grant = Signal(count)
    with m.Switch(latest):
        for start in range(count):
            with m.Case(start):
                order = [(start + distance) % count for distance in range(1, count + 1)]
                for place, number in enumerate(order):
                    before = [requests[other] for other in order[:place]]
                    m.d.comb += grant[number].eq(
                        requests[number] & ~(Cat(before).any() if before else Const(0))
                    )
    return grant
