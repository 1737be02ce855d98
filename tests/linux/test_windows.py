"""Small windows, and windows of zero that probes have to get over."""

from pathlib import Path

import pytest

from tests.linux.network import network
from tests.linux.ours import Opener
from tests.linux.traffic import FROM_LINUX, TO_LINUX, Sending, close_both, exchange, joined, known

KB = 1000
WIRES = {"good": "", "5 % lost": "&loss=0.05&seed=4"}
# As many answers to probes show that the window was not opened by chance.
PROBES = 2


@pytest.mark.parametrize("octets", [1 << 10, 4 << 10, 16 << 10])
def test_a_small_window_of_linux(opener: Opener, tmp_path: Path, octets: int):
    with network(opener, tmp_path) as net:
        stream, theirs = joined(net, listens=True, receive_buffer=octets)
        exchange(net, stream, theirs, 200 * KB, 20 * KB)
        close_both(net, stream, theirs)


@pytest.mark.parametrize("octets", [500, 1460, 4 << 10, 16 << 10])
def test_a_small_window_of_ours(opener: Opener, tmp_path: Path, octets: int):
    with network(opener, tmp_path, window=octets) as net:
        stream, theirs = joined(net, listens=True)
        exchange(net, stream, theirs, 20 * KB, 200 * KB)
        close_both(net, stream, theirs)


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_a_window_of_linux_that_is_zero_for_long(opener: Opener, tmp_path: Path, wire: str):
    with network(opener, tmp_path, wire) as net:
        stream, theirs = joined(net, listens=True, receive_buffer=16 << 10)
        for turn in range(2):
            sending = Sending(stream, known(TO_LINUX + turn, 200 * KB))
            closed = net.linux("wait_info", of=theirs, name="rcv_wnd", most=0)
            least = closed["data_segs_in"] + PROBES
            net.linux("wait_info", of=theirs, name="data_segs_in", least=least)
            received = net.linux("receive", of=theirs, seed=TO_LINUX + turn, count=200 * KB)
            assert received == "equal"
            sending.result()
        close_both(net, stream, theirs)


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_a_window_of_ours_that_is_zero_for_long(opener: Opener, tmp_path: Path, wire: str):
    with network(opener, tmp_path, wire) as net:
        stream, theirs = joined(net, listens=True)
        for turn in range(2):
            seed = FROM_LINUX + turn
            sending = net.linux.start("send", of=theirs, seed=seed, count=1000 * KB)
            closed = net.linux("wait_info", of=theirs, name="snd_wnd", most=0)
            least = closed["segs_in"] + PROBES
            net.linux("wait_info", of=theirs, name="segs_in", least=least)
            assert stream.receive_exactly(1000 * KB) == known(seed, 1000 * KB)
            sending.result()
        close_both(net, stream, theirs)


def test_both_windows_are_zero_at_once(opener: Opener, tmp_path: Path):
    with network(opener, tmp_path) as net:
        stream, theirs = joined(net, listens=False, receive_buffer=16 << 10)
        ours = Sending(stream, known(TO_LINUX, 200 * KB))
        sending = net.linux.start("send", of=theirs, seed=FROM_LINUX, count=1000 * KB)
        net.linux("wait_info", of=theirs, name="rcv_wnd", most=0)
        closed = net.linux("wait_info", of=theirs, name="snd_wnd", most=0)
        least = closed["segs_in"] + PROBES
        net.linux("wait_info", of=theirs, name="segs_in", least=least)
        receiving = net.linux.start("receive", of=theirs, seed=TO_LINUX, count=200 * KB)
        assert stream.receive_exactly(1000 * KB) == known(FROM_LINUX, 1000 * KB)
        assert receiving.result() == "equal"
        ours.result()
        sending.result()
        close_both(net, stream, theirs)
