"""Lost connections, garbage and failed checks: named errors, nothing placed, nothing hangs."""

import contextlib
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stagecoach.host_driver import (
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    Cause,
    ConnectionRejected,
    Context,
    QPCap,
    QPError,
    QPInitAttr,
    QPState,
    RecvWR,
    SendWR,
    StartupError,
    WaitTimeout,
    WCStatus,
    WROpcode,
    connect,
    listen,
)
from stagecoach.host_driver.counters import query_stops
from stagecoach.host_driver.enums import ATOMIC_OPERATIONS
from stagecoach.host_driver.qp import raise_if_stopped
from stagecoach.host_driver.transport.sockets import SocketStream
from stagecoach.hw.interface.causes import CODES
from stagecoach.sim import build
from stagecoach.sim.model import ddp, rdmap
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.errors import RDMAP_INVALID_STAG, ErrorCode, MpaError
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, Terminate, control_octet
from stagecoach.sim.model.sink import is_terminate
from stagecoach.sim.model.startup import StartupFrame
from stagecoach.sim.model.terminate import terminate_for
from tests.integration.rig import ALL, READS, End, RawPeer, open_device

pytestmark = pytest.mark.timeout(150)  # the first test may have to build the device

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 10.0
FILL = 0xA5
PATTERN = bytes(range(1, 201))
TO_END = 2**64


# Segments


def write(stag: int, to: int, payload: bytes = PATTERN, **header: int) -> bytes:
    """The one segment of an RDMA Write."""
    fields = {"rsvd_ulp": control_octet(Opcode.RDMA_WRITE)} | header
    return TaggedHeader(stag, to, **fields).encode() + payload


def response(stag: int, to: int, payload: bytes = PATTERN, last: bool = True) -> bytes:
    """A segment of a Read Response."""
    control = control_octet(Opcode.RDMA_READ_RESPONSE)
    return TaggedHeader(stag, to, last=last, rsvd_ulp=control).encode() + payload


def send(payload: bytes = PATTERN, msn: int = 1, **header: int) -> bytes:
    """A segment of a Send."""
    fields = {"qn": rdmap.QN_SEND, "rsvd_ulp": control_octet(Opcode.SEND)} | header
    return UntaggedHeader(msn=msn, **fields).encode() + payload


def read(
    stag: int,
    to: int,
    size: int = 200,
    msn: int = 1,
    cut: int = 28,
    more: int = 0,
    version: int = rdmap.RDMAP_VERSION,
) -> bytes:
    """A Read Request; `cut` and `more` spoil its length."""
    control = control_octet(Opcode.RDMA_READ_REQUEST, version=version)
    header = UntaggedHeader(qn=rdmap.QN_READ_REQUEST, msn=msn, rsvd_ulp=control)
    return header.encode() + ReadRequest(1, 0, size, stag, to).encode()[:cut] + bytes(more)


def terminate(cut: int = 4, more: int = 0, **header: int) -> bytes:
    """A Terminate message; `cut` and `more` spoil its length."""
    fields = {"qn": rdmap.QN_TERMINATE, "msn": 1, "rsvd_ulp": control_octet(Opcode.TERMINATE)}
    octets = Terminate(RDMAP_INVALID_STAG).encode()[:cut] + bytes(more)
    return UntaggedHeader(**(fields | header)).encode() + octets


# Devices


class Bystander:
    """A QP of the same device that has nothing to do with the failure."""

    def __init__(self, context: Context):
        self.end = End(context)
        self.end.buffer[:] = bytes(len(self.end.buffer))
        self.peer = RawPeer(self.end.qp)

    def check(self) -> None:
        """A Write, a Read and a Send to the QP, and a Write from it."""
        end, peer = self.end, self.peer
        end.qp.post_recv(RecvWR(1, [end.element(1000, 200)]))
        peer.send(
            write(end.mr.rkey, end.mr.addr + 5),
            read(end.mr.rkey, end.mr.addr + 5),
            send(PATTERN[::-1]),
        )
        (completion,) = end.cq.wait(1, SECONDS)
        assert (completion.wr_id, completion.status) == (1, WCStatus.SUCCESS)
        assert end.buffer[5:205] == PATTERN
        assert end.buffer[1000:1200] == PATTERN[::-1]
        end.qp.post_send(SendWR(2, WROpcode.RDMA_WRITE, [end.element(1000, 200)]))
        (completion,) = end.cq.wait(1, SECONDS)
        assert (completion.wr_id, completion.status) == (2, WCStatus.SUCCESS)
        peer.pump_until(lambda: len(peer.ulpdus) == 2, SECONDS)
        assert [ddp.decode(ulpdu)[1] for ulpdu in peer.ulpdus] == [PATTERN, PATTERN[::-1]]
        assert end.qp.query_state() == (QPState.RTS, Cause.NONE)
        peer.close()


@pytest.fixture
def context() -> Iterator[Context]:
    with open_device() as context:
        yield context


@pytest.fixture
def bystander(context: Context) -> Iterator[Bystander]:
    bystander = Bystander(context)
    yield bystander
    bystander.check()


