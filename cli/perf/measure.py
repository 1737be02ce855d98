"""Measures messages of one size at the client, in cycles of its device."""

from collections import Counter
from collections.abc import Callable

from stagecoach.cli.perf.end import End
from stagecoach.cli.perf.latency import Latencies
from stagecoach.cli.perf.operations import Remote
from stagecoach.cli.perf.pingpong import Player, pingpong_note
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

    def measure(self, size: int) -> Point:
        """Throughput and latency for a size.

        Throughput: the cycles from the first doorbell to the interrupt that tells of the last
        completion. All octets of all messages cross the wire in them, so it is never more than
        the protocol allows; the way to the first and from the last message is in it.

        Latency: of one message at a time, from the doorbell of its post, with the CQ armed, to
        the interrupt of its completion. With ping-pong: half of the cycles, rounded up, from the
        doorbell to when the answer of the server, a message of the same size, is there.
        """
        plan = self._plan
        requests = [self._request(place, size) for place in range(plan.qps)]
        self._prepare(plan.share(size))
        messages = plan.messages_of(size)
        cycles = self._run(requests, messages)
        self._prepare(plan.latency_messages)
        if plan.pingpong:
            latencies = self._half_round_trips(size)
        else:
            latencies = [self._latency(requests[0]) for _ in range(plan.latency_messages)]
        return Point(
            size=size,
            messages=messages,
            cycles=cycles,
            messages_per_cycle=messages / cycles,
            limit_messages_per_cycle=plan.operation.wire(plan.framing, size).messages_per_cycle,
            latencies=Latencies(tuple(latencies)),
        )

    def _request(self, place: int, size: int) -> SendWR:
        operation, remote = self._plan.operation, self._remote
        target = Remote(remote.addr + place * operation.stride, remote.rkey)
        return operation.request(self._end.mr, target, size)

    def _prepare(self, messages: int) -> None:
        """Has the server post receives for as many messages on each QP, if they take any."""
        number = messages if self._plan.operation.takes_receive else 0
        self._end.send(number)
        self._end.receive()

    def _run(self, requests: list[SendWR], messages: int) -> int:
        """Cycles for some messages over all QPs, with `depth` outstanding on each."""
        end, depth = self._end, self._plan.depth
        qps = {qp.qp_num: (qp, each) for qp, each in zip(end.qps, requests, strict=True)}
        least, more = divmod(messages, len(qps))
        left = {number: least + (place < more) for place, number in enumerate(qps)}
        free = dict.fromkeys(qps, depth)
        start = end.cycles
        done = 0
        while True:
            for number, (qp, request) in qps.items():
                if count := min(free[number], left[number]):
                    qp.post_send(*[request] * count)
                    free[number] -= count
                    left[number] -= count
            if done == messages:
                return end.cycles - start
            found = Counter(each.qp_num for each in end.completions())
            for number, count in found.items():
                free[number] += count
            done += found.total()
            self._progress(found.total())

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
            receive = RecvWR(0, [SGE(end.mr.addr, plan.octets, end.mr.lkey)])
            end.qps[0].post_recv(*[receive] * (messages - end.qps[0].receives_posted))
        target = Remote(remote.addr + plan.octets, remote.rkey)
        player = Player(end, plan.operation, target, plan.octets, size)
        end.send(pingpong_note(messages, size))
        end.receive()
        found = []
        for _ in range(messages):
            start = end.cycles
            player.send()
            player.receive()
            found.append(-(-(end.cycles - start) // 2))
            self._progress(1)
        return found
