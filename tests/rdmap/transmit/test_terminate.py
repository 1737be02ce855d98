"""For every cause the Terminate is that of the reference model, or there is none."""

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from stagecoach.gateware.config import MAX_ULPDU_LENGTH, RnicConfig
from stagecoach.gateware.layouts import TERMINATED_HEADER_OCTETS, Layouts
from stagecoach.gateware.rdmap.transmit.terminate import TransmitTerminate
from stagecoach.hw.interface.causes import CODES, READ_CAUSES, Cause, HeaderCopy, header_copy
from stagecoach.sim.cosim.streams import pack, seeded_random, start_clock_and_reset
from stagecoach.sim.model import errors, rdmap
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.errors import ErrorCode
from stagecoach.sim.model.rdmap import Opcode, ReadRequest
from stagecoach.sim.model.sink import is_terminate
from stagecoach.sim.model.terminate import NEVER_SENT, terminate_for
from tests.support.runner import run_cocotb

CONFIG = RnicConfig()
TERMINATION = Layouts(CONFIG).termination
CAUSE_NUMBERS = 256
RANDOM_HEADERS = 8
# An opcode with which each cause of one kind of message can come; others come with any.
OPCODES = {
    **{
        cause: Opcode.ATOMIC_RESPONSE if "RESPONSE" in cause.name else Opcode.ATOMIC_REQUEST
        for cause in Cause
        if "ATOMIC" in cause.name
    },
    **dict.fromkeys(READ_CAUSES, Opcode.RDMA_READ_REQUEST),
    Cause.WRITE_NOT_PERMITTED: Opcode.RDMA_WRITE,
    Cause.READ_RESPONSE_STAG: Opcode.RDMA_READ_RESPONSE,
    Cause.READ_RESPONSE_RANGE: Opcode.RDMA_READ_RESPONSE,
    Cause.UNSOLICITED_READ_RESPONSE: Opcode.RDMA_READ_RESPONSE,
    Cause.READ_REQUEST_TOO_LONG: Opcode.RDMA_READ_REQUEST,
    Cause.READ_REQUEST_TOO_SHORT: Opcode.RDMA_READ_REQUEST,
    Cause.TOO_MANY_READ_REQUESTS: Opcode.RDMA_READ_REQUEST,
    Cause.INVALIDATE_NOT_ASSOCIATED: Opcode.SEND_WITH_INVALIDATE,
    Cause.INVALIDATE_REFUSED: Opcode.SEND_WITH_SE_AND_INVALIDATE,
}


@pytest.mark.requirement("RDMAP-4.8-01", "RDMAP-4.8-02", "RDMAP-4.8-03", "RDMAP-4.8-04")
@pytest.mark.requirement("RDMAP-4.8-05", "RDMAP-4.8-06", "RDMAP-4.8-07", "RDMAP-4.8-08")
@pytest.mark.requirement("RDMAP-4.8-10", "RDMAP-4.8-11", "RDMAP-4.8-12", "RDMAP-4.8-13")
@pytest.mark.requirement("RDMAP-4.8-14", "RDMAP-5.4-06", "DDP-7.2-01")
@pytest.mark.requirement("EXT-8.1-01", "EXT-8.1-02", "EXT7306-8.2-01")
def test_transmit_terminate():
    run_cocotb(TransmitTerminate(CONFIG), __name__)


def test_every_code_is_one_of_the_reference_model():
    for cause, (code, _) in CODES.items():
        assert code is None or ErrorCode(*code) in errors.NAMES, cause


def random_segment(rng, cause):
    """A ULPDU for which the QP may stop with this cause."""
    opcode = OPCODES.get(cause, rng.choice([Opcode.RDMA_WRITE, Opcode.SEND, Opcode.TERMINATE]))
    if "UNTAGGED" in cause.name and opcode == Opcode.RDMA_WRITE:
        opcode = Opcode.SEND
    elif cause.name.startswith("TAGGED"):
        opcode = Opcode.RDMA_WRITE
    # Reserved bits are sent back, too.
    version = rdmap.RDMAP_VERSION if rng.random() < 0.8 else rng.randrange(4)
    control = rdmap.control_octet(opcode, version=version, reserved=0x30)
    reserved = 4 * rng.randrange(16)
    last = bool(rng.getrandbits(1))
    if opcode in rdmap.TAGGED_OPCODES:
        header = TaggedHeader(
            rng.getrandbits(32), rng.getrandbits(64), last, control, reserved=reserved
        ).encode()
    else:
        numbers = [rng.getrandbits(32) for _ in range(3)]
        header = UntaggedHeader(
            *numbers, last, control, rng.getrandbits(32), reserved=reserved
        ).encode()
    if opcode == Opcode.RDMA_READ_REQUEST and cause not in (
        Cause.READ_REQUEST_TOO_LONG,
        Cause.READ_REQUEST_TOO_SHORT,
    ):
        fields = (rng.getrandbits(bits) for bits in (32, 64, 32, 32, 64))
        return header + ReadRequest(*fields).encode()
    return header + rng.randbytes(rng.randint(0, rng.choice([3, 1400, MAX_ULPDU_LENGTH - 18])))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_terminate_is_that_of_the_model(dut):
    rng = seeded_random()
    await start_clock_and_reset(dut)
    spoken = set()
    unanswered = 0
    for number in list(range(CAUSE_NUMBERS)) * RANDOM_HEADERS:
        cause = Cause(number) if number in list(Cause) else Cause.NONE
        code, _ = CODES[cause]
        segment = random_segment(rng, cause)
        header = segment[:TERMINATED_HEADER_OCTETS]
        header += rng.randbytes(TERMINATED_HEADER_OCTETS - len(header))
        may_send = rng.getrandbits(1)
        dut.termination.value = pack(
            TERMINATION,
            qp=rng.randrange(CONFIG.qps),
            may_send=may_send,
            cause=number,
            ulpdu_length=len(segment),
            header=int.from_bytes(header, "little"),
        )
        await ClockCycles(dut.clk, 3)
        error = None if code is None else ErrorCode(*code)
        speaks = may_send and error is not None and error not in NEVER_SENT
        # Where no header is copied, none needs to be whole.
        if header_copy(cause) is not HeaderCopy.NONE and is_terminate(segment):
            speaks = False
            unanswered += 1
        assert bool(dut.speak.value) == bool(speaks), cause.name
        if speaks:
            expected = terminate_for(error, segment).encode()
            octets = int(dut.octets.value)
            got = int(dut.header.value).to_bytes(len(dut.header) // 8, "little")[:octets]
            assert got == expected, cause.name
            spoken.add((cause, octets))
    assert unanswered
    # Every cause that has a code was tried, and every length of a Terminate.
    causes = {cause for cause, (code, _) in CODES.items() if code and code.can_be_sent}
    assert {cause for cause, _ in spoken} == causes
    assert {octets for _, octets in spoken} == {4, 20, 24, 52}
    assert all(octets == 52 for cause, octets in spoken if cause in READ_CAUSES)
