"""The order in which FPDUs arrive at several connections."""

import random
from collections import deque
from itertools import groupby, pairwise

import pytest

from bench.arrivals import InRuns, Interleaved

OCTETS = 20


class Llp:
    """What arrives at the LLP; `release` is what the device does with the oldest of it."""

    def __init__(self):
        self.llp = self
        self.received = []
        self.at_hand = deque()
        self.positions = {}

    def watch(self, channel, names, handler):
        assert (channel, names) == ("llp__rx_release_", "connection position")
        self.released = handler

    def receive(self, connection, fpdu):
        self.received.append((connection, fpdu))
        self.at_hand.append((connection, len(fpdu)))

    def release(self):
        connection, octets = self.at_hand.popleft()
        self.positions[connection] = self.positions.get(connection, 0) + octets
        self.released(connection, self.positions[connection])


def fpdus(connections, each):
    """Each FPDU has the number of its connection and its own."""
    return {
        connection: deque(bytes([connection, number]) * (OCTETS // 2) for number in range(each))
        for connection in range(connections)
    }


def test_interleaved_connections_take_turns():
    llp = Llp()
    Interleaved(llp, llp, fpdus(3, 4)).begin(2)
    assert [connection for connection, _ in llp.received] == [0, 1, 2, 0, 1, 2]
    while llp.at_hand:
        llp.release()
    assert [connection for connection, _ in llp.received] == [0, 1, 2] * 4


def test_connection_that_releases_nothing_gets_no_more():
    llp = Llp()
    Interleaved(llp, llp, fpdus(2, 3)).begin(1)
    for _ in range(3):
        llp.at_hand = deque(sorted(llp.at_hand, reverse=True))  # connection 1 first
        llp.release()
    assert [connection for connection, _ in llp.received] == [0, 1, 1, 1]


@pytest.fixture
def runs():
    llp = Llp()
    InRuns(llp, llp, fpdus(16, 80), 8, random.Random(1)).begin(64)
    assert len(llp.at_hand) == 64
    while llp.at_hand:
        llp.release()
        assert len(llp.at_hand) <= 64
    return llp.received


def test_all_of_the_runs_arrive_in_the_order_of_their_connection(runs):
    for connection in range(16):
        numbers = [fpdu[1] for each, fpdu in runs if each == connection]
        assert numbers == list(range(80))


def test_runs_are_whole_and_of_one_connection(runs):
    lengths = [len(list(run)) for _, run in groupby(connection for connection, _ in runs)]
    assert {length % 8 for length in lengths} == {0}


def test_connections_have_their_runs_in_random_order(runs):
    order = [connection for connection, _ in runs[::8]]
    assert len(order) == 160
    rounds = [order[at : at + 16] for at in range(0, 64, 16)]
    assert all(first != second for first, second in pairwise(rounds))


def test_connection_has_one_run_at_a_time():
    llp = Llp()
    InRuns(llp, llp, fpdus(16, 80), 8, random.Random(1)).begin(64)
    assert len({connection for connection, _ in llp.received}) == 8
