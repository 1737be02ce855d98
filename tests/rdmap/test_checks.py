"""The checks of an RDMA Message give the cause whose code the reference model gives."""

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import Timer

from stagecoach.gateware.ddp.checks import (
    CAUSE_BITS,
    first_cause,
    header_checks,
    queue_checks,
    untagged_checks,
)
from stagecoach.gateware.layouts import ULPDU_HEADER_OCTETS, StagStatus
from stagecoach.gateware.rdmap.checks import (
    LAST_QN,
    invalidate_status_checks,
    opcode_checks,
    queue_opcode_checks,
    read_request_length_checks,
    read_response_checks,
    read_status_checks,
    terminate_checks,
    terminate_fits,
    version_checks,
)
from stagecoach.gateware.rdmap.headers import ULPDU_HEADER
from stagecoach.hw.interface.causes import CODES, Cause
from stagecoach.sim.cosim.streams import pack, seeded_random
from stagecoach.sim.model import checks, effects, rdmap
from stagecoach.sim.model.ddp import FLAG_TAGGED, TaggedHeader, UntaggedHeader
from stagecoach.sim.model.errors import StreamError
from stagecoach.sim.model.extensions import Extensions
from stagecoach.sim.model.memory import Accessor, MemoryRegion, MemoryTable
from stagecoach.sim.model.rdmap import Opcode, ReadRequest
from stagecoach.sim.model.sink import check_header
from stagecoach.sim.model.tagged import TaggedBuffers
from stagecoach.sim.model.untagged import InboundRead, ReadRequestQueue, receive_terminate
from stagecoach.sim.model.work import Operation, OutstandingRead, Work
from tests.support.runner import run_cocotb

CASES = 1000
EXTENSIONS = Extensions()
REQUEST = data.StructLayout({"wrong_msn": 1, "no_buffer": 1, "wrong_mo": 1, "last": 1})
RESPONSE = data.StructLayout({"none_outstanding": 1, "other_stag": 1, "other_offset": 1, "last": 1})


class Checks(wiring.Component):
    """Each list of `rdmap/checks.py` with its inputs and the first cause."""

    header: In(8 * ULPDU_HEADER_OCTETS)
    ulpdu_length: In(16)
    rfc7306: In(1)
    header_cause: Out(CAUSE_BITS)
    request: In(REQUEST)
    response: In(RESPONSE)
    payload: In(16)
    remaining: In(32)
    request_cause: Out(CAUSE_BITS)
    response_cause: Out(CAUSE_BITS)
    status: In(StagStatus)
    read_cause: Out(CAUSE_BITS)
    invalidate_cause: Out(CAUSE_BITS)

    def elaborate(self, platform):
        m = Module()
        ulpdu = data.View(ULPDU_HEADER, self.header)
        header = ulpdu.untagged
        request, response = self.request, self.response
        header_list = [
            *header_checks(header.control, self.ulpdu_length),
            *version_checks(header),
            *opcode_checks(header, self.rfc7306),
            *queue_checks(header, LAST_QN, self.rfc7306),
            *queue_opcode_checks(header),
            *terminate_checks(ulpdu, terminate_fits(ulpdu, self.ulpdu_length)),
        ]
        request_list = [
            *untagged_checks(
                wrong_msn=request.wrong_msn,
                no_buffer=request.no_buffer,
                no_buffer_cause=Cause.TOO_MANY_READ_REQUESTS,
                wrong_mo=request.wrong_mo,
            ),
            *read_request_length_checks(self.payload, request.last),
        ]
        response_list = read_response_checks(
            none_outstanding=response.none_outstanding,
            other_stag=response.other_stag,
            other_offset=response.other_offset,
            payload=self.payload,
            remaining=self.remaining,
            last=response.last,
        )
        m.d.comb += [
            self.header_cause.eq(first_cause(header_list)),
            self.request_cause.eq(first_cause(request_list)),
            self.response_cause.eq(first_cause(response_list)),
            self.read_cause.eq(first_cause(read_status_checks(self.status))),
            self.invalidate_cause.eq(first_cause(invalidate_status_checks(self.status))),
        ]
        return m


