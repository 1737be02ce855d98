"""RDMA Writes between two compiled NICs with the TCP engine in gateware: bytes per cycle.

A `CycleTime` lets cycles pass at both alike, and only while the program waits, so it takes none.
Nothing is lost, frames take the time of 10 Gb/s Ethernet with preamble, FCS and gap, and memory
answers as in all figures. A rate is that between the first and the last of some completions: at the
sender, whose Write is complete when TCP has taken it, or at the receiver, which is told of a Write
by Immediate Data. Of many QPs, whose Writes are under way at once, it is that of all bytes, from
when they are posted on. Cycles are counted in steps of `STEP`.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from bench.nic_pair import WRITES, completed, nic_pair, post

TX_KEY = "tcp_write_tx_1460_payload_octets_per_cycle"
RX_KEY = "tcp_write_rx_1460_payload_octets_per_cycle"
DUPLEX_KEY = "tcp_duplex_1460_payload_octets_per_cycle"
QPS_KEY = "tcp_qps_64_ratio_to_one_qp"
LONG_KEY = "tcp_write_8960_payload_octets_per_cycle"
FAIR_KEY = "tcp_qps_64_jain_index"
KEYS = (TX_KEY, RX_KEY, DUPLEX_KEY, QPS_KEY, FAIR_KEY, LONG_KEY)

STEP = 64
MANY = 64
OCTETS = 1 << 18
"""Of a Write of one QP."""

OCTETS_OF_MANY = 1 << 14
WRITES_OF_MANY = 4
"""Of each of many QPs; one QP has `WRITES`."""

UNCOUNTED = 4
"""Completions before the first one that counts, of one QP: slow start is over then."""


def _of_one(mtu: int = 1500, *, duplex: bool = False) -> tuple[float, float]:
    """Payload bytes per cycle at the sender, and at the receiver; with `duplex` at both receivers
    together, while both receive.
    """
    options = f"&mtu={mtu}"
    with nic_pair(1, OCTETS, options, options) as (time, here, there):
        watched = [here.sends, there.receives, *([here.receives] if duplex else [])]
        post(here, there, WRITES, OCTETS)
        if duplex:
            post(there, here, WRITES, OCTETS)
        with ThreadPoolExecutor(len(watched)) as pool:
            jobs = [pool.submit(completed, time, cq, WRITES) for cq in watched]
            cycles = [[cycle for cycle, _ in job.result()[UNCOUNTED:]] for job in jobs]
    return rate(cycles[:1], OCTETS), rate(cycles[1:], OCTETS)


def _of_many() -> tuple[float, float]:
    """Payload bytes per cycle of all QPs at the receiver, and Jain's index of theirs."""
    total = MANY * WRITES_OF_MANY
    with nic_pair(MANY, OCTETS_OF_MANY) as (time, here, there):
        begin = time.cycles
        post(here, there, WRITES_OF_MANY, OCTETS_OF_MANY)
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(completed, time, here.sends, total)
            received = completed(time, there.receives, total)
            sent.result()
    ends = {qp: cycle - begin for cycle, qp in received}
    rates = [OCTETS_OF_MANY * WRITES_OF_MANY / cycles for cycles in ends.values()]
    return rate_from(begin, [cycle for cycle, _ in received], OCTETS_OF_MANY), jain_index(rates)


def jain_index(rates: Sequence[float]) -> float:
    """Jain's fairness index: 1 if all are equal, 1 / n if one has everything."""
    return sum(rates) ** 2 / (len(rates) * sum(each**2 for each in rates))


def rate_from(begin: int, completions: Sequence[int], octets: int) -> float:
    """Bytes per cycle from a cycle on, until the last completion."""
    return len(completions) * octets / (completions[-1] - begin)


def rate(completions: Sequence[Sequence[int]], octets: int) -> float:
    """Bytes per cycle of several CQs, in the cycles in which each of them has completions.

    Raises `RuntimeError` if there are none.
    """
    begin, end = max(of[0] for of in completions), min(of[-1] for of in completions)
    if begin >= end:
        raise RuntimeError("one direction had ended before the other one was under way")
    count = sum(begin < cycle <= end for of in completions for cycle in of)
    return count * octets / (end - begin)


def _one() -> dict[str, float]:
    sent, received = _of_one()
    return {TX_KEY: round(sent, 3), RX_KEY: round(received, 3)}


def _many() -> dict[str, float]:
    figures = _one()
    received, fairness = _of_many()
    ratio = received / figures[RX_KEY]
    return figures | {QPS_KEY: round(ratio, 3), FAIR_KEY: round(fairness, 4)}


def _both_ways() -> dict[str, float]:
    return {DUPLEX_KEY: round(_of_one(duplex=True)[1], 3)}


def _long() -> dict[str, float]:
    return {LONG_KEY: round(_of_one(9000)[1], 3)}


_MEASURES: dict[str, Callable[[], dict[str, float]]] = {
    TX_KEY: _one,
    RX_KEY: _one,
    DUPLEX_KEY: _both_ways,
    QPS_KEY: _many,
    FAIR_KEY: _many,
    LONG_KEY: _long,
}


def measure(key: str) -> dict[str, float]:
    """The figures that are measured together with one of `KEYS`."""
    return _MEASURES[key]()
