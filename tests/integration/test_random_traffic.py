"""Random mixed traffic on many QPs: device and reference peer, and two devices, octet by octet.

They name no row of the requirement list: red, they could not say which one was broken. Each row has
tests of its own.
"""

import random
import socket
import threading
import time
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Self

import pytest

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    WC,
    AccessFlags,
    Cause,
    Context,
    QPCap,
    QPInitAttr,
    QPState,
    RecvWR,
    SendFlags,
    SendWR,
    WCOpcode,
    WCStatus,
    WROpcode,
    connect,
    listen,
)
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.model import endpoint, mpa
from stagecoach.sim.model.atomics import ATOMIC_OCTETS, FETCH_ADD, SWAP, AtomicRequest, result_of
from stagecoach.sim.model.endpoint import Operation
from stagecoach.sim.model.extensions import Extensions
from stagecoach.sim.model.peer import Peer
from tests.integration.rig import ALL, OPCODES, READS, End, RawPeer, open_device
from tests.integration.test_atomics import atomic_wr, random_request

QPS = 8
CQS = 3
EMSS = (536, 1460, 8960, 65483)
MAXIMUM_LOG2 = 20
OPERATIONS = 60
BUDGET = 1 << 20
"""Octets of one end of a link in about; what comes then is short."""
TIMEOUT = 200.0  # also on a busy machine
STARTUP = 20.0
IMMEDIATE = (WROpcode.IMM_DATA, WROpcode.RDMA_WRITE_WITH_IMM)
RECEIVED = {WROpcode.SEND: WCOpcode.RECV} | dict.fromkeys(IMMEDIATE, WCOpcode.RECV_RDMA_WITH_IMM)
"""The operations that take a receive of the other end, and how that completes."""

SLOTS = {WROpcode.RDMA_WRITE_WITH_IMM: 2}
"""Of the send queue, where it is not one."""

MOST_SLOTS = max(SLOTS.values())

ATOMICS = (WROpcode.ATOMIC_FETCH_AND_ADD, WROpcode.ATOMIC_SWAP, WROpcode.ATOMIC_CMP_AND_SWP)
"""In the order of their AOpCodes."""

COMPLETED = {
    WROpcode.RDMA_WRITE_WITH_IMM: WCOpcode.RDMA_WRITE,
    WROpcode.ATOMIC_FETCH_AND_ADD: WCOpcode.FETCH_ADD,
    WROpcode.ATOMIC_SWAP: WCOpcode.SWAP,
    WROpcode.ATOMIC_CMP_AND_SWP: WCOpcode.COMP_SWAP,
}
WORDS = 3
"""Of the other end, that the atomics of an end change."""

Piece = tuple[int, int]
"""Offset in the arena of an end, and octets."""


@dataclass(frozen=True)
class Transfer:
    """One operation of an end: the local pieces, and where its octets are at the other end.

    `receive` are the elements of the receive that it takes; nothing but a Send comes into them.
    """

    number: int
    opcode: WROpcode
    length: int
    local: list[Piece]
    remote: list[Piece]  # one for Write, Read and atomic; for a Send those of its receive
    receive: list[Piece]
    immediate: bytes | None
    signaled: bool
    atomic: AtomicRequest | None  # without its target

    @property
    def slots(self) -> int:
        return SLOTS.get(self.opcode, 1)


@dataclass
class Part:
    """What one end has to do on one connection, and the memory it does it with.

    Everything uses octets of the arena that nothing else uses; the gaps between must not change.
    Only the atomics of an end share words of the other one, where each finds what the one before
    it left.
    """

    transfers: list[Transfer] = field(default_factory=list)
    receives: list[Transfer] = field(default_factory=list)  # what takes them, of the other end
    size: int = 1
    arena: bytearray = field(default_factory=bytearray)
    expected: bytearray = field(default_factory=bytearray)

    def take_word(self) -> Piece:
        """An aligned word of the arena."""
        offset = (self.size + ATOMIC_OCTETS - 1) // ATOMIC_OCTETS * ATOMIC_OCTETS
        self.size = offset + ATOMIC_OCTETS
        return offset, ATOMIC_OCTETS

    def take(self, length: int, rng: random.Random) -> Piece:
        """A piece of the arena at any alignment."""
        offset = self.size + rng.randrange(16)
        self.size = offset + length + rng.randrange(9)
        return offset, length


