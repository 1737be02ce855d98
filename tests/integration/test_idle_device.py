"""A compiled device without work: no cycle is simulated, and none of its threads wakes."""

import re
import time
from pathlib import Path

import pytest

from stagecoach.host_driver import RecvWR, SendWR, WROpcode
from tests.integration.rig import End, open_device
from tests.integration.test_atomics import join

pytestmark = pytest.mark.timeout(300)  # the test may have to build the device

OCTETS = 8192
QUIET_SECONDS = 1.0
"""What wakes less often is not seen."""
PATIENCE_SECONDS = 60.0

TASKS = Path("/proc/self/task")


def threads() -> set[str]:
    """The threads of this process."""
    return {task.name for task in TASKS.iterdir()}


def activity(thread: str) -> tuple[str, ...]:
    """How often a thread has left its core, and its ticks of processor time so far."""
    switches = re.findall(r"ctxt_switches:\s*(\d+)", (TASKS / thread / "status").read_text())
    behind_name = (TASKS / thread / "stat").read_text().rpartition(")")[2].split()
    user, system = behind_name[11:13]
    return (*switches, user, system)


def test_an_idle_device_simulates_nothing_and_no_thread_of_it_wakes() -> None:
    others = threads()
    with open_device() as one, open_device() as other:
        simulating = sorted(threads() - others)
        assert len(simulating) >= 2
        sender, sink = End(one, OCTETS), End(other, OCTETS)
        join(sender.qp, sink.qp)
        sink.qp.post_recv(RecvWR(1, [sink.element()]))
        sender.qp.post_send(SendWR(2, WROpcode.SEND, [sender.element()]))
        for end in (sink, sender):
            end.cq.wait(timeout=PATIENCE_SECONDS)
        before: list[object] = []
        last = time.monotonic() + PATIENCE_SECONDS
        while (now := [activity(thread) for thread in simulating]) != before:
            assert time.monotonic() < last, f"threads that still run: {before}, then {now}"
            before = list(now)
            time.sleep(QUIET_SECONDS)
        cycles = [context.transport.cycles for context in (one, other)]
        time.sleep(QUIET_SECONDS)
        assert [context.transport.cycles for context in (one, other)] == cycles
        assert [activity(thread) for thread in simulating] == before
