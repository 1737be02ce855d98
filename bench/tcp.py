"""RDMA Writes between two compiled NICs with the TCP engine in gateware: octets per cycle.

A `CycleTime` lets cycles pass at both alike, and only while the program waits, so it takes none.
Nothing is lost, frames take the time of 10 Gb/s Ethernet with preamble, FCS and gap, and memory
answers as in all figures. A rate is that between the first and the last of some completions: at the
sender, whose Write is complete when TCP has taken it, or at the receiver, which is told of a Write
by Immediate Data. Of many QPs, whose Writes are under way at once, it is that of all octets, from
when they are posted on. Cycles are counted in steps of `STEP`.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from stagecoach.gateware.config import RnicConfig
from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    Context,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
    WCStatus,
    WROpcode,
    connect,
    listen,
)
from stagecoach.sim.network.nic import SimulatedNic
from stagecoach.sim.network.timeline import CycleTime

TX_KEY = "tcp_write_tx_1460_payload_octets_per_cycle"
RX_KEY = "tcp_write_rx_1460_payload_octets_per_cycle"
DUPLEX_KEY = "tcp_duplex_1460_payload_octets_per_cycle"
QPS_KEY = "tcp_qps_64_ratio_to_one_qp"
LONG_KEY = "tcp_write_8960_payload_octets_per_cycle"
KEYS = (TX_KEY, RX_KEY, DUPLEX_KEY, QPS_KEY, LONG_KEY)

STEP = 64
MANY = 64
OCTETS = 1 << 18
"""Of a Write of one QP."""

OCTETS_OF_MANY = 1 << 14
WRITES = 16
"""Of one QP; each of many has `WRITES_OF_MANY`."""

WRITES_OF_MANY = 4
UNCOUNTED = 4
"""Completions before the first one that counts, of one QP: slow start is over then."""

SECONDS = 100.0
"""Of simulated time, after which a completion will not come."""

_PORT = 7
_IMMEDIATE = WROpcode.RDMA_WRITE_WITH_IMM


@dataclass(frozen=True)
class End:
    """A NIC with QPs that have one CQ for what they send, and one for what they receive."""

    nic: SimulatedNic
    context: Context
    sends: CQ
    receives: CQ
    qps: Sequence[QP]
    region: MR


def _end(nic: SimulatedNic, context: Context, count: int, octets: int) -> End:
    pd = PD(context)
    sends, receives = (CQ(context, 2 * count * WRITES) for _ in range(2))
    access = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE
    region = MR(pd, bytearray(octets), access)
    # Immediate Data is a send entry of its own.
    cap = QPCap(max_send_wr=2 * WRITES, max_recv_wr=WRITES)
    qps = [QP(pd, QPInitAttr(sends, receives, cap, rfc7306=True)) for _ in range(count)]
    return End(nic, context, sends, receives, qps, region)


@contextlib.contextmanager
def _pair(count: int, octets: int, mtu: int) -> Iterator[tuple[CycleTime, End, End]]:
    """Two NICs whose QPs are connected one to one."""
    time = CycleTime()
    with contextlib.ExitStack() as stack:
        ends = []
        for number in (1, 2):
            address = f"sim://?wire=pair:bench&ip=192.0.2.{number}/24&mtu={mtu}&tcp=engine"
            nic = SimulatedNic(address, RnicConfig(), time=time)
            ends.append(_end(nic, stack.enter_context(Context(nic)), count, octets))
        here, there = ends
        with listen(there.context, host="", port=_PORT) as listener:

            def accept() -> None:
                for qp in there.qps:
                    listener.get_request(SECONDS).accept(qp)

            server = threading.Thread(target=accept)
            server.start()
            for qp in here.qps:
                connect(qp, str(there.nic.address.ip.ip), _PORT)
            server.join()
        yield time, here, there


def _post(source: End, sink: End, writes: int, octets: int) -> None:
    """All Writes of all QPs; those of a QP go one after the other, the QPs by turns."""
    for qp, other in zip(source.qps, sink.qps, strict=True):
        for number in range(writes):
            other.post_recv(RecvWR(number))
            qp.post_send(
                SendWR(
                    number,
                    _IMMEDIATE,
                    [SGE(source.region.addr, octets, source.region.lkey)],
                    remote_addr=sink.region.addr,
                    rkey=sink.region.rkey,
                    imm_data=bytes(8),
                )
            )


def _counted(time: CycleTime, cq: CQ, count: int, uncounted: int) -> list[int]:
    """Cycle of each completion after the first ones."""
    cycles: list[int] = []
    while len(cycles) < count:
        for completion in cq.wait(1, SECONDS):
            if completion.status != WCStatus.SUCCESS:
                raise RuntimeError(f"a Write failed: {completion.describe()}")
            cycles.append(time.cycles)
    return cycles[uncounted:]


def _rates(
    count: int, writes: int, octets: int, mtu: int = 1500, *, duplex: bool = False
) -> tuple[float, float]:
    """Payload octets per cycle at the sender, and at the receiver; with `duplex` at both receivers
    together, while both receive.
    """
    with _pair(count, octets, mtu) as (time, here, there):
        total, uncounted = count * writes, UNCOUNTED if count == 1 else 0
        begin = time.cycles
        watched = [here.sends, there.receives, *([here.receives] if duplex else [])]
        _post(here, there, writes, octets)
        if duplex:
            _post(there, here, writes, octets)
        with ThreadPoolExecutor(len(watched)) as pool:
            jobs = [pool.submit(_counted, time, cq, total, uncounted) for cq in watched]
            sent, *received = (job.result() for job in jobs)
    if count > 1:
        return rate_from(begin, sent, octets), rate_from(begin, received[0], octets)
    return rate([sent], octets), rate(received, octets)


def rate_from(begin: int, completions: Sequence[int], octets: int) -> float:
    """Octets per cycle from a cycle on, until the last completion."""
    return len(completions) * octets / (completions[-1] - begin)


def rate(completions: Sequence[Sequence[int]], octets: int) -> float:
    """Octets per cycle of several CQs, in the cycles in which each of them has completions.

    Raises `RuntimeError` if there are none.
    """
    begin, end = max(of[0] for of in completions), min(of[-1] for of in completions)
    if begin >= end:
        raise RuntimeError("one direction had ended before the other one was under way")
    count = sum(begin < cycle <= end for of in completions for cycle in of)
    return count * octets / (end - begin)


def _one() -> dict[str, float]:
    sent, received = _rates(1, WRITES, OCTETS)
    return {TX_KEY: round(sent, 3), RX_KEY: round(received, 3)}


def _many() -> dict[str, float]:
    figures = _one()
    _, received = _rates(MANY, WRITES_OF_MANY, OCTETS_OF_MANY)
    return figures | {QPS_KEY: round(received / figures[RX_KEY], 3)}


def _both_ways() -> dict[str, float]:
    return {DUPLEX_KEY: round(_rates(1, WRITES, OCTETS, duplex=True)[1], 3)}


def _long() -> dict[str, float]:
    return {LONG_KEY: round(_rates(1, WRITES, OCTETS, 9000)[1], 3)}


_MEASURES: dict[str, Callable[[], dict[str, float]]] = {
    TX_KEY: _one,
    RX_KEY: _one,
    DUPLEX_KEY: _both_ways,
    QPS_KEY: _many,
    LONG_KEY: _long,
}


def measure(key: str) -> dict[str, float]:
    """The figures that are measured together with one of `KEYS`."""
    return _MEASURES[key]()
