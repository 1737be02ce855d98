"""Streams between Linux and us, over a good wire and over bad ones: every octet arrives."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.linux.expert import findings
from tests.linux.network import network
from tests.linux.ours import Opener
from tests.linux.traffic import Sending, close_both, exchange, exchange_in_turns, joined, known

MB = 1_000_000
# More than the receiver has to keep at once: a window that is full would be found by the expert.
BUFFER = 1 << 18
# At 50 Mbit/s frames queue on the wire, so that those that are late are overtaken.
DISORDER = "&reorder=0.05&duplicate=0.05&rate_gbps=0.05"


@pytest.mark.parametrize("listens", [True, False], ids=["Linux opens", "we open"])
def test_a_good_wire_carries_nothing_twice(opener: Opener, tmp_path: Path, listens: bool):
    with network(opener, tmp_path, f"&rx_ring={BUFFER}", patient=True) as net:
        stream, theirs = joined(net, listens=listens, receive_buffer=BUFFER)
        exchange_in_turns(net, stream, theirs, 10 * MB, 0)
        exchange_in_turns(net, stream, theirs, 0, 10 * MB)
        exchange_in_turns(net, stream, theirs, MB, MB)
        close_both(net, stream, theirs)
        net.ours.close()
        assert findings(net.capture) == {}


@pytest.mark.parametrize("piece", [100, 1000])
def test_short_segments_are_sent_again_in_longer_ones(opener: Opener, tmp_path: Path, piece: int):
    # Either end joins what it sends again, so that segments overlap.
    with network(opener, tmp_path, f"&loss=0.05&seed=9{DISORDER}") as net:
        stream, theirs = joined(net, listens=True)
        sending = net.linux.start("send", of=theirs, seed=1, count=100_000, piece=piece)
        receiving = net.linux.start("receive", of=theirs, seed=2, count=100_000)
        octets = known(2, 100_000)
        ours = Sending(stream, *(octets[at : at + piece] for at in range(0, len(octets), piece)))
        assert stream.receive_exactly(100_000) == known(1, 100_000)
        assert receiving.result() == "equal"
        ours.result()
        sending.result()
        close_both(net, stream, theirs)


@dataclass(frozen=True)
class Bad:
    """A bad wire: its options, octets each way, whether frames come late or twice."""

    wire: str
    octets: int
    disordered: bool = False


BAD = {
    "0.1 %": Bad("&loss=0.001&seed=1", 10 * MB),
    "1 %": Bad("&loss=0.01&seed=2", 2 * MB),
    "1 % corrupt": Bad("&corrupt=0.01&seed=4", MB),
    "5 %, disorder": Bad(f"&loss=0.05&seed=3{DISORDER}", MB, disordered=True),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize("listens", [True, False], ids=["Linux opens", "we open"])
def test_a_bad_wire_loses_no_octet(opener: Opener, tmp_path: Path, bad: Bad, listens: bool):
    with network(opener, tmp_path, bad.wire) as net:
        stream, theirs = joined(net, listens=listens)
        exchange(net, stream, theirs, bad.octets, 0)
        exchange(net, stream, theirs, 0, bad.octets)
        exchange(net, stream, theirs, bad.octets // 10, bad.octets // 10)
        close_both(net, stream, theirs)
        net.ours.close()
        # The expert sees what it is there to find on the good wire.
        seen = " ".join(findings(net.capture))
        assert "retransmission" in seen
        # Nothing is acknowledged that did not arrive, as far as tshark can read it.
        assert "corrupt" in bad.wire or "ACKed segment" not in seen
        if bad.disordered:
            assert "out-of-order" in seen
            assert "D-SACK" in seen  # Linux was sent something twice
