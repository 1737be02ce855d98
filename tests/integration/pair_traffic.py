"""Random traffic between two devices: several QPs, both directions, all operations mixed."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

import cocotb
from cocotb.task import bridge

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    ConnectionListener,
    Context,
    QPInitAttr,
    RecvWR,
    SendWR,
    WCOpcode,
    WCStatus,
    WROpcode,
    connect,
    listen,
)
from tests.integration.rig import OPCODES

PORT = 4791
SECONDS = 600
"""Patience of the driver; real time, while the simulation takes as long as it takes."""

REGION_OCTETS = 16384
SIZES = (0, 1, 3, 4, 8, 63, 1400, 1446, 1447, 2048, 3000)
GAP_OCTETS = 9
"""Largest gap between the targets of two operations; octets there must stay as they are."""


@dataclass(frozen=True)
class Operation:
    """Moves octets from one end's source region to a region of the other end, or back (Read)."""

    opcode: WROpcode
    octets: int
    source: int
    target: int


def draw_operations(rng: random.Random, count: int) -> list[Operation]:
    """Operations of one QP and direction, whose targets do not overlap; the last is a Send.

    The Send at the end tells the peer that the Writes before it are placed.
    """
    position = dict.fromkeys(OPCODES, 0)
    operations = []
    for number in range(count):
        last = number == count - 1
        opcode = WROpcode.SEND if last else rng.choice(OPCODES)
        octets = rng.choice((rng.choice(SIZES), rng.randint(0, 300)))
        target = position[opcode] + rng.randint(0, GAP_OCTETS)
        octets = min(octets, REGION_OCTETS - target)
        position[opcode] = target + octets
        source = rng.randint(0, REGION_OCTETS - octets)
        operations.append(Operation(opcode, octets, source, target))
    return operations


def split(rng: random.Random, mr: MR, offset: int, octets: int) -> list[SGE]:
    """One to four elements that are together a range of a region."""
    cuts = sorted(rng.randint(0, octets) for _ in range(rng.randint(0, 3)))
    edges = [0, *cuts, octets]
    return [
        SGE(mr.addr + offset + begin, end - begin, mr.lkey)
        for begin, end in itertools.pairwise(edges)
    ]


class Endpoint:
    """One QP of an end with its regions, what it does, and what its peer does to it."""

    def __init__(self, end: "End", cq: CQ, rng: random.Random, doing: list, peer_doing: list):
        access = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_READ
        self.qp = QP(end.pd, QPInitAttr(cq, cq, rfc7306=True))
        self.cq = cq
        self.source = MR(end.pd, bytearray(rng.randbytes(REGION_OCTETS)), access)
        self.regions = {opcode: MR(end.pd, bytearray(REGION_OCTETS), access) for opcode in OPCODES}
        self.doing, self.peer_doing = doing, peer_doing
        self._rng = rng
        for number, operation in enumerate(peer_doing):
            if operation.opcode == WROpcode.SEND:
                region = self.regions[WROpcode.SEND]
                elements = split(rng, region, operation.target, operation.octets)
                self.qp.post_recv(RecvWR(number, elements))

    @property
    def private_data(self) -> bytes:
        """Where the peer may read and write."""
        exposed = (self.source, self.regions[WROpcode.RDMA_WRITE])
        return b"".join(mr.addr.to_bytes(8) + mr.rkey.to_bytes(4) for mr in exposed)

    def post(self, peer: bytes) -> None:
        """Posts all operations; `peer` is the private data of the other end."""
        source, source_key = int.from_bytes(peer[:8]), int.from_bytes(peer[8:12])
        target, target_key = int.from_bytes(peer[12:20]), int.from_bytes(peer[20:24])
        requests = []
        for number, operation in enumerate(self.doing):
            opcode, octets = operation.opcode, operation.octets
            if opcode == WROpcode.RDMA_READ:
                sink = self.regions[opcode]
                elements = [SGE(sink.addr + operation.target, octets, sink.lkey)]
                remote, key = source + operation.source, source_key
            else:
                elements = split(self._rng, self.source, operation.source, octets)
                remote, key = target + operation.target, target_key
            if opcode == WROpcode.SEND:
                remote = key = 0
            requests.append(SendWR(number, opcode, elements, remote_addr=remote, rkey=key))
        self.qp.post_send(*requests)

    def expected(self, opcode: WROpcode, peer: "Endpoint") -> bytes:
        """What the region for an operation must hold when all is done."""
        content = bytearray(REGION_OCTETS)
        for operation in self.doing if opcode == WROpcode.RDMA_READ else self.peer_doing:
            if operation.opcode == opcode:
                data = peer.source.buf[operation.source :][: operation.octets]
                content[operation.target : operation.target + operation.octets] = data
        return bytes(content)


