"""Doorbells without sense and rings full of garbage: the host's own QP suffers, and no other.

The host overwrites rings that the driver has written, and rings doorbells past the driver. The
device may stop the QP, or do what a garbled entry happens to say within the rights of that QP. It
does not hang, nor touch memory that the QP has no right to.
"""

import random
from collections.abc import Callable, Iterator

import pytest

from stagecoach.host_driver import (
    MR,
    Cause,
    Context,
    DeviceError,
    QPState,
    RecvWR,
    SendWR,
    WCStatus,
    WROpcode,
    entries,
    registers,
)
from stagecoach.host_driver.qp import QP
from stagecoach.host_driver.ring import Ring
from stagecoach.host_driver.work_queue import WorkQueue
from stagecoach.hw.interface.queue_entries import RECEIVE_ENTRY_OCTETS, SendOpcode
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.model import ddp
from stagecoach.sim.transport import SimulatedDevice
from tests.integration.rig import ALL, End, RawPeer, open_device
from tests.integration.test_failures import PATTERN, Bystander, send

pytestmark = pytest.mark.timeout(150)  # the first test may have to build the device

ROUNDS = 12
CYCLES = 10_000
"""Longer than all that the entries of a ring take."""

ENTRIES = 16
SECRET = b"\xc7\x5e\xc4\xe7" * 64
"""No octet of it is in what a QP of another PD sends, and none of it changes."""

STOPPED = {
    Cause.LOCAL_BAD_ENTRY: WCStatus.LOC_QP_OP_ERR,
    Cause.LOCAL_SEND_PROTECTION: WCStatus.LOC_PROT_ERR,
    Cause.LOCAL_RECEIVE_PROTECTION: WCStatus.LOC_PROT_ERR,
}
"""Why a QP stops for what the host has written, and the status of the entry at fault."""


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    with open_device() as context:
        yield context


class Guard:
    """Memory that the victim must not reach: of another PD, of another QP, and not registered."""

    def __init__(self, victim: End):
        context = victim.context
        self.other = End(context, len(SECRET))
        self.scoped = bytearray(SECRET)
        self.scoped_mr = MR(self.other.pd, self.scoped, ALL, qp=self.other.qp)
        self.mapped = bytearray(SECRET)
        self.address = context.transport.map_memory(self.mapped)
        self.other.buffer[:] = SECRET
        self.closed = MR(victim.pd, bytearray(SECRET), ALL)
        self.closed.close()

    def elements(self) -> list[tuple[int, int]]:
        """STag and address of each."""
        regions = (self.other.mr, self.scoped_mr, self.closed)
        return [*((mr.lkey, mr.addr) for mr in regions), (self.closed.lkey, self.address)]

    def check(self) -> None:
        assert self.other.buffer == SECRET
        assert self.scoped == SECRET
        assert self.mapped == SECRET
        assert self.closed.buf == SECRET

    def close(self) -> None:
        self.other.close()
        self.other.context.transport.unmap_memory(self.address)


@pytest.fixture
def bystander(context: Context) -> Iterator[Bystander]:
    bystander = Bystander(context)
    yield bystander
    run(context)
    bystander.check()
    bystander.end.close()


@pytest.fixture
def victim(context: Context) -> Iterator[End]:
    end = End(context)
    yield end
    end.close()


def run(context: Context, cycles: int = CYCLES) -> None:
    assert isinstance(context.transport, SimulatedDevice)
    context.transport.run_cycles(cycles)


Garble = Callable[[random.Random, Ring, int, Guard, End], None]


def noise(rng: random.Random, ring: Ring, number: int, guard: Guard, end: End) -> None:
    """Random octets."""
    offset = ring.offset(number)
    ring.memory[offset : offset + ring.entry_octets] = rng.randbytes(ring.entry_octets)


