"""Round-robin choice among the clients of something shared, within one cycle.

Turns that do not fit this form are taken where they are needed:

* Among all QPs, by `queues/scheduler.py`. A choice among 256 takes more than a cycle, so it
  searches group by group, in registered steps.
* Among error inputs, by `queues/qp_states.py`, and among events, by `queues/srq_events.py`. Both
  are rare: a one-hot or a count looks at one input a cycle, and there is nothing to choose.
* Between two or three sources, by `queues/ring_writer.py`, `queues/completer.py`,
  `queues/fetch/choose.py` and, for each QP, `rdmap/transmit/choose.py`. Beside what else decides
  there, the turn is one gate.

* Among the kinds of events of TCP's sending side, by `tcp/transmit_turn.py`. A mask has the kinds
  after the latest one, so the choice is one priority, and selects the connection in the same cycle.

`queues/kick_queue.py` takes no turns: it serves QPs in the order of their kicks.
"""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Signal, Value


def choose_round_robin(
    m: Module, requests: Sequence[Value], latest: Signal, choice: Signal
) -> None:
    """Drive `choice` with the requester that comes next after `latest` in circular order.

    Without a request `choice` is 0.
    """
    with m.Switch(latest):
        for start in range(len(requests)):
            with m.Case(start):
                # The last assignment wins, so the nearest requester comes last.
                for candidate in reversed(_order(start, len(requests))):
                    with m.If(requests[candidate]):
                        m.d.comb += choice.eq(candidate)


def preceded_round_robin(m: Module, requests: Sequence[Value], latest: Signal) -> Signal:
    """Return one bit per requester: another one that asks goes before it.

    The choice is the requester that asks and is not preceded. A bit does not depend on the
    requester's own request, and is one gate wide: the choice does not have to be made before it is
    decoded.
    """
    # A `latest` that is no requester lets nobody in.
    preceded = Signal(len(requests), init=-1)
    with m.Switch(latest):
        for start in range(len(requests)):
            with m.Case(start):
                order = _order(start, len(requests))
                for place, number in enumerate(order):
                    before = Cat(requests[other] for other in order[:place])
                    m.d.comb += preceded[number].eq(before.any())
    return preceded


def _order(latest: int, count: int) -> list[int]:
    """The requesters as they take turns, the one after `latest` first."""
    return [(latest + distance) % count for distance in range(1, count + 1)]
