"""Fixed streams: those that the malformer found."""

from collections.abc import Iterator

import pytest

from stagecoach.sim.malformer.bench import Bench
from stagecoach.sim.malformer.case import Case, layout_of
from stagecoach.sim.malformer.compare import differences
from stagecoach.sim.malformer.fpdu import Fpdu
from stagecoach.sim.malformer.setting import Setting
from stagecoach.sim.model import ddp, rdmap
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.errors import RDMAP_INVALID_STAG
from stagecoach.sim.model.memory import TAGGED_OFFSET_SPAN
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, Terminate, control_octet

pytestmark = pytest.mark.timeout(600)  # the first test may have to build the device

SEED = 1
PAYLOAD = bytes(range(1, 9))


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench(SEED, lanes=[0]) as opened:
        yield opened


def check(bench: Bench, *ulpdus: bytes, setting: Setting | None = None) -> None:
    """The device does with a stream what the reference model says."""
    fpdus = tuple(Fpdu("fixed", ulpdu) for ulpdu in ulpdus)
    case = Case(SEED, 0, Setting(half_close=True) if setting is None else setting, fpdus)
    ((_, observed),) = bench.run([case])
    assert differences(case, observed) == []


def test_a_good_segment_before_a_bad_one(bench: Bench):
    place = layout_of(SEED, 0)["main"]
    header = TaggedHeader(place.stag, place.base, rsvd_ulp=control_octet(Opcode.RDMA_WRITE))
    check(bench, header.encode() + PAYLOAD, bytes(20))


@pytest.mark.parametrize("what", ["QN of Sends", "unknown QN", "tagged"])
def test_a_terminate_with_a_header_in_error_is_not_answered(bench: Bench, what: str):
    control = control_octet(Opcode.TERMINATE)
    header: ddp.Header = UntaggedHeader(rdmap.QN_SEND, 1, rsvd_ulp=control)
    if what == "unknown QN":
        header = UntaggedHeader(7, 1, rsvd_ulp=control)
    elif what == "tagged":
        header = TaggedHeader(1, 0, rsvd_ulp=control)
    check(bench, header.encode() + Terminate(RDMAP_INVALID_STAG).encode())


@pytest.mark.requirement("DDP-7.1-13")
def test_a_write_that_ends_at_2_64_wraps(bench: Bench):
    """The 64-bit unsigned sum of length and TO is 0 then (RFC 5041, 7.1 (5))."""
    place = layout_of(SEED, 0)["high"]
    control = control_octet(Opcode.RDMA_WRITE)
    header = TaggedHeader(place.stag, TAGGED_OFFSET_SPAN - len(PAYLOAD), rsvd_ulp=control)
    check(bench, header.encode() + PAYLOAD)


@pytest.mark.requirement("RDMAP-7.2-13")
def test_a_read_request_that_ends_at_2_64_wraps(bench: Bench):
    """The Data Source Tagged Offset would wrap (RFC 5040, 7.2 (4e))."""
    place = layout_of(SEED, 0)["high"]
    control = control_octet(Opcode.RDMA_READ_REQUEST)
    header = UntaggedHeader(rdmap.QN_READ_REQUEST, 1, rsvd_ulp=control)
    request = ReadRequest(1, 0, 8, place.stag, TAGGED_OFFSET_SPAN - 8)
    check(bench, header.encode() + request.encode())


def immediate(
    msn: int, octets: bytes, opcode: Opcode = Opcode.IMMEDIATE_DATA, mo: int = 0
) -> bytes:
    header = UntaggedHeader(rdmap.QN_SEND, msn, mo, rsvd_ulp=control_octet(opcode))
    return header.encode() + octets


@pytest.mark.requirement("EXT7306-6.3-01", "EXT-6-01")
def test_immediate_data_goes_into_the_completion_of_the_next_receive(bench: Bench):
    send = UntaggedHeader(rdmap.QN_SEND, 2, rsvd_ulp=control_octet(Opcode.SEND)).encode()
    check(
        bench,
        immediate(1, PAYLOAD, Opcode.IMMEDIATE_DATA_WITH_SE),
        send + PAYLOAD,
        immediate(3, PAYLOAD[::-1]),
        setting=Setting(receives=((), (20,), (3, 100)), half_close=True),
    )


@pytest.mark.requirement("EXT7306-6.3-01")
@pytest.mark.parametrize("octets", [b"", PAYLOAD[:7], PAYLOAD + b"9", bytes(600)])
def test_immediate_data_of_another_length_is_refused(bench: Bench, octets: bytes):
    setting = Setting(receives=((8,), (700,)), half_close=True)
    check(bench, immediate(1, PAYLOAD), immediate(2, octets), setting=setting)
