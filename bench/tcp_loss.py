"""What lost segments cost: the engine in gateware, and the reference TCP on the same losses.

`make bench-loss` runs it and writes `build/tcp_loss.json`. One QP Writes from one NIC to the
other, as in `bench.tcp`. A part of the sender's frames is lost, each by itself. A rate is that of
all bytes from the first Write on. Both engines get a wire of such a delay that the round trip,
without a queue, takes `RTT_US`: what each takes by itself is measured first, by small Writes. Which
frames a seed loses depends on their numbers alone, so it is the same for both.
"""

import argparse
import statistics
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.progress import track

from bench.measure import FAILURES
from bench.nic_pair import WRITES, End, NicPair, completed, nic_pair, post
from stagecoach.hw.files import write_results
from stagecoach.hw.options import positive
from stagecoach.sim.network.timeline import CycleTime

RESULT = Path("build/tcp_loss.json")

ENGINE, REFERENCE = "engine", "reference"
LOSSES = {"0p01": 0.0001, "0p1": 0.001, "1": 0.01}
"""By their name in a key, which is in percent."""

REQUIRED = {"0p01": 0.99, "0p1": 0.94, "1": 0.50}
"""Of the rate without loss."""

TOLERANCE = 0.05
"""How far a mean may be from that of the reference TCP."""

RTT_US = 20.0
RTO_MIN_MS = 1
OCTETS = 1 << 18
"""Of a Write."""

EMSS = 1460
_SMALL_WRITES = 20


@dataclass(frozen=True)
class Run:
    """One transfer: with which TCP, over which wire. loss: of the sender's frames."""

    tcp: str
    delay_us: float
    loss: float
    seed: int
    segments: int


def _pair(tcp: str, delay_us: float, loss: float, seed: int) -> NicPair:
    both = f"&tcp={tcp}&rto_min_ms={RTO_MIN_MS}&delay_us={delay_us}&seed={seed}"
    return nic_pair(1, OCTETS, f"{both}&tx_loss={loss:.9f}", both)


def _write(time: CycleTime, here: End, there: End, count: int, octets: int) -> int:
    """The cycle in which the last of so many Writes was seen at its receiver."""
    cycle = time.cycles
    for begun in range(0, count, WRITES):
        now = min(WRITES, count - begun)
        post(here, there, now, octets)
        completed(time, here.sends, now)
        cycle = completed(time, there.receives, now)[-1][0]
    return cycle


def _round_trip_us(tcp: str) -> float:
    """That of two NICs and a wire without delay."""
    with _pair(tcp, 0, 0, 0) as (time, here, there):
        for _ in range(_SMALL_WRITES):
            _write(time, here, there, 1, EMSS)
        (connection,) = here.nic.stack.connections()
        if connection.info is None or connection.info.smoothed_rtt_us is None:
            raise RuntimeError(f"the {tcp} TCP measured no round trip")
        return float(connection.info.smoothed_rtt_us)


def octets_per_cycle(run: Run) -> float:
    """The rate of a run. `RuntimeError` if a Write fails."""
    with _pair(run.tcp, run.delay_us, run.loss, run.seed) as (time, here, there):
        begin = time.cycles
        writes = -(-run.segments * EMSS // OCTETS)
        return writes * OCTETS / (_write(time, here, there, writes, OCTETS) - begin)


def figures(rates: Mapping[Run, float]) -> dict[str, float]:
    """By key: ratios of mean rates to those without loss, and to those of the reference TCP."""
    means = {
        (tcp, loss): statistics.mean(
            rate for run, rate in rates.items() if (run.tcp, run.loss) == (tcp, loss)
        )
        for tcp in (ENGINE, REFERENCE)
        for loss in (0.0, *LOSSES.values())
    }
    found = {}
    for name, loss in LOSSES.items():
        rate = means[ENGINE, loss]
        found[f"tcp_loss_{name}_ratio_to_lossless"] = round(rate / means[ENGINE, 0.0], 3)
        found[f"tcp_loss_{name}_ratio_to_reference"] = round(rate / means[REFERENCE, loss], 3)
    found["tcp_lossless_payload_octets_per_cycle"] = round(means[ENGINE, 0.0], 3)
    return found


def missed(found: Mapping[str, float]) -> list[str]:
    """A line for each figure that is not what is required."""
    lines = []
    for name, least in REQUIRED.items():
        key = f"tcp_loss_{name}_ratio_to_lossless"
        if found[key] < least:
            lines.append(f"{key} is {found[key]}; required: at least {least}")
        key = f"tcp_loss_{name}_ratio_to_reference"
        if round(abs(found[key] - 1), 3) > TOLERANCE:
            lines.append(f"{key} is {found[key]}; required: 1 +- {TOLERANCE}")
    return lines


def measure(segments: int, seeds: int, jobs: int) -> dict[str, float]:
    """All figures. `RuntimeError` if a Write fails or a TCP alone takes longer than `RTT_US`."""
    runs = []
    trips = {}
    for tcp in (ENGINE, REFERENCE):
        trips[tcp] = _round_trip_us(tcp)
        delay = (RTT_US - trips[tcp]) / 2
        if delay < 0:
            raise RuntimeError(f"the round trip takes {trips[tcp]} us; allowed: up to {RTT_US}")
        lossy = product(LOSSES.values(), range(1, seeds + 1))
        runs += [Run(tcp, delay, loss, seed, segments) for loss, seed in [(0.0, 0), *lossy]]
    with ProcessPoolExecutor(jobs) as pool:
        rates = pool.map(octets_per_cycle, runs)
        shown = track(rates, "lost segments", total=len(runs), console=Console(stderr=True))
        found = figures(dict(zip(runs, shown, strict=True)))
    found |= {f"tcp_{tcp}_round_trip_us": trip for tcp, trip in trips.items()}
    return found | {"segments": segments, "seeds": seeds}


def main() -> int:
    """Runs the command; its exit status is 1 if a required figure is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.tcp_loss", description=__doc__)
    parser.add_argument("--segments", type=positive, default=100_000, metavar="N", help="of a run")
    parser.add_argument("--seeds", type=positive, default=10, metavar="N", help="of each loss")
    parser.add_argument("--jobs", type=positive, default=1, metavar="N", help="runs at once")
    options = parser.parse_args()
    try:
        found = measure(options.segments, options.seeds, options.jobs)
    except FAILURES as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    write_results(RESULT, found)
    for key, value in found.items():
        print(f"{key}: {value}")
    lines = missed(found)
    for line in lines:
        print(f"bench: {line}", file=sys.stderr)
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