class Victim(End):
    """A QP to which something happens, and regions that it may not reach in all ways."""

    def __init__(self, context: Context):
        super().__init__(context)
        self.buffer[:] = bytes([FILL]) * len(self.buffer)
        self.others: list[bytearray] = []
        self.other_pd = self._region(PD(context), ALL)
        self.no_right = self._region(self.pd, AccessFlags.LOCAL_WRITE)
        self.write_only = self._region(self.pd, AccessFlags.REMOTE_WRITE)
        self.read_only = self._region(self.pd, AccessFlags.REMOTE_READ)
        stranger = QP(self.pd, QPInitAttr(self.cq, self.cq, QPCap(1, 1)))
        self.other_qp = self._region(self.pd, ALL, qp=stranger)
        # A region at the end of the Tagged Offsets.
        self.high = self._region(self.pd, ALL, addr=TO_END - 4097)

    def _region(self, pd: PD, access: AccessFlags, **options: object) -> MR:
        buffer = bytearray([FILL]) * 4096
        self.others.append(buffer)
        return MR(pd, buffer, access, **options)  # type: ignore[arg-type]

    def check_untouched(self) -> None:
        """No octet of any region has changed."""
        for buffer in (self.buffer, *self.others):
            assert buffer == bytes([FILL]) * len(buffer)

    def check_stopped(self, cause: Cause) -> None:
        """The QP, the device and the event agree on why it stopped."""
        self.context.poll_until(lambda: self.qp.state == QPState.ERR, SECONDS, "the error")
        assert self.qp.cause == cause
        assert self.qp.query_state() == (QPState.ERR, cause)
        (event,) = self.context.events
        assert (event.qp_num, event.cause) == (self.qp.qp_num, cause)
        stops = query_stops(self.context)
        stops.pop(Cause.NONE, None)  # what was dropped after the error
        assert stops == {cause: 1}
        with pytest.raises(QPError) as raised:
            raise_if_stopped(self.qp)
        assert raised.value.cause == cause

    def flushed(self, *wr_ids: int, first: WCStatus = WCStatus.WR_FLUSH_ERR) -> None:
        """Exactly these work requests come out as flushed, in this order, the first as given."""
        completions = self.cq.wait(len(wr_ids), SECONDS) if wr_ids else []
        expected = [first, *[WCStatus.WR_FLUSH_ERR] * len(wr_ids)]
        assert [(wc.wr_id, wc.status, wc.cause) for wc in completions] == [
            (wr_id, status, self.qp.cause) for wr_id, status in zip(wr_ids, expected, strict=False)
        ]
        assert self.cq.poll() == []


@pytest.fixture
def victim(context: Context) -> Victim:
    return Victim(context)


# What a peer can do wrong


@dataclass(frozen=True)
class Offence:
    """What the peer sends, after which set-up, and the cause that the QP stops with.

    `shows`: the rows of the requirement list that forbid it. `status`: of the first receive.
    """

    cause: Cause
    ulpdus: Callable[[Victim], list[bytes]]
    receives: list[int] = field(default_factory=list)  # octets of the receives that are posted
    shows: str = ""
    status: WCStatus = WCStatus.WR_FLUSH_ERR


def _read_requests(victim: Victim) -> list[bytes]:
    """More and longer Reads than the QP can answer at once."""
    return [
        read(victim.mr.rkey, victim.mr.addr, len(victim.buffer), msn)
        for msn in range(1, 40 * READS)
    ]


BOUNDS = "RDMAP-8.1.1-03 DDP-8.3-01 DDP-8.3.1-04 SEC-6.2.1-01"
OTHER_PD = "RDMAP-8.1.1-01 DDP-8.3.1-02 SEC-6.1.1-01 SEC-6.1.1-02"
OTHER_STREAM = "RDMAP-8.1.1-02 DDP-8.3-03 DDP-8.3.1-03 SEC-6.1.1-01 SEC-6.1.1-03"
RIGHTS = "RDMAP-8.1.1-05 DDP-8.3.1-06 SEC-6.3.5-01"
READ_QUEUE = "RDMAP-8.1.2-07 SEC-6.4.3.3-01 SEC-6.4.3.3-03 SEC-A-03"