def one_bit(rng: random.Random, ring: Ring, number: int, guard: Guard, end: End) -> None:
    """A good entry in which one bit is wrong."""
    offset = ring.offset(number) + rng.randrange(ring.entry_octets)
    ring.memory[offset] ^= 1 << rng.randrange(8)


def foreign_send(rng: random.Random, ring: Ring, number: int, guard: Guard, end: End) -> None:
    """A good send entry, but for an element that is not the QP's to use."""
    stag, address = rng.choice(guard.elements())
    length = rng.choice([1, len(SECRET) - 1, len(SECRET), 1 << 16, (1 << 32) - 1])
    element = entries.ELEMENT.pack(tagged_offset=address, length=length, stag=stag)
    entry = entries.SEND.pack(
        opcode=rng.choice([SendOpcode.SEND, SendOpcode.RDMA_WRITE, SendOpcode.RDMA_READ]),
        flags=1,
        element_count=1,
        length=length,
        remote_stag=end.mr.rkey,
        remote_tagged_offset=end.mr.addr,
        elements=element,
    )
    ring.memory[ring.offset(number) : ring.offset(number) + ring.entry_octets] = entry[
        : ring.entry_octets
    ]


def foreign_receive(rng: random.Random, ring: Ring, number: int, guard: Guard, end: End) -> None:
    """A receive entry with an element that is not the QP's to use."""
    stag, address = rng.choice(guard.elements())
    length = rng.choice([1, len(SECRET) - 1, len(SECRET), (1 << 32) - 1])
    element = entries.ELEMENT.pack(tagged_offset=address, length=length, stag=stag)
    entry = element.ljust(RECEIVE_ENTRY_OCTETS, b"\0")
    ring.memory[ring.offset(number) : ring.offset(number) + len(entry)] = entry


class Garbled:
    """Has the ring overwritten behind the driver's back, before the device hears of the entries."""

    def __init__(self, qp: QP, garble: Callable[[Ring, int], None]):
        self._qp, self._garble = qp, garble
        self._doorbell = qp._ring_doorbell
        qp._ring_doorbell = self._ring  # type: ignore[method-assign]

    def _ring(self, queue: WorkQueue) -> None:
        for posted in queue.posted:
            self._garble(queue.ring, posted.index)
        self._doorbell(queue)


def finish(end: End) -> Cause:
    """Closes the QP, which ends in bounded time; its cause is named, and so are its completions."""
    qp = end.qp
    end.context.process_events()
    assert qp.query_state()[0] == qp.state
    stopped = qp.state == QPState.ERR
    assert not stopped or qp.cause in STOPPED, qp.cause
    cause = qp.cause
    qp.close()
    statuses = [wc.status for wc in end.cq.poll(4 * ENTRIES)]
    allowed = {WCStatus.SUCCESS, WCStatus.WR_FLUSH_ERR, STOPPED.get(cause, WCStatus.SUCCESS)}
    assert set(statuses) <= allowed
    return cause


@pytest.mark.requirement("RDMAP-8.1.1-01", "RDMAP-8.1.1-03", "DDP-8.3.1-02", "DDP-8.3.1-04")
@pytest.mark.parametrize("garble", [noise, one_bit, foreign_send])
def test_a_send_ring_of_garbage(garble: Garble, context: Context, bystander: Bystander):
    rng = seeded_random(garble.__name__)
    causes = set()
    for _ in range(ROUNDS):
        end = End(context)
        end.buffer[:] = bytes(len(end.buffer))
        guard = Guard(end)
        peer = RawPeer(end.qp)
        Garbled(end.qp, lambda ring, number: garble(rng, ring, number, guard, end))  # noqa: B023
        request = SendWR(
            0,
            WROpcode.RDMA_WRITE,
            [end.element(0, 100)],
            remote_addr=1 << 20,
            rkey=rng.getrandbits(32),
        )
        end.qp.post_send(*[request] * rng.randint(1, ENTRIES))
        run(context)
        peer.pump(0.05)
        causes.add(finish(end))
        peer.pump(0.05)
        # One's own octets, which are zero, or those of an RDMAP header; never the secret.
        payloads = [ddp.decode(ulpdu)[1] for ulpdu in peer.ulpdus]
        assert not any(SECRET[:8] in payload for payload in payloads)
        guard.check()
        peer.close()
        end.close()
        guard.close()
    if garble is noise:
        assert Cause.LOCAL_BAD_ENTRY in causes
    elif garble is foreign_send:
        assert causes == {Cause.LOCAL_SEND_PROTECTION}


