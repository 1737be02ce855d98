"""Time that passes while all threads wait, and jumps while all devices rest; the wall's time."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from stagecoach.sim.network import timeline
from stagecoach.sim.network.timeline import PERIOD, CycleTime, WallTime
from stagecoach.sim.wire.clock import CYCLE_PS

US = 10**6

pytestmark = pytest.mark.timeout(60)


class Clockwork:
    """A member that does something at given times.

    Attributes
    ----------
    due: these times. done: those at which it was. cycles: that its device ran; `work` are left.
    """

    def __init__(self, now_ps: Callable[[], int], *due: int) -> None:
        self._now_ps = now_ps
        self.due = list(due)
        self.done: list[int] = []
        self.work = 0
        self.cycles = 0

    def serve(self) -> bool:
        if not self.due or self.due[0] > self._now_ps():
            return False
        self.due.pop(0)
        self.done.append(self._now_ps())
        return True

    def next_ps(self) -> int | None:
        return self.due[0] if self.due else None

    def descriptors(self) -> list[tuple[int, bool]]:
        return []

    def busy(self) -> bool:
        return self.work > 0

    def pace(self, cycles: int) -> None:
        self.work -= cycles
        self.cycles += cycles


@pytest.fixture
def cycle_time() -> Iterator[CycleTime]:
    made = CycleTime()
    member = Clockwork(made._now_ps)
    made._add(member)
    yield made
    made._remove(member)


def wait_for(timeline: CycleTime | WallTime, ready: Callable[[], bool], until: int | None) -> bool:
    with timeline.lock:
        return timeline._block(ready, until)


def test_time_jumps_to_what_is_due(cycle_time):
    hour = 3600 * 10**6 * US
    member = Clockwork(cycle_time._now_ps, 5 * US, 5 * US, hour)
    cycle_time._add(member)
    assert wait_for(cycle_time, lambda: len(member.done) == 3, None)
    assert member.done[0] == member.done[1] == -(-5 * US // CYCLE_PS) * CYCLE_PS
    assert cycle_time.cycles == hour // CYCLE_PS
    assert member.cycles == 0
    cycle_time._remove(member)


def test_it_jumps_to_the_end_of_a_wait(cycle_time):
    assert not wait_for(cycle_time, lambda: False, 10**9 * US)
    assert cycle_time._now_ps() == 10**9 * US


def test_devices_run_in_turn_until_they_rest(cycle_time):
    members = [Clockwork(cycle_time._now_ps), Clockwork(cycle_time._now_ps)]
    members[0].work, members[1].work = 10 * PERIOD, 3 * PERIOD
    for member in members:
        cycle_time._add(member)
    assert not wait_for(cycle_time, lambda: False, 100 * PERIOD * CYCLE_PS)
    assert [member.cycles for member in members] == [10 * PERIOD, 3 * PERIOD]
    assert cycle_time.cycles == 100 * PERIOD
    for member in members:
        cycle_time._remove(member)


def test_it_tells_its_cycles_and_cards(cycle_time):
    member = Clockwork(cycle_time._now_ps)
    cycle_time._add(member)
    wait_for(cycle_time, lambda: False, 3 * PERIOD * CYCLE_PS)
    assert repr(cycle_time) == f"<CycleTime: {3 * PERIOD} cycles, 2 cards>"
    cycle_time._remove(member)
    assert repr(cycle_time) == f"<CycleTime: {cycle_time.cycles} cycles, 1 cards>"


def test_no_time_passes_while_a_thread_that_waited_does_something(cycle_time, monkeypatch):
    monkeypatch.setattr(timeline, "PATIENCE", 4000)  # however busy the machine is
    seen = []

    def other() -> None:
        for _ in range(5):
            wait_for(cycle_time, lambda: False, cycle_time._now_ps() + US)
            before = cycle_time.cycles
            time.sleep(0.03)
            seen.append(cycle_time.cycles - before)

    thread = threading.Thread(target=other)
    thread.start()
    wait_for(cycle_time, lambda: not thread.is_alive(), 1000 * US)
    thread.join()
    assert seen == [0] * 5


def test_a_thread_that_stays_away_is_not_waited_for(cycle_time):
    away, back = threading.Event(), threading.Event()

    def other() -> None:
        wait_for(cycle_time, lambda: False, US)
        away.set()
        back.wait(30)

    thread = threading.Thread(target=other)
    thread.start()
    assert away.wait(30)
    assert not wait_for(cycle_time, lambda: False, 1000 * US)
    back.set()
    thread.join()


def test_no_time_passes_while_nobody_waits(cycle_time):
    member = Clockwork(cycle_time._now_ps, 1000 * US)
    cycle_time._add(member)
    server = threading.Thread(target=serve_once, args=(cycle_time, member))
    server.start()
    time.sleep(0.3)
    assert cycle_time.cycles == 0
    assert not wait_for(cycle_time, lambda: False, 2000 * US)
    server.join()
    cycle_time._remove(member)


def serve_once(timeline: CycleTime, member: Clockwork) -> None:
    """The thread of a driver: it needs no time of its own."""
    with timeline.lock:
        timeline._block(lambda: bool(member.done), None, server=member)


def test_a_thread_in_pause_waits_and_looks_again_before_time_goes_on(cycle_time):
    """What its server did at a time is seen at that time."""
    member = Clockwork(cycle_time._now_ps, *(US * n for n in range(1, 20)))
    cycle_time._add(member)
    told = threading.Condition()
    seen: list[int] = []
    over = False

    def server() -> None:
        served = 0
        while served < 19:
            with cycle_time.lock:
                cycle_time._block(lambda n=served: len(member.done) > n, server=member)  # type: ignore[misc]
            served = len(member.done)
            with told:
                told.notify_all()

    def program() -> None:
        with told:
            while not over and len(seen) < 19:
                with cycle_time._pause(member):
                    told.wait()
                seen.append(cycle_time._now_ps())

    threads = [threading.Thread(target=server), threading.Thread(target=program)]
    threads[0].start()
    time.sleep(0.05)
    threads[1].start()
    for thread in threads:
        thread.join(30)
    over = True
    assert seen == member.done
    cycle_time._remove(member)


def test_without_a_member_waits_end(cycle_time):
    lonely = CycleTime()
    member = Clockwork(lonely._now_ps)
    lonely._add(member)
    result = []
    thread = threading.Thread(target=lambda: result.append(wait_for(lonely, lambda: False, None)))
    thread.start()
    time.sleep(0.05)
    lonely._remove(member)
    thread.join(10)
    assert result == [False]


def test_the_walls_time_serves_what_is_due():
    timeline = WallTime()
    start = timeline._now_ps()
    member = Clockwork(timeline._now_ps, start + 20_000 * US, start + 50_000 * US)
    timeline._add(member)
    assert wait_for(timeline, lambda: len(member.done) == 2, None)
    assert timeline._now_ps() - start >= 50_000 * US
    assert not wait_for(timeline, lambda: False, timeline._now_ps() + 10_000 * US)
    with timeline._pause(member):
        pass
    timeline._remove(member)


def test_the_walls_time_looks_at_what_changed():
    timeline = WallTime()
    member = Clockwork(timeline._now_ps)
    timeline._add(member)
    time.sleep(0.05)
    with timeline.lock:
        member.due.append(0)
        timeline._changed()
        assert timeline._block(lambda: bool(member.done), timeline._now_ps() + 10**7 * US)
    timeline._remove(member)


class Restless(Clockwork):
    """A member that always has something to do."""

    def serve(self) -> bool:
        self.cycles += 1
        return True


def test_a_card_that_is_never_done_holds_up_no_thread():
    wall = WallTime()
    member = Restless(wall._now_ps)
    wall._add(member)
    try:
        # The lock is had again and again, while the card goes on being served.
        for least in (1, 1000, 10_000):
            until = time.monotonic() + 30
            while True:
                with wall.lock:
                    if member.cycles >= least:
                        break
                assert time.monotonic() < until
    finally:
        wall._remove(member)
