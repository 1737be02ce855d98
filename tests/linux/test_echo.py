"""ARP and ICMP: what Linux asks is answered."""

from pathlib import Path

import pytest

from tests.linux.network import OURS, network
from tests.linux.ours import Opener

LONGEST = 1500 - 28  # headers of IPv4 and ICMP


@pytest.mark.parametrize("octets", [0, 1, 56, LONGEST])
def test_linux_pings_us(opener: Opener, tmp_path: Path, octets: int):
    with network(opener, tmp_path) as net:
        assert net.linux("ping", host=OURS, octets=octets) == "equal"