def log_length(rng: random.Random, maximum_log2: int) -> int:
    """0 to 2^maximum_log2 octets, in equal shares of the orders of magnitude."""
    if rng.random() < 0.05:
        return 0
    return min(int(2 ** rng.uniform(0, maximum_log2 + 0.02)), 1 << maximum_log2)


def split(length: int, rng: random.Random) -> list[int]:
    """One to four parts of a length, empty ones among them."""
    cuts = sorted(rng.randint(0, length) for _ in range(rng.randrange(4)))
    return [end - start for start, end in zip([0, *cuts], [*cuts, length], strict=True)]


def add_transfers(mine: Part, other: Part, count: int, rng: random.Random, budget: int) -> None:
    """Gives an end up to `count` operations of together about `budget` octets."""
    words = [other.take_word() for _ in range(WORDS)]
    for number in range(count):
        length = log_length(rng, MAXIMUM_LOG2)
        if length > budget:
            length = log_length(rng, 10)
        budget -= length
        opcode = rng.choice((*OPCODES, *IMMEDIATE, *ATOMICS))
        atomic = atomic_request(opcode, rng) if opcode in ATOMICS else None
        immediate = rng.randbytes(8) if opcode in IMMEDIATE else None
        if opcode == WROpcode.IMM_DATA:
            length, local = 0, []
        elif atomic is not None:
            length, local = ATOMIC_OCTETS, [mine.take(ATOMIC_OCTETS, rng)]
        elif opcode == WROpcode.RDMA_READ:
            local = [mine.take(length, rng)]
        else:
            local = [mine.take(part, rng) for part in split(length, rng)]
        receive = []
        if opcode in RECEIVED:
            # The receive may have more room than the message needs.
            more = rng.choice([0, 0, 1, rng.randrange(500)])
            needed = length if opcode == WROpcode.SEND else 0
            receive = [other.take(part, rng) for part in split(needed + more, rng)]
        if opcode == WROpcode.SEND:
            remote = receive
        else:
            remote = [other.take(length, rng) if atomic is None else rng.choice(words)]
        # The last one is signaled, so that its completion says that all is done.
        signaled = rng.random() < 0.6 or number == count - 1
        transfer = Transfer(
            number, opcode, length, local, remote, receive, immediate, signaled, atomic
        )
        mine.transfers.append(transfer)
        if receive:
            other.receives.append(transfer)


def atomic_request(opcode: WROpcode, rng: random.Random) -> AtomicRequest:
    """Any operands, without a target."""
    while True:
        request = random_request(rng, 0, 0)
        if ATOMICS[request.operation] == opcode:
            return request


def gather(memory: bytearray, pieces: Sequence[Piece]) -> bytes:
    return b"".join(memory[offset : offset + length] for offset, length in pieces)


def scatter(memory: bytearray, pieces: Sequence[Piece], octets: bytes) -> None:
    for offset, length in pieces:
        part, octets = octets[:length], octets[length:]
        memory[offset : offset + len(part)] = part


def fill(one: Part, other: Part, rng: random.Random) -> None:
    """Fills both arenas, and computes what they hold in the end."""
    for part in (one, other):
        part.arena = bytearray(rng.randbytes(part.size + 16))
        part.expected = bytearray(part.arena)
    for mine, its in ((one, other), (other, one)):
        for transfer in mine.transfers:
            if transfer.atomic is not None:
                octets = gather(its.expected, transfer.remote)
                result = result_of(transfer.atomic, int.from_bytes(octets, "little"))
                scatter(mine.expected, transfer.local, octets)
                scatter(its.expected, transfer.remote, result.to_bytes(ATOMIC_OCTETS, "little"))
            elif transfer.opcode == WROpcode.RDMA_READ:
                scatter(mine.expected, transfer.local, gather(its.arena, transfer.remote))
            else:
                scatter(its.expected, transfer.remote, gather(mine.arena, transfer.local))


