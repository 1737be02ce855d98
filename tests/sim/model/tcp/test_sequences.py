"""The sequences of tests/data/tcp/sequences.txt, played with the reference TCP."""

import ast
import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from stagecoach.sim.model.tcp import sequence
from stagecoach.sim.model.tcp.state import State
from tests.sim.model.tcp.script import IRS, MS, Script, peer_data, show
from tests.sim.model.tcp.vectors import TCP_DATA

SEGMENT = re.compile(
    r"(?P<flags>[FSRPAU]+) (?P<seq>\d+)(?:\+(?P<count>\d+))?(?: ack (?P<ack>\d+))?"
    r"(?: win (?P<win>\d+))?(?: mss (?P<mss>\d+))?(?P<sackok> sackok)?(?P<sack>(?: sack \d+:\d+)*)"
)


@dataclass
class Sequence:
    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    # Time in milliseconds and the words after it.
    lines: list[tuple[int, str]] = field(default_factory=list)


def sequences() -> list[Sequence]:
    found: list[Sequence] = []
    for line in (TCP_DATA / "sequences.txt").read_text().splitlines():
        if line.startswith("["):
            found.append(Sequence(line[1 : line.index("]")]))
        elif line.startswith("set "):
            _, name, value = line.split()
            found[-1].settings[name] = ast.literal_eval(value)
        elif line and not line.startswith("#"):
            time, words = line.split(" ", 1)
            found[-1].lines.append((int(time), words))
    return found


class Player:
    """Plays a sequence; what the endpoint sends is compared in order, with its time."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.sent = 0
        self.read = 1
        # Segments that were sent and are not yet compared, with their times.
        self.waiting: list[tuple[int, str]] = []

    def play(self, time: int, words: str) -> None:
        action, _, rest = words.partition(" ")
        if action != ">":
            # Nothing more was sent than the lines before this one say.
            self.script.at(time * MS - (action != "is"))
            self.collect()
            assert self.waiting == []
        self.script.at(time * MS)
        self.collect()
        if action == ">":
            self.compare(time, rest)
        elif action == "<":
            self.arrive(rest)
        elif action == "is":
            assert self.script.state is State[rest]
        elif action == "send":
            self.script.send(int(rest))
        elif action == "read":
            assert self.script.receive(int(rest)) == peer_data(self.read, int(rest))
            self.read += int(rest)
        elif action == "discard":
            self.script.close(discard=True)
        elif action == "listen":
            self.script.connection.listen()
        else:
            getattr(self.script, action)()

    def collect(self) -> None:
        self.waiting += self.script.timed()

    def compare(self, time: int, text: str) -> None:
        match = SEGMENT.fullmatch(text)
        assert match, text
        assert self.waiting, f"{time} > {text} is missing"
        at, line = self.waiting.pop(0)
        segment = self.script.segments[self.sent]
        assert show(segment) == line
        self.sent += 1
        shown = re.sub(r" (win|mss|sack) .*", "", text)
        assert (at, line) == (time * MS, shown)
        if match["win"]:
            assert segment.window == int(match["win"])
        if match["mss"]:
            assert segment.options.mss == int(match["mss"])
        if match["sack"]:
            blocks = [
                f"{sequence.distance(left, IRS)}:{sequence.distance(right, IRS)}"
                for left, right in segment.options.sack
            ]
            assert blocks == match["sack"].split()[1::2]

    def arrive(self, text: str) -> None:
        match = SEGMENT.fullmatch(text)
        assert match, text
        self.script.arrive(
            match["flags"],
            int(match["seq"]),
            int(match["ack"] or 0),
            data=int(match["count"] or 0),
            win=int(match["win"] or 0),
            mss=int(match["mss"]) if match["mss"] else None,
            sack_permitted=bool(match["sackok"]),
        )


@pytest.mark.parametrize("played", sequences(), ids=lambda played: played.name)
@pytest.mark.requirement("TCP-3.6-01", "TCP-SHLD-3", "CC-3.2-03", "LT-2-01", "TCP-SHLD-7")
@pytest.mark.requirement("TCPSEC-3.2-01", "TCPSEC-3.2-02", "TCPSEC-3.2-03", "TCPSEC-5.2-02")
def test_sequence(played):
    player = Player(Script(**played.settings))
    for time, words in played.lines:
        player.play(time, words)
    player.collect()
    assert player.waiting == []