OFFENCES = {
    "write to a wrong key": Offence(
        Cause.TAGGED_STAG_INVALID,
        lambda v: [write(v.mr.rkey ^ 1, v.mr.addr)],
        shows="DDP-4.2-05 DDP-7.1-09 DDP-8.3-04",
    ),
    "write to an unused index": Offence(
        Cause.TAGGED_STAG_INVALID,
        lambda v: [write(v.mr.rkey ^ 0xFFFFFF00, v.mr.addr)],
        shows="DDP-4.2-05 DDP-7.1-09 DDP-8.3-04",
    ),
    "write to another PD": Offence(
        Cause.TAGGED_STAG_NOT_ASSOCIATED,
        lambda v: [write(v.other_pd.rkey, v.other_pd.addr)],
        shows=f"DDP-7.1-09 DDP-8.2-01 DDP-8.2-04 {OTHER_PD}",
    ),
    "write to a region of another QP": Offence(
        Cause.TAGGED_STAG_NOT_ASSOCIATED,
        lambda v: [write(v.other_qp.rkey, v.other_qp.addr)],
        shows=f"DDP-7.1-09 DDP-8.2-02 DDP-8.2-04 {OTHER_STREAM}",
    ),
    "write without the right": Offence(
        Cause.WRITE_NOT_PERMITTED,
        lambda v: [write(v.no_right.rkey, v.no_right.addr)],
        shows=f"DDP-7.1-10 {RIGHTS}",
    ),
    "write to a region for reading": Offence(
        Cause.WRITE_NOT_PERMITTED,
        lambda v: [write(v.read_only.rkey, v.read_only.addr)],
        shows=f"DDP-7.1-10 {RIGHTS}",
    ),
    "write past the end": Offence(
        Cause.TAGGED_BOUNDS,
        lambda v: [write(v.mr.rkey, v.mr.addr + 4096 - 199)],
        shows=f"DDP-7.1-12 {BOUNDS}",
    ),
    "write before the start": Offence(
        Cause.TAGGED_BOUNDS,
        lambda v: [write(v.mr.rkey, v.mr.addr - 1)],
        shows=f"DDP-7.1-11 {BOUNDS}",
    ),
    "write that wraps": Offence(
        Cause.TAGGED_TO_WRAP,
        lambda v: [write(v.high.rkey, TO_END - 100)],
        shows="DDP-7.1-13 DDP-8.3.1-04",
    ),
    "tagged DDP version": Offence(
        Cause.TAGGED_DDP_VERSION,
        lambda v: [write(v.mr.rkey, v.mr.addr, version=2)],
        shows="DDP-4.1-10 MPA-C.1-01",
    ),
    "untagged DDP version": Offence(
        Cause.UNTAGGED_DDP_VERSION,
        lambda v: [send(version=0)],
        [4096],
        shows="DDP-4.1-10 MPA-C.1-01",
    ),
    "RDMAP version": Offence(
        Cause.RDMAP_VERSION,
        lambda v: [write(v.mr.rkey, v.mr.addr, rsvd_ulp=control_octet(0, version=2))],
        shows="RDMAP-5.1-03 RDMAP-7.2-03 MPA-C.1-01",
    ),
    "RDMAP version of a Send": Offence(
        Cause.RDMAP_VERSION,
        lambda v: [send(rsvd_ulp=control_octet(Opcode.SEND, version=0))],
        [4096],
        shows="RDMAP-5.3-07 RDMAP-7.2-03 MPA-C.1-01",
    ),
    "RDMAP version of a Read Request": Offence(
        Cause.RDMAP_VERSION,
        lambda v: [read(v.mr.rkey, v.mr.addr, version=3)],
        shows="RDMAP-5.2.1-05 RDMAP-7.2-03 RDMAP-7.2-08",
    ),
    "unassigned opcode": Offence(
        Cause.UNEXPECTED_OPCODE,
        lambda v: [send(rsvd_ulp=control_octet(0xC))],
        [4096],
        shows="RDMAP-5.3-07 RDMAP-7.2-02",
    ),
    "tagged Send": Offence(
        Cause.UNEXPECTED_OPCODE,
        lambda v: [write(v.mr.rkey, v.mr.addr, rsvd_ulp=control_octet(Opcode.SEND))],
        [4096],
        shows="RDMAP-5.1-03 RDMAP-7.2-02",
    ),
    "Send on the queue of Read Requests": Offence(
        Cause.UNEXPECTED_OPCODE,
        lambda v: [send(qn=rdmap.QN_READ_REQUEST)],
        [4096],
        shows="RDMAP-3.1-02 RDMAP-7.2-07",
    ),
    "queue number": Offence(
        Cause.UNTAGGED_QN, lambda v: [send(qn=7)], [4096], shows="RDMAP-3.1-02 DDP-7.1-01"
    ),
    "Send without a receive": Offence(
        Cause.UNTAGGED_NO_BUFFER, lambda v: [send()], shows="DDP-7.1-02 DDP-7.1-06"
    ),
    "Send longer than its receive": Offence(
        Cause.UNTAGGED_TOO_LONG,
        lambda v: [send()],
        [199, 4096],
        shows="RDMAP-5.3-04 DDP-7.1-04",
        status=WCStatus.LOC_LEN_ERR,
    ),
    "second segment too long": Offence(
        Cause.UNTAGGED_TOO_LONG,
        lambda v: [send(b"", last=False), send(mo=0)],
        [100],
        shows="RDMAP-5.3-04 DDP-7.1-04",
        status=WCStatus.LOC_LEN_ERR,
    ),
    "message sequence number": Offence(
        Cause.UNTAGGED_MSN,
        lambda v: [send(msn=2)],
        [4096, 4096],
        shows="DDP-4.3-09 DDP-7.1-05",
    ),
    "message sequence number 0": Offence(
        Cause.UNTAGGED_MSN, lambda v: [send(msn=0)], [4096], shows="DDP-4.3-09 DDP-7.1-05"
    ),
    "message offset": Offence(
        Cause.UNTAGGED_MO, lambda v: [send(mo=4)], [4096], shows="DDP-7.1-03"
    ),
    "read of a wrong key": Offence(
        Cause.READ_STAG_INVALID,
        lambda v: [read(v.mr.rkey ^ 0x80, v.mr.addr)],
        shows="RDMAP-5.2.1-05 RDMAP-5.2.1-13 RDMAP-7.2-09",
    ),
    "read of another PD": Offence(
        Cause.READ_STAG_NOT_ASSOCIATED,
        lambda v: [read(v.other_pd.rkey, v.other_pd.addr)],
        shows=f"RDMAP-5.2.1-05 RDMAP-7.2-10 {OTHER_PD}",
    ),
    "read of a region of another QP": Offence(
        Cause.READ_STAG_NOT_ASSOCIATED,
        lambda v: [read(v.other_qp.rkey, v.other_qp.addr)],
        shows=f"RDMAP-5.2.1-05 RDMAP-7.2-10 {OTHER_STREAM}",
    ),
    "read without the right": Offence(
        Cause.READ_NOT_PERMITTED,
        lambda v: [read(v.no_right.rkey, v.no_right.addr)],
        shows=f"RDMAP-5.2.1-05 RDMAP-7.2-14 {RIGHTS}",
    ),
    "read of a region for writing": Offence(
        Cause.READ_NOT_PERMITTED,
        lambda v: [read(v.write_only.rkey, v.write_only.addr)],
        shows=f"RDMAP-5.2.1-05 RDMAP-7.2-14 {RIGHTS}",
    ),
    "read before the start": Offence(
        Cause.READ_BOUNDS,
        lambda v: [read(v.mr.rkey, v.mr.addr - 1)],
        shows=f"RDMAP-5.2.1-05 RDMAP-5.2.1-13 RDMAP-7.2-11 {BOUNDS}",
    ),
    "read past the end": Offence(
        Cause.READ_BOUNDS,
        lambda v: [read(v.mr.rkey, v.mr.addr, 4097)],
        shows=f"RDMAP-5.2.1-05 RDMAP-5.2.1-13 RDMAP-7.2-12 {BOUNDS}",
    ),
    "read that wraps": Offence(
        Cause.READ_TO_WRAP,
        lambda v: [read(v.high.rkey, TO_END - 100)],
        shows="RDMAP-5.2.1-05 RDMAP-7.2-13",
    ),
    "short Read Request": Offence(
        Cause.READ_REQUEST_TOO_SHORT,
        lambda v: [read(v.mr.rkey, v.mr.addr, cut=27)],
        shows="RDMAP-4.2-02 RDMAP-5.2.1-05",
    ),
    "long Read Request": Offence(
        Cause.READ_REQUEST_TOO_LONG,
        lambda v: [read(v.mr.rkey, v.mr.addr, more=1)],
        shows="RDMAP-4.2-02 RDMAP-5.2.1-05",
    ),
    "more reads than IRD": Offence(
        Cause.TOO_MANY_READ_REQUESTS,
        _read_requests,
        shows=f"RDMAP-5.2.1-02 RDMAP-6.1-06 {READ_QUEUE}",
    ),
    "unasked Read Response": Offence(
        Cause.UNSOLICITED_READ_RESPONSE,
        lambda v: [response(v.mr.rkey, v.mr.addr)],
        shows="RDMAP-5.2.2-04",
    ),
    "ULPDU without a header": Offence(
        Cause.ULPDU_TOO_SHORT, lambda v: [b"\xc1\x40\0"], shows="DDP-4.4-02"
    ),
    "Terminate": Offence(Cause.TERMINATE_RECEIVED, lambda v: [terminate()], shows="RDMAP-5.4-07"),
}
for _name, _cause, _terminate in (
    ("on QN 0", Cause.UNEXPECTED_OPCODE, terminate(qn=0)),
    ("on QN 1", Cause.UNEXPECTED_OPCODE, terminate(qn=1)),
    ("on QN 3", Cause.UNEXPECTED_OPCODE, terminate(qn=3)),
    ("on QN 4", Cause.UNTAGGED_QN, terminate(qn=4)),
    ("with MSN 2", Cause.UNTAGGED_MSN, terminate(msn=2)),
    ("with MO 4", Cause.UNTAGGED_MO, terminate(mo=4)),
    ("of two segments", Cause.TERMINATE_MALFORMED, terminate(last=False)),
    ("without content", Cause.TERMINATE_MALFORMED, terminate(cut=0)),
    ("cut short", Cause.TERMINATE_MALFORMED, terminate(cut=3)),
    ("too long", Cause.TERMINATE_MALFORMED, terminate(more=20)),
    ("tagged", Cause.UNEXPECTED_OPCODE, write(1, 0, rsvd_ulp=control_octet(Opcode.TERMINATE))),
):
    OFFENCES[f"Terminate {_name}"] = Offence(
        _cause, lambda v, ulpdu=_terminate: [ulpdu], shows="RDMAP-5.4-03 RDMAP-5.4-06"
    )
