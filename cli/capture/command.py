"""What `stagecoach capture` does."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stagecoach.cli.capture.words import frame_in_words
from stagecoach.cli.networks import NOBODY, networks
from stagecoach.cli.plain_text import printable


def capture(as_json: bool, file: Path | None) -> int:
    """Prints the headers of the last frames, or writes them to a file; returns the exit status."""
    found = list(networks())
    if file is not None:
        _write(file, found)
    elif as_json:
        names = "device", "program", "address", "frames"
        print(json.dumps([{name: each[name] for name in names} for each in found], indent=2))
        return 0
    if not found:
        print(NOBODY)
    elif file is None:
        for network in found:
            for line in _lines(network):
                print(printable(line))
    return 0


def _lines(network: dict[str, Any]) -> Iterator[str]:
    yield f"{network['device']}: {network['program']}"
    for frame in network["frames"]:
        way = "out" if frame["sent"] else "in "
        words = frame_in_words(bytes.fromhex(frame["head"]))
        yield f"  {frame['time_us'] / 1e6:.6f} {way} {words} ({frame['octets']} bytes)"


def _write(path: Path, found: list[dict[str, Any]]) -> None:
    """All frames, in the order of their times, which are those of each device."""
    from stagecoach.sim.capture.pcapng import PcapngWriter

    frames = [frame for network in found for frame in network["frames"]]
    with PcapngWriter(path) as writer:
        for frame in sorted(frames, key=lambda frame: frame["time_us"]):
            writer.frame(
                bytes.fromhex(frame["head"]),
                frame["time_us"] * 1000,
                inbound=not frame["sent"],
                octets=frame["octets"],
            )
    print(f"{len(frames)} frames in {path}")
