"""Two compiled NICs on a wire, in cycles: their QPs, what is posted on them, when it completes."""

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
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

WRITES = 16
"""Of one QP that are under way at once, at most."""

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


NicPair = contextlib.AbstractContextManager[tuple[CycleTime, End, End]]
"""What `nic_pair` gives."""


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
def nic_pair(
    count: int, octets: int, here: str = "", there: str = ""
) -> Iterator[tuple[CycleTime, End, End]]:
    """Two NICs with `count` QPs, connected one to one, and regions of so many bytes.

    here, there: options of their addresses, for example `&mtu=9000`.
    """
    time = CycleTime()
    with contextlib.ExitStack() as stack:
        ends = []
        for number, options in enumerate((here, there), 1):
            address = f"sim://?wire=pair:bench-{os.getpid()}&ip=192.0.2.{number}/24{options}"
            nic = SimulatedNic(address, RnicConfig(), time=time)
            ends.append(_end(nic, stack.enter_context(Context(nic)), count, octets))
        source, sink = ends
        with listen(sink.context, host="", port=_PORT) as listener:

            def accept() -> None:
                for qp in sink.qps:
                    listener.get_request(SECONDS).accept(qp)

            server = threading.Thread(target=accept)
            server.start()
            for qp in source.qps:
                connect(qp, str(sink.nic.address.ip.ip), _PORT)
            server.join()
        yield time, source, sink


def post(source: End, sink: End, writes: int, octets: int) -> None:
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


def completed(time: CycleTime, cq: CQ, count: int) -> list[tuple[int, int]]:
    """Cycle and number of the QP of so many completions. `RuntimeError` if one failed."""
    found: list[tuple[int, int]] = []
    while len(found) < count:
        for completion in cq.wait(1, SECONDS):
            if completion.status != WCStatus.SUCCESS:
                raise RuntimeError(f"a Write failed: {completion.describe()}")
            found.append((time.cycles, completion.qp_num))
    return found