for _opcode in (Opcode.ATOMIC_REQUEST, Opcode.ATOMIC_RESPONSE):
    OFFENCES[f"{_opcode.name} on QN 0"] = Offence(
        Cause.UNEXPECTED_OPCODE,
        lambda v, opcode=_opcode: [send(bytes(52), rsvd_ulp=control_octet(opcode))],
        [4096],
        shows="RDMAP-7.2-02 EXT-8.2-02",
    )
for _opcode in range(0x8, 0xC):
    OFFENCES[f"RDMAP version of opcode {_opcode:X}"] = Offence(
        Cause.RDMAP_VERSION,
        lambda v, opcode=_opcode: [send(bytes(52), rsvd_ulp=control_octet(opcode, version=0))],
        [4096],
        shows="RDMAP-7.2-03 EXT-8.2-03",
    )

for _opcode in (Opcode.IMMEDIATE_DATA, Opcode.IMMEDIATE_DATA_WITH_SE):
    for _name, _cause, _receives, _octets, _fields in (
        ("without octets", Cause.IMMEDIATE_TOO_SHORT, [8], 0, {}),
        ("of 7 octets", Cause.IMMEDIATE_TOO_SHORT, [8], 7, {}),
        ("of two segments", Cause.IMMEDIATE_TOO_SHORT, [8], 8, {"last": False}),
        ("of 9 octets", Cause.UNTAGGED_TOO_LONG, [4096], 9, {}),
        ("of a whole FPDU", Cause.UNTAGGED_TOO_LONG, [4096], 1400, {}),
        ("without a receive", Cause.UNTAGGED_NO_BUFFER, [], 8, {}),
        ("with MSN 2", Cause.UNTAGGED_MSN, [8, 8], 8, {"msn": 2}),
        ("with MO 8", Cause.UNTAGGED_MO, [8], 8, {"mo": 8}),
        ("on QN 1", Cause.UNEXPECTED_OPCODE, [8], 8, {"qn": 1}),
        ("on QN 4", Cause.UNTAGGED_QN, [8], 8, {"qn": 4}),
    ):
        _header = {"rsvd_ulp": control_octet(_opcode)} | _fields
        _ulpdu = send((PATTERN * 7)[:_octets], **_header)
        OFFENCES[f"{_opcode.name} {_name}"] = Offence(
            _cause,
            lambda v, ulpdu=_ulpdu: [ulpdu],
            _receives,
            shows="EXT-6.3-04 EXT-6.3-07 EXT7306-6.3-01 EXT-8.1-02 EXT-8.2-01",
        )


@pytest.mark.requirement("RDMAP-4.8-01", "RDMAP-4.8-02", "RDMAP-4.8-10", "RDMAP-4.8-11")
@pytest.mark.requirement("RDMAP-4.8-13", "RDMAP-5.4-01", "RDMAP-5.4-02", "RDMAP-5.4-07")
@pytest.mark.requirement("RDMAP-5.4-08", "RDMAP-6.2.1-01", "RDMAP-6.2.1-02", "RDMAP-7-02")
@pytest.mark.requirement("RDMAP-7.1-01", "RDMAP-7.1-03", "RDMAP-7.1-04", "DDP-3-12", "DDP-6.2.2-01")
@pytest.mark.requirement("DDP-6.2.2-03", "DDP-7.1-14", "DDP-7.1-15", "DDP-7.1-16", "DDP-7.1-17")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.requirement(*offence.shows.split()))
        for name, offence in OFFENCES.items()
    ],
)
def test_offence_stops_this_qp_only_and_places_nothing(
    name: str, victim: Victim, bystander: Bystander
):
    offence = OFFENCES[name]
    for number, length in enumerate(offence.receives):
        victim.qp.post_recv(RecvWR(number, [victim.element(0, length)]))
    peer = RawPeer(victim.qp)
    # What follows the offence is good, and too late.
    ulpdus = offence.ulpdus(victim)
    peer.send(*ulpdus, write(victim.mr.rkey, victim.mr.addr))
    victim.check_stopped(offence.cause)
    victim.flushed(*range(len(offence.receives)), first=offence.status)
    victim.check_untouched()
    peer.pump_until(lambda: peer.ended, SECONDS)
    # Which Read Request is one too many depends on how fast the others are answered.
    check_terminate(peer, offence.cause, *(ulpdus if len(ulpdus) > READS else ulpdus[-1:]))
    victim.qp.post_send(SendWR(50, WROpcode.SEND, [victim.element()]))
    victim.qp.post_recv(RecvWR(51, [victim.element()]))
    victim.flushed(50, 51)
    peer.close()


