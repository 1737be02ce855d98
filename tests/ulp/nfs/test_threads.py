"""What is cancelled while a thread works ends after the thread."""

import asyncio
import threading

import pytest

from stagecoach.ulp.nfs.threads import in_thread


def test_result_and_error():
    async def run():
        assert await in_thread(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await in_thread(divmod, 7, 0)

    asyncio.run(run())


@pytest.mark.parametrize("fails", [False, True])
def test_cancelled_work_ends_first(fails):
    begun, go_on, ended = (threading.Event() for _ in range(3))

    def work():
        begun.set()
        go_on.wait(10)
        ended.set()
        if fails:
            raise OSError("nobody asks for this")

    async def run():
        task = asyncio.create_task(in_thread(work))
        await asyncio.to_thread(begun.wait, 10)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.02)
            assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    asyncio.run(run())
