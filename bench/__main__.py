"""Runs the benchmarks and writes `build/bench.json`: `make bench`."""

import argparse
import json
import shutil
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
COMPILED_WRITES = 4
"""RDMA Writes during which the compiled device's time is taken: a few seconds."""

ICARUS_CYCLES = 20_000
"""Cycles of one RDMA Write during which Icarus' time is taken: half a minute."""

CASES = {
    "write_tx_1460_payload_octets_per_cycle": "check_write_tx",
    "write_rx_1460_payload_octets_per_cycle": "check_write_rx",
    "read_tx_1460_payload_octets_per_cycle": "check_read_tx",
    "read_after_write_tx_1460_payload_octets_per_cycle": "check_read_after_write_tx",
}
OPERATION_CASES = {
    "atomic_responder_cycles_per_op": "check_atomic_responder",
    "atomic_same_address_cycles_per_op": "check_atomic_same_address",
}
AT_MOST = {"atomic_responder_cycles_per_op": 40.0}
REQUIRED = {
    "write_tx_1460_payload_octets_per_cycle": 7.0,
    "write_rx_1460_payload_octets_per_cycle": 7.0,
    "read_tx_1460_payload_octets_per_cycle": 7.0,
    "sim_cycles_per_second_ratio": 50.0,
}


def run_case(check: str, simulator: str = "verilator", module: str = "bench.cases") -> dict:
    """Runs one case of a module of cases and returns its figures."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        run_cocotb(
            Rnic(RnicConfig()),
            module,
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


def run_compiled() -> dict:
    """Lets a compiled device send RDMA Writes; the same figures as `check_speed` gives.

    Another compiled device receives, in a thread of its own; its cycles do not count.
    """
    device = SimulatedDevice()
    with Context(device) as sender, Context(SimulatedDevice()) as sink:
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
        before, start = _sent(device), time.perf_counter()
        for _ in range(COMPILED_WRITES):
            qp.post_send(request)
        cq.wait(COMPILED_WRITES, timeout=120)
        seconds = time.perf_counter() - start
        counted = {key: count - before[key] for key, count in _sent(device).items()}
        return {**counted, "seconds": seconds}


def _sent(device: SimulatedDevice) -> dict[str, int]:
    statistics = device.statistics()
    return {
        "cycles_simulated": statistics["cycles"],
        "fpdus": sum(connection["tx_fpdus"] for connection in statistics["connections"]),
        "fpdu_octets": sum(connection["tx_octets"] for connection in statistics["connections"]),
    }


def speed(key: str, result: dict) -> dict[str, float]:
    """Cycles per second, and what was counted for it."""
    if not result["fpdu_octets"]:
        raise RuntimeError(f"{key}: no FPDU left during {result['cycles_simulated']} cycles")
    return {
        f"{key}_cycles_per_second": round(result["cycles_simulated"] / result["seconds"], 1),
        f"{key}_cycles": result["cycles_simulated"],
        f"{key}_fpdus": result["fpdus"],
        f"{key}_fpdu_octets": result["fpdu_octets"],
    }


def _required(key: str) -> str:
    if key in AT_MOST:
        return f"at most {AT_MOST[key]:g}"
    return f"{REQUIRED[key]:g}" if key in REQUIRED else ""


def write(figures: dict[str, float]) -> None:
    """Writes what is measured so far: a run takes minutes."""
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(figures, indent=2) + "\n")


def measure(progress: Progress) -> dict[str, float]:
    """All figures, by their keys in `build/bench.json`; without Icarus, not those that need it."""
    task = progress.add_task("", total=None)
    figures: dict[str, float] = {}
    for key, check in CASES.items():
        progress.update(task, description=key)
        result = run_case(check)
        figures[key] = round(result["payload_octets"] / result["cycles"], 3)
        figures[key.replace("payload_octets_per_cycle", "cycles")] = result["cycles"]
        write(figures)
    for key, check in OPERATION_CASES.items():
        progress.update(task, description=key)
        result = run_case(check, module="bench.atomic_cases")
        figures[key] = round(result["cycles"] / result["operations"], 2)
        write(figures)
    progress.update(task, description="speed of the compiled device")
    figures |= speed("sim", run_compiled())
    if shutil.which("iverilog") is None:
        return figures
    write(figures)
    progress.update(task, description="speed of the same device under Icarus")
    figures |= speed("sim_icarus", run_case("check_speed", "icarus"))
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
        table.add_row(key, f"{value:,}", _required(key))
    Console().print(table)
    missed = [key for key, least in REQUIRED.items() if figures.get(key, 0) < least]
    for key in missed:
        found = f"{figures[key]:g}" if key in figures else "not measured: there is no iverilog"
        print(f"bench: {key} is {found}; required: {REQUIRED[key]:g}", file=sys.stderr)
    slow = [key for key, most in AT_MOST.items() if figures[key] > most]
    for key in slow:
        print(f"bench: {key} is {figures[key]:g}; at most: {AT_MOST[key]:g}", file=sys.stderr)
    return 1 if missed or slow else 0


if __name__ == "__main__":
    sys.exit(main())