def check_terminate(peer: RawPeer, cause: Cause, *offending: bytes) -> None:
    """The last that the peer got is the Terminate for this cause and one of these segments.

    No Terminate answers a Terminate.
    """
    code, _ = CODES[cause]
    if code is None or any(map(is_terminate, offending)):
        assert peer.ulpdus == []
        return
    header = UntaggedHeader(2, 1, rsvd_ulp=control_octet(Opcode.TERMINATE)).encode()
    terminates = [terminate_for(ErrorCode(*code), segment) for segment in offending or (b"",)]
    assert peer.ulpdus[-1] in [header + terminate.encode() for terminate in terminates]


@pytest.mark.requirement("RDMAP-4.8-04", "RDMAP-4.8-12", "RDMAP-6.2.1-01", "DDP-6.2.2-01")
@pytest.mark.requirement("DDP-7-01", "MPA-4.4-14", "MPA-6-01", "MPA-8-01", "MPA-8-02", "MPA-8-08")
@pytest.mark.requirement("MPA-8-09")
def test_bad_crc(victim: Victim, bystander: Bystander):
    peer = RawPeer(victim.qp)
    fpdu = bytearray(peer.framer.frame(write(victim.mr.rkey, victim.mr.addr)))
    fpdu[100] ^= 0x10
    peer.send(write(victim.mr.rkey, victim.mr.addr)[:14])  # it may send now
    peer.send_octets(bytes(fpdu) + peer.framer.frame(write(victim.mr.rkey, victim.mr.addr)))
    victim.check_stopped(Cause.CRC_ERROR)
    victim.check_untouched()
    peer.pump_until(lambda: peer.ended, SECONDS)
    check_terminate(peer, Cause.CRC_ERROR)
    peer.close()


@pytest.mark.requirement("MPA-7.1.2-14")
def test_bad_crc_of_the_first_fpdu_is_answered_by_the_close_alone(
    victim: Victim, bystander: Bystander
):
    """A responder sends nothing before a valid FPDU came (RFC 5044, 7.1.2)."""
    peer = RawPeer(victim.qp, initiator=False)
    fpdu = bytearray(peer.framer.frame(write(victim.mr.rkey, victim.mr.addr)))
    fpdu[100] ^= 0x10
    peer.send_octets(bytes(fpdu))
    victim.check_stopped(Cause.CRC_ERROR)
    peer.pump_until(lambda: peer.ended, SECONDS)
    assert peer.ulpdus == []
    peer.close()


@pytest.mark.requirement("MPA2-8-01", "MPA2-9.3-01")
@pytest.mark.parametrize("initiator", [False, True])
@pytest.mark.parametrize("behind_a_write", [False, True])
def test_a_startup_code_is_mpas_from_either_end_and_in_any_fpdu(
    initiator: bool, behind_a_write: bool, victim: Victim, bystander: Bystander
):
    """A Responder sends it after the RTR frame at the earliest (RFC 6581, 9.3)."""
    peer = RawPeer(victim.qp, initiator=initiator)
    if behind_a_write:
        peer.send(write(victim.mr.rkey, victim.mr.addr))
    peer.send(terminate(cut=0)[:18] + bytes.fromhex("20060000"))
    victim.check_stopped(Cause.TERMINATE_RECEIVED)
    event = victim.context.events[-1]
    assert event.terminate is not None and event.terminate.code == (2, 0, 6)
    assert "MPA: insufficient IRD resources (layer 2, type 0, code 0x06)" in event.describe()
    assert "siw" not in event.describe()
    peer.close()


@pytest.mark.parametrize("crc", [True, False])
def test_garbage_instead_of_fpdus(crc: bool, victim: Victim, bystander: Bystander):
    peer = RawPeer(victim.qp, crc=crc)
    garbage = bytearray(random.Random(5).randbytes(200_000))
    garbage[:2] = b"\0\x40"  # a first FPDU that ends
    peer.send_octets(bytes(garbage))
    victim.context.poll_until(lambda: victim.qp.state == QPState.ERR, SECONDS, "the error")
    assert victim.qp.cause != Cause.NONE
    if crc:
        victim.check_stopped(Cause.CRC_ERROR)
    victim.check_untouched()
    peer.pump_until(lambda: peer.ended, SECONDS)
    peer.close()


@pytest.mark.requirement("RDMAP-5.2.2-04", "RDMAP-7.1-01", "DDP-4.2-07", "SEC-6.2.1-01")
@pytest.mark.parametrize("what", ["other STag", "other offset", "too much", "early end", "no end"])
def test_wrong_read_response(what: str, victim: Victim, bystander: Bystander):
    victim.qp.post_recv(RecvWR(9, [victim.element()]))
    peer = RawPeer(victim.qp)
    stag, to = victim.mr.rkey, victim.mr.addr
    wanted = SGE(to, len(PATTERN), stag)
    victim.qp.post_send(
        SendWR(1, WROpcode.RDMA_READ, [wanted]), SendWR(2, WROpcode.SEND, [victim.element(0, 10)])
    )
    peer.pump_until(lambda: len(peer.ulpdus) >= 1)
    cause = Cause.READ_RESPONSE_RANGE
    match what:
        case "other STag":
            answer, cause = response(victim.high.rkey, to), Cause.READ_RESPONSE_STAG
        case "other offset":
            answer = response(stag, to + 1)
        case "too much":
            answer = response(stag, to, PATTERN + b"x")
        case "early end":
            answer = response(stag, to, PATTERN[:-1])
        case _:
            # All octets, and one more after them
            peer.send(response(stag, to, PATTERN, last=False))
            answer = response(stag, to + len(PATTERN), b"x")
    peer.send(answer)
    victim.check_stopped(cause)
    victim.flushed(1, 2, 9)
    placed = len(PATTERN) if what == "no end" else 0
    assert victim.buffer[:placed] == PATTERN[:placed]
    victim.buffer[:placed] = bytes([FILL]) * placed
    victim.check_untouched()
    peer.close()