class DeviceSide:
    """An end that is a QP of a device.

    The arena is registered twice, with different Tagged Offsets and rights; elements use either.
    """

    def __init__(self, context: Context, pd: PD, cqs: list[CQ], part: Part, rng: random.Random):
        self.part = part
        self._rng = rng
        self._cap = QPCap(rng.choice([3, 16, 64]), rng.choice([2, 16, 64]))
        self.qp = QP(pd, QPInitAttr(rng.choice(cqs), rng.choice(cqs), self._cap, rfc7306=True))
        self.ord, self.ird = rng.randint(1, READS), rng.randint(1, READS)
        self._remote = MR(pd, part.arena, ALL, qp=rng.choice([None, self.qp]))
        base = rng.randrange(1 << 63)
        self._local = MR(pd, part.arena, AccessFlags.LOCAL_WRITE, addr=base)
        self._posted = self.receives_posted = self._sends_posted = self._silent = 0
        # What is to complete, in this order, with whether it was posted signaled.
        self._sends: deque[tuple[Transfer, bool]] = deque()
        self._receives: deque[Transfer] = deque()

    @property
    def stag(self) -> int:
        return self._remote.rkey

    def tagged_offset(self, offset: int) -> int:
        return self._remote.addr + offset

    @property
    def done(self) -> bool:
        return (
            self._posted == len(self.part.transfers)
            and self.receives_posted == len(self.part.receives)
            and not self._sends
            and not self._receives
        )

    def _elements(self, pieces: Sequence[Piece]) -> list[SGE]:
        regions = [self._rng.choice([self._local, self._remote]) for _ in pieces]
        return [
            SGE(region.addr + offset, length, region.lkey)
            for region, (offset, length) in zip(regions, pieces, strict=True)
        ]

    def post(self, other: "Side") -> None:
        """Posts a few of the next receives and operations, as far as there is room."""
        room = self._cap.max_recv_wr - len(self._receives)
        start = self.receives_posted
        batch = self.part.receives[start : start + min(room, self._rng.randint(1, 4))]
        if batch:
            self.qp.post_recv(*(RecvWR(t.number, self._elements(t.receive)) for t in batch))
            self._receives += batch
            self.receives_posted += len(batch)
        requests = []
        for transfer in self.part.transfers[self._posted : self._posted + self._rng.randint(1, 8)]:
            is_received = bool(transfer.receive)
            used = sum(sent.slots for sent, _ in self._sends)
            if used + transfer.slots > self._cap.max_send_wr:
                break
            if is_received and self._sends_posted == other.receives_posted:
                break
            # A queue full of silent requests would never get room again.
            silent = self._silent + transfer.slots
            signaled = transfer.signaled or silent + MOST_SLOTS > self._cap.max_send_wr
            self._silent = 0 if signaled else silent
            self._posted += 1
            self._sends_posted += is_received
            is_untagged = transfer.opcode in (WROpcode.SEND, WROpcode.IMM_DATA)
            self._sends.append((transfer, signaled))
            flags = SendFlags.SIGNALED if signaled else SendFlags(0)
            if transfer.atomic is not None:
                target = other.tagged_offset(transfer.remote[0][0])
                atomic = replace(transfer.atomic, stag=other.stag, tagged_offset=target)
                (sink,) = self._elements(transfer.local)
                requests.append(atomic_wr(atomic, sink, wr_id=transfer.number, send_flags=flags))
                continue
            requests.append(
                SendWR(
                    transfer.number,
                    transfer.opcode,
                    self._elements(transfer.local),
                    flags,
                    0 if is_untagged else other.tagged_offset(transfer.remote[0][0]),
                    0 if is_untagged else other.stag,
                    imm_data=transfer.immediate,
                )
            )
        if requests:
            self.qp.post_send(*requests)

    def completed(self, wc: WC) -> None:
        """Takes a completion, which must be the next one of its queue."""
        assert wc.status == WCStatus.SUCCESS, wc
        received = wc.opcode in RECEIVED.values()
        if received:
            transfer = self._receives.popleft()
            assert wc.opcode == RECEIVED[transfer.opcode], (wc, transfer)
            assert wc.imm_data == (transfer.immediate or b""), (wc, transfer)
            octets = transfer.length if transfer.immediate is None else len(transfer.immediate)
            assert wc.byte_len == octets, (wc, transfer)
        else:
            transfer, signaled = self._sends.popleft()
            while not signaled:
                transfer, signaled = self._sends.popleft()
            opcode = COMPLETED.get(transfer.opcode, transfer.opcode)
            assert wc.opcode == WCOpcode(opcode), (wc, transfer)
        assert wc.wr_id == transfer.number, (wc, transfer)
        if transfer.opcode in (WROpcode.RDMA_READ, *ATOMICS):
            octets = gather(self.part.arena, transfer.local)
            assert octets == gather(self.part.expected, transfer.local), transfer
        if received:
            # Also of an RDMA Write: what came before Immediate Data is in memory.
            octets = gather(self.part.arena, transfer.remote)[: transfer.length]
            assert octets == gather(self.part.expected, transfer.remote)[: transfer.length], (
                transfer
            )

    def __str__(self) -> str:
        state, cause = self.qp.query_state()
        sends = [(t.number, t.opcode.name, t.length, signaled) for t, signaled in self._sends]
        receives = [(t.number, t.length) for t in self._receives]
        return (
            f"QP {self.qp.qp_num} {state.name} {cause.name}, posted {self._posted} of "
            f"{len(self.part.transfers)}, not completed: sends {sends}, receives {receives}"
        )

    def pump(self) -> bool:
        return False

    def close_regions(self) -> None:
        """Revokes the regions: everything that was received is in memory then."""
        self._remote.close()
        self._local.close()


