"""A lock whose waiting threads let simulated time pass."""

import itertools
import threading
from collections.abc import Iterator

import pytest

from stagecoach.sim.network import timeline
from stagecoach.sim.network.cycle_lock import CycleLock
from stagecoach.sim.network.timeline import CycleTime
from tests.sim.network.test_timeline import Clockwork

MS_PS = 10**9

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Iterator[CycleTime]:
    monkeypatch.setattr(timeline, "PATIENCE", 10**9)  # a thread that is waited for stops all
    made = CycleTime()
    member = Clockwork(made._now_ps)
    made._add(member)
    yield made
    made._remove(member)


def sleep(time: CycleTime, milliseconds: int) -> None:
    with time.lock:
        time._block(lambda: False, time._now_ps() + milliseconds * MS_PS)


def run(*targets: object) -> None:
    threads = [threading.Thread(target=target) for target in targets]  # type: ignore[arg-type]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_time_passes_for_who_has_it_while_others_wait_for_it(time: CycleTime) -> None:
    lock = CycleLock(time)
    held: list[tuple[int, int]] = []

    def hold() -> None:
        with lock, lock:
            begin = time._now_ps()
            sleep(time, 50)
            held.append((begin, time._now_ps()))

    run(*[hold] * 5)
    assert all(end - begin >= 50 * MS_PS for begin, end in held)
    # One after the other, and nothing passes between two of them.
    assert all(after[0] == before[1] for before, after in itertools.pairwise(held))


def test_who_came_first_gets_it_first(time: CycleTime) -> None:
    lock = CycleLock(time)
    order: list[int] = []

    def take(number: int) -> None:
        sleep(time, 1 + number)
        with lock:
            order.append(number)
            sleep(time, 10)

    run(*[lambda number=number: take(number) for number in range(6)])
    assert order == list(range(6))


def test_a_condition_gives_it_back_while_it_waits(time: CycleTime) -> None:
    lock = CycleLock(time)
    condition = threading.Condition(lock)  # type: ignore[arg-type]
    server = object()
    seen: list[int] = []
    done = threading.Event()

    def wait() -> None:
        with lock, condition:
            while not seen:
                with time._pause(server):
                    condition.wait()
            seen.append(2)
            assert not lock.acquire(blocking=False) or lock.release() is None
        done.set()

    def serve() -> None:
        for _ in range(20):
            with time.lock:
                time._block(lambda: False, time._now_ps() + MS_PS, server=server)
            with lock:
                # In the middle of what it does for the other thread it waits for a register.
                sleep(time, 3)
                condition.notify_all()
        with lock:
            seen.append(1)
            condition.notify_all()

    run(wait, serve)
    assert done.is_set()
    assert seen == [1, 2]


def test_who_does_not_have_it_cannot_give_it_back(time: CycleTime) -> None:
    lock = CycleLock(time)
    with pytest.raises(RuntimeError, match="does not have the lock"):
        lock.release()
    with pytest.raises(ValueError, match="timeout is 1; allowed: none"):
        lock.acquire(timeout=1)
    with lock:
        taken: list[bool] = []
        run(lambda: taken.append(lock.acquire(blocking=False)))
        assert taken == [False]


def test_it_works_without_a_card() -> None:
    time = CycleTime()
    lock = CycleLock(time)
    order: list[str] = []

    def second() -> None:
        with lock:
            order.append("second")

    with lock:
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.1)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]
