"""Ports that answer nothing for long: what does not need them goes on, and nothing is lost."""

import threading

import pytest

from stagecoach.host_driver import (
    Cause,
    Context,
    DeviceClosed,
    DeviceError,
    QPState,
    RecvWR,
    SendWR,
    StagecoachError,
    WCStatus,
    WROpcode,
    registers,
)
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.disturbed import DisturbedDevice
from tests.robustness.pair import Pair
from tests.robustness.rig import device_of

pytestmark = pytest.mark.timeout(600)  # the first test may have to build the device

LONG = 60_000
"""Cycles for which a port is held: many times what all the work takes."""


def fill(pairs: list[Pair], *salt: object) -> None:
    rng = seeded_random(*salt)
    for pair in pairs:
        pair.end.buffer[:] = rng.randbytes(len(pair.end.buffer))
        pair.theirs[:] = rng.randbytes(len(pair.theirs))


HOLDS = {
    "transmit": {"transmit": True},
    "reads": {"reads": True},
    "writes": {"writes": True},
    "host memory": {"reads": True, "writes": True},
    "everything": {"reads": True, "writes": True, "transmit": True},
}


@pytest.mark.requirement("DDP-3-04")
@pytest.mark.parametrize("hold", HOLDS)
def test_traffic_of_all_kinds_goes_on_behind_a_port_that_was_held(context: Context, hold: str):
    """Held again and again, at any cycle: each time all of it is done in the end."""
    device, length = device_of(context), 1000
    pairs = [Pair(context, 4 * length, emss=emss) for emss in (256, 1460)]
    rng = seeded_random(hold)
    for turn in range(12):
        fill(pairs, hold, turn)
        for pair in pairs:
            pair.post_all(length)
        device.run_cycles(rng.randrange(1500))
        device.hold(**HOLDS[hold])
        for _ in range(5):
            for pair in pairs:
                pair.pump()
        device.run_cycles(rng.choice([10, 1000, LONG]))
        device.hold()
        for pair in pairs:
            pair.finish(length)
    for pair in pairs:
        assert pair.qp.query_state() == (QPState.RTS, Cause.NONE)
        pair.close()
    assert device.statistics()["faults"] == []


def test_what_is_received_is_placed_and_delivered_while_the_llp_takes_nothing(context: Context):
    device, length = device_of(context), 1000
    pairs = [Pair(context, 4 * length) for _ in range(2)]
    fill(pairs)
    sender, receiver = pairs
    device.hold(transmit=True)
    sender.qp.post_send(
        *(
            SendWR(n, WROpcode.RDMA_WRITE, [sender.element(0, length)], rkey=sender.stag)
            for n in (1, 2)
        )
    )
    device.run_cycles(LONG)
    for turn in range(10):
        octets = bytes([turn + 1]) * length
        receiver.qp.post_recv(RecvWR(turn, [receiver.element(length, length)]))
        receiver.endpoint.rdma_write(octets, receiver.mr.rkey, receiver.mr.addr)
        receiver.endpoint.post_send(octets[::-1])
        receiver.pump_until(lambda: bool(receiver.completions), "a Send")
        (completion,) = receiver.completions
        assert (completion.wr_id, completion.status) == (turn, WCStatus.SUCCESS)
        assert receiver.end.buffer[: 2 * length] == octets + octets
        receiver.completions.clear()
    # Completions of Writes say that the LLP has taken them.
    assert sender.cq.poll() == []
    device.hold()
    sender.pump_until(lambda: len(sender.completions) == 2, "the Writes")
    sender.pump_until(lambda: sender.theirs[:length] == sender.end.buffer[:length], "the octets")
    for pair in pairs:
        pair.close()


def test_writes_are_placed_while_host_memory_answers_no_reads(context: Context):
    device, length = device_of(context), 1000
    pair = Pair(context, length)
    fill([pair])
    device.hold(reads=True)
    pair.qp.post_send(SendWR(1, WROpcode.RDMA_WRITE, [pair.element(0, length)], rkey=pair.stag))
    device.run_cycles(LONG)
    octets = bytes(pair.theirs[::-1])
    pair.endpoint.rdma_write(octets, pair.mr.rkey, pair.mr.addr + length)
    pair.pump_until(lambda: pair.end.buffer[length:] == octets, "the Write of the peer")
    assert pair.completions == []
    device.hold()
    pair.pump_until(lambda: len(pair.completions) == 1, "the Write")
    pair.pump_until(lambda: pair.theirs == pair.end.buffer[:length], "the octets")
    pair.close()


