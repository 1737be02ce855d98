"""Faults of siw are told by captures, and nothing else is taken for one."""

import pytest

from stagecoach.sim.capture.pcapng import PcapngWriter, TcpConversation
from stagecoach.sim.model.ddp import UntaggedHeader
from stagecoach.sim.model.direction import Direction
from stagecoach.sim.model.errors import ErrorCode
from stagecoach.sim.model.rdmap import Form, Opcode, Terminate, control_octet
from tests.sim.capture.decoding import conversation
from tools.interop.faults import ACCEPT_RACE, SPLIT_TRAILER, known_fault

OURS, LINUX = ("192.0.2.1", 49152), ("192.0.2.2", 7174)
A, B = Direction.TO_RESPONDER, Direction.TO_INITIATOR
WRONG_CRC, NO_BUFFER = ErrorCode(2, 0, 2), ErrorCode(1, 2, 2)


def send(qn=0, opcode=Opcode.SEND, octets=b"ping"):
    return UntaggedHeader(qn=qn, msn=1, rsvd_ulp=control_octet(opcode)).encode() + octets


def terminate(error):
    return send(2, Opcode.TERMINATE, Terminate(error, form=Form.SIW).encode())


@pytest.fixture
def captured(tmp_path):
    """A capture of a conversation, whose initiator is ours, and that ends after some seconds."""

    def write(*ulpdus, waits=0.0, initiator=OURS, responder=LINUX, broken=False):
        path = tmp_path / "capture.pcapng"
        with PcapngWriter(path) as writer:
            ends = TcpConversation(writer, initiator, responder)
            log = conversation(*ulpdus)
            for number, (direction, octets) in enumerate(log):
                if broken and number == 2:
                    octets = octets[:-1] + bytes([octets[-1] ^ 1])
                ends.add(direction, octets, 0.001 * number)
            ends.close(0.001 * len(log) + waits)
        return path

    return write


def test_an_fpdu_at_which_linux_did_not_look_is_the_accept_race(captured):
    assert known_fault(captured((A, send()), waits=2.0)) == ACCEPT_RACE


def test_a_connection_that_goes_on_or_ends_at_once_is_none(captured):
    assert known_fault(captured((A, send()), waits=0.1)) is None
    assert known_fault(captured((A, send()), (B, send()), waits=2.0)) is None
    assert known_fault(captured(waits=2.0)) is None


def test_silence_of_our_own_is_no_fault_of_linux(captured):
    linux_asks = {"initiator": LINUX, "responder": OURS}
    assert known_fault(captured((A, send()), waits=2.0, **linux_asks)) is None


def test_a_complaint_about_a_right_crc_is_the_split_trailer(captured):
    assert known_fault(captured((A, send()), (B, terminate(WRONG_CRC)))) == SPLIT_TRAILER


def test_a_complaint_about_a_wrong_crc_or_another_one_is_none(captured):
    assert known_fault(captured((A, send()), (B, terminate(WRONG_CRC)), broken=True)) is None
    assert known_fault(captured((A, send()), (B, terminate(NO_BUFFER)))) is None
    ours = {"initiator": LINUX, "responder": OURS}
    assert known_fault(captured((A, send()), (B, terminate(WRONG_CRC)), **ours)) is None
