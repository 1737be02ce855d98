"""Two compiled NICs with the TCP engine in gateware, joined by a wire, and their drivers."""

import random
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stagecoach import SGE, CycleTime, RecvWR, SendWR, SimulatedNic, StreamClosed, WROpcode
from stagecoach.gateware.config import RnicConfig
from stagecoach.host_driver.network.errors import ConnectionRefused
from stagecoach.host_driver.network.stream import NetworkStream
from stagecoach.sim.build import build_nic
from stagecoach.sim.network import timeline
from tests.integration.test_simulated_nic import Side, join

CONFIG = RnicConfig(qps=4)
OCTETS = 1 << 16

pytestmark = pytest.mark.timeout(300)

Open = Callable[..., tuple[SimulatedNic, SimulatedNic]]


@pytest.fixture(scope="session")
def library() -> Path:
    return build_nic(CONFIG, level="-O1")


@pytest.fixture
def opened(library: Path, tmp_path: Path) -> Iterator[Open]:
    """Opens two cards at one wire."""
    with ExitStack() as stack:
        opened: list[SimulatedNic] = []

        def open_cards(
            time: CycleTime | None, options: str = "", wire: str = ""
        ) -> tuple[SimulatedNic, SimulatedNic]:
            for number in (1, 2):
                address = (
                    f"sim://?wire=pair:{tmp_path.name}{wire}&ip=192.0.2.{number}/24&tcp=engine"
                    f"&rto_min_ms=1&seed={number}{options}"
                )
                nic = SimulatedNic(address, CONFIG, time=time, library=library)
                opened.append(stack.enter_context(nic))
            return opened[-2], opened[-1]

        yield open_cards
        assert [nic.statistics()["faults"] for nic in opened] == [[] for _ in opened]


@pytest.fixture(params=["cycle", "wall"])
def pair(request: pytest.FixtureRequest, opened: Open) -> tuple[SimulatedNic, SimulatedNic]:
    return opened(CycleTime() if request.param == "cycle" else None)


def streams(here: SimulatedNic, there: SimulatedNic) -> tuple[NetworkStream, NetworkStream]:
    with there.listen("", 0) as listener:
        active = here.connect("192.0.2.2", listener.address[1], 10)
        return active, listener.accept(10)


def test_it_says_what_it_is(pair):
    assert [nic.info["tcp"] for nic in pair] == ["gateware"] * 2
    assert pair[0].network.maximum_connections == CONFIG.qps


def test_echo(pair):
    here, there = pair
    assert here.stack.ping("192.0.2.2") > 0
    assert there.stack.ping("192.0.2.1") > 0


def test_octets_of_programs_cross_in_both_directions(pair):
    active, passive = streams(*pair)
    content = random.Random(1).randbytes(OCTETS)
    for source, sink in ((active, passive), (passive, active)):
        sender = threading.Thread(target=source.sendall, args=(content,))
        sender.start()
        assert sink.receive_exactly(len(content)) == content
        sender.join()
    active.close()
    with pytest.raises(StreamClosed):
        passive.receive_exactly(1)
    passive.close()


def test_connections_tell_how_they_do(pair):
    active, passive = streams(*pair)
    active.sendall(b"12345678")
    assert passive.receive_exactly(8) == b"12345678"
    for nic in pair:
        (status,) = (each for each in nic.stack.connections() if each.info is not None)
        assert status.state == "ESTABLISHED"
        assert status.info is not None
        assert status.info.maximum_segment_size == 1460
        assert status.info.smoothed_rtt_us is not None


def test_nobody_who_listens_refuses(pair):
    with pytest.raises(ConnectionRefused):
        pair[0].connect("192.0.2.2", 99, 10)


def test_the_last_frames_are_seen(pair):
    here, there = pair
    here.stack.ping("192.0.2.2")
    for nic in pair:
        heads = nic.network.frame_heads()
        assert {head.sent for head in heads} == {False, True}


def transfer(nics: tuple[SimulatedNic, SimulatedNic], octets: int) -> tuple[int, ...]:
    """A Write, a Read and a Send of the same octets; returns when each was done."""
    content = random.Random(octets).randbytes(octets)
    here, there = map(Side, nics)
    join(here, there)
    source, read = here.region(content), here.region(octets)
    target, received = there.region(octets), there.region(octets)
    remote = {"remote_addr": target.addr, "rkey": target.rkey}
    times = []
    for opcode, region in ((WROpcode.RDMA_WRITE, source), (WROpcode.RDMA_READ, read)):
        element = SGE(region.addr, octets, region.lkey)
        here.qp.post_send(SendWR(opcode=opcode, sg=[element], **remote))
        here.done()
        times.append(here.nic.cycles)
    assert target.buf == read.buf == content
    there.qp.post_recv(RecvWR(sg=[SGE(received.addr, octets, received.lkey)]))
    here.qp.post_send(SendWR(sg=[SGE(source.addr, octets, source.lkey)]))
    there.done()
    here.done()
    assert received.buf == content
    here.context.close()
    there.context.close()
    return tuple(times)


def test_messages_cross(pair):
    transfer(pair, OCTETS)


@pytest.mark.parametrize("loss", ["0", "0.01"])
def test_a_run_with_the_same_numbers_repeats_to_the_digit(opened, loss, monkeypatch):
    """Where an octet is in a word of a ring depends on the initial sequence numbers."""
    monkeypatch.setattr(timeline, "PATIENCE", 4000)  # however busy the machine is
    runs = []
    for number in range(2):
        drawn = random.Random(3)
        monkeypatch.setattr(secrets, "randbits", drawn.getrandbits)
        monkeypatch.setattr(secrets, "token_bytes", drawn.randbytes)
        runs.append(transfer(opened(CycleTime(), f"&loss={loss}", str(number)), OCTETS))
    assert runs[0] == runs[1]


def test_a_wire_that_does_everything_wrong_costs_only_time(opened):
    options = "&loss=0.01&duplicate=0.02&reorder=0.02&corrupt=0.01&delay_us=5"
    transfer(opened(CycleTime(), options), OCTETS)
