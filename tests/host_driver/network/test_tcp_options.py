"""Options of a SYN: what is read, what is passed over, and what is sent."""

import pytest

from stagecoach.host_driver.network import ethernet, ipv4, tcp, tcp_options
from stagecoach.host_driver.network.tcp_options import SynOptions
from tests.host_driver.network.frames import FRAMES


def options(name: str) -> SynOptions:
    frame = FRAMES[name]
    segment = tcp.decode(ipv4.decode(ethernet.decode(frame, frame[:6]).payload))
    return tcp_options.decode(segment.options)


@pytest.mark.requirement("TCP-MUST-5", "TCP-MUST-6", "TCP-MUST-7", "TCP-MUST-14")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("syn-mss-only", SynOptions(1460)),
        ("syn-linux-options", SynOptions(1460, 10, True)),
        ("syn-no-options", SynOptions()),
        ("syn-odd-alignment", SynOptions(1400, 7)),
        ("synack-mss-ws", SynOptions(1460, 7)),
        ("bad-option-length-0", SynOptions(illegal=True)),
        ("bad-option-overrun", SynOptions(illegal=True)),
    ],
)
def test_options_of_the_vectors(name, expected):
    assert options(name) == expected


@pytest.mark.requirement("WS-2.3-03")
@pytest.mark.parametrize(
    ("octets", "expected"),
    [
        ("02040218 030316", SynOptions(0x218, 14)),  # a shift above 14
        ("020302 030302", SynOptions(None, 2)),  # wrong length: passed over (odd-segments-b)
        ("fe0401020204ffff", SynOptions(65535)),
        ("00020405b4", SynOptions()),
        ("020405b4 02", SynOptions(1460, illegal=True)),
        ("020405b4 03", SynOptions(1460, illegal=True)),
    ],
)
def test_options_in_literal_octets(octets, expected):
    assert tcp_options.decode(bytes.fromhex(octets)) == expected


@pytest.mark.parametrize(
    ("sent", "octets"),
    [
        (SynOptions(1460), "020405b4"),
        (SynOptions(1460, 3), "020405b4 01030303"),
        (SynOptions(1460, 3, True), "020405b4 01030303 01010402"),
    ],
)
def test_options_that_are_sent(sent, octets):
    assert sent.encode() == bytes.fromhex(octets)
    assert tcp_options.decode(sent.encode()) == sent