@pytest.mark.requirement("RDMAP-4.1-09", "RDMAP-7.2-02", "RDMAP-7.2-03", "RDMAP-7.2-07")
@pytest.mark.requirement("RDMAP-7.2-08", "RDMAP-5.4-03", "RDMAP-5.4-06")
def test_checks():
    run_cocotb(Checks(), __name__)


def cause_of(signal):
    return Cause(int(signal.value))


def code_of(signal):
    """The Terminate code of a cause at an output."""
    return CODES[cause_of(signal)][0]


def error_of(check, *arguments):
    """The code with which the model refuses something."""
    try:
        check(*arguments)
    except StreamError as failure:
        return failure.error
    return None


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_headers(dut):
    rng = seeded_random()
    seen = set()
    for _ in range(2 * CASES):
        opcode = rng.randrange(16)
        tagged = opcode in rdmap.TAGGED_OPCODES if rng.random() < 0.8 else rng.random() < 0.5
        qn = rdmap.QUEUE_OF.get(opcode, 0) if rng.random() < 0.8 else rng.randrange(5)
        version = 1 if rng.random() < 0.9 else rng.randrange(4)
        control = rdmap.control_octet(
            opcode,
            version=1 if rng.random() < 0.8 else rng.randrange(4),
            reserved=rng.randrange(4) << 4,
        )
        segment = bytes([FLAG_TAGGED * tagged | rng.getrandbits(5) << 2 | version, control])
        segment += rng.randbytes(4) + qn.to_bytes(4, "big") + rng.randbytes(30)
        segment = segment[: rng.choice([len(segment), rng.randint(13, 19)])]
        extensions = rng.choice([EXTENSIONS, None])
        dut.rfc7306.value = int(extensions is not None)
        await show(dut, rng, segment)
        expected = error_of(check_header, segment, extensions)
        is_terminate = expected is None and opcode == Opcode.TERMINATE
        if not is_terminate:
            assert code_of(dut.header_cause) == expected, segment.hex()
            assert cause_of(dut.header_cause) not in OF_TERMINATES
        seen.add(expected)
        excluded = extensions is None and expected == checks.OPCODE.error and opcode in range(8, 12)
        seen |= {"excluded"} if excluded else set()
    assert seen == {None, "excluded", *(check.error for check in checks.HEADER_ORDER)}


async def show(dut, rng, segment):
    """Puts a ULPDU at the inputs, with anything after it."""
    whole = segment + rng.randbytes(ULPDU_HEADER_OCTETS)
    dut.header.value = int.from_bytes(whole[:ULPDU_HEADER_OCTETS], "little")
    dut.ulpdu_length.value = len(segment)
    await Timer(1, "ns")


