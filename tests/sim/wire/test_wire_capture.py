"""The capture of a wire whose file fails."""

import errno

import pytest

from stagecoach.sim.capture.pcapng import PcapngWriter
from stagecoach.sim.wire.errors import WireError
from stagecoach.sim.wire.wire_capture import WireCapture

FRAME = bytes(60)


def test_a_failure_is_told_at_the_end_even_if_the_file_takes_frames_again(tmp_path, monkeypatch):
    path = tmp_path / "wire.pcapng"
    capture = WireCapture(str(path))
    capture.frame(0, FRAME, inbound=True)
    write = PcapngWriter.frame

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "any")

    monkeypatch.setattr(PcapngWriter, "frame", refuse)
    capture.frame(1000, FRAME, inbound=True)
    monkeypatch.setattr(PcapngWriter, "frame", write)
    capture.frame(2000, FRAME, inbound=True)
    with pytest.raises(WireError, match=f"^pcap={path}: No space left on device$"):
        capture.close()
    assert path.read_bytes().count(FRAME) == 1  # nothing after a gap