def test_writes_are_sent_while_host_memory_takes_no_writes(context: Context):
    device, length = device_of(context), 1000
    pair = Pair(context, length)
    fill([pair])
    device.hold(writes=True)
    before = bytes(pair.end.buffer[length:])
    pair.endpoint.rdma_write(bytes(length), pair.mr.rkey, pair.mr.addr + length)
    pair.qp.post_send(SendWR(1, WROpcode.RDMA_WRITE, [pair.element(0, length)], rkey=pair.stag))
    pair.pump_until(lambda: pair.theirs == pair.end.buffer[:length], "the octets")
    device.run_cycles(LONG)
    assert (pair.cq.poll(), pair.end.buffer[length:]) == ([], before)
    device.hold()
    pair.pump_until(lambda: len(pair.completions) == 1, "the completion")
    pair.pump_until(lambda: pair.end.buffer[length:] == bytes(length), "the Write of the peer")
    pair.close()


@pytest.mark.requirement("DDP-7.1-16")
def test_an_error_behind_a_held_llp_is_told_when_it_goes_on(context: Context):
    device, length = device_of(context), 1000
    sender, victim = Pair(context, length), Pair(context, length)
    fill([sender, victim])
    device.hold(transmit=True)
    sender.qp.post_send(
        SendWR(1, WROpcode.RDMA_WRITE, [sender.element(0, length)], rkey=sender.stag)
    )
    device.run_cycles(LONG)
    before = bytes(victim.end.buffer)
    victim.endpoint.rdma_write(bytes(8), victim.mr.rkey ^ 1, victim.mr.addr)
    victim.endpoint.rdma_write(bytes(length), victim.mr.rkey, victim.mr.addr)
    for _ in range(5):
        victim.peer.pump()
    device.run_cycles(LONG)
    assert victim.end.buffer == before
    device.hold()
    victim.pump_until(lambda: victim.qp.state == QPState.ERR, "the error")
    assert victim.qp.query_state() == (QPState.ERR, Cause.TAGGED_STAG_INVALID)
    victim.pump_until(lambda: victim.endpoint.terminate_received is not None, "the Terminate")
    assert victim.end.buffer == before
    sender.pump_until(lambda: len(sender.completions) == 1, "the Write")
    sender.close()
    victim.close()


@pytest.mark.parametrize("hold", HOLDS)
def test_a_qp_that_is_closed_meanwhile_is_closed_when_the_port_goes_on(context: Context, hold: str):
    """The stop is a fence: what was begun ends first."""
    device, length = device_of(context), 1000
    closed, other = Pair(context, 4 * length), Pair(context, 4 * length)
    fill([closed, other])
    closed.post_all(length)
    device.hold(**HOLDS[hold])
    for _ in range(5):
        closed.peer.pump()
    device.run_cycles(1000)
    release = threading.Timer(0.5, device.hold)
    release.start()
    closed.close()
    release.join()
    assert closed.qp.state == QPState.RESET
    before = bytes(closed.end.buffer)
    other.post_all(length)
    other.finish(length)
    assert closed.end.buffer == before
    other.close()
    assert device.statistics()["faults"] == []


def test_a_port_that_is_held_for_ever_hangs_no_call():
    """The stop does not end, and no other command is begun: its write would not be answered."""
    device = DisturbedDevice()
    context = Context(device, command_seconds=0.5)
    pair = Pair(context, 4000)
    pair.post_all(1000)
    device.run_cycles(300)
    device.hold(transmit=True)
    for _ in range(5):
        pair.peer.pump()
    device.run_cycles(2000)
    with pytest.raises(DeviceError, match="command 3 has not ended"):
        pair.qp.close()
    assert context.read(registers.COMMAND_STATUS)["busy"] == 1
    with pytest.raises(DeviceError, match="command 3 has not ended"):
        pair.qp.query_state()
    with pytest.raises(StagecoachError):
        context.close()
    with pytest.raises(DeviceClosed):
        context.read(registers.COMMAND_STATUS)
    pair.peer.close()


def test_a_peer_that_reads_nothing_stops_nobody_else_and_gets_all_in_the_end(context: Context):
    large, length = 1 << 20, 1000
    stuck, other = Pair(context, large), Pair(context, length)
    fill([stuck, other])
    # More than the window and the sockets hold.
    stuck.qp.post_send(
        *(
            SendWR(n, WROpcode.RDMA_WRITE, [stuck.element(0, large)], rkey=stuck.stag)
            for n in range(4)
        )
    )
    for turn in range(30):
        other.qp.post_send(
            SendWR(turn, WROpcode.RDMA_WRITE, [other.element(0, length)], rkey=other.stag)
        )
        other.pump_until(lambda: bool(other.completions), "a Write beside")
        other.completions.clear()
    assert len(stuck.cq.poll()) < 4
    stuck.completions.clear()
    stuck.pump_until(lambda: stuck.theirs == stuck.end.buffer[:large], "all octets")
    for pair in (stuck, other):
        assert pair.qp.query_state() == (QPState.RTS, Cause.NONE)
        pair.close()
