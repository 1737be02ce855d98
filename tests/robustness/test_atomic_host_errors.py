"""Error responses of host memory to the atomic unit: one QP less, and the others are right."""

from dataclasses import dataclass
from itertools import pairwise

import pytest

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    AccessFlags,
    Cause,
    Context,
    QPCap,
    QPInitAttr,
    QPState,
)
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.device import Response
from stagecoach.sim.model import ddp
from stagecoach.sim.model.atomics import FETCH_ADD, AtomicRequest, AtomicResponse
from stagecoach.sim.model.rdmap import Opcode, decode_control
from tests.integration.rig import READS, RawPeer
from tests.integration.test_atomics import request_ulpdu
from tests.robustness.rig import device_of
from tests.robustness.test_host_errors import error_count

pytestmark = pytest.mark.timeout(600)  # the first test may have to build the device

SECONDS = 60.0
ROUNDS = 8
QPS = 8
CAUSES = {False: Cause.HOST_READ_ERROR, True: Cause.HOST_WRITE_ERROR}
"""By whether it is the write that fails."""

LOCAL_CATASTROPHIC = bytes([0x00, 0x00, 0x00, 0x00])
"""Terminate control field, layer 0, type 0, code 0, without headers (RFC 5040, 4.8)."""


class Stage:
    """QPs of one PD whose peers do atomics to one region of two words."""

    def __init__(self, context: Context, qps: int):
        self.device, self.context = device_of(context), context
        self.pd, self.cq = PD(context), CQ(context)
        self.buffer = bytearray(16)
        first = len(self.device.mapped)
        self.mr = MR(self.pd, self.buffer, AccessFlags.REMOTE_ATOMIC)
        self.address = self.device.mapped[first][0]
        made = [
            QP(self.pd, QPInitAttr(self.cq, self.cq, QPCap(1, 1), rfc7306=True)) for _ in range(qps)
        ]
        self.peers = {qp: RawPeer(qp) for qp in made}

    def add(self, msn: int, word: int = 0) -> bytes:
        target = self.mr.addr + 8 * word
        return request_ulpdu(msn, AtomicRequest(FETCH_ADD, msn, self.mr.rkey, target, 1, 0))

    def word(self, number: int = 0) -> int:
        return int.from_bytes(self.buffer[8 * number : 8 * number + 8], "little")

    def fail(self, *, write: bool, skip: int, response: Response) -> None:
        self.device.fail_access((self.address, 8), write=write, skip=skip, response=response)

    def finish(self, most: int) -> None:
        """Every QP has answered `most` requests, or ended."""
        for peer in self.peers.values():
            peer.pump_until(lambda peer=peer: peer.ended or len(peer.ulpdus) == most, SECONDS)

    def close(self) -> None:
        for qp, peer in self.peers.items():
            qp.close()
            peer.close()
        self.mr.close()
        self.cq.close()
        self.pd.close()


@dataclass
class Came:
    """What a QP sent."""

    originals: list[int]
    terminate: bytes | None = None


def came(peer: RawPeer) -> Came:
    found = Came([])
    for ulpdu in peer.ulpdus:
        header, payload = ddp.decode(ulpdu)
        assert found.terminate is None, "after a Terminate"
        if decode_control(header.rsvd_ulp).opcode == Opcode.TERMINATE:
            found.terminate = payload
        else:
            found.originals.append(AtomicResponse.decode(payload).original)
    return found


@pytest.mark.requirement("EXT7306-7-01", "EXT-5.4-07")
@pytest.mark.parametrize("response", Response, ids=lambda response: response.name)
@pytest.mark.parametrize("write", CAUSES, ids=["read", "write"])
def test_a_failed_access_ends_its_qp_and_what_comes_behind_is_not_done(
    context: Context, write: bool, response: Response
):
    stage = Stage(context, 1)
    ((qp, peer),) = stage.peers.items()
    peer.send(stage.add(1))
    stage.finish(1)
    context.events.clear()
    stage.fail(write=write, skip=0, response=response)
    peer.send(stage.add(2), stage.add(3, word=1), stage.add(4))
    stage.finish(5)
    assert came(peer) == Came([0], LOCAL_CATASTROPHIC)
    assert qp.query_state() == (QPState.ERR, CAUSES[write])
    context.process_events()
    assert [(event.qp_num, event.cause) for event in context.events] == [(qp.qp_num, CAUSES[write])]
    # The failed write is none in this memory.
    assert (stage.word(0), stage.word(1)) == (1, 0)
    stage.close()


@pytest.mark.requirement("EXT7306-7-01", "EXT-5.4-07")
@pytest.mark.parametrize("response", Response, ids=lambda response: response.name)
@pytest.mark.parametrize("write", CAUSES, ids=["read", "write"])
def test_others_on_the_same_word_go_on_with_right_values(
    context: Context, write: bool, response: Response
):
    rng = seeded_random(write, response.name)
    hit = 0
    for number in range(ROUNDS):
        stage = Stage(context, QPS)
        errors = error_count(stage.device)
        context.events.clear()
        stage.fail(write=write, skip=rng.randrange(12 if write else 3), response=response)
        # All at once, so that many are chained.
        for peer in rng.sample(list(stage.peers.values()), QPS):
            peer.send(*(stage.add(msn) for msn in range(1, READS + 1)))
        stage.finish(READS)
        answered: list[int] = []
        ended = []
        for qp, peer in stage.peers.items():
            result = came(peer)
            assert all(one < other for one, other in pairwise(result.originals))
            answered += result.originals
            if result.terminate is None:
                assert len(result.originals) == READS
                assert qp.query_state() == (QPState.RTS, Cause.NONE)
            else:
                ended.append(qp)
                assert result.terminate == LOCAL_CATASTROPHIC
                assert qp.query_state() == (QPState.ERR, CAUSES[write])
        assert error_count(stage.device) - errors == len(ended), f"round {number}"
        assert len(ended) <= 1
        hit += len(ended)
        context.process_events()
        found = [(event.qp_num, event.cause) for event in context.events]
        assert found == [(qp.qp_num, CAUSES[write]) for qp in ended]
        # Each found another number of increments. One whose write failed may have taken place.
        steps = stage.word()
        assert sorted(answered) == sorted(set(answered)) and set(answered) <= set(range(steps))
        assert steps - len(answered) in ((0, len(ended)) if write else (0,)), f"round {number}"
        stage.close()
    assert hit >= ROUNDS // 4
    assert device_of(context).statistics()["faults"] == []