@pytest.mark.requirement("RDMAP-5.2.2-04", "DDP-5.2-11")
@pytest.mark.parametrize("cut", [(200, 0), (100, 100, 0), (0, 200), (50, 0, 150, 0, 0)])
def test_a_read_response_may_have_empty_segments_also_at_its_end(
    cut: tuple[int, ...], victim: Victim, bystander: Bystander
):
    peer = RawPeer(victim.qp)
    stag, to = victim.mr.rkey, victim.mr.addr
    reads = [SendWR(n, WROpcode.RDMA_READ, [SGE(to, len(PATTERN), stag)]) for n in (1, 2)]
    victim.qp.post_send(*reads)
    peer.pump_until(lambda: len(peer.ulpdus) == 2)
    at = 0
    for number, octets in enumerate(cut):
        assert victim.cq.poll() == []
        last = number == len(cut) - 1
        # STag and TO of an empty segment mean nothing.
        where = (stag, to + at) if octets else (stag ^ 1, 5)
        peer.send(response(*where, PATTERN[at : at + octets], last))
        at += octets
    (completion,) = victim.cq.wait(1, SECONDS)
    assert (completion.wr_id, completion.status) == (1, WCStatus.SUCCESS)
    assert victim.buffer[: len(PATTERN)] == PATTERN
    # The next one follows.
    peer.send(response(stag, to, PATTERN))
    assert victim.cq.wait(1, SECONDS)[0].wr_id == 2
    peer.close()


# Connections that end


@pytest.mark.requirement("DDP-3-11", "DDP-6.2.2-01", "DDP-6.2.2-02", "DDP-7-01", "MPA-7.2-02")
@pytest.mark.requirement("MPA-8-01", "MPA-8-02")
@pytest.mark.parametrize("reset", [False, True])
def test_peer_closes_at_once(reset: bool, victim: Victim, bystander: Bystander):
    victim.qp.post_recv(RecvWR(1, [victim.element()]))
    peer = RawPeer(victim.qp, tcp=True)
    if reset:
        peer.reset()
    else:
        peer.close()
    victim.check_stopped(Cause.LLP_CLOSED)
    victim.flushed(1)
    victim.check_untouched()


@pytest.mark.requirement("DDP-3-04", "DDP-6.2.2-01", "DDP-6.2.2-02", "MPA-8-01")
@pytest.mark.parametrize("reset", [False, True])
def test_connection_lost_while_writing(reset: bool, context: Context, bystander: Bystander):
    end = End(context, 1 << 20)
    end.buffer[:] = random.Random(1).randbytes(len(end.buffer))
    peer = RawPeer(end.qp, tcp=True)
    end.qp.post_send(*(SendWR(n, WROpcode.RDMA_WRITE, [end.element()]) for n in range(12)))
    peer.pump_until(lambda: len(peer.ulpdus) > 100)
    if reset:
        peer.reset()
    else:
        peer.close()
    context.poll_until(lambda: end.qp.state == QPState.ERR, SECONDS, "the error")
    assert end.qp.query_state() == (QPState.ERR, Cause.LLP_CLOSED)
    completions = end.cq.wait(12, SECONDS)
    assert [wc.wr_id for wc in completions] == list(range(12))
    statuses = [wc.status for wc in completions]
    done = statuses.count(WCStatus.SUCCESS)
    assert statuses == [WCStatus.SUCCESS] * done + [WCStatus.WR_FLUSH_ERR] * (12 - done)
    assert done < 12


@pytest.mark.requirement("RDMAP-5.5-12", "RDMAP-5.5-16", "DDP-6.2.2-02")
@pytest.mark.parametrize("reset", [False, True])
def test_connection_lost_while_reading(reset: bool, victim: Victim, bystander: Bystander):
    peer = RawPeer(victim.qp, tcp=True)
    victim.qp.post_send(
        SendWR(1, WROpcode.RDMA_READ, [victim.element(0, 400)]),
        SendWR(2, WROpcode.RDMA_WRITE, [victim.element()]),
        SendWR(3, WROpcode.RDMA_READ, [victim.element(400, 400)]),
    )
    peer.pump_until(lambda: len(peer.ulpdus) >= 3)
    # Half of the first answer, and half of an FPDU.
    half = response(victim.mr.rkey, victim.mr.addr, PATTERN, last=False)
    rest = response(victim.mr.rkey, victim.mr.addr + 200, PATTERN)
    peer.send_octets(peer.framer.frame(half))
    victim.context.poll_until(lambda: victim.buffer[199] == PATTERN[-1], SECONDS, "placement")
    peer.send_octets(peer.framer.frame(rest)[:-1])
    if reset:
        peer.reset()
    else:
        peer.close()
    causes = {Cause.LLP_CLOSED_INSIDE_FPDU}
    if reset:
        causes.add(Cause.LLP_CLOSED)  # a reset discards what nobody has read
    victim.context.poll_until(lambda: victim.qp.state == QPState.ERR, SECONDS, "the error")
    assert victim.qp.cause in causes
    victim.check_stopped(victim.qp.cause)
    # The Write was sent, but may not complete before the Read in front of it.
    victim.flushed(1, 2, 3)
    assert victim.buffer[200:] == bytes([FILL]) * (len(victim.buffer) - 200)