@pytest.mark.requirement("RDMAP-8.1.1-01", "RDMAP-8.1.1-03", "DDP-8.3.1-02", "DDP-8.3.1-04")
@pytest.mark.parametrize("garble", [noise, one_bit, foreign_receive])
def test_a_receive_ring_of_garbage(garble: Garble, context: Context, bystander: Bystander):
    rng = seeded_random(garble.__name__)
    causes = set()
    for _ in range(ROUNDS):
        end = End(context)
        guard = Guard(end)
        Garbled(end.qp, lambda ring, number: garble(rng, ring, number, guard, end))  # noqa: B023
        end.qp.post_recv(*[RecvWR(n, [end.element(0, 200)]) for n in range(4)])
        peer = RawPeer(end.qp, initiator=False)
        peer.send(*(send(PATTERN, msn=msn) for msn in range(1, 5)))
        run(context)
        causes.add(finish_receives(end))
        guard.check()
        peer.close()
        end.close()
        guard.close()
    if garble is not one_bit:
        assert Cause.LOCAL_RECEIVE_PROTECTION in causes
        assert causes <= {Cause.LOCAL_RECEIVE_PROTECTION, Cause.UNTAGGED_TOO_LONG}


def finish_receives(end: End) -> Cause:
    """As `finish`; a receive may also be too short for what comes."""
    end.context.process_events()
    if end.qp.cause != Cause.UNTAGGED_TOO_LONG:
        return finish(end)
    end.qp.close()
    assert end.cq.poll(ENTRIES)[-1].status == WCStatus.WR_FLUSH_ERR
    return Cause.UNTAGGED_TOO_LONG


# Doorbells


def test_doorbells_of_queues_that_are_not_there(context: Context, bystander: Bystander):
    rng = seeded_random()
    used = {bystander.end.qp.qp_num}
    busy = {bystander.end.cq.number, context.attr.max_cq}
    for _ in range(300):
        register = rng.choice([registers.SEND_DOORBELL, registers.RECEIVE_DOORBELL])
        if rng.random() < 0.3:
            cq = rng.choice([rng.randrange(context.attr.max_cq), rng.randrange(1 << 14)])
            if cq not in busy:
                context.write(registers.CQ_DOORBELL, cq=cq, consumer=rng.getrandbits(16), arm=1)
            continue
        qp = rng.choice([rng.randrange(context.attr.max_qp), rng.randrange(1 << 16)])
        if qp not in used:
            context.write(register, qp=qp, producer=rng.getrandbits(16))
    run(context)
    context.process_events()
    assert bystander.end.qp.query_state() == (QPState.RTS, Cause.NONE)
    # Numbers that were named are as good as new.
    for _ in range(4):
        fresh = Bystander(context)
        fresh.check()
        fresh.end.close()


