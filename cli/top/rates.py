"""What happened between two snapshots of a device."""

from dataclasses import dataclass
from typing import Any

from stagecoach.host_driver.counters import COUNTER_BITS

RATES = ("octets_sent", "octets_received", "messages_sent", "messages_received")


@dataclass
class DeviceView:
    """The last snapshot of a device, with rates per second since the one before.

    Attributes
    ----------
    last: the snapshot. rates: of the whole device, by counter; none if it has none. qp_rates: of
        each QP.
    cycles_per_second: of its core clock.
    """

    last: dict[str, Any]
    rates: dict[str, float]
    qp_rates: dict[int, dict[str, float]]
    cycles_per_second: float

    def as_json(self) -> dict[str, Any]:
        """The snapshot with its rates, without the frames of a network."""
        qps = [{**qp, **_per_second(self.qp_rates[qp["qp"]])} for qp in self.last["qps"]]
        total = {**self.last["total"], **_per_second(self.rates)}
        cycles = {"cycles_per_second": round(self.cycles_per_second, 1)}
        last = {name: value for name, value in self.last.items() if name != "opened"}
        if last.get("network") is not None:
            last["network"] = {
                name: value for name, value in last["network"].items() if name != "frames"
            }
        return {**last, **cycles, "total": total, "qps": qps}


def _per_second(rates: dict[str, float]) -> dict[str, float]:
    return {f"{name}_per_second": round(rate, 1) for name, rate in rates.items()}


def _rates(before: dict[str, int], after: dict[str, int], seconds: float) -> dict[str, float]:
    if RATES[0] not in after:  # the device has no counters
        return {}
    if seconds <= 0:
        return dict.fromkeys(RATES, 0.0)
    modulus = 1 << COUNTER_BITS
    return {name: (after[name] - before.get(name, 0)) % modulus / seconds for name in RATES}


def view(before: dict[str, Any], after: dict[str, Any]) -> DeviceView:
    """What happened from one snapshot to a later one of the same device."""
    seconds = after["time"] - before["time"]
    known = {qp["qp"]: qp for qp in before["qps"]}
    qp_rates = {qp["qp"]: _rates(known.get(qp["qp"], {}), qp, seconds) for qp in after["qps"]}
    rates = {}
    if after["counters"]:
        rates = {name: sum(one[name] for one in qp_rates.values()) for name in RATES}
    cycles = (after["cycles"] - before["cycles"]) / seconds if seconds > 0 else 0.0
    return DeviceView(after, rates, qp_rates, cycles)
