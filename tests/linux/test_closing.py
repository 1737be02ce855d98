"""The ends of a connection: half closed, both at once, by RST."""

from pathlib import Path

import pytest

from stagecoach.host_driver.network.errors import ConnectionReset
from stagecoach.host_driver.transport.base import StreamClosed
from tests.linux.network import OURS, network
from tests.linux.ours import Opener
from tests.linux.peer import LinuxError
from tests.linux.traffic import (
    FROM_LINUX,
    PORT,
    TO_LINUX,
    Sending,
    close_both,
    exchange,
    joined,
    known,
)
from tests.sim.capture.tshark import tcp_fields

KB = 1000
ATTEMPTS = 10
FIN = 0x01
_CLOSE = 7  # TCP_CLOSE of linux/tcp_states.h
WIRES = {"good": "", "10 % lost": "&loss=0.1&seed=5"}


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_linux_closes_its_half_and_gets_the_rest(opener: Opener, tmp_path: Path, wire: str):
    with network(opener, tmp_path, wire) as net:
        stream, theirs = joined(net, listens=True)
        net.linux("send", of=theirs, seed=FROM_LINUX, count=50 * KB)
        net.linux("shutdown", of=theirs)
        assert stream.receive_exactly(50 * KB) == known(FROM_LINUX, 50 * KB)
        with pytest.raises(StreamClosed):
            stream.receive_exactly(1)
        sending = Sending(stream, known(TO_LINUX, 100 * KB))
        received = net.linux("receive", of=theirs, seed=TO_LINUX, count=100 * KB)
        assert received == "equal"
        sending.result()
        stream.shutdown()
        assert net.linux("receive_end", of=theirs) == 0
        stream.wait_end()


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_we_close_our_half_and_get_the_rest(opener: Opener, tmp_path: Path, wire: str):
    with network(opener, tmp_path, wire) as net:
        stream, theirs = joined(net, listens=False)
        stream.sendall(known(TO_LINUX, 50 * KB))
        stream.shutdown()
        assert net.linux("receive", of=theirs, seed=TO_LINUX, count=50 * KB) == "equal"
        assert net.linux("receive_end", of=theirs) == 0
        sending = net.linux.start("send", of=theirs, seed=FROM_LINUX, count=100 * KB)
        if net.ours.half_closes:
            assert stream.receive_exactly(100 * KB) == known(FROM_LINUX, 100 * KB)
        sending.result()
        net.linux("shutdown", of=theirs)
        with pytest.raises(StreamClosed):
            stream.receive_exactly(1)
        stream.wait_end()
        # Each octet was acknowledged, whether somebody read it or not.
        net.linux("wait_info", of=theirs, name="state", least=_CLOSE, most=_CLOSE)


@pytest.mark.parametrize("wire", ["&delay_us=100000", "&delay_us=20000&loss=0.1&seed=6"])
def test_both_close_at_once(opener: Opener, tmp_path: Path, wire: str):
    # Each FIN is under way while the other one is sent, unless the machine stands still.
    for _ in range(ATTEMPTS):
        with network(opener, tmp_path, wire) as net:
            stream, theirs = joined(net, listens=True)
            exchange(net, stream, theirs, 5 * KB, 5 * KB)
            close_both(net, stream, theirs)
            net.ours.close()
            if fins_crossed(net.capture):
                return
    pytest.fail(f"FINs did not cross in {ATTEMPTS} attempts")


def fins_crossed(capture: Path) -> bool:
    """Whether neither end acknowledged the other's FIN in its own first one."""
    fins: dict[int, tuple[int, int]] = {}
    for port, sequence, acknowledged, octets, flags in tcp_fields(capture):
        if flags & FIN:
            fins.setdefault(port, (sequence + octets + 1, acknowledged))
    (end, acknowledged), (other_end, other_acknowledged) = fins.values()
    return (acknowledged - other_end) % 2**32 != 0 and (other_acknowledged - end) % 2**32 != 0


@pytest.mark.parametrize("seed", [2, 4])
def test_many_ends_are_lost(opener: Opener, tmp_path: Path, seed: int):
    with network(opener, tmp_path, f"&loss=0.2&seed={seed}") as net:
        listener = net.ours.listen(PORT)
        begun = [net.linux("begin", host=OURS, port=PORT) for _ in range(6)]
        for theirs in begun:
            net.linux("established", of=theirs)
            # Acknowledges our SYN soon, if its ACK was lost.
            net.linux("send", of=theirs, seed=FROM_LINUX, count=KB)
        streams = [listener.accept() for _ in begun]
        for stream in streams:
            stream.sendall(known(TO_LINUX, KB))
            assert stream.receive_exactly(KB) == known(FROM_LINUX, KB)
        for theirs in begun:
            assert net.linux("receive", of=theirs, seed=TO_LINUX, count=KB) == "equal"
        # Some are closed by us first, some by Linux.
        for stream in streams[::2]:
            stream.shutdown()
        for theirs in begun:
            net.linux("shutdown", of=theirs)
        for stream in streams[1::2]:
            stream.shutdown()
        for stream in streams:
            stream.wait_end()
        for theirs in begun:
            assert net.linux("receive_end", of=theirs) == 0


def test_our_rst_ends_linux_connection(opener: Opener, tmp_path: Path):
    with network(opener, tmp_path) as net:
        stream, theirs = joined(net, listens=True)
        exchange(net, stream, theirs, 5 * KB, 5 * KB)
        receiving = net.linux.start("receive_end", of=theirs)
        stream.abort()
        with pytest.raises(LinuxError, match="ConnectionResetError"):
            receiving.result()


def test_the_rst_of_linux_ends_our_connection(opener: Opener, tmp_path: Path):
    with network(opener, tmp_path) as net:
        stream, theirs = joined(net, listens=True)
        exchange(net, stream, theirs, 5 * KB, 5 * KB)
        net.linux("abort", of=theirs)
        with pytest.raises(ConnectionReset):
            stream.receive_exactly(1)
        with pytest.raises(ConnectionReset):
            stream.wait_end()


def test_linux_closes_without_reading_what_it_got(opener: Opener, tmp_path: Path):
    with network(opener, tmp_path) as net:
        stream, theirs = joined(net, listens=False)
        sending = Sending(stream, known(TO_LINUX, 5_000 * KB))
        net.linux("wait_info", of=theirs, name="rcv_wnd", most=0)
        net.linux("close", of=theirs)
        with pytest.raises(ConnectionReset):
            sending.result()


def test_we_close_without_reading_what_we_got(opener: Opener, tmp_path: Path):
    with network(opener, tmp_path) as net:
        stream, theirs = joined(net, listens=False)
        sending = net.linux.start("send", of=theirs, seed=FROM_LINUX, count=5_000 * KB)
        net.linux("wait_info", of=theirs, name="snd_wnd", most=0)
        stream.close()
        with pytest.raises(LinuxError, match=r"ConnectionResetError|BrokenPipeError"):
            sending.result()
