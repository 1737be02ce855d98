"""Congestion control, step by step along traces read from the RFCs."""

from typing import Any

import pytest

from stagecoach.sim.model.tcp.congestion import Congestion, initial_window
from tests.sim.model.tcp.vectors import vectors

requirement = pytest.mark.requirement


class Sender:
    """Sends whole segments of endless data; what a connection does around its window."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self.smss = setup["smss"]
        self.window = setup["rwnd"]
        cwnd = self.smss if setup.get("lost_syn") else setup.get("iw", 0)
        self.control = Congestion(self.smss, cwnd, setup.get("ssthresh", 1 << 30))
        self.initial = setup.get("iw")
        self.una = self.following = self.maximum = 0

    def event(self, name: str, position: int = 0) -> tuple[list[list[Any]], str]:
        """What is sent, and what becomes of the timer."""
        sent, timer = [], ""
        if name == "ack" and position > self.una:
            verdict = self.control.acknowledged(self.una, position, self.maximum)
            self.una = position
            self.following = max(self.following, position)
            timer = "restart" if verdict.restart_timer else ""
            if verdict.retransmit:
                sent.append(["retransmit", self.una])
            if self.una == self.maximum:
                timer = "stop"
        elif name == "ack" and self.maximum > self.una:
            if self.control.duplicate(self.una, self.following, self.maximum).retransmit:
                sent.append(["retransmit", self.una])
        elif name == "timeout":
            self.control.expire(self.una, self.maximum)
            self.following = self.una
            timer = "double"
        elif name == "idle":
            self.control.idle()
        return sent + self._send(), timer

    def _send(self) -> list[list[Any]]:
        sent = []
        while self.following + self.smss - self.una <= min(self.control.limit, self.window):
            new = self.following == self.maximum
            sent.append(["new" if new else "retransmit", self.following])
            self.following += self.smss
            if new:
                self.control.sent_new(self.smss)
            self.maximum = max(self.maximum, self.following)
        return sent


@requirement(
    "CC-3.1-01",
    "CC-3.1-09",
    "CC-3.1-10",
    "CC-3.1-11",
    "CC-3.1-12",
    "CC-3.1-13",
    "CC-3.2-06",
    "CC-3.2-07",
    "CC-3.2-08",
    "CC-4.1-01",
    "NR-3.2-01",
    "NR-3.2-02",
    "NR-3.2-03",
    "NR-3.2-04",
    "NR-3.2-05",
    "NR-3.2-06",
    "LT-2-01",
    "CC-3.1-04",
)
@pytest.mark.parametrize("vector", vectors("congestion"))
def test_trace(vector):
    sender = Sender(vector["setup"])
    for number, step in enumerate(vector["steps"]):
        sent, timer = sender.event(*step["event"])
        control = sender.control
        found = {
            "cwnd": control.cwnd,
            "ssthresh": control.ssthresh,
            "recover": control.recover,
            "dupacks": control.duplicates,
            "nxt": sender.following,
            "max": sender.maximum,
            "sent": sent,
            "timer": timer,
        }
        assert found == {key: step[key] for key in found}, f"step {number}: {step['event']}"
        assert control.recovering == (step["mode"] == "fast recovery")


@requirement("IW-2-01")
@pytest.mark.parametrize(
    ("smss", "window"), [(536, 5360), (1460, 14600), (1461, 14600), (8960, 17920)]
)
def test_initial_window_is_that_of_rfc6928(smss, window):
    assert initial_window(smss) == window


@requirement("NR-3.2-05")
def test_a_partial_ack_of_more_than_cwnd_leaves_one_segment():
    """Duplicate ACKs were lost, so that cwnd did not grow by what the partial one is for."""
    control = Congestion(1460, 20 * 1460, recover=-2)
    for _ in range(3):
        control.duplicate(0, 20 * 1460, 20 * 1460)
    assert control.acknowledged(0, 19 * 1460, 20 * 1460).retransmit
    assert control.cwnd == 1460
