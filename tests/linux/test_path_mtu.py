"""The path takes shorter packets than before: a router in Linux says so, and both ends follow."""

from pathlib import Path

import pytest

from tests.linux.network import ROUTER_LINK, TAP, ip, network
from tests.linux.ours import Opener
from tests.linux.traffic import FROM_LINUX, TO_LINUX, Sending, close_both, exchange, joined, known

KB = 1000
HEADERS = 40  # of IPv4 and TCP without options
WIRES = {"good": "", "2 % lost": "&loss=0.02&seed=7"}


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_the_path_to_linux_gets_narrower(opener: Opener, tmp_path: Path, wire: str):
    with network(opener, tmp_path, wire, routed=True) as net:
        stream, theirs = joined(net, listens=False, receive_buffer=32 << 10)
        exchange(net, stream, theirs, 100 * KB, 100 * KB)
        assert stream.maximum_segment_size == 1500 - HEADERS
        for turn, mtu in enumerate((1200, 800)):
            seed = TO_LINUX + turn
            sending = Sending(stream, known(seed, 500 * KB))
            # In the middle of the stream: Linux has not read, and no more is under way.
            net.linux("wait_info", of=theirs, name="rcv_wnd", most=0)
            ip("link", "set", ROUTER_LINK, "mtu", str(mtu))
            assert net.linux("receive", of=theirs, seed=seed, count=500 * KB) == "equal"
            sending.result()
            assert stream.maximum_segment_size == mtu - HEADERS
        close_both(net, stream, theirs)


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_the_path_from_linux_gets_narrower(opener: Opener, tmp_path: Path, wire: str):
    with network(opener, tmp_path, wire, routed=True) as net:
        stream, theirs = joined(net, listens=True)
        exchange(net, stream, theirs, 100 * KB, 100 * KB)
        for turn, mtu in enumerate((1200, 800)):
            seed = FROM_LINUX + turn
            sending = net.linux.start("send", of=theirs, seed=seed, count=1000 * KB)
            net.linux("wait_info", of=theirs, name="snd_wnd", most=0)
            ip("link", "set", TAP, "mtu", str(mtu))
            assert stream.receive_exactly(1000 * KB) == known(seed, 1000 * KB)
            sending.result()
            assert net.linux("info", of=theirs)["pmtu"] == mtu
        close_both(net, stream, theirs)


@pytest.mark.parametrize("listens", [True, False], ids=["Linux opens", "we open"])
def test_the_path_was_narrow_before(opener: Opener, tmp_path: Path, listens: bool):
    with network(opener, tmp_path, routed=True) as net:
        ip("link", "set", ROUTER_LINK, "mtu", "1000")
        stream, theirs = joined(net, listens=listens)
        exchange(net, stream, theirs, 100 * KB, 100 * KB)
        assert stream.maximum_segment_size == 1000 - HEADERS
        close_both(net, stream, theirs)


@pytest.mark.parametrize("mtu", [576, 1400])
def test_our_link_is_narrower(opener: Opener, tmp_path: Path, mtu: int):
    with network(opener, tmp_path, f"&mtu={mtu}") as net:
        stream, theirs = joined(net, listens=True)
        exchange(net, stream, theirs, 100 * KB, 100 * KB)
        assert stream.maximum_segment_size == mtu - HEADERS
        close_both(net, stream, theirs)
