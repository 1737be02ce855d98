"""The LLP connection ends at every octet: nothing hangs, what was posted ends in order."""

from collections.abc import Iterator

import pytest

from stagecoach.host_driver import Cause, Context, QPState, WCStatus
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.disturbed import DisturbedDevice
from stagecoach.sim.malformer.bench import Bench
from stagecoach.sim.malformer.case import Case, layout_of
from stagecoach.sim.malformer.compare import differences
from stagecoach.sim.malformer.fpdu import Edit, Fpdu, assemble
from stagecoach.sim.malformer.setting import Setting
from stagecoach.sim.model import rdmap
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, control_octet
from tests.robustness.pair import Pair

pytestmark = pytest.mark.timeout(600)  # the first test may have to build the device

SEED = 3
PAYLOAD = bytes(range(1, 22))
READ = len(PAYLOAD)


def conversation() -> list[Fpdu]:
    """A Write, a Send, a Read Request, a Read Response and a Send with Invalidate of two parts."""
    layout = layout_of(SEED, 0)
    main, sink, own = layout["main"], layout["sink"], layout["own"]
    invalidate = control_octet(Opcode.SEND_WITH_INVALIDATE)

    def send(msn: int, **fields: int) -> bytes:
        return UntaggedHeader(rdmap.QN_SEND, msn, **fields).encode() + PAYLOAD  # type: ignore[arg-type]

    write = TaggedHeader(main.stag, main.base, rsvd_ulp=control_octet(Opcode.RDMA_WRITE))
    response = control_octet(Opcode.RDMA_READ_RESPONSE)
    read = control_octet(Opcode.RDMA_READ_REQUEST)
    request = ReadRequest(1, 2, READ, main.stag, main.base + 100)
    ulpdus = [
        write.encode() + PAYLOAD,
        send(1, rsvd_ulp=control_octet(Opcode.SEND)),
        UntaggedHeader(rdmap.QN_READ_REQUEST, 1, rsvd_ulp=read).encode() + request.encode(),
        TaggedHeader(sink.stag, sink.base + 5, rsvd_ulp=response).encode() + PAYLOAD,
        send(2, rsvd_ulp=invalidate, rsvd_ulp_word=own.stag, last=False),
        send(2, rsvd_ulp=invalidate, rsvd_ulp_word=own.stag, mo=READ),
    ]
    return [Fpdu("fixed", ulpdu) for ulpdu in ulpdus]


def cut_cases(setting: Setting) -> Iterator[Case]:
    """The conversation, ended after every octet of it."""
    fpdus = conversation()
    stream, starts = assemble(fpdus, setting)
    for end in range(len(stream) + 1):
        whole = [
            fpdu
            for fpdu, start in zip(fpdus, [*starts[1:], len(stream)], strict=True)
            if start <= end
        ]
        if len(whole) < len(fpdus) and end > starts[len(whole)]:
            edit = Edit(end - starts[len(whole)], len(stream), b"")
            part = Fpdu("cut", fpdus[len(whole)].ulpdu, edits=(edit,), fixed=False)
            whole = [*whole, part]
        case = Case(SEED, 0, setting, tuple(whole))
        assert case.octets == stream[:end]
        yield case


@pytest.mark.requirement("DDP-6.2.2-02", "MPA-6-01", "MPA-8-01", "MPA-8-02")
@pytest.mark.parametrize("markers", [False, True], ids=["no Markers", "Markers"])
@pytest.mark.parametrize("at_once", [False, True], ids=["after the answers", "at once"])
def test_the_peer_closes_behind_every_octet(markers: bool, at_once: bool):
    setting = Setting(
        markers_in=markers,
        receives=((30,), (20, 30)),
        reads=((5, READ), (100, 10)),
        own=True,
        half_close=at_once,
    )
    with Bench(SEED, lanes=[0]) as bench:
        stream, starts = assemble(conversation(), setting)
        ends = {*starts, len(stream)}
        count = orderly = 0
        for case, observed in bench.run(cut_cases(setting)):
            assert differences(case, observed) == [], f"{len(case.octets)} octets were sent"
            whole = len(case.octets) in ends
            cause = Cause.LLP_CLOSED if whole else Cause.LLP_CLOSED_INSIDE_FPDU
            assert observed.event is not None and observed.event.cause == cause
            orderly += whole
            count += 1
        assert orderly == 1 + len(conversation())
        assert count > sum(len(fpdu.ulpdu) for fpdu in conversation())
        bench.bystander.check()


LENGTH = 100
EMSS = 128
STEP = 4
"""Octets: the device sends words, the last of an FPDU of 4 or 8."""


@pytest.mark.requirement("DDP-6.2.2-02", "DDP-3-04")
def test_the_connection_is_lost_in_every_word_that_is_sent():
    """Whole FPDUs, their headers and their CRCs, of a Write, a Send, a Read, and a response."""
    rng = seeded_random()
    with Context(DisturbedDevice()) as context:
        bystander = Pair(context, 4 * LENGTH)
        after = 0
        while True:
            after += STEP
            pair = Pair(context, 4 * LENGTH, emss=EMSS)
            pair.end.buffer[:] = rng.randbytes(len(pair.end.buffer))
            pair.theirs[:] = rng.randbytes(len(pair.theirs))
            source = bytes(pair.end.buffer[: pair.octets])
            pair.device.lose_after(pair.qp.qp_num, after)
            context.events.clear()
            pair.post_all(LENGTH)

            def ended(pair: Pair = pair) -> bool:
                if pair.qp.state == QPState.ERR:
                    return True
                # What is sent last may be the response, which has no completion.
                endpoint = pair.endpoint
                return len(pair.completions) == 4 and endpoint.idle and not endpoint.closed

            pair.pump_until(ended, f"lost after {after} octets")
            if pair.qp.state != QPState.ERR:
                # No more octets than that.
                pair.close()
                break
            pair.completions += pair.cq.poll()
            assert pair.qp.query_state() == (QPState.ERR, Cause.LLP_CLOSED)
            assert [event.cause for event in context.events] == [Cause.LLP_CLOSED]
            for wr_ids in ([1], [2, 3, 4]):
                found = [wc for wc in pair.completions if wc.wr_id in wr_ids]
                assert [wc.wr_id for wc in found] == wr_ids
                good = [wc.status == WCStatus.SUCCESS for wc in found]
                assert good == sorted(good, reverse=True)
            assert pair.end.buffer[: pair.octets] == source
            pair.close()
            if after % 100 == 0:
                bystander.post_all(LENGTH)
                bystander.finish(LENGTH)
        assert after > 4 * LENGTH
        assert context.transport.statistics()["faults"] == []
