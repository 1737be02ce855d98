"""CQ.stream on the whole device: cancelled waits lose no completion and leave no thread."""

import asyncio

import pytest

from stagecoach.host_driver import CompChannel, Context
from stagecoach.sim.cosim.streams import seeded_random
from tests.host_driver.waiting_device import no_watcher_is_left
from tests.integration.rig import open_device
from tests.integration.test_comp_channel import MESSAGES, RECEIVES, SECONDS, Stream

pytestmark = pytest.mark.timeout(150)  # the first test may have to build the device


def test_waits_that_are_cancelled_lose_nothing():
    with open_device() as context:
        asyncio.run(asyncio.wait_for(_cancelled_waits(context), SECONDS))
        assert no_watcher_is_left()


async def _cancelled_waits(context: Context) -> None:
    rng = seeded_random()
    stream = Stream(context, CompChannel(context))
    for number in range(RECEIVES):
        stream.post(number)
    cancelled = 0

    async def send() -> None:
        sent = stream.active.cq.stream()
        for number in range(MESSAGES):
            while number - len(stream.found) >= RECEIVES:
                await asyncio.sleep(0)
            stream.send(number)
            assert (await anext(sent)).wr_id == number
            await asyncio.sleep(rng.choice([0.0, 0.0, 0.001]))

    sending = asyncio.create_task(send())
    received = stream.passive.cq.stream()
    while len(stream.found) < MESSAGES:
        task = asyncio.create_task(anext(received))
        done, _ = await asyncio.wait([task], timeout=rng.choice([0.0, 0.0005, 0.002]))
        if not done:
            task.cancel()
        try:
            stream.found.append((await task).wr_id)
        except asyncio.CancelledError:
            cancelled += 1
            continue
        stream.post(len(stream.found) + RECEIVES - 1)
    await sending
    assert stream.found == list(range(MESSAGES))
    assert cancelled
    stream.close()
