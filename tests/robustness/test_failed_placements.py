"""What could not be placed is never told as done, whenever the write response comes."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from stagecoach.host_driver import (
    MR,
    AccessFlags,
    Cause,
    Context,
    QPState,
    RecvWR,
    SendWR,
    WCStatus,
    WROpcode,
)
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.device import Response
from stagecoach.sim.disturbed import DisturbedDevice
from stagecoach.sim.model import ddp, rdmap
from stagecoach.sim.model.atomics import FETCH_ADD, AtomicRequest, AtomicResponse
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.rdmap import (
    INVALIDATE_OPCODES,
    Opcode,
    ReadRequest,
    control_octet,
    decode_control,
)
from tests.integration.rig import ALL, READS, End, RawPeer
from tests.integration.test_atomics import request_ulpdu, response_ulpdu
from tests.robustness.rig import Receiver, device_of

pytestmark = pytest.mark.timeout(300)  # the first test may have to build the device

SECONDS = 30.0
ROUNDS = 6
STRIDE = 4096
"""Octets from the place of a message to that of the next one."""

FILL = 0xA5
ATOMIC_OCTETS = 8
SIZES = (1, 8, 200, 1000, 3000)
MULPDUS = (256, 1442, 4000)
PAUSE = 600
"""Cycles in which all write responses to what was placed come but the slowest ones."""

WRITE_LATENCIES = (1, 2, 3, 4, 7, 12, 50, 400)
"""Cycles to the write response. After the short ones a delivery is still on its way to the gate
when the response comes, after the long ones it waits for it there."""


@pytest.fixture(scope="module", params=WRITE_LATENCIES)
def context(request: pytest.FixtureRequest) -> Iterator[Context]:
    with Context(DisturbedDevice(write_latency=request.param)) as opened:
        yield opened


class Victim(End):
    """A QP with a place for each of `count` messages, and a peer that sends any octets.

    payloads: of the messages. mulpdu: of what the peer sends.
    """

    def __init__(self, context: Context, rng: random.Random, count: int, octets: int):
        super().__init__(context, count * STRIDE, ALL | AccessFlags.REMOTE_ATOMIC)
        self.device = device_of(context)
        self.address = self.device.mapped[-1][0]
        self.count, self.octets = count, octets
        self.buffer[:] = bytes([FILL]) * len(self.buffer)
        self.payloads = [rng.randbytes(octets) for _ in range(count)]
        self.mulpdu = rng.choice(MULPDUS)
        self.peer = RawPeer(self.qp)
        self._others: list[MR] = []

    def offset(self, number: int) -> int:
        """Of the place of a message in the buffer."""
        return number * STRIDE + number * 8  # bursts end elsewhere in each

    def other_stag(self) -> int:
        """The STag of a region that nobody uses."""
        self._others.append(MR(self.pd, bytearray(64), ALL, qp=self.qp))  # closed with the QP
        return self._others[-1].rkey

    def placed(self, number: int) -> bytes:
        """What stands in the place of a message."""
        return bytes(self.buffer[self.offset(number) :][: self.octets])

    def fail(self, number: int, octet: int, response: Response) -> None:
        """Lets the burst fail that writes this octet of a message."""
        place = (self.address + self.offset(number) + octet, 1)
        self.device.fail_access(place, write=True, skip=0, response=response)

    def close(self) -> None:
        """See `End.close`."""
        self.peer.close()
        super().close()


# What the peer sends for message `number`


def send(opcode: Opcode) -> Callable[[Victim, int], list[bytes]]:
    def segments(victim: Victim, number: int) -> list[bytes]:
        return ddp.segment_untagged(
            victim.payloads[number],
            qn=rdmap.QN_SEND,
            msn=number + 1,
            mulpdu=victim.mulpdu,
            rsvd_ulp=control_octet(opcode),
            rsvd_ulp_word=victim.other_stag() if opcode in INVALIDATE_OPCODES else 0,
        )

    return segments


def write_and(last: Callable[[Victim, int], bytes]) -> Callable[[Victim, int], list[bytes]]:
    def segments(victim: Victim, number: int) -> list[bytes]:
        writes = ddp.segment_tagged(
            victim.payloads[number],
            stag=victim.mr.rkey,
            tagged_offset=victim.mr.addr + victim.offset(number),
            mulpdu=victim.mulpdu,
            rsvd_ulp=control_octet(Opcode.RDMA_WRITE),
        )
        return [*writes, last(victim, number)]

    return segments


def empty_send(victim: Victim, number: int) -> bytes:
    control = control_octet(Opcode.SEND)
    return UntaggedHeader(rdmap.QN_SEND, number + 1, rsvd_ulp=control).encode()


def immediate(victim: Victim, number: int) -> bytes:
    control = control_octet(Opcode.IMMEDIATE_DATA)
    header = UntaggedHeader(rdmap.QN_SEND, number + 1, rsvd_ulp=control)
    return header.encode() + number.to_bytes(8)


def read_request(victim: Victim, number: int) -> bytes:
    """For what was written; the sink STag of its answer says which one it is."""
    source = victim.mr.addr + victim.offset(number)
    request = ReadRequest(number, 0, victim.octets, victim.mr.rkey, source)
    control = control_octet(Opcode.RDMA_READ_REQUEST)
    header = UntaggedHeader(rdmap.QN_READ_REQUEST, number + 1, rsvd_ulp=control)
    return header.encode() + request.encode()


def read_response(victim: Victim, number: int) -> list[bytes]:
    request = ReadRequest.decode(ddp.decode(victim.peer.ulpdus[number])[1])
    return ddp.segment_tagged(
        victim.payloads[number],
        stag=request.sink_stag,
        tagged_offset=request.sink_tagged_offset,
        mulpdu=victim.mulpdu,
        rsvd_ulp=control_octet(Opcode.RDMA_READ_RESPONSE),
    )


def atomic_response(victim: Victim, number: int) -> list[bytes]:
    request = AtomicRequest.decode(ddp.decode(victim.peer.ulpdus[number])[1])
    original = int.from_bytes(victim.payloads[number], "little")
    return [response_ulpdu(number + 1, request.identifier, original)]


def atomic_request(victim: Victim, number: int) -> list[bytes]:
    target = victim.mr.addr + victim.offset(number)
    change = AtomicRequest(FETCH_ADD, number, victim.mr.rkey, target, 1, 0)
    return [request_ulpdu(number + 1, change)]


# What is posted for it, and how it is told as done


def receive(victim: Victim, number: int) -> None:
    victim.qp.post_recv(RecvWR(number, [victim.element(victim.offset(number), victim.octets)]))


def empty_receive(victim: Victim, number: int) -> None:
    victim.qp.post_recv(RecvWR(number))


def request(opcode: WROpcode) -> Callable[[Victim, int], None]:
    def post(victim: Victim, number: int) -> None:
        sink = victim.element(victim.offset(number), victim.octets)
        victim.qp.post_send(SendWR(number, opcode, [sink], rkey=1, remote_addr=0))

    return post


def completed(victim: Victim) -> list[int]:
    """All work requests end, some of them well."""
    found = victim.cq.wait(victim.count, SECONDS)
    assert [wc.wr_id for wc in found] == list(range(victim.count))
    done = [wc.wr_id for wc in found if wc.status == WCStatus.SUCCESS]
    assert {wc.status for wc in found[len(done) :]} <= {WCStatus.WR_FLUSH_ERR}
    for number in done:
        assert victim.placed(number) == victim.payloads[number]
    return done


def answered(victim: Victim) -> list[int]:
    """All requests that got a whole answer."""
    peer = victim.peer
    peer.pump_until(lambda: peer.ended, SECONDS)
    done = []
    found = b""
    for ulpdu in peer.ulpdus:
        header, payload = ddp.decode(ulpdu)
        if decode_control(header.rsvd_ulp).opcode == Opcode.ATOMIC_RESPONSE:
            done.append(AtomicResponse.decode(payload).identifier)
        elif isinstance(header, TaggedHeader):
            found += payload
            if header.last:
                assert found == victim.payloads[header.stag]
                done.append(header.stag)
                found = b""
    return done


@dataclass(frozen=True)
class Kind:
    """Messages of a kind: what is posted for one, what comes, and how it is told as done."""

    segments: Callable[[Victim, int], list[bytes]]
    post: Callable[[Victim, int], None] = lambda victim, number: None
    done: Callable[[Victim], list[int]] = completed
    sizes: tuple[int, ...] = SIZES
    requests: bool = False  # the peer waits for all of them


KINDS = {
    "Send": Kind(send(Opcode.SEND), receive),
    "Send with Solicited Event": Kind(send(Opcode.SEND_WITH_SE), receive),
    "Send with Invalidate": Kind(send(Opcode.SEND_WITH_INVALIDATE), receive),
    "Send with Solicited Event and Invalidate": Kind(
        send(Opcode.SEND_WITH_SE_AND_INVALIDATE), receive
    ),
    "Write, then Send": Kind(write_and(empty_send), empty_receive),
    "Write, then Immediate Data": Kind(write_and(immediate), empty_receive),
    "Write, then Read Request": Kind(write_and(read_request), done=answered),
    "Read Response": Kind(read_response, request(WROpcode.RDMA_READ), requests=True),
    "Atomic Response": Kind(
        atomic_response,
        request(WROpcode.ATOMIC_FETCH_AND_ADD),
        sizes=(ATOMIC_OCTETS,),
        requests=True,
    ),
    "Atomic Request": Kind(atomic_request, done=answered, sizes=(ATOMIC_OCTETS,)),
}


class Bystander(Receiver):
    """A QP of the same device that receives Sends meanwhile."""

    SENDS = 8
    OCTETS = 100

    def __init__(self, context: Context, rng: random.Random):
        super().__init__(context, self.SENDS, self.OCTETS, self.SENDS * self.OCTETS)
        self._octets = rng.randbytes(len(self.buffer))
        control = control_octet(Opcode.SEND)
        self._ulpdus = [
            UntaggedHeader(rdmap.QN_SEND, n + 1, rsvd_ulp=control).encode()
            + self._octets[n * self.OCTETS :][: self.OCTETS]
            for n in range(self.SENDS)
        ]

    def send(self, count: int) -> None:
        """The next Sends come."""
        self.peer.send(*self._ulpdus[:count])
        del self._ulpdus[:count]

    def check(self) -> None:
        """All its Sends were received."""
        self.send(len(self._ulpdus))
        self.check_receives()
        assert self.buffer == self._octets
        self.stop()


def fail_and_send(victim: Victim, kind: Kind, bystander: Bystander, rng: random.Random) -> int:
    """All messages, the placement of one of which fails; returns which one. Shows where."""
    failing = rng.randrange(victim.count)
    octet = rng.choice((victim.octets - 1, rng.randrange(victim.octets), 0))
    print(f"octet {octet} of {victim.octets} of message {failing} of {victim.count}")
    for number in range(victim.count):
        kind.post(victim, number)
    if kind.requests:
        victim.peer.pump_until(lambda: len(victim.peer.ulpdus) == victim.count, SECONDS)
    segments = [each for n in range(victim.count) for each in kind.segments(victim, n)]
    victim.fail(failing, octet, rng.choice(list(Response)))
    bystander.send(Bystander.SENDS // 2)
    # At once, or with a pause in which write responses come.
    first = rng.choice((0, rng.randrange(len(segments))))
    if first:
        victim.peer.send(*segments[:first])
        victim.peer.wait_taken()
        victim.device.run_cycles(PAUSE)
    victim.peer.send(*segments[first:])
    return failing


@pytest.mark.requirement("RDMAP-7.1-01")
@pytest.mark.parametrize("name", KINDS)
def test_what_could_not_be_placed_is_never_done(
    context: Context, name: str, request: pytest.FixtureRequest
):
    kind = KINDS[name]
    rng = seeded_random(name, request.node.callspec.params["context"])
    for _ in range(ROUNDS):
        victim = Victim(context, rng, rng.randint(1, READS), rng.choice(kind.sizes))
        bystander = Bystander(context, rng)
        context.process_events()
        context.events.clear()
        errors = victim.device.statistics()["write_errors"]
        failing = fail_and_send(victim, kind, bystander, rng)
        done = kind.done(victim)
        bystander.check()
        assert done == list(range(len(done))) and len(done) <= failing
        assert victim.qp.query_state() == (QPState.ERR, Cause.HOST_WRITE_ERROR)
        assert victim.device.statistics()["write_errors"] == errors + 1
        context.process_events()
        assert [(event.qp_num, event.cause) for event in context.events] == [
            (victim.qp.qp_num, Cause.HOST_WRITE_ERROR)
        ]
        assert victim.device.statistics()["faults"] == []
        victim.close()
