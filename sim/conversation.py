"""Turns what a simulated device recorded of its streams into a packet capture."""

from collections.abc import Sequence
from pathlib import Path

from stagecoach.host_driver.transport.lending import RecordedStream
from stagecoach.host_driver.transport.records import Record, RecordKind
from stagecoach.sim.capture.connections import Direction
from stagecoach.sim.capture.pcapng import PcapngWriter, TcpConversation
from stagecoach.sim.model.startup import KEY_REQUEST

_NANOSECOND = 1e-9


def write_conversation(
    path: str | Path, streams: Sequence[RecordedStream], records: Sequence[Record]
) -> None:
    """Writes every recorded stream as one TCP connection, startup frames included.

    The end that sent the MPA Request Frame is the Initiator. Times are those of the wall clock
    at which the bytes crossed the LLP port.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with PcapngWriter(path) as writer:
        conversations = {}
        for stream in streams:
            initiator = _is_initiator(stream)
            ends = (stream.local_address, stream.peer_address)
            conversation = TcpConversation(writer, *(ends if initiator else reversed(ends)))
            for octets in stream.startup:
                time = octets.time_ns * _NANOSECOND
                conversation.add(_direction(initiator, octets.sent), octets.data, time)
            conversations[stream.number] = (conversation, initiator)
        last = 0.0
        for record in records:
            if record.stream not in conversations:
                continue
            last = record.time_ns * _NANOSECOND
            conversation, initiator = conversations[record.stream]
            if record.kind in (RecordKind.TRANSMIT, RecordKind.RECEIVE):
                sent = record.kind == RecordKind.TRANSMIT
                conversation.add(_direction(initiator, sent), record.data, last)
        for conversation, _ in conversations.values():
            conversation.close(last)


def _is_initiator(stream: RecordedStream) -> bool:
    sent = b"".join(octets.data for octets in stream.startup if octets.sent)
    return sent.startswith(KEY_REQUEST)


def _direction(initiator: bool, sent: bool) -> Direction:
    return Direction.TO_RESPONDER if sent == initiator else Direction.TO_INITIATOR
