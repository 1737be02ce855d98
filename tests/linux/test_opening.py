"""Handshakes: refused, lost, crossing."""

from pathlib import Path

import pytest

from stagecoach.host_driver.network.errors import ConnectionRefused
from tests.linux.network import LINUX, OURS, network
from tests.linux.ours import Opener
from tests.linux.peer import LinuxError
from tests.linux.traffic import PORT, close_both, exchange, joined
from tests.sim.capture.tshark import fields

KB = 1000
ATTEMPTS = 10
SYN_ACK = 0x12


def test_a_port_of_linux_that_nobody_listens_at(opener: Opener, tmp_path: Path):
    with network(opener, tmp_path) as net, pytest.raises(ConnectionRefused):
        net.ours.open(net.linux_address, PORT)


def test_a_port_of_ours_that_nobody_listens_at(opener: Opener, tmp_path: Path):
    with network(opener, tmp_path) as net:
        with pytest.raises(LinuxError, match="ConnectionRefusedError"):
            net.linux.connect(OURS, PORT)
        # Also beside a port that is open.
        net.ours.listen(PORT)
        with pytest.raises(LinuxError, match="ConnectionRefusedError"):
            net.linux.connect(OURS, PORT + 1)


@pytest.mark.parametrize("listens", [True, False], ids=["Linux opens", "we open"])
@pytest.mark.parametrize("seed", [1, 2])
def test_segments_of_the_handshake_are_lost(
    opener: Opener, tmp_path: Path, listens: bool, seed: int
):
    with network(opener, tmp_path, f"&loss=0.2&seed={seed}") as net:
        stream, theirs = joined(net, listens=listens)
        exchange(net, stream, theirs, KB, KB)
        close_both(net, stream, theirs)


def test_many_connections_at_once(opener: Opener, tmp_path: Path):
    with network(opener, tmp_path) as net:
        listener = net.ours.listen(PORT)
        begun = [net.linux("begin", host=OURS, port=PORT) for _ in range(4)]
        for theirs in begun:
            net.linux("established", of=theirs)
        streams = [listener.accept() for _ in begun]
        # They are taken in the order of their SYN; each has octets of its own.
        for turn, (theirs, stream) in enumerate(zip(begun, streams, strict=True)):
            exchange(net, stream, theirs, 20 * KB, 20 * KB, turn=turn)
        for theirs, stream in zip(begun, streams, strict=True):
            close_both(net, stream, theirs)


def test_both_open_at_once(opener: Opener, tmp_path: Path):
    # The SYN of Linux is on the wire for half a second, in which we open. If the machine stood
    # still for so long, ours comes too late, both are refused, and we try again.
    with network(opener, tmp_path, "&rx_delay_us=500000") as net:
        with pytest.raises(ConnectionRefused):
            net.ours.open(net.linux_address, PORT)  # both know the other one's MAC address
        for attempt in range(ATTEMPTS):
            port = PORT + 1 + attempt
            theirs = net.linux("begin", host=OURS, port=port, local=port)
            try:
                stream = net.ours.open(net.linux_address, port, local_port=port)
            except ConnectionRefused:
                continue
            assert net.linux("established", of=theirs) == theirs
            break
        else:
            pytest.fail(f"SYNs did not cross in {ATTEMPTS} attempts")
        exchange(net, stream, theirs, 20 * KB, 20 * KB)
        close_both(net, stream, theirs)
        net.ours.close()
        rows = [row for row in fields(net.capture, "ip.src", "tcp.flags") if len(row) == 2]
        answered = {source for source, flags in rows if int(flags, 0) & SYN_ACK == SYN_ACK}
        # RFC 9293, Figure 8: each answers the other one's SYN.
        assert answered == {LINUX, OURS}