@pytest.mark.requirement("MPA-6-03")
def test_connection_lost_inside_an_incoming_write(victim: Victim, bystander: Bystander):
    peer = RawPeer(victim.qp, tcp=True)
    octets = peer.framer.frame(write(victim.mr.rkey, victim.mr.addr))
    peer.send_octets(octets[: len(octets) // 2])
    peer.close()
    victim.check_stopped(Cause.LLP_CLOSED_INSIDE_FPDU)
    assert victim.context.events[-1].describe() == (
        f"QP {victim.qp.qp_num} stopped: connection closed or lost inside an FPDU "
        "(layer 2, type 0, code 0x01)"
    )
    victim.check_untouched()


@pytest.mark.requirement("RDMAP-3.2-03")
def test_read_of_a_bad_stag_of_another_qp_of_the_same_device(
    context: Context, bystander: Bystander
):
    source, sink = End(context), End(context)
    ours, theirs = socket.socketpair()
    options = {"crc": True, "ord": READS, "ird": READS, "emss": 1460}
    source.qp.connect(SocketStream(ours), initiator=False, **options)
    sink.qp.connect(SocketStream(theirs), initiator=True, **options)
    bad = {"remote_addr": source.mr.addr, "rkey": source.mr.rkey ^ 1}
    sink.qp.post_send(SendWR(1, WROpcode.RDMA_READ, [sink.element()], **bad))
    (completion,) = sink.cq.wait(1, SECONDS)
    assert (completion.wr_id, completion.status) == (1, WCStatus.REM_ACCESS_ERR)
    assert source.qp.query_state() == (QPState.ERR, Cause.READ_STAG_INVALID)
    assert sink.qp.query_state() == (QPState.ERR, Cause.TERMINATE_RECEIVED)


@pytest.mark.requirement("RDMAP-4.8-12")
@pytest.mark.parametrize("number", [1, 2, 4])
def test_of_several_reads_the_one_that_the_peer_refuses_has_its_status(
    number: int, context: Context, bystander: Bystander
):
    source, sink = End(context), End(context)
    ours, theirs = socket.socketpair()
    options = {"crc": True, "ord": READS, "ird": READS, "emss": 1460}
    source.qp.connect(SocketStream(ours), initiator=False, **options)
    sink.qp.connect(SocketStream(theirs), initiator=True, **options)
    rkeys = {n: source.mr.rkey ^ (n == number) for n in range(1, 5)}
    sink.qp.post_send(
        *(
            SendWR(n, WROpcode.RDMA_READ, [sink.element()], remote_addr=source.mr.addr, rkey=rkey)
            for n, rkey in rkeys.items()
        )
    )
    found = {wc.wr_id: wc.status for wc in sink.cq.wait(4, SECONDS)}
    assert sink.context.events[-1].terminate.segment.msn == number
    assert found.pop(number) == WCStatus.REM_ACCESS_ERR
    # Of those before it the peer may have answered some.
    answered = [n for n, status in found.items() if status == WCStatus.SUCCESS]
    assert answered == list(range(1, len(answered) + 1)) and len(answered) < number
    assert {found[n] for n in found if n not in answered} <= {WCStatus.WR_FLUSH_ERR}


# Local errors

WITHOUT_ELEMENTS = (WROpcode.IMM_DATA, WROpcode.LOCAL_INV, WROpcode.REG_MR)


@pytest.mark.requirement("RDMAP-4.8-12", "RDMAP-6.2.1-02", "RDMAP-7.1-01", "RDMAP-7.1-02")
@pytest.mark.parametrize("opcode", [each for each in WROpcode if each not in WITHOUT_ELEMENTS])
def test_bad_local_key(opcode: WROpcode, victim: Victim, bystander: Bystander):
    victim.qp.post_recv(RecvWR(9, [victim.element()]))
    peer = RawPeer(victim.qp)
    good, bad = victim.element(0, 64), SGE(victim.mr.addr, 64, victim.mr.lkey ^ 1)
    elements = [good, good, bad, good]
    if opcode == WROpcode.RDMA_READ:
        elements = [bad]
    elif opcode in ATOMIC_OPERATIONS:
        elements = [SGE(bad.addr, 8, bad.lkey)]
    immediate = bytes(8) if opcode == WROpcode.RDMA_WRITE_WITH_IMM else None
    victim.qp.post_send(
        SendWR(1, WROpcode.RDMA_WRITE, [good]),
        SendWR(2, opcode, elements, imm_data=immediate),
        SendWR(3, WROpcode.SEND, [good]),
        SendWR(4, WROpcode.RDMA_READ, [good]),
    )
    completions = victim.cq.wait(5, SECONDS)
    victim.check_stopped(Cause.LOCAL_SEND_PROTECTION)
    assert [(wc.wr_id, wc.status) for wc in completions] == [
        (1, WCStatus.SUCCESS),
        (2, WCStatus.LOC_PROT_ERR),
        (3, WCStatus.WR_FLUSH_ERR),
        (4, WCStatus.WR_FLUSH_ERR),
        (9, WCStatus.WR_FLUSH_ERR),
    ]
    # The device may spoil an FPDU on purpose.
    with contextlib.suppress(MpaError):
        peer.pump_until(lambda: peer.ended, SECONDS)
        check_terminate(peer, Cause.LOCAL_SEND_PROTECTION)
        assert len(peer.ulpdus) == 2
    victim.check_untouched()
    peer.close()


def test_local_read_sink_without_write_right(victim: Victim, bystander: Bystander):
    buffer = bytearray([FILL]) * 64
    region = MR(victim.pd, buffer, AccessFlags(0))
    peer = RawPeer(victim.qp)
    victim.qp.post_send(SendWR(1, WROpcode.RDMA_READ, [SGE(region.addr, 64, region.lkey)]))
    (completion,) = victim.cq.wait(1, SECONDS)
    assert completion.status == WCStatus.LOC_PROT_ERR
    victim.check_stopped(Cause.LOCAL_SEND_PROTECTION)
    peer.close()


@pytest.mark.parametrize("number", range(4))
def test_bad_local_key_of_a_receive(number: int, victim: Victim, bystander: Bystander):
    elements = [victim.element(64 * n, 50) for n in range(4)]
    elements[number] = SGE(elements[number].addr, 50, victim.mr.lkey ^ 1)
    victim.qp.post_recv(RecvWR(1, elements), RecvWR(2, [victim.element()]))
    peer = RawPeer(victim.qp)
    victim.qp.post_send(SendWR(3, WROpcode.RDMA_READ, [victim.element(0, 1)]))
    peer.send(send())
    completions = victim.cq.wait(3, SECONDS)
    victim.check_stopped(Cause.LOCAL_RECEIVE_PROTECTION)
    assert [(wc.wr_id, wc.status) for wc in completions] == [
        (3, WCStatus.WR_FLUSH_ERR),
        (1, WCStatus.LOC_PROT_ERR),
        (2, WCStatus.WR_FLUSH_ERR),
    ]
    victim.check_untouched()
    peer.close()


def test_wait_ends_in_time_and_keeps_what_came(context: Context):
    end = End(context)
    peer = RawPeer(end.qp)
    with pytest.raises(WaitTimeout):
        end.cq.wait(1, timeout=0.2)
    end.qp.post_send(SendWR(1, WROpcode.RDMA_WRITE, [end.element(0, 8)]))
    with pytest.raises(WaitTimeout, match="1 of 2"):
        end.cq.wait(2, timeout=0.5)
    assert [wc.wr_id for wc in end.cq.wait(1, SECONDS)] == [1]
    peer.close()


# MPA startup


REQUEST = StartupFrame(reply=False, crc=True, revision=1).encode()
REPLY = StartupFrame(reply=True, crc=True, revision=1).encode()
BAD_STARTS = {
    "nothing": b"",
    "garbage": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "half a frame": REQUEST[:12],
    "revision": REQUEST[:17] + b"\x07" + REQUEST[18:],
    "private data too long": REQUEST[:18] + b"\xff\xff" + bytes(600),
    "private data missing": REQUEST[:18] + b"\x00\x10",
}


@pytest.mark.requirement("MPA-7.1.2-03", "MPA-7.1.2-04", "MPA-8-01", "MPA-8-02")
@pytest.mark.parametrize("name", [*BAD_STARTS, "a Reply"])
def test_bad_mpa_request(name: str, context: Context, bystander: Bystander):
    octets = BAD_STARTS.get(name, REPLY)
    with listen(context) as listener:
        with socket.create_connection(("127.0.0.1", listener.port)) as peer:
            peer.sendall(octets)
            peer.shutdown(socket.SHUT_WR)
            with pytest.raises(StartupError):
                listener.get_request(timeout=SECONDS)
            peer.settimeout(SECONDS)
            # A reset says that octets of the garbage were left.
            with contextlib.suppress(ConnectionResetError):
                assert peer.recv(100) == b""


def test_silent_peers(context: Context):
    with listen(context) as listener:
        with socket.create_connection(("127.0.0.1", listener.port)):
            with pytest.raises(StartupError):
                listener.get_request(timeout=0.3)
        with pytest.raises(StartupError):
            listener.get_request(timeout=0.3)
    end = End(context)
    with socket.create_server(("127.0.0.1", 0)) as server:
        with pytest.raises(StartupError):
            connect(end.qp, *server.getsockname(), timeout=0.3)
        port = server.getsockname()[1]
    with pytest.raises(StartupError):
        connect(end.qp, "127.0.0.1", port, timeout=SECONDS)
    # The QP is as it was.
    assert end.qp.query_state() == (QPState.INIT, Cause.NONE)
    RawPeer(end.qp).close()


@pytest.mark.requirement("MPA-7.1.2-10", "MPA-7.1.2-11", "MPA-8-01", "MPA-8-02")
@pytest.mark.parametrize("name", [*BAD_STARTS, "a Request", "a rejection"])
def test_bad_mpa_reply(name: str, context: Context, bystander: Bystander):
    octets = BAD_STARTS.get(name, REQUEST).replace(b"Req", b"Rep" if name in BAD_STARTS else b"Req")
    error: type[StartupError] = StartupError
    if name == "a rejection":
        frame = StartupFrame(reply=True, crc=True, revision=2, reject=True, private_data=b"no")
        octets, error = frame.encode(), ConnectionRejected
    end = End(context)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(octets)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(error) as raised:
            connect(end.qp, *server.getsockname(), timeout=SECONDS)
        thread.join(SECONDS)
    if isinstance(raised.value, ConnectionRejected):
        assert raised.value.private_data == b"no"
    assert end.qp.query_state() == (QPState.INIT, Cause.NONE)


# The process


FORGETFUL = """
import sys
from pathlib import Path
from stagecoach.host_driver import SendWR, WROpcode
from tests.integration.rig import End, RawPeer, open_device
end = End(open_device(Path(sys.argv[1])), 1 << 20)
peer = RawPeer(end.qp, tcp=True)
end.qp.post_send(*(SendWR(n, WROpcode.RDMA_WRITE, [end.element()]) for n in range(12)))
peer.pump_until(lambda: len(peer.ulpdus) > 10)
print("under way")
"""


def test_process_that_closes_nothing_ends_cleanly():
    command = [sys.executable, "-c", FORGETFUL, str(build.build_device())]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, "under way\n"), result.stderr


@pytest.mark.requirement("RDMAP-5.2.1-03", "DDP-6.2.2-03")
def test_responder_that_never_polls_tells_its_peer(context: Context) -> None:
    """The Terminate and the close are the device's: no software of the responder is needed."""
    with open_device() as other:
        source, sink = End(context), End(other)
        ours, theirs = socket.socketpair()
        options = {"crc": True, "ord": READS, "ird": READS, "emss": 1460}
        source.qp.connect(SocketStream(ours), initiator=False, **options)
        sink.qp.connect(SocketStream(theirs), initiator=True, **options)
        bad = {"remote_addr": source.mr.addr, "rkey": source.mr.rkey ^ 1}
        sink.qp.post_send(SendWR(1, WROpcode.RDMA_WRITE, [sink.element()], **bad))
        sink.qp.post_send(SendWR(2, WROpcode.RDMA_READ, [sink.element()], **bad))
        other.poll_until(lambda: sink.qp.state == QPState.ERR, SECONDS, "the Terminate")
        assert sink.qp.cause == Cause.TERMINATE_RECEIVED
        assert source.qp.known_state == QPState.RTS