class PeerSide:
    """An end that is the reference endpoint behind a socket."""

    def __init__(self, part: Part, rng: random.Random):
        self.part = part
        self._rng = rng
        self.ord, self.ird = rng.randint(1, READS), rng.randint(1, READS)
        self.peer: Peer | None = None
        self._base = rng.randrange(1 << 63)
        self.stag = 0
        self._posted = self.receives_posted = self._sends_posted = 0
        self._sends: deque[Transfer] = deque()
        self._receives: deque[Transfer] = deque()
        self._buffers: deque[bytearray] = deque()

    def connected(self, peer: Peer) -> None:
        self.peer = peer
        self.stag = peer.endpoint.register(self.part.arena, base=self._base).stag

    def tagged_offset(self, offset: int) -> int:
        return self._base + offset

    done = DeviceSide.done

    def cut(self, available: int) -> int:
        """Where TCP segments end: anywhere, sometimes after one octet."""
        rng = self._rng
        return rng.choice([rng.randint(1, 40), rng.randint(1, 4000), rng.randint(1, 200_000)])

    def post(self, other: "Side") -> None:
        assert self.peer is not None
        end = self.peer.endpoint
        for transfer in self.part.receives[self.receives_posted : self.receives_posted + 3]:
            buffer = bytearray(sum(length for _, length in transfer.receive))
            end.post_receive(buffer, transfer.number)
            self._receives.append(transfer)
            self.receives_posted += 1
        for transfer in self.part.transfers[self._posted : self._posted + 3]:
            to = transfer.remote[0][0]
            number = transfer.number
            if transfer.receive:
                if self._sends_posted == other.receives_posted:
                    break
                self._sends_posted += 1
            if transfer.atomic is not None:
                self._post_atomic(transfer.atomic, other.stag, other.tagged_offset(to), number)
            elif transfer.opcode == WROpcode.IMM_DATA:
                assert transfer.immediate is not None
                end.post_immediate(transfer.immediate, number)
            elif transfer.opcode == WROpcode.RDMA_WRITE_WITH_IMM:
                assert transfer.immediate is not None
                octets = gather(self.part.arena, transfer.local)
                end.rdma_write_with_immediate(
                    octets, transfer.immediate, other.stag, other.tagged_offset(to), number
                )
            elif transfer.opcode == WROpcode.SEND:
                end.post_send(gather(self.part.arena, transfer.local), number)
            elif transfer.opcode == WROpcode.RDMA_WRITE:
                octets = gather(self.part.arena, transfer.local)
                end.rdma_write(octets, other.stag, other.tagged_offset(to), number)
            else:
                ((offset, length),) = transfer.local
                sink = (self.stag, self.tagged_offset(offset), length)
                end.rdma_read(*sink, other.stag, other.tagged_offset(to), number)
            self._posted += 1
            self._sends.append(transfer)

    def _post_atomic(self, request: AtomicRequest, stag: int, to: int, number: int) -> None:
        assert self.peer is not None
        end = self.peer.endpoint
        if request.operation == FETCH_ADD:
            end.fetch_add(stag, to, request.data, number, mask=request.mask)
        elif request.operation == SWAP:
            end.swap(stag, to, request.data, number)
        else:
            masks = {"compare_mask": request.compare_mask, "swap_mask": request.mask}
            end.cmp_swap(stag, to, request.compare, request.data, number, **masks)

    def __str__(self) -> str:
        sends = [(t.number, t.opcode.name, t.length) for t in self._sends]
        receives = [(t.number, t.length) for t in self._receives]
        return (
            f"peer, posted {self._posted} of {len(self.part.transfers)}, "
            f"not completed: sends {sends}, receives {receives}"
        )

    def pump(self) -> bool:
        assert self.peer is not None
        moved = self.peer.pump(0)
        end = self.peer.endpoint
        assert end.error is None and end.terminate_received is None, (end.error, end.error_detail)
        for completion in end.poll():
            assert completion.status is endpoint.Status.SUCCESS, completion
            if completion.operation is Operation.RECEIVE:
                transfer = self._receives.popleft()
                assert completion.immediate == transfer.immediate, (completion, transfer)
                if transfer.immediate is None:
                    assert completion.length == transfer.length, (completion, transfer)
                    scatter(self.part.arena, transfer.remote, completion.payload)
            else:
                transfer = self._sends.popleft()
                if completion.original is not None:
                    octets = completion.original.to_bytes(ATOMIC_OCTETS, "little")
                    scatter(self.part.arena, transfer.local, octets)
            assert completion.work_id == transfer.number, (completion, transfer)
        return moved


