"""Runs the benchmarks and writes `build/bench.json`: `make bench`."""

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from gateware.config import RnicConfig
from gateware.rnic import Rnic
from host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    Context,
    QPInitAttr,
    SendWR,
    WROpcode,
    connect,
    listen,
)
from host_driver.transport.simulation import SimulatedDevice
from sim.cosim.runner import run_cocotb

RESULT = Path("build/bench.json")
EMSS = 1460
WRITE_OCTETS = 1 << 20
ICARUS_CYCLES = 2000
"""Enough for the first octets to leave; Icarus is slow."""

CASES = {
    "write_tx_1460_payload_octets_per_cycle": "check_write_tx",
    "write_rx_1460_payload_octets_per_cycle": "check_write_rx",
}
REQUIRED = {
    "write_tx_1460_payload_octets_per_cycle": 7.0,
    "write_rx_1460_payload_octets_per_cycle": 7.0,
    "sim_cycles_per_second_ratio": 50.0,
}


def run_case(check: str, simulator: str = "verilator") -> dict:
    """Runs one case of `bench/cases.py` and returns its figures."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        run_cocotb(
            Rnic(RnicConfig()),
            "bench.cases",
            test_filter=check,
            parameters={
                "OCTETS": str(WRITE_OCTETS),
                "EMSS": str(EMSS),
                "CYCLES": str(ICARUS_CYCLES),
                "RESULT": str(result),
            },
            simulator=simulator,
            ports_only=True,
            name="bench",
        )
        return json.loads(result.read_text())


def compiled_cycles_per_second() -> float:
    """Cycles that one compiled device simulates in a second while it sends RDMA Writes.

    Two devices run, each in its own thread; the sender's cycles count.
    """
    with Context(SimulatedDevice()) as sender, Context(SimulatedDevice()) as sink:
        ends = []
        for context in (sender, sink):
            pd, cq = PD(context), CQ(context)
            qp = QP(pd, QPInitAttr(cq, cq))
            access = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE
            ends.append((cq, qp, MR(pd, bytearray(WRITE_OCTETS), access)))
        (cq, qp, source), (_, sink_qp, target) = ends
        with listen(sink) as listener:
            server = threading.Thread(
                target=lambda: listener.get_request().accept(sink_qp, emss=EMSS)
            )
            server.start()
            connect(qp, "127.0.0.1", listener.port, emss=EMSS)
            server.join()
        request = SendWR(
            1,
            WROpcode.RDMA_WRITE,
            [SGE(source.addr, WRITE_OCTETS, source.lkey)],
            remote_addr=target.addr,
            rkey=target.rkey,
        )
        start = sender.cycles, time.perf_counter()
        for _ in range(4):
            qp.post_send(request)
        cq.wait(4, timeout=120)
        return (sender.cycles - start[0]) / (time.perf_counter() - start[1])


def write(figures: dict[str, float]) -> None:
    """Writes what is measured so far: the comparison with Icarus takes minutes."""
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(figures, indent=2) + "\n")


def measure(progress: Progress) -> dict[str, float]:
    """All figures, by their keys in `build/bench.json`."""
    task = progress.add_task("", total=None)
    figures: dict[str, float] = {}
    for key, check in CASES.items():
        progress.update(task, description=key)
        result = run_case(check)
        figures[key] = round(result["payload_octets"] / result["cycles"], 3)
        figures[key.replace("payload_octets_per_cycle", "cycles")] = result["cycles"]
        write(figures)
    progress.update(task, description="speed of the compiled device")
    figures["sim_cycles_per_second"] = round(compiled_cycles_per_second())
    write(figures)
    progress.update(task, description="speed of the same device under Icarus")
    icarus = run_case("check_speed", "icarus")
    figures["sim_icarus_cycles_per_second"] = round(
        icarus["cycles_simulated"] / icarus["seconds"], 1
    )
    figures["sim_cycles_per_second_ratio"] = round(
        figures["sim_cycles_per_second"] / figures["sim_icarus_cycles_per_second"], 1
    )
    return figures


def main() -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.parse_args()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        figures = measure(progress)
    write(figures)

    table = Table(title=f"One device, EMSS {EMSS}, {WRITE_OCTETS} octets per RDMA Write")
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("required", justify="right")
    for key, value in figures.items():
        table.add_row(key, f"{value:g}", f"{REQUIRED[key]:g}" if key in REQUIRED else "")
    Console().print(table)
    missed = [key for key, least in REQUIRED.items() if figures[key] < least]
    for key in missed:
        print(f"bench: {key} is {figures[key]:g}; required: {REQUIRED[key]:g}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