OF_TERMINATES = {Cause.TERMINATE_RECEIVED, Cause.TERMINATE_MALFORMED}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_terminates(dut):
    """A Terminate is good, or in error, exactly if it is for the model."""
    rng = seeded_random()
    control = rdmap.control_octet(Opcode.TERMINATE)
    causes = {
        (check.error, check.source): cause
        for check, cause in (
            (checks.MSN, Cause.UNTAGGED_MSN),
            (checks.MO, Cause.UNTAGGED_MO),
            (checks.MO_NEXT, Cause.UNTAGGED_MO),
            (checks.ONE_SEGMENT, Cause.TERMINATE_MALFORMED),
            (checks.TERMINATE_WHOLE, Cause.TERMINATE_MALFORMED),
        )
    }
    seen = set()
    for _ in range(3 * CASES):
        # Headers that some M, D and R announce, in either order of octets, and any other length.
        flags = rng.choice([rng.getrandbits(8), rng.randrange(8) << 5, rng.randrange(8)])
        octets = rng.choice([4, 6, 20, 24, 32, 34, 48, 52, rng.randrange(60)])
        payload = bytes([rng.getrandbits(8), rng.getrandbits(8), flags]) + rng.randbytes(60)
        header = UntaggedHeader(
            rdmap.QN_TERMINATE,
            1 if rng.random() < 0.9 else rng.choice([0, 2, 1 << 31 | 1, 1 << 16]),
            0 if rng.random() < 0.9 else 1 << rng.randrange(32),
            rng.random() < 0.9,
            control,
            rng.getrandbits(32),
        )
        segment = header.encode() + payload[:octets]
        await show(dut, rng, segment)
        expected = Cause.TERMINATE_RECEIVED
        try:
            receive_terminate(header, payload[:octets])
        except StreamError as failure:
            expected = causes[failure.error, failure.source]
        assert cause_of(dut.header_cause) is expected, segment.hex()
        seen.add((expected, octets))
    assert {cause for cause, _ in seen} == {Cause.TERMINATE_RECEIVED, *causes.values()}
    good = {octets for cause, octets in seen if cause is Cause.TERMINATE_RECEIVED}
    assert good == {4, 6, 20, 24, 32, 34, 48, 52}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_read_requests(dut):
    rng = seeded_random()
    memory = MemoryTable()
    # Of a request for no octets the source is not checked.
    request = ReadRequest(1, 2, 0, 3, 4)
    seen = set()
    for _ in range(CASES):
        fields = {name: int(rng.random() < 0.2) for name, _ in REQUEST} | {
            "last": int(rng.random() < 0.8)
        }
        octets = rng.choice([28, 28, rng.randint(0, 60)])
        queue = ReadRequestQueue(memory, Accessor(0, None), effects.ignore, ird=1)
        if fields["no_buffer"]:
            queue.waiting.append(InboundRead(request, b""))
        header = UntaggedHeader(
            rdmap.QN_READ_REQUEST,
            queue.msn + fields["wrong_msn"],
            fields["wrong_mo"],
            bool(fields["last"]),
        )
        payload = request.encode().ljust(octets, b"\0")[:octets]
        expected = error_of(queue.segment, header, payload, b"")
        dut.request.value, dut.payload.value = pack(REQUEST, fields), octets
        await Timer(1, "ns")
        assert code_of(dut.request_cause) == expected, (fields, octets)
        seen.add(expected)
    assert len(seen) == 6


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_read_responses(dut):
    rng = seeded_random()
    stag, base = 0x11223344, 0x5566
    memory = MemoryTable()
    memory.add(MemoryRegion(stag, memoryview(bytearray(1 << 16)), base))
    seen = set()
    for _ in range(CASES):
        fields = {name: int(rng.random() < 0.15) for name, _ in RESPONSE}
        payload = rng.choice([0, rng.getrandbits(16), 65535])
        remaining = rng.choice([payload, payload + rng.randint(0, 3), rng.getrandbits(32)])
        remaining = rng.choice([remaining, max(0, payload - 1)])
        if rng.random() < 0.8:
            fields["last"] = int(payload == remaining)
        buffers = TaggedBuffers(memory, Accessor(0, None), effects.ignore, lambda: 0)
        if not fields["none_outstanding"]:
            request = ReadRequest(stag, base, remaining, 1, 2)
            work = Work(Operation.RDMA_READ, None, request=request)
            buffers.reads.append(OutstandingRead(request, work, place=0))
        header = TaggedHeader(
            stag + fields["other_stag"], base + fields["other_offset"], bool(fields["last"])
        )
        expected = error_of(buffers.read_response, header, bytes(payload))
        dut.response.value = pack(RESPONSE, fields)
        dut.payload.value, dut.remaining.value = payload, remaining
        await Timer(1, "ns")
        assert code_of(dut.response_cause) == expected, (fields, payload, remaining)
        seen.add(expected)
    assert len(seen) == 4


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_stag_status(dut):
    sources = [None, *(check.error for check in checks.SOURCE.order)]
    # The range of an STag to invalidate does not matter.
    invalidations = [None] * len(sources)
    invalidations[StagStatus.INVALID.value] = checks.INVALIDATE_VALID.error
    invalidations[StagStatus.NOT_ASSOCIATED.value] = checks.INVALIDATE_ASSOCIATED.error
    invalidations[StagStatus.NOT_PERMITTED.value] = checks.INVALIDATE_UNSHARED.error
    for status, source, invalidation in zip(StagStatus, sources, invalidations, strict=True):
        dut.status.value = status.value
        await Timer(1, "ns")
        assert code_of(dut.read_cause) == source, status
        assert code_of(dut.invalidate_cause) == invalidation, status
