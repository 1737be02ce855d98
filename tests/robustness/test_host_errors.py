"""Error responses of host memory at any access: a named error, one QP less, nothing misplaced."""

import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from stagecoach.host_driver import (
    QP,
    Cause,
    Context,
    QPCap,
    QPInitAttr,
    QPState,
    SendWR,
    WaitTimeout,
    WCStatus,
    WROpcode,
)
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.device import Response
from stagecoach.sim.disturbed import DisturbedDevice
from stagecoach.sim.model.errors import StreamError
from tests.integration.rig import End, RawPeer
from tests.robustness.pair import SECONDS, Pair
from tests.robustness.rig import device_of

pytestmark = pytest.mark.timeout(600)  # the first test may have to build the device

LENGTH = 600
EMSS = 256
ROUNDS = 20


@dataclass(frozen=True)
class Access:
    """Where an access fails, at most which one, and the cause that the QP stops with."""

    place: Callable[[Pair], tuple[int, int]]
    write: bool
    most: int
    cause: Cause


WORDS = LENGTH // 8
BURSTS = 6
"""Those of a placement: two of most segments, since none crosses a multiple of 256 octets."""

ACCESSES = {
    "send ring": Access(lambda p: p.send_ring, False, 40, Cause.HOST_READ_ERROR),
    "receive ring": Access(lambda p: p.receive_ring, False, 8, Cause.HOST_READ_ERROR),
    "payload of Writes, Sends and Read Responses": Access(
        lambda p: (p.source[0], LENGTH), False, 3 * WORDS, Cause.HOST_READ_ERROR
    ),
    "placement of a Send": Access(
        lambda p: (p.target[0], LENGTH), True, BURSTS, Cause.HOST_WRITE_ERROR
    ),
    "placement of a Read Response": Access(
        lambda p: (p.target[0] + LENGTH, LENGTH), True, BURSTS, Cause.HOST_WRITE_ERROR
    ),
    "placement of a Write": Access(
        lambda p: (p.target[0] + 2 * LENGTH, LENGTH), True, BURSTS, Cause.HOST_WRITE_ERROR
    ),
    "completion": Access(lambda p: p.completion_ring, True, 3, Cause.HOST_WRITE_ERROR),
}


def fill(pair: Pair, rng: random.Random) -> None:
    pair.end.buffer[:] = rng.randbytes(len(pair.end.buffer))
    pair.theirs[:] = rng.randbytes(len(pair.theirs))


def changed(before: bytes, found: bytes, meant: bytes, what: str) -> None:
    """Every octet is as before, or what it was to be."""
    assert len(before) == len(found) == len(meant)
    for number, octets in enumerate(zip(before, found, meant, strict=True)):
        assert octets[1] in (octets[0], octets[2]), f"octet {number} of {what}"


@pytest.mark.requirement("RDMAP-7.1-01")
@pytest.mark.parametrize("response", Response, ids=lambda response: response.name)
@pytest.mark.parametrize("name", ACCESSES)
def test_a_failed_access_stops_its_qp_only(context: Context, name: str, response: Response):
    access = ACCESSES[name]
    device, rng = device_of(context), seeded_random(name, response.name)
    bystander = Pair(context, 4 * LENGTH)
    hit = 0
    for _ in range(ROUNDS):
        victim = Pair(context, 4 * LENGTH, emss=EMSS)
        fill(victim, rng)
        buffer, theirs = bytes(victim.end.buffer), bytes(victim.theirs)
        errors = error_count(device)
        device.fail_access(
            access.place(victim),
            write=access.write,
            skip=rng.randrange(access.most),
            response=response,
        )
        context.events.clear()
        victim.post_all(LENGTH)
        fill(bystander, rng)
        bystander.post_all(LENGTH)

        def ended(victim: Pair = victim) -> bool:
            return victim.qp.state == QPState.ERR or len(victim.completions) >= 4

        pump_until(victim, ended, name)
        bystander.finish(LENGTH)
        if error_count(device) == errors:
            # There were not so many accesses.
            assert victim.qp.query_state() == (QPState.RTS, Cause.NONE)
            victim.close()
            continue
        hit += 1
        pump_until(victim, lambda qp=victim.qp: qp.state == QPState.ERR, "the error")
        victim.completions += victim.cq.poll()
        assert error_count(device) == errors + 1
        assert victim.qp.query_state() == (QPState.ERR, access.cause)
        assert [(e.qp_num, e.cause) for e in context.events] == [(victim.qp.qp_num, access.cause)]
        check_completions(victim)
        check_memory(victim, buffer, theirs)
        victim.close()
    assert hit >= ROUNDS // 4
    assert bystander.qp.query_state() == (QPState.RTS, Cause.NONE)
    bystander.close()
    assert device.statistics()["faults"] == []


def error_count(device: DisturbedDevice) -> int:
    statistics = device.statistics()
    return int(statistics["read_errors"]) + int(statistics["write_errors"])


def pump_until(pair: Pair, done: Callable[[], bool], what: str) -> None:
    """As `Pair.pump_until`; the peer may find an FPDU spoiled on purpose."""
    try:
        pair.pump_until(done, what)
    except StreamError:
        pair.pump_until(done, what)


