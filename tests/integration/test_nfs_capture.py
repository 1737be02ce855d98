"""What `stagecoach nfs` sends, as tshark dissects it: nothing malformed, chunk lists as sent."""

import os

import pytest

from stagecoach.sim.capture.decode import SeenFpdu, decode_file
from stagecoach.sim.conversation import write_conversation
from stagecoach.sim.model import rpc
from stagecoach.sim.model.rpcrdma import Procedure
from stagecoach.ulp.nfs.status import NfsError
from stagecoach.ulp.rpcrdma.settings import Profile
from tests.integration.nfs_rig import NfsPair
from tests.ulp.nfs.dissected import dissected

READ, WRITE, LOOKUP, READDIRPLUS = 6, 7, 3, 17
OCTETS = 40_001
RDMA_MSG, RDMA_NOMSG = "0", "1"


async def traffic(files):
    """A READ, a WRITE, a long call and a long reply."""
    file = await files.find(b"/export/file")
    buffer = memoryview(bytearray(OCTETS))
    await files.nfs.read(file.handle, 0, buffer)
    await files.nfs.write(file.handle, 0, buffer)
    root = await files.find(b"/export")
    with pytest.raises(NfsError, match="NAMETOOLONG"):
        await files.nfs.lookup(root.handle, b"n" * 4090)
    await files.nfs.readdirplus(root.handle, 1 << 15)


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    directory = tmp_path_factory.mktemp("export")
    (directory / "file").write_bytes(os.urandom(OCTETS))
    for number in range(40):
        (directory / f"{'n' * 100}{number}").touch()
    path = tmp_path_factory.mktemp("capture") / "nfs.pcapng"
    with NfsPair(directory, Profile.RFC8166, record=True) as pair:
        pair.use(traffic)
        write_conversation(path, pair.here.recorded_streams, pair.here.take_records())
    return path


@pytest.fixture(scope="module")
def packets(capture):
    return dissected(capture)


def messages_of(packets, procedure):
    """Call and reply of the only call of a procedure, and their RDMA headers."""
    found = [
        each
        for each in packets
        if str(procedure) in each.fields.get("nfs.procedure_v3", [])
        and "rpcordma" in each.protocols
    ]
    return found


def test_nothing_is_malformed(packets):
    assert [each.packet for each in packets if "_ws.malformed" in each.protocols] == []


def test_every_message_is_decoded_down_to_nfs(packets):
    """The call of the WRITE and the long one where tshark puts them together, at their data."""
    procedures = [each.first("nfs.procedure_v3") for each in packets if "nfs" in each.protocols]
    mounts = [each for each in packets if "mount" in each.protocols]
    assert len(mounts) == 4  # EXPORT and MNT, call and reply
    for procedure in (READ, WRITE, READDIRPLUS):
        assert procedures.count(str(procedure)) == 2
    assert procedures.count(str(LOOKUP)) == 4  # one finds the file


@pytest.mark.requirement("RPCRDMA-3.4-02", "RPCRDMA-3.4-03", "RPCRDMA-3.4-05", "RPCRDMA-3.6-01")
def test_read_has_a_write_chunk(packets):
    call, reply = messages_of(packets, READ)
    for each in (call, reply):
        assert each.first("rpcordma.msg_type") == RDMA_MSG
        assert each.fields["rpcordma.reads_count"] == ["0"]
        assert each.fields["rpcordma.writes_count"] == ["1"]
        assert each.fields["rpcordma.reply_count"] == ["0"]
        assert each.fields["rpcordma.rdma_length"] == [str(OCTETS)]  # without roundup
    assert call.fields["rpcordma.rdma_handle"] == reply.fields["rpcordma.rdma_handle"]


@pytest.mark.requirement("RPCRDMA-3.4-01", "RPCRDMA-3.7-02")
def test_write_has_a_read_chunk(packets):
    (with_chunk,) = [
        each
        for each in packets
        if each.first("rpcordma.reads_count") == "1" and each.first("rpcordma.msg_type") == RDMA_MSG
    ]
    assert with_chunk.fields["rpcordma.rdma_length"] == [str(OCTETS)]
    assert int(with_chunk.first("rpcordma.position")) % 4 == 0
    *_, reply = messages_of(packets, WRITE)
    assert reply.first("rpcordma.msg_type") == RDMA_MSG


@pytest.mark.requirement("RPCRDMA-4-01", "RPCRDMA-5.1-01")
def test_long_call_is_a_chunk_at_position_zero(packets):
    (call,) = [each for each in packets if each.first("rpcordma.position") == "0"]
    assert call.first("rpcordma.msg_type") == RDMA_NOMSG
    assert call.fields["rpcordma.reads_count"] == ["1"]


@pytest.mark.requirement("RPCRDMA-5.2-01")
def test_long_reply_comes_in_the_reply_chunk(packets):
    call, reply = messages_of(packets, READDIRPLUS)
    assert call.fields["rpcordma.reply_count"] == reply.fields["rpcordma.reply_count"] == ["1"]
    assert reply.first("rpcordma.msg_type") == RDMA_NOMSG
    offered, used = (int(each.first("rpcordma.rdma_length")) for each in (call, reply))
    assert offered >= 1 << 15 > used > 4096


@pytest.fixture(scope="module")
def sends(capture):
    """FPDUs with the end of a Send, as `stagecoach decode` has them."""
    items = decode_file(capture).items
    assert not any(item.problems for item in items)
    return [item for item in items if isinstance(item, SeenFpdu) and item.rpc]


def test_replies_invalidate_a_chunk_of_their_calls(sends):
    handles = {}
    for item in sends:
        header, invalidated = item.rpc.header, item.observation.invalidate_stag
        if item.rpc.rpc.kind == rpc.CALL:
            chunks = (header.reads, *header.writes, header.reply or ())
            handles[header.xid] = {each.handle for chunk in chunks for each in chunk}
            assert invalidated is None
        elif of_call := handles.pop(header.xid):
            assert invalidated in of_call
        else:
            assert invalidated is None
    assert handles == {}


def test_stagecoach_decode_tells_every_procedure(sends):
    """That of the long call, which is not in its Send, too."""
    found = [item.rpc for item in sends]
    assert all(each.rpc.call is not None for each in found)
    long = [each.rpc for each in found if each.header.procedure is Procedure.RDMA_NOMSG]
    assert [(each.call.name, each.status) for each in long] == [
        ("NFS 3 LOOKUP", None),
        ("NFS 3 READDIRPLUS", "SUCCESS"),
    ]
