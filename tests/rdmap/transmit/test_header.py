"""The headers of all messages that are sent are, octet by octet, those of the reference model."""

from dataclasses import replace

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import Timer

from stagecoach.gateware.ddp import headers as ddp
from stagecoach.gateware.rdmap import headers
from stagecoach.gateware.rdmap.transmit.header import (
    HEADER_FIELDS,
    TransmitHeader,
    atomic_request_header,
    atomic_response_header,
    packed,
    read_request_header,
    request_ddp_header,
)
from stagecoach.sim.cosim.streams import pack, seeded_random
from stagecoach.sim.model import rdmap
from stagecoach.sim.model.atomics import CMP_SWAP, SWAP, WORD, AtomicRequest, AtomicResponse
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.rdmap import Opcode, ReadRequest
from tests.support.runner import run_cocotb

READ_REQUEST = data.StructLayout(
    {
        "sink_stag": 32,
        "sink_tagged_offset": 64,
        "length": 32,
        "source_stag": 32,
        "source_tagged_offset": 64,
    }
)
OPERANDS = 4
ATOMIC = data.StructLayout(
    {
        "operation": 4,
        "identifier": 32,
        "stag": 32,
        "tagged_offset": 64,
        "operands": data.ArrayLayout(64, OPERANDS),
        "original": 64,
    }
)
CASES = 50


class Headers(wiring.Component):
    """`TransmitHeader`, the headers of requests, and that of an Atomic Response."""

    fields: In(HEADER_FIELDS)
    header: Out(8 * ddp.UNTAGGED_HEADER_OCTETS)
    request: In(READ_REQUEST)
    request_header: Out(headers.READ_REQUEST_HEADER)
    request_ddp_header: Out(ddp.UNTAGGED_HEADER)
    atomic: In(ATOMIC)
    atomic_header: Out(headers.ATOMIC_REQUEST_HEADER)
    response_header: Out(headers.ATOMIC_RESPONSE_HEADER)

    def elaborate(self, platform):
        m = Module()
        m.submodules.header = header = TransmitHeader()
        request = {name: self.request[name] for name, _ in READ_REQUEST}
        m.d.comb += [
            header.fields.eq(self.fields),
            self.header.eq(header.header),
            self.request_header.eq(read_request_header(**request)),
            self.request_ddp_header.eq(
                request_ddp_header(headers.Opcode.RDMA_READ_REQUEST, self.fields.msn)
            ),
            self.atomic_header.eq(
                atomic_request_header(
                    operation=self.atomic.operation,
                    identifier=self.atomic.identifier,
                    stag=self.atomic.stag,
                    tagged_offset=self.atomic.tagged_offset,
                    operands=[self.atomic.operands[number] for number in range(OPERANDS)],
                )
            ),
            self.response_header.eq(
                atomic_response_header(
                    identifier=self.atomic.identifier, original=self.atomic.original
                )
            ),
        ]
        return m


@pytest.mark.requirement("RDMAP-4.1-01", "RDMAP-4.1-02", "RDMAP-4.1-03", "RDMAP-4.1-04")
@pytest.mark.requirement("RDMAP-4.1-06", "RDMAP-4.1-07", "RDMAP-4.1-08", "RDMAP-4.1-10")
@pytest.mark.requirement("RDMAP-4.4-01", "RDMAP-5.2.2-01", "RDMAP-5.4-01")
@pytest.mark.requirement("EXT-4-01", "EXT-5.1.1-02", "EXT-5.2.1-01", "EXT-5.2.1-02")
@pytest.mark.requirement("EXT-5.2.1-04", "EXT-5.2.1-05", "EXT-5.2.1-06", "EXT-5.2.1-07")
@pytest.mark.requirement("EXT-5.2.2-01", "EXT7306-4.1-01", "EXT7306-4.1-02")
@pytest.mark.requirement("DDP-4.1-07", "DDP-4.1-09", "DDP-4.2-01", "DDP-4.3-01")
def test_headers():
    run_cocotb(Headers(), __name__)


def test_unknown_field_is_refused():
    with pytest.raises(ValueError, match="no fields \\['qm'\\]"):
        packed(ddp.UNTAGGED_HEADER, qm=0)


def random_atomic(rng):
    """An Atomic Request of any operation, with something in every field."""
    bits = (32, 32, 64, 64, 64, 64, 64)
    return AtomicRequest(rng.randrange(3), *(rng.getrandbits(width) for width in bits))


def as_sent(atomic):
    """The same with what RFC 7306, 5.2.1 wants in the fields that the operation does not have."""
    if atomic.operation == CMP_SWAP:
        return atomic
    mask = WORD if atomic.operation == SWAP else atomic.mask
    return replace(atomic, mask=mask, compare=0, compare_mask=WORD)


def octets_of(signal):
    return int(signal.value).to_bytes(len(signal) // 8, "little")


def ddp_header(fields):
    """The model's header; only a Send that invalidates has something in RsvdULP[8:39]."""
    opcode, last = fields["opcode"], bool(fields["last"])
    control = rdmap.control_octet(opcode)
    if opcode in rdmap.TAGGED_OPCODES:
        return TaggedHeader(fields["stag"], fields["tagged_offset"], last, control).encode()
    stag = fields["stag"] if opcode in rdmap.INVALIDATE_OPCODES else 0
    qn = rdmap.QUEUE_OF[opcode]
    return UntaggedHeader(qn, fields["msn"], fields["mo"], last, control, stag).encode()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_headers_are_those_of_the_model(dut):
    rng = seeded_random()
    for opcode in list(Opcode) * CASES:
        fields = {
            "opcode": opcode,
            "last": rng.getrandbits(1),
            "stag": rng.getrandbits(32),
            "tagged_offset": rng.getrandbits(64),
            "msn": rng.getrandbits(32),
            "mo": rng.getrandbits(32),
        }
        request = ReadRequest(*(rng.getrandbits(bits) for bits in (32, 64, 32, 32, 64)))
        dut.fields.value = pack(HEADER_FIELDS, fields)
        dut.request.value = pack(
            READ_REQUEST,
            sink_stag=request.sink_stag,
            sink_tagged_offset=request.sink_tagged_offset,
            length=request.size,
            source_stag=request.source_stag,
            source_tagged_offset=request.source_tagged_offset,
        )
        atomic = random_atomic(rng)
        operands = (atomic.data, atomic.mask, atomic.compare, atomic.compare_mask)
        original = rng.getrandbits(64)
        dut.atomic.value = pack(
            ATOMIC,
            operation=atomic.operation,
            identifier=atomic.identifier,
            stag=atomic.stag,
            tagged_offset=atomic.tagged_offset,
            operands=operands,
            original=original,
        )
        await Timer(1, "ns")
        assert octets_of(dut.atomic_header) == as_sent(atomic).encode()
        assert (
            octets_of(dut.response_header) == AtomicResponse(atomic.identifier, original).encode()
        )
        expected = ddp_header(fields)
        assert octets_of(dut.header)[: len(expected)] == expected, opcode.name
        assert octets_of(dut.request_header) == request.encode()
        whole = fields | {"opcode": Opcode.RDMA_READ_REQUEST, "last": 1, "mo": 0}
        assert octets_of(dut.request_ddp_header) == ddp_header(whole)
