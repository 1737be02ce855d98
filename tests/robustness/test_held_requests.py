"""More Reads come than the request gate holds while a completion before them is not visible."""

import pytest

from stagecoach.gateware.queues.request_gate import DEPTH
from stagecoach.host_driver import Context
from stagecoach.sim.disturbed import DisturbedDevice
from tests.integration.rig import READS
from tests.integration.test_failures import PATTERN, read, send
from tests.robustness.rig import SECONDS, Receiver, device_of

READERS = 6
CYCLES = 5_000
"""More than one message takes, with the entries that it needs."""


@pytest.mark.timeout(600)  # the first test may have to build the device
@pytest.mark.requirement("RDMAP-B-01")
def test_every_request_is_answered_after_a_completion_that_took_long():
    assert READERS * READS > DEPTH + READS
    with Context(DisturbedDevice()) as context:
        device = device_of(context)
        sender = Receiver(context, 1, 0)
        readers = [Receiver(context, 0, 0) for _ in range(READERS)]
        device.run_cycles(CYCLES)
        device.hold(writes=True)
        goal = context.fpdus_received + 1 + READERS * READS
        sender.peer.send(send(b""))
        device.run_cycles(CYCLES)
        size = len(PATTERN)
        for reader in readers:
            reader.buffer[:size] = PATTERN
            requests = [read(reader.mr.rkey, reader.mr.addr, size, n + 1) for n in range(READS)]
            reader.peer.send(*requests)
        for party in (sender, *readers):
            party.peer.pump(0.1)
        device.run_cycles(CYCLES)
        assert context.fpdus_received == goal
        assert sender.cq.poll() == []
        assert not any(reader.peer.ulpdus for reader in readers)
        device.hold()
        sender.check_receives()
        for reader in readers:
            peer = reader.peer
            peer.pump_until(lambda peer=peer: len(peer.ulpdus) == READS, SECONDS)
            assert all(answer.endswith(PATTERN) for answer in peer.ulpdus)
        for party in (sender, *readers):
            party.stop()
