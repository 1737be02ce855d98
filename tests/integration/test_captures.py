"""Captured connections played by the compiled device, once as each of the two ends."""

from collections.abc import Iterator

import pytest

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    Context,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
    WCOpcode,
    WCStatus,
    WROpcode,
)
from stagecoach.sim.capture.connections import Connection, Direction, read_connections
from stagecoach.sim.model import ddp, mpa, rdmap
from stagecoach.sim.model.memory import Rights
from stagecoach.sim.model.rdmap import Opcode
from tests.integration.rig import RawPeer, open_device
from tests.sim.capture.replay import Deliver, PostRead, Replay, SetMemory, replay_of
from tests.sim.model.vectors import DATA

# Soft-iWARP fills an MSS of 1460 octets only up to a multiple of 8: its MULPDU is 1450.
EMSS = 1456
TIMEOUT = 20.0
CONNECTIONS = [
    pytest.param(connection, id=f"{path.stem}-{number}")
    for path in sorted((DATA / "captures").glob("*.pcap"))
    for number, connection in enumerate(read_connections(path))
]
RIGHTS = {
    Rights.LOCAL_WRITE: AccessFlags.LOCAL_WRITE,
    Rights.REMOTE_WRITE: AccessFlags.REMOTE_WRITE,
    Rights.REMOTE_READ: AccessFlags.REMOTE_READ,
}


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    with open_device() as context:
        yield context


class Player:
    """Plays one end of a connection on a new QP."""

    def __init__(self, context: Context, replay: Replay, *, initiator: bool, crc: bool):
        self.replay = replay
        self.pd = PD(context)
        self.send_cq, self.receive_cq = CQ(context), CQ(context, max(len(replay.receives), 1))
        self.qp = QP(
            self.pd,
            QPInitAttr(self.send_cq, self.receive_cq, QPCap(64, max(len(replay.receives), 1))),
        )
        self.memory = {stag: bytearray(window.length) for stag, window in replay.windows.items()}
        self.regions = []
        for stag, window in replay.windows.items():
            access = AccessFlags(0)
            for right, flag in RIGHTS.items():
                if right in window.rights:
                    access |= flag
            self.regions.append(MR(self.pd, self.memory[stag], access, addr=window.base, stag=stag))
        self.received = bytearray(max(sum(replay.receives), 1))
        region = MR(self.pd, self.received)
        self.regions.append(region)
        offset = 0
        for number, length in enumerate(replay.receives):
            self.qp.post_recv(RecvWR(number, [SGE(region.addr + offset, length, region.lkey)]))
            offset += length
        self.peer = RawPeer(self.qp, initiator=initiator, crc=crc, emss=EMSS)
        self.reads = 0
        # Read Requests that the device has received, or will with the next chunk.
        self.requests = self.next_requests = 0

    def sent(self, opcode: Opcode) -> list[bytes]:
        """The DDP Segments of an opcode that the device has sent."""
        return [
            segment
            for segment in self.peer.ulpdus
            if rdmap.decode_control(segment[1]).opcode == opcode
        ]

    def answered(self) -> bool:
        """Whether every Read Request that was delivered has its whole Read Response."""
        responses = self.sent(Opcode.RDMA_READ_RESPONSE)
        return sum(bool(segment[0] & ddp.FLAG_LAST) for segment in responses) >= self.requests

    def play(self) -> None:
        for step in self.replay.steps:
            match step:
                case SetMemory(stag, tagged_offset, octets):
                    # The answer to the request before may come from the same place.
                    self.peer.pump_until(self.answered, TIMEOUT)
                    start = tagged_offset - self.replay.windows[stag].base if octets else 0
                    if octets:
                        self.memory[stag][start : start + len(octets)] = octets
                    self.next_requests += 1
                case PostRead(request):
                    sink = SGE(request.sink_tagged_offset, request.size, request.sink_stag)
                    self.qp.post_send(
                        SendWR(
                            self.reads,
                            WROpcode.RDMA_READ,
                            [sink],
                            remote_addr=request.source_tagged_offset,
                            rkey=request.source_stag,
                        )
                    )
                    self.reads += 1
                    self.peer.pump_until(
                        lambda: len(self.sent(Opcode.RDMA_READ_REQUEST)) == self.reads, TIMEOUT
                    )
                case Deliver(octets):
                    self.peer.send_octets(octets)
                    self.peer.wait_taken(TIMEOUT)
                    self.requests, self.next_requests = self.requests + self.next_requests, 0
        self.peer.pump_until(self.answered, TIMEOUT)

    def close_regions(self) -> None:
        """Revokes the regions: everything that was received is in memory then."""
        while self.regions:
            self.regions.pop().close()

    def close(self) -> None:
        self.close_regions()
        self.qp.close()
        self.send_cq.close()
        self.receive_cq.close()
        self.peer.close()


@pytest.mark.requirement("RDMAP-4.4-02", "RDMAP-5.1-02", "RDMAP-5.2-01", "RDMAP-5.2.1-03")
@pytest.mark.requirement("RDMAP-5.2.1-04", "RDMAP-5.2.1-08", "RDMAP-5.2.1-11", "RDMAP-5.2.2-03")
@pytest.mark.requirement("RDMAP-5.2.2-06", "RDMAP-5.3-02", "RDMAP-5.3-05", "DDP-3-05", "DDP-5.2-04")
@pytest.mark.requirement("DDP-5.4-02", "MPA-3-07", "MPA-4.4-06")
@pytest.mark.parametrize("inbound", Direction)
@pytest.mark.parametrize("connection", CONNECTIONS)
def test_captured_connection_is_accepted_placed_and_answered(
    context: Context, connection: Connection, inbound: Direction
):
    crc = connection.negotiated.crc
    fpdus = len(list(mpa.Deframer(crc=crc).feed(connection.stream(inbound))))
    before, events = context.fpdus_received, len(context.events)
    replay = replay_of(connection, inbound)
    initiator = inbound is Direction.TO_INITIATOR
    player = Player(context, replay, initiator=initiator, crc=crc)
    try:
        player.play()
        context.poll_until(
            lambda: context.fpdus_received - before == fpdus, TIMEOUT, f"{fpdus} FPDUs"
        )
        received = player.receive_cq.wait(len(replay.sends), TIMEOUT) if replay.sends else []
        reads = player.send_cq.wait(player.reads, TIMEOUT) if player.reads else []
        player.close_regions()
        context.process_events()
        assert context.events[events:] == []
    finally:
        player.close()
    assert player.memory == replay.memory
    assert bytes(player.received[: sum(replay.receives)]) == b"".join(replay.sends)
    assert [(wc.wr_id, wc.status, wc.opcode, wc.byte_len) for wc in received] == [
        (number, WCStatus.SUCCESS, WCOpcode.RECV, len(send))
        for number, send in enumerate(replay.sends)
    ]
    assert [(wc.wr_id, wc.status, wc.opcode) for wc in reads] == [
        (number, WCStatus.SUCCESS, WCOpcode.RDMA_READ) for number in range(player.reads)
    ]
    assert player.sent(Opcode.RDMA_READ_RESPONSE) == replay.read_responses
