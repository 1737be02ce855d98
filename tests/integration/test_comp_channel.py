"""CompChannel on the whole device: no completion is lost, whenever it comes."""

import selectors
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from stagecoach.host_driver import CompChannel, Context, RecvWR, SendWR
from stagecoach.host_driver.transport.sockets import SocketStream
from stagecoach.sim.cosim.streams import seeded_random
from tests.integration.rig import READS, End, open_device

pytestmark = pytest.mark.timeout(150)  # the first test may have to build the device

SECONDS = 20.0
MESSAGES = 60
RECEIVES = 8


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    with open_device() as context:
        yield context


class Stream:
    """A QP whose CQ notifies in a channel, and the QP that sends to it."""

    def __init__(self, context: Context, channel: CompChannel):
        self.active, self.passive = End(context), End(context, channel=channel)
        ours, theirs = socket.socketpair()
        options = {"crc": True, "ord": READS, "ird": READS, "emss": 1460}
        self.passive.qp.connect(SocketStream(ours), initiator=False, **options)
        self.active.qp.connect(SocketStream(theirs), initiator=True, **options)
        self.found: list[int] = []

    def post(self, number: int) -> None:
        self.passive.qp.post_recv(RecvWR(number, [self.passive.element(0, 64)]))

    def send(self, number: int) -> None:
        self.active.qp.post_send(SendWR(number, sg=[self.active.element(0, 64)]))

    def take(self) -> None:
        """Takes what is there, and posts a receive for each."""
        while completions := self.passive.cq.poll(3):
            for each in completions:
                self.post(len(self.found) + RECEIVES)
                self.found.append(each.wr_id)

    def close(self) -> None:
        self.active.close()
        self.passive.close()


@pytest.mark.parametrize("by_descriptor", [True, False], ids=["descriptor", "call"])
def test_two_streams_are_served_by_one_channel(context: Context, by_descriptor: bool):
    rng = seeded_random()
    with CompChannel(context) as channel, selectors.DefaultSelector() as selector:
        streams = [Stream(context, channel) for _ in range(2)]
        by_cq = {stream.passive.cq: stream for stream in streams}
        if by_descriptor:
            selector.register(channel, selectors.EVENT_READ)
        pauses = [rng.choice([0.0, 0.0, 0.001, 0.003]) for _ in range(MESSAGES)]

        def send() -> None:
            for number, pause in enumerate(pauses):
                for stream in streams:
                    while number - len(stream.found) >= RECEIVES:
                        time.sleep(0.0005)
                    stream.send(number)
                    stream.active.cq.poll()
                    # Takes out of the ring, as every call of another thread may.
                    assert stream.passive.qp.receives_posted <= RECEIVES
                time.sleep(pause)

        for stream in streams:
            for number in range(RECEIVES):
                stream.post(number)
            stream.passive.cq.req_notify()
        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        end = time.monotonic() + SECONDS
        while any(len(stream.found) < MESSAGES for stream in streams):
            assert time.monotonic() < end, [len(stream.found) for stream in streams]
            if by_descriptor:
                assert selector.select(SECONDS), "nothing is told"
            cq = channel.get_cq_event(timeout=0.0 if by_descriptor else SECONDS)
            # Polled before it is asked for: what comes between is in nobody's hands.
            by_cq[cq].take()
            cq.req_notify()
        sender.join()
        for stream in streams:
            assert stream.found == list(range(MESSAGES))
            stream.close()