@pytest.mark.parametrize("state", ["INIT", "RTS", "ERR"])
@pytest.mark.parametrize("queue", ["send", "receive"])
def test_a_producer_of_nonsense(state: str, queue: str, context: Context, bystander: Bystander):
    """Entries that were never written are fetched, or old ones again: nothing of others is hit."""
    rng = seeded_random(f"{state} {queue}")
    register = registers.SEND_DOORBELL if queue == "send" else registers.RECEIVE_DOORBELL
    for _ in range(ROUNDS // 3):
        end = End(context)
        guard = Guard(end)
        peer = None
        if state != "INIT":
            peer = RawPeer(end.qp, initiator=False)
        if state == "ERR":
            end.qp.disconnect()
        for _ in range(8):
            context.write(register, qp=end.qp.qp_num, producer=rng.getrandbits(16))
            if peer is not None and state == "RTS":
                peer.send(send(b"", msn=1))
                peer.pump(0)
                break
        run(context)
        # What completes was never posted: an error of this CQ, and of no other.
        found = drain(end)
        assert all("allowed: one of 0 from 0" in str(error) for error in found)
        bystander.end.cq.poll()
        end.qp.close()
        drain(end)
        guard.check()
        if peer is not None:
            peer.close()
        end.close()
        guard.close()


def drain(end: End) -> list[DeviceError]:
    """The errors of a CQ, and that it ends."""
    errors = []
    while True:
        try:
            if not end.cq.poll():
                return errors
        except DeviceError as error:
            errors.append(error)
            assert len(errors) < 1 << 16


def test_a_consumer_of_nonsense_hurts_the_users_of_that_cq_only(
    context: Context, bystander: Bystander
):
    rng = seeded_random()
    for _ in range(ROUNDS):
        end = End(context)
        guard = Guard(end)
        peer = RawPeer(end.qp)
        context.write(
            registers.CQ_DOORBELL,
            cq=end.cq.number,
            consumer=rng.getrandbits(16),
            arm=rng.getrandbits(1),
        )
        end.qp.post_send(*[SendWR(0, sg=[end.element(0, 8)])] * 4)
        run(context)
        context.process_events()
        # The ring seems to have room, and nothing happens, or it seems full.
        assert end.qp.cause in (Cause.NONE, Cause.CQ_OVERFLOW)
        end.qp.close()
        assert {wc.status for wc in end.cq.poll(4)} <= {WCStatus.SUCCESS, WCStatus.WR_FLUSH_ERR}
        guard.check()
        peer.close()
        end.close()
        guard.close()


# Rings that the device writes


def test_a_completion_ring_of_garbage_is_an_error_of_that_cq(
    context: Context, bystander: Bystander
):
    rng = seeded_random()
    for _ in range(ROUNDS):
        end = End(context)
        peer = RawPeer(end.qp)
        ring = end.cq._ring
        ring.memory[:] = rng.randbytes(len(ring.memory))
        for offset in range(0, len(ring.memory), ring.entry_octets):
            # Of this QP, as far as the driver can see: of others it is nobody's.
            ring.memory[offset : offset + 2] = end.qp.qp_num.to_bytes(2, "little")
        ring.memory[ring.entry_octets - 1] = 1  # the first one counts
        # The QP stops, and it is the user of another CQ who sees to it.
        peer.send(b"no DDP Segment")
        run(context)
        bystander.end.cq.poll()
        assert (end.qp.state, end.qp.cause) == (QPState.ERR, Cause.ULPDU_TOO_SHORT)
        errors = drain(end)
        assert errors
        assert all(
            "of the " in str(error) and "allowed: one of 0" in str(error) for error in errors
        )
        run(context, 100)
        end.qp.close()
        drain(end)
        peer.close()
        end.close()


def test_an_event_ring_of_garbage_is_a_named_error():
    """Of a device of its own: the events are those of all QPs."""
    rng = seeded_random()
    with open_device() as context:
        queue = context._event_queue
        ring = queue._ring
        before = bytes(ring.memory)
        for octet in (63, 255):
            offset = ring.offset(queue._number)
            entry = bytearray(rng.randbytes(ring.entry_octets))
            entry[:2] = (0xFFFF).to_bytes(2, "little")
            entry[6] = octet
            entry[-1] = ring.phase(queue._number)
            ring.memory[offset : offset + len(entry)] = entry
            with pytest.raises(DeviceError, match=rf"with cause {octet}; allowed: a Cause"):
                context.process_events()
            context.process_events()
        ring.memory[:] = before
        context.reset()
        fresh = Bystander(context)
        fresh.check()
