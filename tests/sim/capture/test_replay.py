"""Captured connections played by the reference endpoint, once as each of the two ends."""

from pathlib import Path

import pytest

from stagecoach.sim.capture.connections import Connection, Direction, read_connections
from stagecoach.sim.model import mpa
from stagecoach.sim.model.endpoint import Endpoint, Operation
from tests.sim.capture.replay import Deliver, PostRead, Replay, SetMemory, replay_of
from tests.sim.model.vectors import DATA

# Soft-iWARP fills an MSS of 1460 octets only up to a multiple of 8.
MULPDU = 1450
CONNECTIONS = [
    pytest.param(connection, id=f"{path.stem}-{number}")
    for path in sorted((DATA / "captures").glob("*.pcap"))
    for number, connection in enumerate(read_connections(path))
]


def play(replay: Replay, *, crc: bool) -> tuple[Endpoint, dict[int, bytearray], list[bytes]]:
    """The endpoint, its memory, and the DDP Segments it sent, after all steps."""
    end = Endpoint(mulpdu=MULPDU, crc=crc)
    memory = {stag: bytearray(window.length) for stag, window in replay.windows.items()}
    for stag, window in replay.windows.items():
        end.register(memory[stag], stag=stag, base=window.base, rights=window.rights)
    for length in replay.receives:
        end.post_receive(length)
    output = []
    for step in replay.steps:
        match step:
            case SetMemory(stag, tagged_offset, octets):
                start = tagged_offset - replay.windows[stag].base
                memory[stag][start : start + len(octets)] = octets
            case PostRead(request):
                end.rdma_read(
                    request.sink_stag,
                    request.sink_tagged_offset,
                    request.size,
                    request.source_stag,
                    request.source_tagged_offset,
                )
            case Deliver(octets):
                end.receive(octets)
        output += end.take_output()
    return end, memory, list(mpa.Deframer(crc=crc).feed(b"".join(output)))


@pytest.mark.parametrize("inbound", Direction)
@pytest.mark.parametrize("connection", CONNECTIONS)
def test_captured_connection_is_accepted_placed_and_answered(connection: Connection, inbound):
    replay = replay_of(connection, inbound)
    end, memory, segments = play(replay, crc=connection.negotiated.crc)
    assert end.error is None, end.error_detail
    assert memory == replay.memory
    receives = [c.payload for c in end.poll() if c.operation is Operation.RECEIVE]
    assert receives == replay.sends
    # Tagged segments are Read Responses here; the endpoint posts no Writes.
    responses = [segment for segment in segments if segment[0] & 0x80]
    assert responses == replay.read_responses


def test_replay_knows_what_rping_does():
    path: Path = DATA / "captures" / "crc1-rping-64.pcap"
    (connection,) = read_connections(path)
    client = replay_of(connection, Direction.TO_INITIATOR)
    server = replay_of(connection, Direction.TO_RESPONDER)
    # The server reads the client's buffer, then writes the same text into another one of it.
    assert len(client.windows) == 2
    source, sink = sorted(client.memory, key=lambda stag: client.windows[stag].rights.value)
    assert client.memory[source] == client.memory[sink]
    assert b"rdma-ping-2" in client.memory[sink]
    assert [len(segment) for segment in client.read_responses] == [14 + 64] * 3
    assert sum(isinstance(step, PostRead) for step in server.steps) == 3
