"""How fast a memory server is."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, islice

from stagecoach.host_driver import Context, WROpcode
from stagecoach.ulp.memory_server.client import (
    COUNTER_OCTETS,
    DEPTH,
    MESSAGE_OCTETS,
    Client,
)

NAMES = {
    WROpcode.RDMA_WRITE: "Write",
    WROpcode.RDMA_READ: "Read",
    WROpcode.ATOMIC_FETCH_AND_ADD: "FetchAdd",
}


@dataclass(frozen=True)
class Throughput:
    """Many messages, as many under way as the client has room for.

    operation: its name. size: bytes of a message. seconds: of the clock on the wall. cycles: of
    the client's device.
    """

    operation: str
    size: int
    messages: int
    seconds: float
    cycles: int

    @property
    def octets(self) -> int:
        """Bytes of all messages."""
        return self.size * self.messages

    @property
    def megabytes_per_second(self) -> float:
        """10^6 bytes."""
        return self.octets / self.seconds / 1e6


@dataclass(frozen=True)
class Latency:
    """Messages of 8 bytes, one at a time, from the post to its completion: the medians."""

    operation: str
    messages: int
    microseconds: float
    cycles: int


def _timed(context: Context, work: Callable[[], None]) -> tuple[float, int]:
    """Seconds and cycles of the device that something takes."""
    start, begin = context.cycles, time.perf_counter()
    work()
    seconds = time.perf_counter() - begin
    return seconds, context.cycles - start


def throughput(
    context: Context, client: Client, opcode: WROpcode, offset: int, size: int, messages: int
) -> Throughput:
    """Writes, or reads, the same bytes of the server again and again.

    What was written is there when the time ends: a Read follows the last Write.
    """

    def work() -> None:
        for number, slot in enumerate(islice(cycle(range(DEPTH)), messages)):
            if number >= DEPTH:
                client.complete()
            client.post(opcode, offset, size, slot)
        for _ in range(min(messages, DEPTH)):
            client.complete()
        if opcode == WROpcode.RDMA_WRITE:
            client.post(WROpcode.RDMA_READ, offset, 1)
            client.complete()

    return Throughput(NAMES[opcode], size, messages, *_timed(context, work))


def latency(
    context: Context, client: Client, opcode: WROpcode, offset: int, messages: int
) -> Latency:
    """One message of 8 bytes after the other."""

    def work() -> None:
        client.post(opcode, offset, COUNTER_OCTETS)
        client.complete()

    found = [_timed(context, work) for _ in range(messages)]
    return Latency(
        NAMES[opcode],
        messages,
        statistics.median_low(seconds for seconds, _ in found) * 1e6,
        statistics.median_low(cycles for _, cycles in found),
    )


def bench(
    context: Context, client: Client, offset: int, size: int, messages: int, latencies: int
) -> tuple[list[Throughput], list[Latency]]:
    """All that is measured. It overwrites the server's bytes from `offset` on.

    size: bytes of a message, 1 to `MESSAGE_OCTETS`. messages: of a throughput.
    latencies: messages of a latency.

    Raises `OutsideRegion` if the server has fewer bytes than `size`, or than 8.
    """
    assert 1 <= size <= MESSAGE_OCTETS
    client.require(offset, max(size, COUNTER_OCTETS), "bench")
    opcodes = [WROpcode.RDMA_WRITE, WROpcode.RDMA_READ]
    rates = [throughput(context, client, each, offset, size, messages) for each in opcodes]
    if WROpcode.ATOMIC_FETCH_AND_ADD in context.attr.atomics:
        opcodes.append(WROpcode.ATOMIC_FETCH_AND_ADD)
    return rates, [latency(context, client, each, offset, latencies) for each in opcodes]
