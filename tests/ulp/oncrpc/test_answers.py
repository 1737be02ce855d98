"""What the server answers to calls that it does not execute: each status of RFC 5531, 9."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecoach.ulp.oncrpc.auth import (
    AUTH_NONE,
    AUTH_SYS,
    AuthSys,
    OpaqueAuth,
    pack_credential,
)
from stagecoach.ulp.oncrpc.errors import (
    CallRefused,
    GarbageArguments,
    RpcError,
    RpcTransportError,
    XdrError,
)
from stagecoach.ulp.oncrpc.header import CallHeader, unpack_reply
from stagecoach.ulp.oncrpc.message import Bulk, Message
from stagecoach.ulp.oncrpc.server import RpcServer, Service
from stagecoach.ulp.oncrpc.transport import ReplyRoom
from stagecoach.ulp.oncrpc.xdr import Decoder, Encoder
from tests.ulp.oncrpc.arithmetic import ARITHMETIC, SQUARE, service
from tests.ulp.oncrpc.memory_transport import MemoryCall

XID = 0x12345678
NO_VERIFIER = "00000000 00000000"
ACCEPTED = f"12345678 00000001 00000000 {NO_VERIFIER}"
DENIED = "12345678 00000001 00000001"


async def answer(message: Message, *services: Service) -> bytes:
    future = asyncio.get_running_loop().create_future()
    call = MemoryCall(message, ReplyRoom(1 << 20), future)
    await RpcServer(services or [service()]).answer(call)
    return (await future).whole()


def reply_to(octets: str | bytes, *services: Service) -> bytes:
    stream = bytes.fromhex(octets) if isinstance(octets, str) else octets
    return asyncio.run(answer(Message(stream), *services))


def call_of(
    program: int = ARITHMETIC.number,
    version: int = ARITHMETIC.version,
    procedure: int = 1,
    arguments: str = "00000007",
    rpc_version: int = 2,
    credential: str = NO_VERIFIER,
    verifier: str = NO_VERIFIER,
) -> str:
    words = (XID, 0, rpc_version, program, version, procedure)
    return " ".join([*(f"{word:08x}" for word in words), credential, verifier, arguments])


def test_success():
    assert reply_to(call_of()) == bytes.fromhex(f"{ACCEPTED} 00000000 0000000000000031")


def test_null_takes_and_returns_nothing():
    reply = reply_to(call_of(procedure=0, arguments=""))
    assert reply == bytes.fromhex(f"{ACCEPTED} 00000000")


@pytest.mark.parametrize(
    ("call", "reply"),
    [
        pytest.param(
            call_of(rpc_version=3), f"{DENIED} 00000000 00000002 00000002", id="RPC_MISMATCH"
        ),
        pytest.param(call_of(program=100003), f"{ACCEPTED} 00000001", id="PROG_UNAVAIL"),
        pytest.param(
            call_of(version=2), f"{ACCEPTED} 00000002 00000003 00000003", id="PROG_MISMATCH"
        ),
        pytest.param(call_of(procedure=99), f"{ACCEPTED} 00000003", id="PROC_UNAVAIL"),
        pytest.param(call_of(procedure=5), f"{ACCEPTED} 00000003", id="PROC_UNAVAIL no handler"),
        pytest.param(call_of(arguments=""), f"{ACCEPTED} 00000004", id="GARBAGE_ARGS short"),
        pytest.param(
            call_of(arguments="00000001 00000002"), f"{ACCEPTED} 00000004", id="GARBAGE_ARGS long"
        ),
        pytest.param(
            call_of(procedure=2, arguments="000000ff 00000000"),
            f"{ACCEPTED} 00000004",
            id="GARBAGE_ARGS length",
        ),
        pytest.param(
            call_of(procedure=4, arguments="00000001"),
            f"{ACCEPTED} 00000004",
            id="GARBAGE_ARGS by the handler",
        ),
        pytest.param(
            call_of(procedure=4, arguments="00000000"), f"{ACCEPTED} 00000005", id="SYSTEM_ERR"
        ),
        pytest.param(
            call_of(arguments="ffffffff"),
            f"{ACCEPTED} 00000000 fffffffe00000001",
            id="the largest number",
        ),
        pytest.param(
            call_of(credential="00000003 00000000"),
            f"{DENIED} 00000001 00000001",
            id="AUTH_BADCRED flavor",
        ),
        pytest.param(
            call_of(credential="00000001 00000004 00000000"),
            f"{DENIED} 00000001 00000001",
            id="AUTH_BADCRED body",
        ),
        pytest.param(
            call_of(credential=f"00000001 00000194 {'00' * 404}"),
            f"{DENIED} 00000001 00000001",
            id="AUTH_BADCRED longer than 400 octets",
        ),
        pytest.param(
            call_of(credential=f"00000001 00000018 {'00' * 24}"),
            f"{DENIED} 00000001 00000001",
            id="AUTH_BADCRED with octets after it",
        ),
        pytest.param(
            call_of(credential="00000002 00000000"),
            f"{DENIED} 00000001 00000002",
            id="AUTH_REJECTEDCRED",
        ),
        pytest.param(
            call_of(verifier="00000001 00000000"), f"{DENIED} 00000001 00000003", id="AUTH_BADVERF"
        ),
    ],
)
def test_status(call, reply):
    assert reply_to(call) == bytes.fromhex(reply)


class Garbage(GarbageArguments):
    pass


@pytest.mark.parametrize(
    ("why", "status"), [(Garbage(), 4), (CallRefused("a reason of its own"), 5)]
)
def test_refusals_of_a_handlers_own_get_an_answer(why, status):
    def refuse(request, number):
        raise why

    reply = reply_to(call_of(), Service(ARITHMETIC, {SQUARE: refuse}))
    assert reply == bytes.fromhex(f"{ACCEPTED} {status:08x}")


@pytest.mark.parametrize("octets", ["", "12345678", "12345678 00000001", "12345678 00000002"])
def test_what_is_no_call_is_dropped(octets):
    with pytest.raises(RpcTransportError, match="dropped"):
        reply_to(octets)


@pytest.mark.parametrize("words", [3, 4, 5])
def test_call_that_ends_in_its_header_is_garbage(words):
    octets = bytes.fromhex(call_of())[: 4 * words]
    assert reply_to(octets) == bytes.fromhex(f"{ACCEPTED} 00000004")


def test_versions_that_are_there_are_named():
    newer = Service(type(ARITHMETIC)("ARITHMETIC", ARITHMETIC.number, 5, []), {})
    reply = reply_to(call_of(version=7), service(), newer)
    assert reply == bytes.fromhex(f"{ACCEPTED} 00000002 00000003 00000005")


def test_credential_of_auth_sys_reaches_the_handler():
    auth = AuthSys(1, b"host", 1000, 100, [4, 5])
    packed = pack_credential(auth)
    assert packed.flavor == AUTH_SYS
    assert packed.body == bytes.fromhex(
        "00000001 00000004 686f7374 000003e8 00000064 00000002 00000004 00000005"
    )
    encoder = Encoder()
    CallHeader(XID, ARITHMETIC.number, ARITHMETIC.version, 6, packed).pack(encoder)
    reply = reply_to(encoder.message().stream)
    assert reply == bytes.fromhex(f"{ACCEPTED} 00000000 000003e8")


def test_body_of_auth_none_means_nothing():
    reply = reply_to(call_of(credential="00000000 00000004 ffffffff"))
    assert reply == bytes.fromhex(f"{ACCEPTED} 00000000 0000000000000031")


@given(st.binary(max_size=120), st.booleans())
def test_any_octets_get_an_answer_or_are_dropped(octets, with_header):
    stream = bytes.fromhex(call_of(arguments="")) + octets if with_header else octets
    try:
        reply = reply_to(stream)
    except RpcTransportError:
        assert stream[4:8] != bytes(4) or len(stream) < 8
        return
    assert reply[:8] == stream[:4] + b"\0\0\0\1"


@given(st.integers(0, 60), st.binary(min_size=1, max_size=4))
def test_a_damaged_call_gets_an_answer_or_is_dropped(at, damage):
    octets = bytearray(bytes.fromhex(call_of(procedure=2, arguments="00000001 61000000")))
    octets[at : at + len(damage)] = damage
    try:
        assert reply_to(bytes(octets))[:4] == octets[:4]
    except RpcTransportError:
        assert octets[4:8] != bytes(4)


@pytest.mark.requirement("RPCRDMA-3.4-06")
@pytest.mark.parametrize("octets", [4095, 4097, 4100])
def test_chunk_that_disagrees_with_its_count_is_garbage(octets):
    stream = bytes.fromhex(call_of(procedure=2, arguments="00000001 61000000 00001000 00000001"))
    bulk = Bulk(len(stream) - 4, memoryview(bytes(octets)))
    reply = asyncio.run(answer(Message(stream, (bulk,))))
    assert reply == bytes.fromhex(f"{ACCEPTED} 00000004")


CALL = CallHeader(XID, ARITHMETIC.number, ARITHMETIC.version, 1, OpaqueAuth(AUTH_NONE, b""))


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "12345679 00000001 00000000",
        "12345678 00000000",
        "12345678 00000001 00000002",
        f"{ACCEPTED} 00000006",
        f"{ACCEPTED} 00000002 00000001",
        f"{DENIED} 00000002",
        f"12345678 00000001 00000000 00000000 00000191 {'00' * 404} 00000000",
    ],
)
def test_reply_that_is_none_is_an_xdr_error(reply):
    with pytest.raises(XdrError):
        unpack_reply(Decoder(Message(bytes.fromhex(reply))), CALL)


@given(st.binary(max_size=60))
def test_any_reply_is_taken_or_raises_what_is_documented(octets):
    start = bytes.fromhex("12345678 00000001")
    for stream in (octets, start + octets):
        try:
            unpack_reply(Decoder(Message(stream)), CALL)
        except RpcError as error:
            assert str(error)
