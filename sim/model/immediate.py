"""Immediate Data at the Data Sink (RFC 7306, 6)."""

from stagecoach.sim.model import checks, rdmap
from stagecoach.sim.model.ddp import UntaggedHeader
from stagecoach.sim.model.untagged import SendQueue, check_length, check_whole
from stagecoach.sim.model.work import Completion, Operation

IMMEDIATE_OCTETS = 8


def receive_immediate(queue: SendQueue, header: UntaggedHeader, payload: bytes) -> Completion:
    """Check, and deliver: it takes a receive like a Send, in the same order.

    The completion carries the octets, so the receive itself stays as it is, whatever its size.
    """
    receive = queue.check_position(header)
    check_length(header, len(payload), IMMEDIATE_OCTETS)
    queue.check_opcode(header, receive)
    check_whole(header, len(payload), IMMEDIATE_OCTETS, checks.IMMEDIATE_WHOLE)
    queue.next_message()
    opcode = rdmap.decode_control(header.rsvd_ulp).opcode
    return Completion(
        Operation.RECEIVE,
        receive.work_id,
        immediate=payload,
        solicited=opcode in rdmap.SOLICITED_OPCODES,
    )
