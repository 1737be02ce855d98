"""The headers of the messages of RFC 7306, as the device sends them and as it takes them."""

import struct
from collections.abc import Iterator

import pytest

from stagecoach.host_driver import Context, RecvWR, SendFlags, SendWR, WCStatus, WROpcode
from stagecoach.sim.model import ddp, rdmap
from stagecoach.sim.model.atomics import FETCH_ADD, WORD, AtomicRequest, AtomicResponse
from stagecoach.sim.model.ddp import UntaggedHeader
from stagecoach.sim.model.rdmap import Opcode, control_octet
from tests.integration.rig import End, RawPeer, open_device

pytestmark = pytest.mark.timeout(300)  # the first test may have to build the device

SECONDS = 10.0
OCTETS = bytes(range(1, 9))
REQUEST_IDENTIFIER = 0xA1B2C3D4
HEADERS = {
    Opcode.IMMEDIATE_DATA: (0, 8),
    Opcode.IMMEDIATE_DATA_WITH_SE: (0, 8),
    Opcode.ATOMIC_REQUEST: (1, 52),
    Opcode.ATOMIC_RESPONSE: (3, 12),
}
"""Queue number, and octets after the DDP header (RFC 7306, Figures 2 and 3; 5.2.1; 6.2)."""


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    with open_device() as opened:
        yield opened


@pytest.fixture
def end(context: Context) -> Iterator[End]:
    end = End(context)
    yield end
    end.close()


def untagged(opcode: Opcode, msn: int, payload: bytes, **fields: int) -> bytes:
    control = control_octet(opcode, reserved=fields.pop("rdmap_reserved", 0))
    header = UntaggedHeader(rdmap.QUEUE_OF[opcode], msn, rsvd_ulp=control, **fields)
    return header.encode() + payload


def fetch_add(end: End) -> AtomicRequest:
    return AtomicRequest(FETCH_ADD, REQUEST_IDENTIFIER, end.mr.rkey, end.mr.addr, 5, 0, 0, WORD)


@pytest.mark.requirement("EXT-4-01", "EXT-4.1-01", "EXT-4.1-02", "EXT-4.1-03", "EXT-4.1-04")
@pytest.mark.requirement("EXT-4.2-01", "EXT7306-4.1-01", "EXT7306-4.1-02")
def test_every_field_of_the_headers_that_are_sent(end: End):
    """Also of the answer to a request whose reserved bits are all set."""
    peer = RawPeer(end.qp)
    sink = end.element(8, 8)
    end.qp.post_send(
        SendWR(1, WROpcode.IMM_DATA, imm_data=OCTETS, rkey=0xFFFFFFFF),
        SendWR(
            2,
            WROpcode.IMM_DATA,
            send_flags=SendFlags.SIGNALED | SendFlags.SOLICITED,
            imm_data=OCTETS,
        ),
        SendWR(3, WROpcode.ATOMIC_FETCH_AND_ADD, [sink], remote_addr=16, rkey=0x11223344),
    )
    request = fetch_add(end).encode()
    peer.send(untagged(Opcode.ATOMIC_REQUEST, 1, request, **ALL_ONES))
    peer.pump_until(lambda: len(peer.ulpdus) == len(HEADERS), SECONDS)
    found = {ulpdu[1] & 0xF: ulpdu for ulpdu in peer.ulpdus}
    msns = dict.fromkeys(HEADERS, 1) | {Opcode.IMMEDIATE_DATA_WITH_SE: 2}
    for opcode, (qn, octets) in HEADERS.items():
        # DV 1, L, no T, nothing reserved; RV 1; Invalidate STag, QN, MSN, MO (RFC 5041, 4.3).
        header = struct.pack(">BBIIII", 0x41, 0x40 | opcode, 0, qn, msns[opcode], 0)
        assert found[opcode][:18] == header, opcode
        assert len(found[opcode]) == 18 + octets, opcode
    assert found[Opcode.IMMEDIATE_DATA][18:] == OCTETS
    assert found[Opcode.ATOMIC_RESPONSE][18:22] == REQUEST_IDENTIFIER.to_bytes(4)
    peer.close()


ALL_ONES = {"reserved": 0x3C, "rdmap_reserved": 0x30, "rsvd_ulp_word": 0xFFFFFFFF}
"""All that a receiver ignores."""


@pytest.mark.requirement("EXT-4.1-04", "EXT7306-4.1-01")
@pytest.mark.parametrize("ignored", [{}, *({name: bits} for name, bits in ALL_ONES.items())])
def test_what_a_receiver_ignores_may_have_any_value(end: End, ignored: dict[str, int]):
    peer = RawPeer(end.qp)
    end.qp.post_recv(RecvWR(1), RecvWR(2))
    end.qp.post_send(SendWR(3, WROpcode.ATOMIC_FETCH_AND_ADD, [end.element(64, 8)], rkey=1))
    peer.pump_until(lambda: len(peer.ulpdus) == 1, SECONDS)
    asked = AtomicRequest.decode(ddp.decode(peer.ulpdus[0])[1])
    answer = AtomicResponse(asked.identifier, 0x0102030405060708)
    peer.send(
        untagged(Opcode.IMMEDIATE_DATA, 1, OCTETS, **ignored),
        untagged(Opcode.IMMEDIATE_DATA_WITH_SE, 2, OCTETS, **ignored),
        untagged(Opcode.ATOMIC_RESPONSE, 1, answer.encode(), **ignored),
        untagged(Opcode.ATOMIC_REQUEST, 1, fetch_add(end).encode(), **ignored),
    )
    completions = end.cq.wait(3, SECONDS)
    assert {wc.status for wc in completions} == {WCStatus.SUCCESS}
    assert sorted((wc.wr_id, wc.imm_data) for wc in completions) == [
        (1, OCTETS),
        (2, OCTETS),
        (3, b""),
    ]
    assert int.from_bytes(end.buffer[64:72], "little") == 0x0102030405060708
    peer.pump_until(lambda: len(peer.ulpdus) == 2, SECONDS)
    assert int.from_bytes(end.buffer[:8], "little") == 5
    peer.close()
