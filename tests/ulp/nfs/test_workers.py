"""Threads for file operations, and who gets them."""

import asyncio
import os
import threading

import pytest

from stagecoach.ulp.nfs.server.workers import Workers

SECONDS = 10.0


class Gate:
    """Work that waits until it is let through; `begun` are the clients whose work has."""

    def __init__(self):
        self.begun = []
        self._passes = threading.Semaphore(0)

    def work(self, client):
        self.begun.append(client)
        assert self._passes.acquire(timeout=SECONDS)
        return client

    def let_one_through(self):
        self._passes.release()

    def open(self):
        self._passes.release(1000)


async def until(condition):
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.002)


def with_workers(work, threads=4):
    workers, gate = Workers(threads), Gate()

    async def run():
        await work(
            workers, gate, lambda name: asyncio.ensure_future(workers.run(name, gate.work, name))
        )

    try:
        asyncio.run(run())
    finally:
        gate.open()
        workers.close()


def test_results_and_errors():
    async def work(workers, gate, ask):
        assert await workers.run("", divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await workers.run("", divmod, 7, 0)

    with_workers(work)


def test_a_client_has_half_of_the_threads_and_others_their_turn():
    async def work(workers, gate, ask):
        tasks = [ask("greedy") for _ in range(20)]
        await until(lambda: len(gate.begun) == 2)
        tasks += [ask("modest") for _ in range(1)]
        tasks += [ask("other") for _ in range(3)]
        await until(lambda: len(gate.begun) == 4)
        await asyncio.sleep(0.02)
        assert gate.begun == ["greedy", "greedy", "modest", "other"]
        # Whosever work ends first, those who asked later have their turn among the next four.
        for begun in range(5, 9):
            gate.let_one_through()
            await until(lambda begun=begun: len(gate.begun) == begun)
        assert gate.begun.count("other") == 3
        gate.open()
        await asyncio.gather(*tasks)

    with_workers(work)


def test_threads_are_started_as_they_are_needed():
    async def work(workers, gate, ask):
        assert workers._threads == []
        for _ in range(5):
            await workers.run("", int)
            await until(lambda: workers._idle == len(workers._threads))
        assert len(workers._threads) == 1
        tasks = [ask(number) for number in range(4)]
        await until(lambda: len(gate.begun) == 4)
        gate.open()
        await asyncio.gather(*tasks)

    with_workers(work)


def test_cancelled_work_that_has_not_begun_never_does():
    async def work(workers, gate, ask):
        tasks = [ask("client") for _ in range(6)]
        await until(lambda: len(gate.begun) == 2)
        for task in tasks:
            task.cancel()
        _, pending = await asyncio.wait(tasks, timeout=0.05)
        assert len(pending) == 2  # whose threads are at work
        gate.open()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert all(task.cancelled() for task in tasks)
        assert await workers.run("client", int) == 0
        assert len(gate.begun) == 2
        await until(lambda: not workers._busy)  # told after the result
        assert not workers._waiting and not workers._pending

    with_workers(work)


def test_the_umask_of_the_threads_is_their_own():
    async def work(workers, gate, ask):
        assert await workers.run("", os.umask, 0) == 0
        assert workers.umask == 0o027

    before = os.umask(0o027)
    try:
        with_workers(work)
    finally:
        assert os.umask(before) == 0o027


def test_closed_workers_take_nothing():
    workers = Workers()
    workers.close()
    workers.close()
    with pytest.raises(RuntimeError, match="the threads are closed"):
        asyncio.run(workers.run("", int))
    with pytest.raises(ValueError, match="threads is 1; allowed: 2 or more"):
        Workers(1)
