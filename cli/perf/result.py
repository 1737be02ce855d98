"""What was measured, and the rates that follow."""

from dataclasses import dataclass
from typing import Any

from stagecoach.cli.perf.latency import Latencies
from stagecoach.cli.perf.settings import Plan
from stagecoach.host_driver.locate import SIMULATION


@dataclass(frozen=True)
class Point:
    """Messages of one size; all times in cycles of the client's device.

    Attributes
    ----------
    size: bytes of a message. messages, cycles: of the throughput; with both directions the
    messages of both.
    latencies: of single messages.
    """

    size: int
    messages: int
    cycles: int
    messages_per_cycle: float
    limit_messages_per_cycle: float
    latencies: Latencies

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
        both = " in both directions" * plan.bidirectional
        return (
            f"{plan.operation.title}{both}, queue depth {plan.depth} on {qps}, "
            f"EMSS {plan.framing.emss}{markers}"
        )

    def microseconds(self, cycles: float) -> float:
        """At the clock."""
        return cycles / self.clock_mhz

    def messages_per_second(self, point: Point) -> float:
        """At the clock."""
        return point.messages_per_cycle * self.clock_mhz * 1e6

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
            "pingpong": plan.pingpong,
            "bidirectional": plan.bidirectional,
            "clock_mhz": self.clock_mhz,
            "points": [
                {
                    "size": point.size,
                    "messages": point.messages,
                    "cycles": point.cycles,
                    "messages_per_cycle": point.messages_per_cycle,
                    "limit_messages_per_cycle": point.limit_messages_per_cycle,
                    "octets_per_cycle": point.octets_per_cycle,
                    "limit_octets_per_cycle": point.limit_octets_per_cycle,
                    "messages_per_second": self.messages_per_second(point),
                    "gbit_per_second": self.gbit_per_second(point),
                    "latency": point.latencies.median,
                    "latency_least": point.latencies.least,
                    "latency_average": point.latencies.average,
                    "latency_99": point.latencies.per_mille(990),
                    "latency_99_9": point.latencies.per_mille(999),
                    "latency_most": point.latencies.most,
                    "latencies": list(point.latencies.cycles),
                }
                for point in self.points
            ],
        }
