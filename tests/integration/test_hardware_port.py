"""The driver's port of the engine in gateware, on compiled NICs: streams that no QP has."""

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from stagecoach import (
    CQ,
    PD,
    QP,
    Context,
    CycleTime,
    QPCap,
    QPInitAttr,
    QPState,
    SimulatedNic,
    StreamClosed,
    TransportTimeout,
)
from stagecoach.host_driver.network.errors import ConnectionReset
from stagecoach.host_driver.network.hardware_port import HardwarePort
from stagecoach.host_driver.network.stream import NetworkListener, NetworkStream
from tests.integration.test_gateware_nic import Open, opened
from tests.support.compiled_nic import NIC_CONFIG

pytestmark = [pytest.mark.usefixtures("compiled_nic"), pytest.mark.timeout(300)]

__all__ = ["opened"]

Pair = tuple[SimulatedNic, SimulatedNic]
LOSSY = "&loss=0.01&duplicate=0.02&reorder=0.02&corrupt=0.01&delay_us=5"


@pytest.fixture(params=["cycle", "cycle-lossy", "wall"])
def pair(request: pytest.FixtureRequest, opened: Open) -> Pair:
    time = None if request.param == "wall" else CycleTime()
    return opened(time, LOSSY if request.param == "cycle-lossy" else "")


def streams(pair: Pair, listener: NetworkListener) -> tuple[NetworkStream, NetworkStream]:
    active = pair[0].connect("192.0.2.2", listener.address[1], 30)
    return active, listener.accept(30)


def background(work: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def settle(pair: Pair, listener: NetworkListener) -> None:
    """Let the time go on until the engines have no connection."""
    for _ in range(500):
        if not any(each.info for nic in pair for each in nic.stack.connections()):
            return
        with pytest.raises(TransportTimeout):
            listener.accept(0.01)
    raise AssertionError("connections do not end")


def ended(pair: Pair, listener: NetworkListener) -> list[dict[str, int]]:
    """How connections ended, once each driver has heard of one: after its engine has none."""
    found: list[dict[str, int]] = []
    for _ in range(500):
        found = [
            {name: count for name, count in nic.stack.counters.items() if "ended_" in name}
            for nic in pair
        ]
        if all(found):
            break
        with pytest.raises(TransportTimeout):
            listener.accept(0.01)
    return found


def test_numbers_are_used_again_and_nothing_of_the_last_connection_is_seen(pair):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    with pair[1].listen("", 0) as listener:
        for _ in range(2 * NIC_CONFIG.qps + 1):
            content = rng.randbytes(rng.randrange(1, 5000))
            active = pair[0].connect("192.0.2.2", listener.address[1], 30)
            # It leaves before the driver of the listener has given its engine the connection.
            active.sendall(content, 30)
            passive = listener.accept(30)
            assert passive.receive_exactly(len(content), 30) == content
            passive.sendall(content[::-1], 30)
            passive.close()
            assert active.receive_exactly(len(content), 30) == content[::-1]
            with pytest.raises(StreamClosed):
                active.receive_exactly(1, 30)
            active.close()
            settle(pair, listener)
    for nic in pair:
        port = nic.network
        assert isinstance(port, HardwarePort)
        assert not port._by_number
        assert len(port._numbers) == NIC_CONFIG.qps


def test_rings_fill_and_turn_in_both_directions(pair):
    rng = random.Random(2)
    contents = rng.randbytes(400_000), rng.randbytes(400_000)
    with pair[1].listen("", 0) as listener:
        both = streams(pair, listener)
    received: dict[int, bytes] = {}

    def receive(end: int) -> None:
        received[end] = both[end].receive_exactly(400_000, 100)

    threads = [background(lambda end=end: receive(end)) for end in (0, 1)]
    threads += [background(lambda end=end: both[end].sendall(contents[end], 100)) for end in (0, 1)]
    for thread in threads:
        thread.join(120)
    assert (received[1], received[0]) == contents
    for stream in both:
        stream.close()


@pytest.mark.requirement("TCP-3.6-01")
def test_what_comes_after_close_is_acknowledged_and_thrown_away(pair):
    with pair[1].listen("", 0) as listener:
        active, passive = streams(pair, listener)
        passive.close()
        active.sendall(bytes(600_000), 100)
        with pytest.raises(StreamClosed):
            active.receive_exactly(1, 30)
        active.close()
        settle(pair, listener)
        assert ended(pair, listener) == [{"ended_closed": 1}] * 2


@pytest.mark.requirement("TCP-MUST-12", "TCP-SHLD-3")
def test_unread_octets_reset_the_connection(pair):
    with pair[1].listen("", 0) as listener:
        active, passive = streams(pair, listener)
        active.sendall(b"never read", 30)
        passive.wait_readable(30)
        passive.close()
        with pytest.raises(ConnectionReset):
            active.receive_exactly(1, 30)
        settle(pair, listener)


@pytest.mark.requirement("TCP-MUST-48", "TCP-MUST-49", "TCP-SHLD-21", "TCP-SHLD-22")
@pytest.mark.requirement("IP-1122-3.2.1.6-01", "IP-1122-3.2.1.7-02")
def test_dscp_and_ttl_change_in_all_frames(pair):
    with pair[1].listen("", 0) as listener:
        active, passive = streams(pair, listener)
        active.sendall(b"before", 30)
        assert passive.receive_exactly(6, 30) == b"before"
        pair[0].stack.set_ip(active, dscp=46, ttl=9)
        active.sendall(b"after", 30)
        assert passive.receive_exactly(5, 30) == b"after"
        received = [each.head for each in pair[1].network.frame_heads() if not each.sent]
        last = [head for head in received if head[12:14] == b"\x08\x00"][-1]  # no ARP packet
        assert (last[15], last[22]) == (46 << 2, 9)
        active.close()
        passive.close()


def test_a_qp_that_stops_leaves_a_window_that_is_open(pair):
    """Device or driver throw away what comes, so the peer can send its FIN."""
    with Context(pair[1]) as context, pair[1].listen("", 0) as listener:
        cq = CQ(context, 16)
        qp = QP(PD(context), QPInitAttr(cq, cq, QPCap(2, 2)))
        active, passive = streams(pair, listener)
        qp.connect(passive, initiator=False, crc=True, ord=1, ird=1, emss=1460)
        with pytest.raises(TransportTimeout):
            active.sendall(random.Random(3).randbytes(900_000), 0.2)  # no FPDU among them
        context.process_events()
        assert qp.state is QPState.ERR
        qp.close()
        active.sendall(bytes(600_000), 100)
        active.close()
        settle(pair, listener)
        assert ended(pair, listener) == [{"ended_closed": 1}] * 2
