"""What MPA startup settled is read from a capture, and compared with what a case is about."""

import pytest

from stagecoach.sim.model.startup import EnhancedData, StartupFrame
from tests.sim.capture.decoding import startup, written
from tools.interop.job import JobError
from tools.interop.rping import Rping
from tools.interop.wire import Settled, settled


def frames(reply=True, crc=False, revision=2, peer_to_peer=False, reject=False):
    enhanced = EnhancedData(1, 1, peer_to_peer, rtr_write=peer_to_peer) if revision == 2 else None
    asked = StartupFrame(reply=False, crc=crc, revision=revision, enhanced=enhanced)
    answer = StartupFrame(
        reply=True, crc=False, revision=revision, enhanced=enhanced, reject=reject
    )
    return startup(asked, answer if reply else None)


def test_each_connection_has_what_its_ends_settled(tmp_path):
    logs = [frames(crc=True), frames(revision=1), frames(peer_to_peer=True), frames(reject=True)]
    found = settled(written(tmp_path / "capture.pcapng", *logs))
    assert found == [Settled(), Settled(False, 1), Settled(False, 2, True)]


@pytest.mark.parametrize(
    ("pings", "log"),
    [
        (Rping(False, 4000), frames(crc=True)),
        (Rping(False, 4000, options=("--no-crc",)), frames()),
        (Rping(True, 4000, options=("--no-crc",), siw={"mpa_crc_required": 1}), frames(crc=True)),
        (Rping(False, 4000, siw={"mpa_version": 1}), frames(crc=True, revision=1)),
        (Rping(False, 4000, siw={"peer_to_peer": 1}), frames(crc=True, peer_to_peer=True)),
        (Rping(True, 4000, options=("--peer-to-peer",)), frames(crc=True, peer_to_peer=True)),
    ],
)
def test_a_case_is_about_what_the_wire_showed(pings, log, tmp_path):
    pings.check(written(tmp_path / "right.pcapng", log))
    for others in ([], [log, log], [frames(revision=1, peer_to_peer=True)]):
        with pytest.raises(JobError, match="the wire had"):
            pings.check(written(tmp_path / "wrong.pcapng", *others))
