"""Invalidating the STag of atomics that are under way: what is reported revoked does not change.

The memory is slow and shows words with their write responses; what comes late is seen in words that
their owner has used for something else since.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from stagecoach.host_driver import (
    MR,
    QP,
    AccessFlags,
    Cause,
    Context,
    QPCap,
    QPInitAttr,
    QPState,
    RecvWR,
    SendWR,
    WCFlags,
    WCOpcode,
    WCStatus,
    WROpcode,
)
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.model.atomics import FETCH_ADD, AtomicRequest
from stagecoach.sim.model.ddp import UntaggedHeader
from stagecoach.sim.model.rdmap import QN_SEND, Opcode, control_octet
from stagecoach.sim.transport import SimulatedDevice
from tests.integration.rig import READS, End, RawPeer, open_device
from tests.integration.test_atomics import request_ulpdu

pytestmark = pytest.mark.timeout(300)  # the first test may have to build the device

SECONDS = 20.0
ROUNDS = 12
QPS = 4
LONGEST_WAIT = 12_000
AFTERWARDS = 3_000
"""Cycles in which a late access would come: some times the latency of the host memory."""
WORDS = 2
OCTETS = 8 * WORDS
USED = b"\xa5" * OCTETS


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    with open_device(read_latency=100, write_latency=400, late_writes=True) as opened:
        yield opened


@dataclass
class Stage:
    """QPs whose peers do atomics to one region, and a QP that does none."""

    context: Context
    end: End
    region: MR
    peers: dict[QP, RawPeer]
    other: RawPeer

    def run(self, cycles: int) -> None:
        transport = self.context.transport
        assert isinstance(transport, SimulatedDevice)
        transport.run_cycles(cycles)

    @property
    def total(self) -> int:
        """What was added."""
        octets = self.end.buffer
        return sum(int.from_bytes(octets[at : at + 8], "little") for at in range(0, OCTETS, 8))

    def close(self) -> None:
        for qp, peer in self.peers.items():
            if qp is not self.end.qp:
                qp.close()
            peer.close()
        self.end.qp.close()
        self.other.close()
        self.region.close()
        self.end.close()


def set_up(context: Context, qps: int, *, scoped: bool) -> Stage:
    """The first of `qps` QPs is the one that the region is for, if it is `scoped`."""
    # The region of `End` keeps the buffer mapped: a late access is not refused.
    end = End(context, OCTETS)
    made = [QP(end.pd, QPInitAttr(end.cq, end.cq, QPCap(16, 16), rfc7306=True)) for _ in range(qps)]
    region = MR(end.pd, end.buffer, AccessFlags.REMOTE_ATOMIC, qp=made[0] if scoped else None)
    return Stage(context, end, region, {qp: RawPeer(qp) for qp in made}, RawPeer(end.qp))


def adds(stage: Stage) -> list[bytes]:
    """FetchAdds of 1 to one word after the other."""
    return [
        request_ulpdu(
            msn,
            AtomicRequest(
                FETCH_ADD, msn, stage.region.rkey, stage.region.addr + 8 * (msn % WORDS), 1, 0
            ),
        )
        for msn in range(1, READS + 1)
    ]


def close_region(stage: Stage) -> None:
    stage.region.close()


def local_invalidate(stage: Stage) -> None:
    stage.end.qp.post_send(SendWR(1, WROpcode.LOCAL_INV, rkey=stage.region.rkey))
    (done,) = stage.end.cq.wait(1, SECONDS)
    assert (done.opcode, done.status) == (WCOpcode.LOCAL_INV, WCStatus.SUCCESS)


def take_answers(stage: Stage) -> int:
    """How many atomics were answered, when nothing comes any more."""
    answers = 0
    for peer in stage.peers.values():
        peer.pump_until(lambda peer=peer: peer.ended, SECONDS)
        answers += sum(ulpdu[1] == control_octet(Opcode.ATOMIC_RESPONSE) for ulpdu in peer.ulpdus)
    return answers


def check_revoked(stage: Stage) -> bool:
    """To be called when it is reported; gives whether some atomics were cut off."""
    done = stage.total
    stage.end.buffer[:] = USED
    stage.run(AFTERWARDS)
    assert stage.end.buffer == USED
    return 0 < done < READS * len(stage.peers)


@pytest.mark.requirement("RDMAP-3.2-04", "RDMAP-8.1.1-05", "DDP-8.3-02")
@pytest.mark.parametrize("revoke", [close_region, local_invalidate])
def test_no_word_changes_when_the_region_is_revoked(
    context: Context, revoke: Callable[[Stage], None]
):
    rng = seeded_random(revoke.__name__)
    cut = 0
    for _ in range(ROUNDS):
        stage = set_up(context, QPS, scoped=False)
        for peer in stage.peers.values():
            peer.send(*adds(stage))
        stage.run(rng.randrange(LONGEST_WAIT))
        revoke(stage)
        done = stage.total
        cut += check_revoked(stage)
        late = AtomicRequest(FETCH_ADD, 0, stage.region.rkey, 0, 1, 0)
        for peer in stage.peers.values():
            peer.pump_until(lambda peer=peer: peer.ended or len(peer.ulpdus) == READS, SECONDS)
            if not peer.ended:
                # It has got all its answers: the next request finds the STag gone.
                peer.send(request_ulpdu(READS + 1, late))
        # An error in a request that comes ends its QP at once: an answer may be missing.
        assert done - QPS <= take_answers(stage) <= done
        for qp in stage.peers:
            assert qp.query_state() == (QPState.ERR, Cause.ATOMIC_STAG_INVALID)
        assert stage.end.qp.query_state() == (QPState.RTS, Cause.NONE)
        assert stage.end.buffer == USED
        stage.close()
    assert cut, "nothing was under way"


@pytest.mark.requirement("RDMAP-3.2-04", "RDMAP-8.1.1-05", "DDP-8.3-02")
def test_no_word_changes_when_the_peer_itself_invalidated(context: Context):
    """Its Send with Invalidate comes after the atomics, which may be done or not."""
    cut = 0
    for _ in range(ROUNDS):
        stage = set_up(context, 1, scoped=True)
        ((qp, peer),) = stage.peers.items()
        qp.post_recv(RecvWR(1))
        header = UntaggedHeader(
            QN_SEND,
            1,
            rsvd_ulp=control_octet(Opcode.SEND_WITH_INVALIDATE),
            rsvd_ulp_word=stage.region.rkey,
        )
        peer.send(*adds(stage), header.encode())
        (done,) = stage.end.cq.wait(1, SECONDS)
        assert done.status == WCStatus.SUCCESS
        assert (done.wc_flags & WCFlags.WITH_INV, done.invalidated_rkey) == (
            WCFlags.WITH_INV,
            stage.region.rkey,
        )
        total = stage.total
        cut += check_revoked(stage)
        if total == READS:
            peer.pump_until(lambda peer=peer: len(peer.ulpdus) == READS, SECONDS)
        else:
            assert take_answers(stage) == total
            assert qp.query_state() == (QPState.ERR, Cause.ATOMIC_STAG_INVALID)
        assert stage.end.buffer == USED
        stage.close()
    assert cut, "nothing was under way"
