"""The messages of the tests, between the handshakes."""

import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stagecoach.host_driver import RecvWR, SendWR, WCOpcode
from stagecoach.ulp.perftest.errors import PerftestError
from stagecoach.ulp.perftest.link import Link
from stagecoach.ulp.perftest.memory import Credit, Memory
from stagecoach.ulp.perftest.messages import Destination
from stagecoach.ulp.perftest.results import Bandwidth, Latency

_BATCH = 64
"""Requests of one doorbell, so that completions are taken between two."""


@dataclass(frozen=True)
class Plan:
    """The messages of a test.

    size: of each. number: of them. depth: most that are posted and not complete.
    moderation: every so many of them one completes visibly. receives: posted ahead.
    """

    size: int
    number: int
    depth: int
    moderation: int = 1
    receives: int = 1


def post_receives(link: Link, receives: Sequence[RecvWR], plan: Plan) -> None:
    """Posts the receives for the first messages."""
    turns = itertools.cycle(receives)
    for first in range(0, plan.receives, _BATCH):
        count = min(_BATCH, plan.receives - first)
        link.data.post_recv(*itertools.islice(turns, count))


def stream(
    link: Link, memory: Memory, remote: Destination, plan: Plan, credit: Credit | None
) -> Bandwidth:
    """Sends all messages, as many at a time as may be posted.

    credit: of the peer, if it takes Sends: what it has not received are fewer than its receives.
    """
    loud, silent = memory.requests(remote), memory.requests(remote, signaled=False)
    expected: deque[int] = deque()  # messages that have completed with each completion
    posted: list[float] = []
    completed: list[float] = []

    def room() -> int:
        count = min(plan.number - len(posted), plan.depth - len(posted) + len(completed), _BATCH)
        if credit is not None:
            missing = len(posted) - credit.value & 0xFFFF_FFFF
            count = min(count, plan.receives - 1 - missing)
        return count

    def request(number: int) -> SendWR:
        last = number + 1
        if last % plan.moderation and last != plan.number:
            return silent[number % len(silent)]
        expected.append(last)
        return loud[number % len(loud)]

    start = link.context.cycles
    while len(completed) < plan.number:
        if (count := room()) > 0:
            requests = [request(len(posted) + each) for each in range(count)]
            posted += [time.perf_counter()] * count
            link.data.post_send(*requests)
            link.take()
        else:
            waits = credit is not None and len(posted) - len(completed) < plan.depth
            link.wait(
                lambda: bool(link.completed) or room() > 0,
                f"its credit for message {len(posted) + 1} of {plan.number}"
                if waits
                else f"the completion of message {len(completed) + 1} of {plan.number}",
                memory=waits,
            )
        now = time.perf_counter()
        while link.completed:
            link.completed.popleft()
            done = expected.popleft()
            completed += [now] * (done - len(completed))
    cycles = link.context.cycles - start
    return Bandwidth.of(plan.size, posted, completed, cycles)


def absorb(
    link: Link, memory: Memory, remote: Destination, plan: Plan, credit: Credit
) -> Bandwidth:
    """Receives all messages, and tells the peer now and then how many they are."""
    again = itertools.cycle(memory.receives())
    posted = plan.receives
    every = plan.receives // 3
    arrived = credits = received = 0  # messages that nobody has counted, Writes under way
    begin = end = 0.0
    start = cycles = link.context.cycles

    def sort() -> None:
        nonlocal arrived, credits
        while link.completed:
            found = link.completed.popleft()
            if found.opcode == WCOpcode.RECV:
                _check_length(found.byte_len, plan)
                arrived += 1
            else:
                credits -= 1

    def await_credits(most: int) -> None:
        while credits > most:
            link.wait(lambda: bool(link.completed), "the completion of a credit")
            sort()

    while received < plan.number:
        if not arrived:
            link.wait(
                lambda: bool(link.completed),
                f"message {received + 1} of {plan.number}",
            )
            sort()
        end, cycles = time.perf_counter(), link.context.cycles
        for _ in range(arrived):
            if not received:
                begin, start = end, cycles
            arrived -= 1
            received += 1
            if posted < plan.number:
                link.data.post_recv(next(again))
                posted += 1
            if received % plan.receives % every == 0:
                await_credits(plan.depth - 1)
                link.data.post_send(credit.write(received, remote))
                credits += 1
    await_credits(0)
    return Bandwidth.over(plan.size, plan.number, end - begin, cycles - start)


def _check_length(octets: int, plan: Plan) -> None:
    if octets != plan.size:
        raise PerftestError(
            f"a Send of {octets} bytes; allowed: {plan.size}. Both ends need the same -s"
        )


def read_one_by_one(link: Link, memory: Memory, remote: Destination, plan: Plan) -> Latency:
    """Posts the next Read when the one before has completed."""
    (request,) = memory.requests(remote)
    posted = []
    start = link.context.cycles
    for number in range(plan.number):
        posted.append(time.perf_counter())
        link.data.post_send(request)
        link.wait(lambda: bool(link.completed), f"the response to Read {number}")
        link.completed.popleft()
    return Latency.of(plan.size, posted, link.context.cycles - start, ping_pong=False)


def write_in_turns(
    link: Link, memory: Memory, remote: Destination, plan: Plan, first: bool
) -> Latency:
    """Writes the next message when that of the peer is there, which its last byte tells.

    first: whether this end begins.
    """
    (request,) = memory.requests(remote)
    posted: list[float] = []

    def await_message(number: int) -> None:
        link.wait(
            lambda: memory.has(number),
            f"its Write {number} of {plan.number}",
            memory=True,
        )

    start = link.context.cycles
    for number in range(1, plan.number + 1):
        if not first:
            await_message(number)
        memory.mark(number)
        posted.append(time.perf_counter())
        link.data.post_send(request)
        if number == plan.number and not first:
            # That was all: the peer does not wait for anything more before it disconnects.
            link.data_may_end = True
        link.wait(
            lambda: bool(link.completed) or (link.data_may_end and link.data_ended),
            f"the completion of Write {number}",
        )
        link.completed.clear()
        if first:
            await_message(number)
    link.require_no_failure()
    return Latency.of(plan.size, posted, link.context.cycles - start, ping_pong=True)


def send_in_turns(link: Link, memory: Memory, plan: Plan, first: bool) -> Latency:
    """Sends the next message when that of the peer is there. first: whether this end begins."""
    (request,) = memory.requests(Destination())
    again = memory.receives()[0]
    posted: list[float] = []
    sent = received = 0  # completions of Sends, messages of the peer

    def sort() -> None:
        nonlocal sent, received
        while link.completed:
            found = link.completed.popleft()
            if found.opcode != WCOpcode.RECV:
                sent += 1
                continue
            _check_length(found.byte_len, plan)
            received += 1
            if received + plan.receives <= plan.number:
                link.data.post_recv(again)

    def await_(done: Callable[[], bool], what: str) -> None:
        while not done():
            link.wait(lambda: bool(link.completed), what)
            sort()

    start = link.context.cycles
    for number in range(1, plan.number + 1):
        if not first:
            await_(lambda: received >= number, f"message {number} of {plan.number}")  # noqa: B023
        if len(posted) - sent == plan.depth:
            await_(lambda: len(posted) - sent < plan.depth, "the completion of a Send")
        posted.append(time.perf_counter())
        link.data.post_send(request)
        if first:
            await_(lambda: received >= number, f"message {number} of {plan.number}")  # noqa: B023
    await_(lambda: sent == plan.number, "the completion of a Send")
    return Latency.of(plan.size, posted, link.context.cycles - start, ping_pong=True)
