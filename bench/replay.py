"""Amaranth's own simulator over what enters and leaves a device elsewhere."""

import time
from collections.abc import Iterable
from typing import Any

from amaranth.hdl import Value
from amaranth.lib.wiring import Flow
from amaranth.sim import Simulator

from bench.catalogue import Case
from bench.run import run_case
from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.rnic import Rnic

OUTPUTS = ("tx_valid", "tx_ready", "tx_first", "tx_last", "tx_data", "tx_octets")
"""Of the LLP port: what leaves the device by it, and when."""


def run_amaranth(octets: int, cycles: int) -> dict[str, float]:
    """Simulates `cycles` of an RDMA Write of `octets`; the same FPDUs must leave in both.

    Another simulator has recorded all that enters the device from reset on.
    """
    device = Rnic(RnicConfig())
    ports = {"__".join(map(str, path)): value for path, value in _inputs(device)}
    out = {name: f"llp__{name}" for name in OUTPUTS}
    case = Case(
        "speed_cases",
        "check_record",
        {"octets": octets, "cycles": cycles, "ports": [*ports, *set(out.values()) - set(ports)]},
    )
    result: dict[str, Any] = dict(run_case(case))
    columns, start = result["ports"], result["start"]
    found: dict[str, float] = {}

    async def replay(context: Any) -> None:
        last: dict[str, int] = {}
        fpdus = fpdu_octets = 0
        for cycle in range(len(columns["llp__tx_valid"])):
            if cycle == start:
                started = time.process_time()
            for name, value in ports.items():
                if last.get(name) != columns[name][cycle]:
                    last[name] = columns[name][cycle]
                    context.set(value, last[name])
            beat = {name: context.get(Value.cast(getattr(device.llp, name))) for name in OUTPUTS}
            expected = {name: columns[port][cycle] for name, port in out.items()}
            if beat["tx_valid"] != expected["tx_valid"] or (beat["tx_valid"] and beat != expected):
                raise RuntimeError(f"cycle {cycle}: {beat} leaves; recorded: {expected}")
            if cycle >= start and beat["tx_valid"] and beat["tx_ready"]:
                fpdus += beat["tx_last"]
                fpdu_octets += beat["tx_octets"]
            await context.tick()
        found.update(
            cycles_simulated=len(columns["llp__tx_valid"]) - start,
            seconds=time.process_time() - started,
            fpdus=fpdus,
            fpdu_octets=fpdu_octets,
        )

    simulator = Simulator(device)
    simulator.add_clock(1 / 156.25e6)
    simulator.add_testbench(replay)
    simulator.run()
    return found


def _inputs(device: Rnic) -> Iterable[tuple[tuple[str | int, ...], Value]]:
    for path, member, value in device.signature.flatten(device):
        if member.flow == Flow.In:
            yield path, Value.cast(value)
