"""Two compiled devices with a network of their own, joined by a wire that loses frames."""

import itertools
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from stagecoach import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    Context,
    CycleTime,
    QPInitAttr,
    RecvWR,
    SendWR,
    SimulatedNic,
    StartupError,
    WCStatus,
    WROpcode,
    connect,
    listen,
)
from stagecoach.host_driver.transport.network import ConnectionInfo
from stagecoach.sim.network import timeline

OCTETS = 1 << 17
ACCESS = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_READ

pytestmark = pytest.mark.timeout(240)


class Side:
    """A card, and what it takes to send and receive."""

    def __init__(self, nic: SimulatedNic):
        self.nic = nic
        self.context = Context(nic)
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 64)
        self.qp = self.new_qp()

    def new_qp(self) -> QP:
        return QP(self.pd, QPInitAttr(self.cq, self.cq))

    def region(self, octets: bytes | int) -> MR:
        return MR(self.pd, bytearray(octets), ACCESS)

    def done(self) -> None:
        (completion,) = self.cq.wait(1, 100)
        assert completion.status == WCStatus.SUCCESS

    @property
    def info(self) -> ConnectionInfo:
        (info,) = (each.info for each in self.nic.stack.connections() if each.info is not None)
        return info


@contextmanager
def sides(wire: str, options: str = "") -> Iterator[tuple[Side, Side]]:
    """Two cards in cycle time; of each direction the frames have another fate."""
    time = CycleTime()
    nics = [
        SimulatedNic(
            f"sim://?wire=pair:{wire}&ip=192.0.2.{number}/24&tcp=reference&rto_min_ms=1&seed={number}{options}",
            time=time,
        )
        for number in (1, 2)
    ]
    here, there = map(Side, nics)
    try:
        yield here, there
        assert [side.nic.statistics()["faults"] for side in (here, there)] == [[], []]
    finally:
        here.context.close()
        there.context.close()


def join(here: Side, there: Side) -> None:
    with listen(there.context, "") as listener:
        accepting = threading.Thread(target=lambda: listener.get_request().accept(there.qp))
        accepting.start()
        connect(here.qp, "192.0.2.2", listener.port)
        accepting.join()


@dataclass(frozen=True)
class Figures:
    """Of one run: cycles of each message, and what the connections counted."""

    cycles: tuple[int, ...]
    infos: tuple[tuple[int, int, int, int | None], ...]


def transfer(wire: str, options: str) -> Figures:
    """A Write, a Read and a Send of the same octets; they arrive as they were."""
    content = random.Random(options).randbytes(OCTETS)
    with sides(wire, options) as (here, there):
        join(here, there)
        source, read = here.region(content), here.region(OCTETS)
        target, received = there.region(OCTETS), there.region(OCTETS)
        remote = {"remote_addr": target.addr, "rkey": target.rkey}
        times = [here.nic.cycles]
        for opcode, region in ((WROpcode.RDMA_WRITE, source), (WROpcode.RDMA_READ, read)):
            element = SGE(region.addr, OCTETS, region.lkey)
            here.qp.post_send(SendWR(opcode=opcode, sg=[element], **remote))
            here.done()
            times.append(here.nic.cycles)
        assert target.buf == read.buf == content
        there.qp.post_recv(RecvWR(sg=[SGE(received.addr, OCTETS, received.lkey)]))
        here.qp.post_send(SendWR(sg=[SGE(source.addr, OCTETS, source.lkey)]))
        there.done()
        times.append(here.nic.cycles)
        here.done()
        assert received.buf == content
        infos = tuple(
            (info.segments_sent, info.retransmissions, info.octets_sent, info.smoothed_rtt_us)
            for info in (here.info, there.info)
        )
    cycles = tuple(after - before for before, after in itertools.pairwise(times))
    return Figures(cycles, infos)


@pytest.mark.parametrize(("loss", "retransmits"), [("0", False), ("0.001", False), ("0.01", True)])
def test_messages_cross_a_wire_and_each_run_repeats_to_the_digit(
    tmp_path, loss, retransmits, monkeypatch
):
    monkeypatch.setattr(timeline, "PATIENCE", 4000)  # however busy the machine is
    first, second = (transfer(f"{tmp_path.name}-{number}", f"&loss={loss}") for number in range(2))
    assert first == second
    lost = sum(info[1] for info in first.infos)
    if loss == "0":
        assert lost == 0
        # A Read at the rate of the wire: 1460 of 1538 octets are those of FPDUs.
        assert OCTETS / first.cycles[1] > 6
    assert not retransmits or lost > 0


def test_a_wire_that_does_everything_wrong_costs_only_time(tmp_path):
    options = "&loss=0.01&duplicate=0.02&reorder=0.02&corrupt=0.01&delay_us=5"
    figures = transfer(tmp_path.name, options)
    assert sum(info[1] for info in figures.infos) > 0


def test_the_end_of_one_stops_the_other(tmp_path):
    with sides(tmp_path.name) as (here, there):
        join(here, there)
        here.qp.disconnect()
        there.context.poll_until(lambda: there.qp.state.name != "RTS", 20, "the end of the QP")
        # Both QPs of a connection are gone; another one can be made.
        there.qp.close()
        here.qp.close()
        here.qp, there.qp = here.new_qp(), there.new_qp()
        join(here, there)


def test_nobody_who_listens_is_an_error_that_says_so(tmp_path):
    with sides(tmp_path.name) as (here, _):
        with pytest.raises(StartupError, match=r"192\.0\.2\.2:99 refused the connection"):
            connect(here.qp, "192.0.2.2", 99)
        with pytest.raises(StartupError, match=r"no route to 198\.51\.100\.7"):
            connect(here.qp, "198.51.100.7", 99)


def test_a_smaller_path_reaches_the_device(tmp_path):
    with sides(tmp_path.name) as (here, there):
        join(here, there)
        (connection,) = here.nic.stack._connections.engine
        here.nic.network.set_segment_size(connection.handle, 512)
        content = random.Random("path").randbytes(20_000)
        source, target = here.region(content), there.region(len(content))
        element = SGE(source.addr, len(content), source.lkey)
        here.qp.post_send(
            SendWR(
                opcode=WROpcode.RDMA_WRITE,
                sg=[element],
                remote_addr=target.addr,
                rkey=target.rkey,
            )
        )
        here.done()
        here.qp.post_send(SendWR(opcode=WROpcode.RDMA_READ, rkey=1))
        here.done()
        assert target.buf == content
        # FPDUs that fit into a segment each: their payload is less than that of the segment.
        fpdus = here.context.fpdus_sent
        assert fpdus >= 20_000 // 512