def check_completions(pair: Pair) -> None:
    """All work ends, in order, and after the first that failed nothing succeeds."""
    for wr_ids in ([1], [2, 3, 4]):
        found = [wc for wc in pair.completions if wc.wr_id in wr_ids]
        assert [wc.wr_id for wc in found] == wr_ids
        good = [wc.status == WCStatus.SUCCESS for wc in found]
        assert good == sorted(good, reverse=True)


def check_memory(pair: Pair, buffer: bytes, theirs: bytes) -> None:
    """What was placed is right, and where it was to be."""
    found, octets = bytes(pair.end.buffer), pair.octets
    sent = buffer[:LENGTH]
    # The QP's source, and what nobody was to write.
    assert found[:octets] == buffer[:octets]
    assert found[octets + 3 * LENGTH :] == buffer[octets + 3 * LENGTH :]
    parts = [theirs[3 * LENGTH : 4 * LENGTH], theirs[2 * LENGTH : 3 * LENGTH]]
    meant = parts[0] + parts[1] + parts[0]
    end = octets + 3 * LENGTH
    changed(buffer[octets:end], found[octets:end], meant, "the target")
    changed(theirs[: 2 * LENGTH], bytes(pair.theirs[: 2 * LENGTH]), sent + sent, "the peer")
    assert pair.theirs[2 * LENGTH :] == theirs[2 * LENGTH :]
    # Who is told that it succeeded has the octets.
    done = {wc.wr_id for wc in pair.completions if wc.status == WCStatus.SUCCESS}
    if 1 in done:
        assert found[octets : octets + LENGTH] == meant[:LENGTH]
    if 4 in done:
        assert found[octets + LENGTH : octets + 2 * LENGTH] == meant[LENGTH : 2 * LENGTH]


def stop(pair: Pair) -> None:
    """The peer does something wrong; what the device tells it, not the driver, is waited for."""
    pair.endpoint.rdma_write(bytes(8), pair.mr.rkey ^ 1, pair.mr.addr)
    pair.pump_until(lambda: pair.endpoint.terminate_received is not None, "the Terminate")
    assert pair.qp.query_state() == (QPState.ERR, Cause.TAGGED_STAG_INVALID)


@pytest.mark.parametrize("look", ["poll", "wait"])
def test_an_event_that_cannot_be_written_stops_its_qp_all_the_same(look: str):
    with Context(DisturbedDevice()) as context:
        device = device_of(context)
        victim, other = Pair(context, 4 * LENGTH), Pair(context, 4 * LENGTH)
        # The event ring is the first that a context maps.
        device.fail_access(device.mapped[0], write=True, skip=0, response=Response.SLVERR)
        stop(victim)
        assert error_count(device) == 1
        fill(other, seeded_random())
        other.post_all(LENGTH)
        other.finish(LENGTH)
        if look == "poll":
            victim.pump_until(lambda: victim.qp.state == QPState.ERR, "the error")
        else:
            with pytest.raises(WaitTimeout):
                victim.cq.wait(1, 0.0)
        assert (victim.qp.state, victim.qp.cause) == (QPState.ERR, Cause.TAGGED_STAG_INVALID)
        victim.close()
        other.close()


def test_events_behind_one_that_could_not_be_written_are_told():
    with Context(DisturbedDevice()) as context, ExitStack() as ends:
        device = device_of(context)
        first, second = Pair(context, 4 * LENGTH), Pair(context, 4 * LENGTH)
        ends.callback(first.close)
        ends.callback(second.close)
        device.fail_access(device.mapped[0], write=True, skip=0, response=Response.SLVERR)
        stop(first)
        stop(second)
        device.run_cycles(5000)
        context.process_events(ask=True)
        assert second.qp.state == QPState.ERR
        # What the missing one said is the state of its QP.
        assert first.qp.query_state() == (QPState.ERR, first.qp.cause)
        assert first.qp.cause not in (Cause.NONE, Cause.HOST_WRITE_ERROR)


def test_completions_of_others_behind_one_that_could_not_be_written_are_told():
    """Two QPs with one CQ: the failure is that of one of them."""
    with Context(DisturbedDevice()) as context, ExitStack() as ends:
        device = device_of(context)
        first = len(device.mapped)
        end = End(context)
        other = QP(end.pd, QPInitAttr(end.cq, end.cq, QPCap(4, 4)))
        peers = [RawPeer(qp) for qp in (end.qp, other)]
        for peer in peers:
            ends.callback(peer.close)
        device.fail_access(device.mapped[first], write=True, skip=0, response=Response.SLVERR)
        end.qp.post_send(SendWR(1, WROpcode.RDMA_WRITE, [end.element()]))
        context.poll_until(lambda: end.qp.state == QPState.ERR, SECONDS, "the error")
        assert end.qp.cause == Cause.HOST_WRITE_ERROR
        other.post_send(SendWR(2, WROpcode.RDMA_WRITE, [end.element()]))
        peers[1].pump_until(lambda: len(peers[1].ulpdus) == 3)
        device.run_cycles(5000)
        found = [(wc.wr_id, wc.status) for wc in end.cq.poll()]
        assert found == [(1, WCStatus.WR_FLUSH_ERR), (2, WCStatus.SUCCESS)]
