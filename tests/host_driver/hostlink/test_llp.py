"""The kernel's TCP as LLP of a board keeps what the window allows, whatever the board sends."""

import selectors
import socket

import pytest

from stagecoach.host_driver.hostlink.llp import TRANSMIT_OCTETS, KernelLlp
from stagecoach.host_driver.transport.base import TransportError
from stagecoach.hw.interface.hostlink import SEND_CLOSE, SEND_LAST
from stagecoach.hw.interface.llp import CLOSE_OCTETS

NUMBER = 3
WINDOW = TRANSMIT_OCTETS


class Bench:
    """A connection whose peer takes what is sent; `events` are those that the device was told."""

    def __init__(self) -> None:
        self.events: list[tuple[int, int, int]] = []
        self._selector = selectors.DefaultSelector()
        self.llp = KernelLlp(self._selector, lambda *event: self.events.append(event))
        mine, self.peer = socket.socketpair()
        self.llp.attach(NUMBER, mine.detach())
        self.llp.serve()

    def close(self) -> None:
        self.llp.close()
        self.peer.close()
        self._selector.close()


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    bench.close()


@pytest.mark.parametrize("octets", [8, 255])
def test_an_fpdu_that_never_ends_is_an_error(bench, octets):
    parts = 0
    with pytest.raises(TransportError) as refused:
        for _ in range(2 * WINDOW):
            bench.llp.take_send(NUMBER, bytes(octets), 0)
            parts += 1
    assert parts * octets <= WINDOW + CLOSE_OCTETS < (parts + 1) * octets
    told = f"the device has sent {(parts + 1) * octets} bytes on connection {NUMBER}; allowed: "
    assert str(refused.value).startswith(f"{told}{WINDOW}, ")


def test_fpdus_past_the_window_are_an_error(bench):
    """The peer takes nothing, so that no more is granted."""
    fpdu = bytes(1 << 15)
    for _ in range(WINDOW // len(fpdu)):
        bench.llp.take_send(NUMBER, fpdu, SEND_LAST)
    with pytest.raises(TransportError, match=f"allowed: {WINDOW}, and {CLOSE_OCTETS} with the"):
        bench.llp.take_send(NUMBER, fpdu, SEND_LAST)


def test_a_terminate_may_stand_behind_the_window(bench):
    bench.llp.take_send(NUMBER, bytes(WINDOW), SEND_LAST)
    bench.llp.take_send(NUMBER, bytes(CLOSE_OCTETS - 40), 0)
    bench.llp.take_send(NUMBER, bytes(40), SEND_LAST | SEND_CLOSE)
    taken = 0
    while octets := bench.peer.recv(1 << 20):
        taken += len(octets)
        bench.llp.ready(NUMBER, selectors.EVENT_WRITE)
    assert taken == WINDOW + CLOSE_OCTETS


def test_the_window_goes_on_with_what_the_peer_takes(bench):
    sent = 0
    while sent < 4 * WINDOW:
        bench.llp.take_send(NUMBER, bytes(1000), 0)
        bench.llp.take_send(NUMBER, bytes(460), SEND_LAST)
        sent += 1460
        assert len(bench.peer.recv(1460, socket.MSG_WAITALL)) == 1460
        bench.llp.serve()
        bench.llp.take_taken(len(bench.events) & 0xFF)
