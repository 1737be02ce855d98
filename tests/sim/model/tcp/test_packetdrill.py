"""What scripts of packetdrill accepted of the reference TCP, played again without packetdrill."""

import re
from dataclasses import asdict, replace

import pytest

from stagecoach.sim.model.tcp.segment import decode_packet, encode_packet
from tests.sim.model.tcp.script import IRS, ISS, LOCAL, REMOTE, START, Script
from tests.sim.model.tcp.vectors import TCP_DATA
from tools.packetdrill import trace
from tools.packetdrill.world import SETTINGS

TRACES = trace.read_traces((TCP_DATA / "packetdrill.txt").read_text())
PORTS = REMOTE[1], LOCAL[1]


def do(script: Script, words: str) -> None:
    """What the user or the peer does."""
    call, _, rest = words.partition(" ")
    if call == "<":
        segment = trace.read(rest, PORTS, IRS, ISS)
        _, segment = decode_packet(encode_packet(segment, REMOTE[0], LOCAL[0]))
        script.connection.segment_arrives(START + script.now, segment, REMOTE[0])
    elif call == "listen":
        script.connection.listen()
    elif call == "open":
        script.open()
    elif call == "send":
        script.send(int(rest))
    elif call == "read":
        assert len(script.receive(int(rest))) == int(rest)
    else:
        assert call in ("shut", "close", "abort")
        script.abort() if call == "abort" else script.close(discard=call == "close")


@pytest.mark.parametrize("kept", TRACES, ids=lambda kept: kept.name)
def test_reference_does_again_what_a_script_accepted(kept):
    nagle = not kept.events[0][1].endswith(" nodelay")
    script = Script(**asdict(replace(SETTINGS, nagle=nagle)))
    # Its SYN leaves at 0, and has ISS then.
    start = next(at for at, words in kept.events if re.match("> SA? ", words))
    script.now = -start
    sent: list[tuple[int, str]] = []
    for at, words in kept.events:
        script.at(at - start)
        if words[0] != ">":
            do(script, words)
        times = [time + start for time, _ in script.timed()]
        segments = script.segments[len(script.segments) - len(times) :]
        sent += zip(times, (f"> {trace.show(x, ISS, IRS)}" for x in segments), strict=True)
        if words[0] == ">":
            assert sent.pop(0) == (at, words)
    # Of what left together the script may have looked at the first segments alone.
    assert {at for at, _ in sent} <= {kept.events[-1][0]}


def test_traces_are_kept():
    assert len(TRACES) == 20
    assert sum(kept.sent for kept in TRACES) == 124


@pytest.mark.parametrize(
    "line",
    [
        "S 0 win 65535 mss 1460 sackok wscale 8",
        "A 1 ack 4001 win 0 sack 8001:9001 12001:13001",
        "FPA 17+1460 ack 1 win 257",
        "R -3 win 0",
        "RA 4294967 ack 2 win 1",
    ],
)
def test_line_of_a_trace_is_read_as_it_is_written(line):
    segment = trace.read(line, PORTS, IRS, ISS)
    assert trace.show(segment, IRS, ISS) == line
    assert trace.read(line, PORTS, 0, 0) != segment


@pytest.mark.parametrize("line", ["", "S", "X 0 win 1", "A 1 ack 1", "A 1 ack 1 win -1"])
def test_what_is_no_line_of_a_trace_is_refused(line):
    with pytest.raises(ValueError, match="no segment"):
        trace.read(line, PORTS, IRS, ISS)
