"""Two devices that the checks of this folder use, whatever simulates them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, Protocol, Self, TypeVar

from stagecoach.host_driver import (
    AccessFlags,
    Cause,
    Context,
    EventType,
    QPState,
    WCOpcode,
    WCStatus,
    WROpcode,
)
from stagecoach.host_driver.transport.base import ByteStream
from tests.integration.rig import ALL, READS, End

HOST = "127.0.0.1"
SECONDS = 20.0
CYCLES = 2_000
"""Longer than a short message and its completion take."""

ATOMICS = (
    WROpcode.ATOMIC_FETCH_AND_ADD,
    WROpcode.ATOMIC_CMP_AND_SWP,
    WROpcode.ATOMIC_SWAP,
)

Result = TypeVar("Result")
Case = TypeVar("Case")


class CycledTransport(Protocol):
    """A transport to a simulated device."""

    def run_cycles(self, cycles: int) -> None:
        """Lets it run."""


class Pair:
    """Two open devices that can connect to each other.

    Parameters
    ----------
    transports: to the devices. begin: runs a function beside the caller; what it returns waits for
        the function's result.

    Attributes
    ----------
    a, b: the contexts.
    """

    def __init__(
        self,
        transports: Iterable[Any],
        begin: Callable[[Callable[[], Result]], Callable[[], Result]],
    ):
        self.a, self.b = map(Context, transports)
        self.begin = begin

    def run(self, cycles: int = CYCLES) -> None:
        """Lets both devices run."""
        for context in (self.a, self.b):
            context.transport.run_cycles(cycles)  # type: ignore[attr-defined]

    def streams(self) -> tuple[ByteStream, ByteStream]:
        """The two ends of a stream from `a` to `b`."""
        listener = self.b.transport.listen(HOST, 0)
        try:
            return self.a.transport.connect(HOST, listener.address[1]), listener.accept(SECONDS)
        finally:
            listener.close()

    def join(self, active: End, passive: End, **reads: int) -> None:
        """Connects a QP of `a` with one of `b`; `reads`: `ord` of the one and `ird` of the other.

        Without MPA startup: `QP.connect` takes what two programs agreed on in another way.
        """
        ours, theirs = self.streams()
        options: dict[str, Any] = {"crc": True, "emss": 1460}
        ord, ird = reads.get("ord", READS), reads.get("ird", READS)
        passive.qp.connect(theirs, initiator=False, ord=READS, ird=ird, **options)
        active.qp.connect(ours, initiator=True, ord=ord, ird=READS, **options)

    @contextmanager
    def link(
        self,
        *,
        access: AccessFlags = ALL,
        active: Mapping[str, Any] | None = None,
        passive: Mapping[str, Any] | None = None,
        **reads: int,
    ) -> Iterator["Link"]:
        """Two connected QPs; `access` is that of the peer's region, the others are for `End`."""
        link = Link(End(self.a, **active or {}), End(self.b, access=access, **passive or {}))
        with link:
            self.join(link.active, link.passive, **reads)
            yield link

    def close(self) -> None:
        """Closes both devices."""
        with ExitStack() as steps:
            steps.callback(self.a.close)
            steps.callback(self.b.close)


class Link:
    """A QP of each device, which are connected to each other."""

    def __init__(self, active: End, passive: End):
        self.active, self.passive = active, passive
        active.buffer[:] = bytes(n * 7 & 0xFF for n in range(len(active.buffer)))

    @property
    def remote(self) -> dict[str, int]:
        """The memory of the passive end, for a request of the active one."""
        return {"remote_addr": self.passive.mr.addr, "rkey": self.passive.mr.rkey}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self.active, self.passive):
            end.pd.close()  # and all that is in it
            end.cq.close()
        for end in (self.active, self.passive):
            end.context.events.clear()  # the passive one may have seen that its peer went first


def succeeded(end: End, *expected: tuple[int, WCOpcode, int]) -> None:
    """So many requests complete: number, opcode and length of each, in this order."""
    found = end.cq.wait(len(expected), SECONDS)
    assert [(wc.wr_id, wc.opcode, wc.byte_len) for wc in found] == list(expected), found
    assert {wc.status for wc in found} == {WCStatus.SUCCESS}, found


def statuses(end: End, count: int) -> dict[int, WCStatus]:
    """By number, what became of so many requests: all that there were."""
    found = {wc.wr_id: wc.status for wc in (end.cq.wait(count, SECONDS) if count else ())}
    assert not end.cq.poll()
    return found


def stopped(end: End) -> Cause:
    """Why the QP of this end stopped, as one asynchronous event and the device itself tell."""
    event = end.context.get_async_event(SECONDS)
    assert (event.event_type, event.qp_num) == (EventType.QP_FATAL, end.qp.qp_num)
    assert end.qp.query_state() == (QPState.ERR, event.cause)
    assert (end.qp.state, end.qp.cause) == (QPState.ERR, event.cause)
    assert not end.context.events
    return event.cause


def in_each(
    cases: Iterable[Case],
) -> Callable[[Callable[[Pair, Case], None]], Callable[[Pair], None]]:
    """Makes one check of many: it is run with each case, and an error names the case."""

    def make(check: Callable[[Pair, Case], None]) -> Callable[[Pair], None]:
        # Without the parameter of the inner function: a check takes a pair, and no more.
        @wraps(check)
        def run(pair: Pair) -> None:
            for case in cases:
                try:
                    check(pair, case)
                except BaseException as error:
                    error.add_note(f"in case {case!r}")
                    raise

        return run

    return make