Side = DeviceSide | PeerSide


Disturbance = Generator[int, None, None]
"""Does a little more harm with every step; gives the number of QPs that were harmed."""


def disturb(context: Context, rng: random.Random) -> Disturbance:
    """One QP after the other that comes, is busy, and goes in a bad way."""
    harmed = 0
    while True:
        end = End(context, 1 << 16)
        peer = RawPeer(end.qp, tcp=True, emss=rng.choice(EMSS))
        end.qp.post_recv(*(RecvWR(n, [end.element()]) for n in range(rng.randrange(5))))
        opcodes = rng.choices(OPCODES, k=rng.randrange(6))
        end.qp.post_send(*(SendWR(n, opcode, [end.element()]) for n, opcode in enumerate(opcodes)))
        try:
            for _ in range(rng.randrange(10)):
                peer.pump(0)
                yield harmed
            match rng.randrange(6):
                case 0:
                    peer.reset()
                case 1:
                    peer.close()
                case 2:
                    peer.send_octets(rng.randbytes(100_000))
                case 3:
                    fpdu = bytearray(peer.framer.frame(bytes(1000)))
                    fpdu[-1] ^= 1
                    peer.send_octets(bytes(fpdu))
                case 4:
                    end.qp.disconnect()
                case _:
                    end.qp.close()
            while end.qp.state == QPState.RTS:
                yield harmed
        finally:
            end.close()
            peer.close()
        harmed += 1