class End:
    """One open device and its QPs, which share `cqs` CQs."""

    def __init__(self, device, rng: random.Random, doing: list, peer_doing: list, cqs: int = 1):
        self.context = Context(device)
        self.pd = PD(self.context)
        self.cqs = [CQ(self.context) for _ in range(cqs)]
        self.endpoints = [
            Endpoint(self, self.cqs[number % cqs], rng, mine, theirs)
            for number, (mine, theirs) in enumerate(zip(doing, peer_doing, strict=True))
        ]

    def connect(self, host: str = "", port: int = PORT) -> None:
        """Connects all QPs and posts their operations."""
        for endpoint in self.endpoints:
            mine = endpoint.private_data
            endpoint.post(connect(endpoint.qp, host, port, private_data=mine, timeout=SECONDS))

    def accept(self, listener: ConnectionListener) -> None:
        """Accepts a connection for every QP and posts its operations."""
        for endpoint in self.endpoints:
            request = listener.get_request(timeout=SECONDS)
            request.accept(endpoint.qp, private_data=endpoint.private_data)
            endpoint.post(request.private_data)

    def wait(self) -> None:
        """Waits until everything is done; checks that completions come in order."""
        expected = {}
        for endpoint in self.endpoints:
            received = [
                (number, WCOpcode.RECV, operation.octets)
                for number, operation in enumerate(endpoint.peer_doing)
                if operation.opcode == WROpcode.SEND
            ]
            done = [
                (number, WCOpcode(operation.opcode))
                for number, operation in enumerate(endpoint.doing)
            ]
            expected[endpoint.qp.qp_num] = (done, received)
        completions = []
        for cq in self.cqs:
            mine = [expected[one.qp.qp_num] for one in self.endpoints if one.cq is cq]
            count = sum(len(done) + len(received) for done, received in mine)
            completions += cq.wait(count, timeout=SECONDS)
        for number, (done, received) in expected.items():
            found = [completion for completion in completions if completion.qp_num == number]
            assert all(completion.status == WCStatus.SUCCESS for completion in found), found
            sent = [wc for wc in found if wc.opcode != WCOpcode.RECV]
            assert [(wc.wr_id, wc.opcode) for wc in sent] == done
            arrived = [wc for wc in found if wc.opcode == WCOpcode.RECV]
            assert [(wc.wr_id, wc.opcode, wc.byte_len) for wc in arrived] == received

    def check(self, peer: "End") -> None:
        """Compares every octet of every region."""
        for endpoint, other in zip(self.endpoints, peer.endpoints, strict=True):
            for opcode, region in endpoint.regions.items():
                number = endpoint.qp.qp_num
                assert region.buf == endpoint.expected(opcode, other), f"QP {number}, {opcode!r}"


async def run_ends(
    devices: Sequence, seeds: Sequence[int], doing: Sequence[list[list[Operation]]]
) -> None:
    """Joins two started devices, does what each is to do, and compares all memory."""
    devices[0].join(devices[1])

    def active() -> End:
        end = End(devices[0], random.Random(seeds[0]), doing[0], doing[1])
        end.connect()
        end.wait()
        return end

    def passive() -> End:
        end = End(devices[1], random.Random(seeds[1]), doing[1], doing[0])
        with listen(end.context, port=PORT) as listener:
            end.accept(listener)
        end.wait()
        return end

    task = cocotb.start_soon(bridge(passive)())
    a = await bridge(active)()
    b = await task
    a.check(b)
    b.check(a)
    await bridge(a.context.close)()
    await bridge(b.context.close)()
