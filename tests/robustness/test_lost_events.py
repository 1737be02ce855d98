"""More QPs stop than the event queue holds, before somebody looks: all of them are told."""

import json
from pathlib import Path

import pytest

from stagecoach.host_driver import Cause, QPState
from stagecoach.host_driver.counters import query_dropped_events
from stagecoach.host_driver.events import UNKNOWN_INDEX
from stagecoach.host_driver.snapshots.publisher import FOLDER_VARIABLE, INTERVAL_VARIABLE
from tests.integration.rig import End, RawPeer, open_device
from tests.integration.test_failures import Bystander, write

pytestmark = pytest.mark.timeout(600)  # the first test may have to build the device

PLACES = 2
SECONDS = 60.0


@pytest.mark.parametrize("stopping", [PLACES, PLACES + 1, 7])
def test_a_program_learns_of_events_that_had_no_place(
    stopping: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr("stagecoach.host_driver.event_queue.EVENT_RING_ENTRIES", PLACES)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(INTERVAL_VARIABLE, "3600")
    with open_device() as context:
        bystander = Bystander(context)
        for turn in range(1, 3):
            ends = [End(context) for _ in range(stopping)]
            peers = [RawPeer(end.qp) for end in ends]
            for peer in peers:
                peer.send(write(0, 0))
                peer.pump_until(lambda peer=peer: peer.ended, SECONDS)
            assert context.events == []
            context.process_events()
            lost = stopping - PLACES
            assert context.events_lost == turn * lost
            assert query_dropped_events(context) == turn * lost
            assert [event.qp_num for event in context.events] == [end.qp.qp_num for end in ends]
            assert {event.cause for event in context.events} == {Cause.TAGGED_STAG_INVALID}
            unknown = [event.index == UNKNOWN_INDEX for event in context.events]
            assert unknown == [False] * PLACES + [True] * lost
            for end, peer in zip(ends, peers, strict=True):
                assert end.qp.state == QPState.ERR
                end.close()
                peer.close()
            context.events.clear()
            context.process_events(ask=True)
            assert context.events == []
        bystander.check()
        bystander.end.close()
    (path,) = tmp_path.glob("*.json")
    assert json.loads(path.read_text())["events_lost"] == 2 * lost