def describe(links: list[tuple[Side, Side]]) -> str:
    """What is left to do."""
    return "\n".join(
        f"link {number}: {side}"
        for number, link in enumerate(links)
        if not all(side.done for side in link)
        for side in link
    )


def run(
    contexts: list[Context],
    cqs: list[CQ],
    links: list[tuple[Side, Side]],
    disturbance: Disturbance | None = None,
) -> None:
    """Does all the work of all links, then compares all memory."""
    by_number = {
        (side.qp.context, side.qp.qp_num): side
        for link in links
        for side in link
        if isinstance(side, DeviceSide)
    }
    end = time.monotonic() + TIMEOUT
    harmed = 0
    while not all(side.done for link in links for side in link):
        if time.monotonic() > end:
            raise AssertionError(f"not finished in {TIMEOUT} s:\n{describe(links)}")
        moved = False
        for link in links:
            for side, other in (link, link[::-1]):
                side.post(other)
                moved |= side.pump()
        for cq in cqs:
            for wc in cq.poll(64):
                by_number[cq.context, wc.qp_num].completed(wc)
                moved = True
        for context in contexts:
            assert [event for event in context.events if (context, event.qp_num) in by_number] == []
        if disturbance is not None:
            harmed = next(disturbance)
        if not moved:
            time.sleep(0.0005)
    if disturbance is not None:
        disturbance.close()
        print(f"{harmed} other QPs failed meanwhile")
    for number, link in enumerate(links):
        for side in link:
            if isinstance(side, DeviceSide):
                assert side.qp.query_state()[1] == Cause.NONE
                # Fences: nothing is on its way to the arena any more.
                side.close_regions()
            arena, expected = side.part.arena, side.part.expected
            if arena != expected:
                first = next(i for i, octet in enumerate(arena) if octet != expected[i])
                raise AssertionError(f"link {number}, {type(side).__name__}: octet {first} differs")


def parts(rng: random.Random, count: int, budget: int) -> tuple[Part, Part]:
    """The parts of the two ends of one link; the first one is the initiator's."""
    one, other = Part(), Part()
    add_transfers(one, other, rng.randint(1, count), rng, budget)
    add_transfers(other, one, rng.randint(0, count), rng, budget)
    fill(one, other, rng)
    return one, other


def open_with_latencies(rng: random.Random) -> Context:
    return open_device(
        read_latency=rng.choice([1, 30, 250, 600]), write_latency=rng.choice([1, 50, 400])
    )


@pytest.mark.parametrize("role", ["initiator", "responder"])
def test_device_and_reference_peer(role: str):
    rng = seeded_random(role)
    with open_with_latencies(rng) as context:
        drive_reference_peer(context, role, rng)


def drive_reference_peer(context: Context, role: str, rng: random.Random) -> None:
    cqs = [CQ(context, 1024) for _ in range(CQS)]
    # Not always QPs 0 to 7.
    idle = PD(context)
    attributes = QPInitAttr(cqs[0], cqs[0], QPCap(1, 1))
    _others = [QP(idle, attributes) for _ in range(rng.randrange(56))]
    links: list[tuple[Side, Side]] = []
    sides = []
    for _ in range(QPS):
        initiator, responder = parts(rng, OPERATIONS, BUDGET)
        mine, its = (initiator, responder) if role == "initiator" else (responder, initiator)
        pd = PD(context) if rng.random() < 0.5 else idle
        device, peer = DeviceSide(context, pd, cqs, mine, rng), PeerSide(its, rng)
        wishes = Wishes.draw(rng), Wishes.draw(rng)
        join = connect_device if role == "initiator" else accept_device
        peer.connected(join(device, peer, *wishes, rng.choice(EMSS)))
        sides.append(peer)
        links.append((device, peer) if role == "initiator" else (peer, device))
    run([context], cqs, links, disturb(context, rng))
    for side in sides:
        assert side.peer is not None
        side.peer.close()


