"""What others place while something is held turns no count round: all of it leaves in the end.

A Send with Invalidate is held by an FPDU, or by an atomic, that ends only when the port goes on;
so is the report of a local invalidation. After it come completions of all QPs, and before it goes
on another QP gets more Writes than 16 bits tell from none.
"""

import time
from collections.abc import Iterator

import pytest

from stagecoach.host_driver import (
    MR,
    AccessFlags,
    Context,
    SendFlags,
    SendWR,
    WCStatus,
    WROpcode,
)
from stagecoach.sim.disturbed import DisturbedDevice
from stagecoach.sim.model.atomics import FETCH_ADD, AtomicRequest
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, control_octet
from tests.integration.test_atomics import request_ulpdu
from tests.integration.test_failures import PATTERN, read, response, send, write
from tests.robustness.rig import SECONDS, Receiver, device_of

pytestmark = pytest.mark.timeout(600)  # the first test may have to build the device

WRITES = 40_000
"""More than 2^15, and less than 2^16: half a turn of a count of 16 bits, the worst for one."""

SLOT_OCTETS = 8
SLOTS = 250
PLACES = 2048
"""Where they are placed in turn, after the receives."""

MESSAGES = 2
"""To each QP: the device has so many receive entries ahead while it cannot read more."""

CYCLES = 5_000
"""More than one message takes, with the entries that it needs."""


class Party(Receiver):
    """It has as many receives as messages come for it."""

    def __init__(self, context: Context):
        super().__init__(context, MESSAGES, 200)


@pytest.fixture
def context() -> Iterator[Context]:
    with Context(DisturbedDevice()) as opened:
        yield opened


def arrive(context: Context, party: Party, *ulpdus: bytes) -> None:
    """Sends to a QP and waits until the device has received it and dealt with it."""
    goal = context.fpdus_received + len(ulpdus)
    party.peer.send(*ulpdus)
    party.peer.pump_until(lambda: context.fpdus_received >= goal, SECONDS)
    device_of(context).run_cycles(CYCLES)


def place_many(context: Context, party: Party) -> None:
    """All of `WRITES` are visible in memory, whatever is held."""
    for first in range(0, WRITES, 1000):
        party.peer.send(
            *(
                write(
                    party.mr.rkey,
                    party.mr.addr + PLACES + number % SLOTS * SLOT_OCTETS,
                    number.to_bytes(SLOT_OCTETS),
                )
                for number in range(first, first + 1000)
            )
        )
    last = b"".join(number.to_bytes(SLOT_OCTETS) for number in range(WRITES - SLOTS, WRITES))
    end = time.monotonic() + SECONDS
    while party.buffer[PLACES : PLACES + len(last)] != last:
        assert time.monotonic() < end, "the Writes of another QP are not placed"
        party.peer.pump(0.01)


class Scene:
    """The QPs beside the one that holds: their messages come after a Send with Invalidate."""

    def __init__(self, context: Context):
        self.context = context
        self.invalidated = Party(context)
        self.region = bytearray(64)
        access, qp = AccessFlags.REMOTE_READ, self.invalidated.qp
        self.mr = MR(self.invalidated.pd, self.region, access, qp=qp)
        self.others = [Party(context) for _ in range(3)]
        self.writer = Party(context)
        device_of(context).run_cycles(CYCLES)

    def hold(self) -> None:
        """Something is held already; the messages come, and then the many Writes."""
        control = control_octet(Opcode.SEND_WITH_INVALIDATE)
        invalidation = send(b"", rsvd_ulp=control, rsvd_ulp_word=self.mr.rkey)
        arrive(self.context, self.invalidated, invalidation)
        for party in self.others:
            messages = [send(PATTERN, msn=msn) for msn in range(1, MESSAGES + 1)]
            request = read(party.mr.rkey, party.mr.addr, len(PATTERN))
            arrive(self.context, party, *messages, request)
        assert self.invalidated.cq.poll() == []
        arrive(self.context, self.writer, send(PATTERN[:1], msn=1))
        place_many(self.context, self.writer)
        arrive(self.context, self.writer, send(PATTERN[:1], msn=2))
        assert self.invalidated.cq.poll() == []

    def go_on(self) -> None:
        """All that stood is completed, and the QPs stop."""
        self.invalidated.check_receives(1)
        for party in self.others:
            party.check_receives(MESSAGES)
            party.peer.pump_until(lambda party=party: bool(party.peer.ulpdus), SECONDS)
            (answer,) = party.peer.ulpdus
            assert answer.endswith(PATTERN)
        self.writer.check_receives(MESSAGES)
        self.mr.close()
        for party in (self.invalidated, *self.others, self.writer):
            party.stop()
        assert device_of(self.context).statistics()["faults"] == []


@pytest.mark.requirement("RDMAP-5.5-16")
def test_everything_leaves_behind_an_fpdu_that_the_llp_did_not_take(context: Context):
    device = device_of(context)
    holder, scene = Party(context), Scene(context)
    device.hold(transmit=True)
    element = holder.element(0, 1000)
    holder.qp.post_send(SendWR(9, WROpcode.RDMA_WRITE, [element], remote_addr=0, rkey=1))
    device.run_cycles(CYCLES)
    scene.hold()
    assert holder.cq.poll() == []
    device.hold()
    scene.go_on()
    (completion,) = holder.cq.wait(1, SECONDS)
    assert (completion.wr_id, completion.status) == (9, WCStatus.SUCCESS)
    holder.stop()


@pytest.mark.requirement("RDMAP-5.5-16")
def test_everything_leaves_behind_a_host_read_that_was_held(context: Context):
    """That of an atomic; also the report of a local invalidation waits for it."""
    device = device_of(context)
    holder, invalidating, scene = Party(context), Party(context), Scene(context)
    closed = MR(invalidating.pd, bytearray(64), AccessFlags.REMOTE_WRITE, qp=invalidating.qp)
    # It is there, and begins when the Read before it is answered.
    element, fenced = invalidating.element(0, 8), SendFlags.SIGNALED | SendFlags.FENCE
    invalidating.qp.post_send(
        SendWR(1, WROpcode.RDMA_READ, [element], remote_addr=0, rkey=1),
        SendWR(2, WROpcode.LOCAL_INV, rkey=closed.rkey, send_flags=fenced),
    )
    invalidating.peer.pump_until(lambda: bool(invalidating.peer.ulpdus), SECONDS)
    asked = ReadRequest.decode(invalidating.peer.ulpdus[0][18:])
    device.run_cycles(CYCLES)
    device.hold(reads=True)
    request = AtomicRequest(FETCH_ADD, 7, holder.mr.rkey, holder.mr.addr, data=1, mask=0)
    arrive(context, holder, request_ulpdu(1, request))
    arrive(context, invalidating, response(asked.sink_stag, asked.sink_tagged_offset, PATTERN[:8]))
    scene.hold()
    (completion,) = invalidating.cq.poll()
    assert (completion.wr_id, completion.status) == (1, WCStatus.SUCCESS)
    device.hold()
    scene.go_on()
    (completion,) = invalidating.cq.wait(1, SECONDS)
    assert (completion.wr_id, completion.status) == (2, WCStatus.SUCCESS)
    holder.peer.pump_until(lambda: bool(holder.peer.ulpdus), SECONDS)
    assert holder.buffer[0] == 1
    closed.close()
    for party in (holder, invalidating):
        party.stop()
