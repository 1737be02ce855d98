"""Measures messages of one size at the client, in cycles of its device."""

from collections.abc import Callable

from stagecoach.cli.perf.end import End
from stagecoach.cli.perf.flow import run
from stagecoach.cli.perf.latency import Latencies
from stagecoach.cli.perf.notes import Asked, Part, Receives
from stagecoach.cli.perf.operations import Remote
from stagecoach.cli.perf.pingpong import Player
from stagecoach.cli.perf.result import Point
from stagecoach.cli.perf.settings import Plan
from stagecoach.host_driver.wr import SGE, RecvWR, SendWR

Progress = Callable[[int], None]
"""Called with the messages that were completed since the last call."""


class Meter:
    """Runs messages of a plan over connected QPs.

    Parameters
    ----------
    end: of the client. remote: the server's buffer. progress: of messages.
    """

    def __init__(self, end: End, plan: Plan, remote: Remote, progress: Progress):
        self._end = end
        self._plan = plan
        self._remote = remote
        self._progress = progress
        self._taken = 0  # messages since the last note that the server does not wait for by itself

    def measure(self, size: int) -> Point:
        """Throughput and latency for a size.

        Throughput: the cycles from the first doorbell to the interrupt that tells of the last
        completion. All bytes of all messages cross the wire in them, so it is never more than
        the protocol allows; the way to the first and from the last message is in it. With both
        directions the messages of both ends count.

        Latency: of one message at a time, from the doorbell of its post, with the CQ armed, to
        the interrupt of its completion. With ping-pong: half of the cycles, rounded up, from the
        doorbell to when the answer of the server, a message of the same size, is there.
        """
        plan = self._plan
        requests = plan.requests(self._end.mr, self._remote, size)
        self._prepare(plan.share(size))
        messages = plan.messages_of(size)
        if plan.bidirectional:
            cycles = self._both_ways(requests, size, messages)
        else:
            cycles = run(self._end, requests, messages, plan.depth, self._progress)
            self._taken = messages
        self._prepare(plan.latency_messages)
        if plan.pingpong:
            latencies = self._half_round_trips(size)
        else:
            latencies = [self._latency(requests[0]) for _ in range(plan.latency_messages)]
            self._taken = plan.latency_messages
        return Point(
            size=size,
            messages=messages * plan.directions,
            cycles=cycles,
            messages_per_cycle=messages * plan.directions / cycles,
            limit_messages_per_cycle=plan.limit_messages_per_cycle(size),
            latencies=Latencies(tuple(latencies)),
        )

    def _prepare(self, messages: int) -> None:
        """Has the server post receives for as many messages on each QP, if they take any."""
        takes = self._plan.operation.takes_receive
        self._end.send(Receives(messages, self._taken).note if takes else 0)
        self._taken = 0
        self._end.receive()

    def _both_ways(self, requests: list[SendWR], size: int, messages: int) -> int:
        """Cycles for some messages from each end, sent at the same time.

        They go from this end's first doorbell to its last completion, or to the server's note
        that it has all of its own, whichever is later. Those of receives count as well.
        """
        end, plan = self._end, self._plan
        if plan.operation.takes_receive:
            self._post_receives(plan.share(size))
        end.send(Asked(Part.BIDIRECTIONAL, messages, size).note)
        end.receive()
        start = end.cycles
        receives = messages if plan.operation.takes_receive else 0
        run(end, requests, messages, plan.depth, self._progress, receives)
        end.receive()
        return end.cycles - start

    def _post_receives(self, messages: int) -> None:
        """Posts what is missing to as many receives on each QP."""
        receive = RecvWR(0, [SGE(self._end.mr.addr, self._plan.octets, self._end.mr.lkey)])
        for qp in self._end.qps:
            qp.post_recv(*[receive] * (messages - qp.receives_posted))

    def _latency(self, request: SendWR) -> int:
        end = self._end
        end.arm()
        start = end.cycles
        end.qps[0].post_send(request)
        while True:
            end.await_interrupt()
            cycles = end.cycles - start
            if end.take():
                self._progress(1)
                return cycles
            end.arm()  # the interrupt was of something else

    def _half_round_trips(self, size: int) -> list[int]:
        end, plan, remote = self._end, self._plan, self._remote
        messages = plan.latency_messages
        if plan.operation.takes_receive:
            self._post_receives(messages)
        target = Remote(remote.addr + plan.octets, remote.rkey)
        player = Player(end, plan.operation, target, plan.octets, size)
        end.send(Asked(Part.PINGPONG, messages, size).note)
        end.receive()
        found = []
        for _ in range(messages):
            start = end.cycles
            player.send()
            player.receive()
            found.append(-(-(end.cycles - start) // 2))
            self._progress(1)
        return found
