"""Conversations of two devices as a capture: `stagecoach decode` and tshark find what was sent."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stagecoach.host_driver import Context
from stagecoach.sim.capture.decode import SeenFpdu, decode_file
from stagecoach.sim.capture.rpc_sends import SeenRpc
from stagecoach.sim.capture.rpc_words import as_json
from stagecoach.sim.conversation import write_conversation
from stagecoach.sim.transport import SimulatedDevice
from stagecoach.ulp.oncrpc.message import Bulk, Message
from stagecoach.ulp.rpcrdma.call import RdmaCall
from stagecoach.ulp.rpcrdma.settings import ClientSettings, Profile, ServerSettings
from tests.sim.capture.test_decode_rpcrdma import NAMES, fields_of
from tests.ulp.rpcrdma.captured import dissected
from tests.ulp.rpcrdma.raw import raw_client, words
from tests.ulp.rpcrdma.rig import Devices, connected, pattern, room, run

pytestmark = pytest.mark.usefixtures("compiled_device")

PROGRAM = 0x20000001


def rpc(xid: int, *words: int, item: bytes = b"") -> Message:
    """An RPC message that ends with an opaque."""
    stream = b"".join(word.to_bytes(4) for word in (xid, *words, len(item)))
    bulk = Bulk(len(stream), memoryview(item))
    return Message(stream, (bulk,) if item else ())


def call(xid: int, item: bytes = b"") -> Message:
    return rpc(xid, 0, 2, PROGRAM, 1, 1, 0, 0, 0, 0, item=item)


def reply(xid: int, item: bytes = b"") -> Message:
    return rpc(xid, 1, 0, 0, 0, 0, item=item)


async def same_size(received: RdmaCall) -> None:
    """A result of 5000 octets, or of as many as the write list offers."""
    octets = received.bulk_room[0] if received.bulk_room else 5000
    view = received.buffer(octets)
    view[:] = pattern(octets)
    await received.reply(reply(received.message.xid, view))


@pytest.fixture(scope="module")
def recording():
    device = SimulatedDevice(record=True)
    with Context(device) as client, Context(SimulatedDevice()) as server:
        yield device, Devices(client, server)


def headers(recording: Any, path: Path, work) -> list[SeenRpc]:
    """What is seen of the Sends of a conversation; nothing of it is in error."""
    device, _ = recording
    before = len(device.recorded_streams)
    device.take_records()
    run(work)
    write_conversation(path, device.recorded_streams[before:], device.take_records())
    items = [item for item in decode_file(path).items if isinstance(item, SeenFpdu)]
    assert [problem for item in items for problem in item.problems] == []
    found = [item.rpc for item in items if item.rpc is not None]
    # tshark gives numbers to procedures from its own table; only the first four are in ours.
    procedures = ("RDMA_MSG", "RDMA_NOMSG", "RDMA_MSGP", "RDMA_DONE")
    ours = []
    for seen in found:
        header = as_json(seen)["header"]
        number = procedures.index(header["procedure"])
        fields = fields_of(header | {"procedure": procedures[number % 2]})
        ours.append(fields | {"msg_type": [number]})
    theirs = [
        {name: values for name, values in fields.items() if name in NAMES}
        for _, fields in dissected(path)
    ]
    # RDMA_DONE has no lists.
    bare = [{k: v for k, v in each.items() if not k.endswith("_count")} for each in ours]
    expected = [
        each if fields["msg_type"] == [3] else fields
        for each, fields in zip(bare, ours, strict=True)
    ]
    assert expected == theirs
    return found


def test_rfc8166_on_the_wire(recording, tmp_path: Path):
    _, devices = recording

    async def work():
        client = ClientSettings(segment_octets=1500)
        async with connected(devices, client, handler=same_size) as pair:
            await pair.client.call(call(1, b"short"), room(3000, 100))
            await pair.client.call(call(2, bytearray(pattern(5001))), room(100, 4999))
            await pair.client.call(Message(call(3, pattern(6000)).whole()), room(9000))

    found = headers(recording, tmp_path / "rfc8166.pcapng", work)
    told = Counter(str(seen.header.procedure.name) for seen in found)
    assert told == {"RDMA_MSG": 4, "RDMA_NOMSG": 2}
    assert [len(seen.header.reads) for seen in found] == [0, 0, 4, 0, 5, 0]
    assert all(seen.header.reply is None for seen in found[:4])
    written = [sum(each.length for chunk in seen.header.writes for each in chunk) for seen in found]
    assert written == [100, 100, 4999, 4999, 0, 0]


def test_rfc5666_on_the_wire(recording, tmp_path: Path):
    _, devices = recording
    old = Profile.RFC5666

    async def work():
        client = ClientSettings(profile=old, offer_reply_chunk=False)
        server = ServerSettings(profile=old, align=64)
        async with connected(devices, client, server, same_size) as pair:
            answer = await pair.client.call(call(1, pattern(1000)), room(6000))
            assert [bytes(bulk.data) for bulk in answer.bulks] == [pattern(5000)]
            await pair.client.call(call(2), room(100, 600))

    found = headers(recording, tmp_path / "rfc5666.pcapng", work)
    procedures = [seen.header.procedure.name for seen in found]
    assert (
        procedures
        == ["RDMA_MSG", "RDMA_MSG", "RDMA_MSGP", "RDMA_MSG", "RDMA_DONE"] + ["RDMA_MSG"] * 2
    )
    assert [len(seen.header.reads) for seen in found] == [0, 0, 0, 1, 0, 0, 0]
    # CONF_RDMA, the first call.
    assert as_json(found[0])["rpc"]["name"] == "CONFIG_RDMA 1 CONF_RDMA"
    assert found[2].header.align == 64


@pytest.mark.requirement("RFC8166-4-01", "RFC8166-4.1.2-01")
def test_errors_on_the_wire(recording, tmp_path: Path):
    device, devices = recording

    async def work():
        async with raw_client(devices) as (peer, _):
            for version in (2, 1):
                await peer.send(words(7, version, 8, 0, 0, 0, 0))
                await peer.next()

    before = len(device.recorded_streams)
    device.take_records()
    run(work)
    path = tmp_path / "errors.pcapng"
    write_conversation(path, device.recorded_streams[before:], device.take_records())
    items = [item for item in decode_file(path).items if isinstance(item, SeenFpdu)]
    found = [item.rpc.header for item in items if item.rpc is not None and item.rpc.header]
    errors = [(each.version, each.error, each.versions) for each in found if each.error]
    assert errors == [(2, 1, (1, 1)), (1, 2, None)]
    # tshark knows version 1 alone.
    (theirs,) = [fields for _, fields in dissected(path) if fields["msg_type"] == [4]]
    fixed = {"xid": [7], "version": [1], "flow_control": [32], "msg_type": [4]}
    assert theirs == {**fixed, "errcode": [2]}
