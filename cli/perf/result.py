"""What was measured, and the rates that follow."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from stagecoach.cli.perf.settings import Plan
from stagecoach.host_driver.locate import SIMULATION


@dataclass(frozen=True)
class Point:
    """Messages of one size; all times in cycles of the client's device.

    Attributes
    ----------
    size: octets of a message. messages, cycles: of the throughput.
    latency: median; latency_least, latency_most: what it varies between.
    """

    size: int
    messages: int
    cycles: int
    messages_per_cycle: float
    limit_messages_per_cycle: float
    latency: int
    latency_least: int
    latency_most: int

    @property
    def octets_per_cycle(self) -> float:
        """Of payload."""
        return self.size * self.messages_per_cycle

    @property
    def limit_octets_per_cycle(self) -> float:
        """Of payload, as the protocol allows."""
        return self.size * self.limit_messages_per_cycle


@dataclass(frozen=True)
class Result:
    """All points, and the clock for rates per second.

    Attributes
    ----------
    clock_mhz: of the device's core clock. It only turns cycles into seconds.
    device: that of the client.
    """

    plan: Plan
    clock_mhz: float
    points: list[Point]
    device: str = SIMULATION

    @property
    def title(self) -> str:
        """What was measured, in one line."""
        plan = self.plan
        qps = f"{plan.qps} QP" + "s" * (plan.qps > 1)
        markers = ", Markers" * plan.framing.markers
        return (
            f"{plan.operation.title}, queue depth {plan.depth} on {qps}, "
            f"EMSS {plan.framing.emss}{markers}"
        )

    def messages_per_second(self, point: Point) -> float:
        """At the clock."""
        return point.messages_per_cycle * self.clock_mhz * 1e6

    def limit_messages_per_second(self, point: Point) -> float:
        """At the clock, as the protocol allows."""
        return point.limit_messages_per_cycle * self.clock_mhz * 1e6

    def gbit_per_second(self, point: Point) -> float:
        """Of payload, at the clock."""
        return point.octets_per_cycle * 8 * self.clock_mhz / 1e3

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured, and the rates."""
        plan = self.plan
        return {
            "device": self.device,
            "operation": plan.operation.name,
            "queue_depth": plan.depth,
            "qps": plan.qps,
            "emss": plan.framing.emss,
            "markers": plan.framing.markers,
            "clock_mhz": self.clock_mhz,
            "points": [
                dataclasses.asdict(point)
                | {
                    "octets_per_cycle": point.octets_per_cycle,
                    "limit_octets_per_cycle": point.limit_octets_per_cycle,
                    "messages_per_second": self.messages_per_second(point),
                    "gbit_per_second": self.gbit_per_second(point),
                }
                for point in self.points
            ],
        }