@dataclass(frozen=True)
class Wishes:
    """What one end wants of MPA: CRCs, and Markers in what it receives."""

    crc: bool
    markers: bool

    @classmethod
    def draw(cls, rng: random.Random) -> Self:
        return cls(rng.random() < 0.7, rng.random() < 0.5)


def peer_options(
    device: DeviceSide, peer: PeerSide, wanted: Wishes, its: Wishes, emss: int
) -> dict:
    """Options of the reference peer's startup; the device wants `wanted`, the peer `its`."""
    return {
        **asdict(its),
        "mulpdu": mpa.mulpdu(emss, wanted.markers),
        "ord": device.ird,
        "ird": device.ord,
        "cut": peer.cut,
        "timeout": STARTUP,
        "extensions": Extensions(),
    }


def connect_device(
    device: DeviceSide, peer: PeerSide, wanted: Wishes, its: Wishes, emss: int
) -> Peer:
    """The device connects to the peer."""
    accepted = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            connection, _ = server.accept()
            options = peer_options(device, peer, wanted, its, emss)
            accepted.append(Peer.accept(connection, **options))

        thread = threading.Thread(target=accept)
        thread.start()
        options = {"ord": device.ord, "ird": device.ird, "emss": emss, **asdict(wanted)}
        connect(device.qp, *server.getsockname(), timeout=STARTUP, **options)
        thread.join(STARTUP)
    return accepted[0]


def accept_device(
    device: DeviceSide, peer: PeerSide, wanted: Wishes, its: Wishes, emss: int
) -> Peer:
    """The peer connects to the device."""
    connected = []
    with listen(device.qp.context) as listener:

        def start() -> None:
            connection = socket.create_connection(("127.0.0.1", listener.port))
            options = peer_options(device, peer, wanted, its, emss)
            connected.append(Peer.connect(connection, **options))

        thread = threading.Thread(target=start)
        thread.start()
        request = listener.get_request(STARTUP)
        options = {"ord": device.ord, "ird": device.ird, "emss": emss, **asdict(wanted)}
        request.accept(device.qp, **options)
        thread.join(STARTUP)
    return connected[0]


def test_two_devices():
    rng = seeded_random()
    with open_with_latencies(rng) as context, open_with_latencies(rng) as second:
        cqs = [[CQ(device, 1024) for _ in range(CQS)] for device in (context, second)]
        links: list[tuple[Side, Side]] = []
        for _ in range(QPS):
            one_part, other_part = parts(rng, OPERATIONS, BUDGET)
            one = DeviceSide(context, PD(context), cqs[0], one_part, rng)
            other = DeviceSide(second, PD(second), cqs[1], other_part, rng)
            wanted, its = asdict(Wishes.draw(rng)), asdict(Wishes.draw(rng))
            emss = (rng.choice(EMSS), rng.choice(EMSS))
            with listen(second) as listener:

                def accept(listener=listener, other=other, its=its, emss=emss) -> None:
                    request = listener.get_request(STARTUP)
                    options = {"ord": other.ord, "ird": other.ird, **its}
                    request.accept(other.qp, emss=emss[1], **options)

                thread = threading.Thread(target=accept)
                thread.start()
                options = {"ord": one.ord, "ird": one.ird, "timeout": STARTUP, **wanted}
                connect(one.qp, "127.0.0.1", listener.port, emss=emss[0], **options)
                thread.join(STARTUP)
            links.append((one, other))
        run([context, second], [*cqs[0], *cqs[1]], links)
