"""How fast the compiled device and other simulators are: cycles per second of a core's time.

And what a device costs that has nothing to do.
"""

import multiprocessing
import shutil
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor

from bench.catalogue import Case
from bench.replay import run_amaranth
from bench.run import run_case
from stagecoach.host_driver import (
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
from stagecoach.sim.transport import SimulatedDevice

EMSS = 1460
WRITE_OCTETS = 1 << 20
COMPILED_WRITES = 4
"""RDMA Writes during which the compiled device's time is taken: a few seconds."""

IDLE_SECONDS = 2.0
"""During these the processor's time is taken that two devices without work need."""

QUIET_AFTER_SECONDS = 60.0
"""Most from the last completion until the devices stand still."""

ICARUS_CYCLES = 20_000
"""Cycles of one RDMA Write during which Icarus' time is taken: half a minute."""

AMARANTH_CYCLES = 2_000
"""The same for Amaranth's own simulator: some ten seconds."""

COMPILED_KEYS = ("sim_cycles_per_second", "sim_cycles", "sim_fpdus", "sim_fpdu_octets")
ICARUS_KEYS = tuple(key.replace("sim_", "sim_icarus_", 1) for key in COMPILED_KEYS)
AMARANTH_KEYS = tuple(key.replace("sim_", "sim_amaranth_", 1) for key in COMPILED_KEYS)
IDLE_KEY = "sim_idle_cpu_us_per_s"
RATIO_KEY = "sim_cycles_per_second_ratio"
AMARANTH_RATIO_KEY = "sim_cycles_per_second_ratio_to_amaranth"
KEYS = (*COMPILED_KEYS, IDLE_KEY, *ICARUS_KEYS, *AMARANTH_KEYS, RATIO_KEY, AMARANTH_RATIO_KEY)


def measure_compiled(writes: int = COMPILED_WRITES) -> dict[str, float]:
    """Figures of the compiled device, at work and idle.

    It runs in a process of its own, in which nothing else takes the processor's time. Raises
    `RuntimeError`, which names what went wrong there.
    """
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        result = pool.submit(_compiled_process, writes).result()
    idle = round(1e6 * result["idle_seconds"] / IDLE_SECONDS, 1)
    return _figures("sim", result) | {IDLE_KEY: idle}


def measure_icarus() -> dict[str, float]:
    """Figures of the same device under Icarus; empty if it is not installed."""
    if shutil.which("iverilog") is None:
        return {}
    case = Case("speed_cases", "check_speed", {"octets": WRITE_OCTETS, "cycles": ICARUS_CYCLES})
    return _figures("sim_icarus", dict(run_case(case, "icarus")))


def measure_amaranth() -> dict[str, float]:
    """Figures of the same device under Amaranth's own simulator."""
    return _figures("sim_amaranth", run_amaranth(WRITE_OCTETS, AMARANTH_CYCLES))


def _compiled_process(writes: int) -> dict[str, float]:
    try:
        return _run_compiled(writes)
    except Exception as error:  # not each of them can be handed to another process
        raise RuntimeError(f"compiled device: {type(error).__name__}: {error}") from None


def _run_compiled(writes: int) -> dict[str, float]:
    """Lets a compiled device send RDMA Writes to another one.

    Each has a thread; the cycles of both count, and the time that the process spends on a core.
    `idle_seconds` is what it spends during `IDLE_SECONDS` after the last completion.
    """
    devices = SimulatedDevice(), SimulatedDevice()
    with Context(devices[0]) as sender, Context(devices[1]) as sink:
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
        start, before = time.process_time(), _counted(devices)
        for _ in range(writes):
            qp.post_send(request)
        cq.wait(writes, timeout=120)
        counted = {key: count - before[key] for key, count in _counted(devices).items()}
        seconds = time.process_time() - start
        return {**counted, "seconds": seconds, "idle_seconds": _idle_seconds(devices)}


def _idle_seconds(devices: Iterable[SimulatedDevice]) -> float:
    """Processor's time that the process takes when none of its devices has work left.

    Raises `RuntimeError` if they have some for `QUIET_AFTER_SECONDS`.
    """
    cycles: list[int] = []
    last = time.monotonic() + QUIET_AFTER_SECONDS
    while (now := [device.cycles for device in devices]) != cycles:
        if time.monotonic() > last:
            raise RuntimeError(f"devices without work still run: cycles {cycles}, then {now}")
        cycles = now
        time.sleep(0.1)
    start = time.process_time()
    time.sleep(IDLE_SECONDS)
    return time.process_time() - start


def _counted(devices: Iterable[SimulatedDevice]) -> dict[str, int]:
    counted = [device.statistics() for device in devices]
    connections = [connection for each in counted for connection in each["connections"]]
    return {
        "cycles_simulated": sum(each["cycles"] for each in counted),
        "fpdus": sum(connection["tx_fpdus"] for connection in connections),
        "fpdu_octets": sum(connection["tx_octets"] for connection in connections),
    }


def _figures(prefix: str, result: dict[str, float]) -> dict[str, float]:
    """Cycles per second, and what was counted for it."""
    if not result["fpdu_octets"]:
        raise RuntimeError(f"{prefix}: no FPDU left during {result['cycles_simulated']} cycles")
    return {
        f"{prefix}_cycles_per_second": round(result["cycles_simulated"] / result["seconds"], 1),
        f"{prefix}_cycles": result["cycles_simulated"],
        f"{prefix}_fpdus": result["fpdus"],
        f"{prefix}_fpdu_octets": result["fpdu_octets"],
    }
