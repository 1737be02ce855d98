"""What the device sends, asks for and releases becomes messages; octets and events come back."""

from collections import deque
from itertools import pairwise
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.hostlink.llp_bridge import EVENT, PART_OCTETS, LlpBridge
from stagecoach.gateware.hostlink.octets import DEPTH, OCTET
from stagecoach.hw.interface.hostlink import EVENTS, MAXIMUM_BEATS, SEND_CLOSE, SEND_LAST, Kind
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.hostlink.flat_ports import Sink, Source, until
from tests.support.runner import parameter, run_cocotb

WORD = 8
OUTPUTS = ("sends", "requests", "releases", "taken")
CYCLES_PER_SENT_BEAT = 10
CYCLES_PER_RECEIVED_BEAT = 16


@pytest.mark.parametrize(("qps", "pattern"), [(256, "always"), (2, "random")])
def test_llp_bridge(qps: int, pattern: str) -> None:
    parameters = {"QPS": str(qps), "PATTERN": pattern}
    run_cocotb(LlpBridge(RnicConfig(qps=qps)), __name__, parameters=parameters)


class Bench:
    """The device on one side, the messages on the other."""

    def __init__(self, dut: Any) -> None:
        self.dut, pattern = dut, parameter("PATTERN")
        self.rng = rng = seeded_random(pattern)
        self.qps = int(parameter("QPS"))
        self.sinks = {}
        for name in OUTPUTS:
            self.sinks[name] = StreamSink(dut, name, OCTET, rng=rng, pattern=pattern)
            StreamMonitor(dut, name, OCTET)
        self.data = StreamSource(dut, "data", OCTET, rng=rng, pattern=pattern)
        self.events_in = StreamSource(dut, "event", EVENT, rng=rng, pattern=pattern)
        fields: tuple[str, ...] = ("connection", "data", "octets", "first", "last", "close")
        self.tx = Source(dut, "llp__tx_", fields, rng, pattern)
        fields = ("connection", "position", "octets")
        self.requests = Source(dut, "llp__rx_request_", fields, rng, pattern)
        self.releases = Source(dut, "llp__rx_release_", fields[:2], rng, pattern)
        self.rx = Sink(dut, "llp__rx_", ("data",), rng, pattern)
        self.events = Sink(dut, "llp__event_", ("connection", "kind", "value"), rng, pattern)
        dut.mark.value = 0

    async def start(self) -> None:
        await start_clock_and_reset(self.dut)

    async def message(self, name: str) -> bytes:
        return bytes(item["octet"] for item in await self.sinks[name].get_until())

    def connection(self) -> int:
        return self.rng.choice([0, self.qps - 1, self.rng.randrange(self.qps)])

    def send(self, octets: bytes, close: bool) -> list[bytes]:
        """An FPDU, or only the close; returns its messages."""
        connection = self.connection()
        beats = [octets[at : at + WORD] for at in range(0, len(octets), WORD)] or [b""]
        for number, beat in enumerate(beats):
            last = number == len(beats) - 1
            item = {"connection": connection, "data": int.from_bytes(beat, "little")}
            item |= {"octets": len(beat), "first": int(number == 0), "last": int(last)}
            self.tx.items.append(item | {"close": int(last and close)})
        messages = []
        step = WORD * MAXIMUM_BEATS
        for at in range(0, max(len(octets), 1), step):
            last = at + step >= len(octets)
            flags = (SEND_LAST | (SEND_CLOSE if close else 0)) if last else 0
            start = bytes([Kind.LLP_SEND]) + connection.to_bytes(2, "little")
            messages.append(start + octets[at : at + step] + bytes([flags]))
        return messages

    def request(self, octets: int) -> list[tuple[bytes, int]]:
        """Asks for octets; returns the messages, and the words that answer each."""
        connection, position = self.connection(), self.rng.choice([2**32 - 40, 4, 1 << 20])
        self.requests.items.append(
            {"connection": connection, "position": position, "octets": octets}
        )
        messages = []
        for at in range(0, octets, PART_OCTETS):
            part = min(PART_OCTETS, octets - at)
            message = bytes([Kind.LLP_REQUEST]) + connection.to_bytes(2, "little")
            message += ((position + at) % 2**32).to_bytes(4, "little") + part.to_bytes(2, "little")
            messages.append((message, -(-part // WORD)))
        return messages

    def answer(self, words: int) -> list[int]:
        """The words of an answer, as they have to come."""
        octets = self.rng.randbytes(WORD * words)
        for octet in octets:
            self.data.put({"octet": octet, "last": self.rng.getrandbits(1)})
        return [int.from_bytes(octets[at : at + WORD], "little") for at in range(0, len(octets), 8)]

    def release(self) -> bytes:
        connection, position = self.connection(), self.rng.getrandbits(32)
        self.releases.items.append({"connection": connection, "position": position})
        message = bytes([Kind.LLP_RELEASE]) + connection.to_bytes(2, "little")
        return message + position.to_bytes(4, "little")


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_fpdus_are_sent(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    messages = []
    whole = WORD * MAXIMUM_BEATS
    for octets in (0, 4, 8, 12, whole - 4, whole, whole + 4, 2 * whole, 2 * whole + 100, 0, 8):
        close = octets == 0 or bench.rng.random() < 0.3
        messages += bench.send(bench.rng.randbytes(octets), close)
    for message in messages:
        assert await bench.message("sends") == message


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_what_is_late_of_an_fpdu_holds_up_no_message(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    (message,) = bench.send(bench.rng.randbytes(24), close=False)
    late = bench.tx.items.pop()
    await until(dut, lambda: not bench.tx.items)
    for _ in range(100):
        await RisingEdge(dut.clk)
        assert not dut.sends__valid.value
    bench.tx.items.append(late)
    assert await bench.message("sends") == message


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_requests_are_answered_in_parts(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    expected: deque[int] = deque()
    for octets in (4, 8, 12, PART_OCTETS - 4, PART_OCTETS, PART_OCTETS + 4, 2048, 1500):
        for message, words in bench.request(octets):
            assert await bench.message("requests") == message
            expected.extend(bench.answer(words))
    for word in expected:
        await until(dut, lambda: bench.rx.items)
        assert bench.rx.items.popleft()["data"] == word
    await cycles(dut, 50)
    assert not bench.rx.items and not len(bench.sinks["requests"])


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_there_is_room_for_what_was_asked_for(dut: Any) -> None:
    """All of it is taken while the device takes no beat."""
    bench = Bench(dut)
    await bench.start()
    bench.rx.paused = True
    messages = deque(bench.request(2 * DEPTH))
    expected: deque[int] = deque()
    asked = 0
    await cycles(dut, 1000)
    while len(bench.sinks["requests"]):
        message, words = messages.popleft()
        assert await bench.message("requests") == message
        expected.extend(bench.answer(words))
        asked += WORD * words
    assert DEPTH - 2 * PART_OCTETS < asked <= DEPTH
    await until(dut, lambda: not bench.data.pending)
    assert not bench.rx.items and dut.llp__rx_valid.value
    bench.rx.paused = False
    while messages or expected:
        await until(dut, lambda: bench.rx.items or len(bench.sinks["requests"]))
        while bench.rx.items:
            assert bench.rx.items.popleft()["data"] == expected.popleft()
        if len(bench.sinks["requests"]):
            message, words = messages.popleft()
            assert await bench.message("requests") == message
            expected.extend(bench.answer(words))


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_events_and_releases_pass(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    for _ in range(20):
        message = bench.release()
        assert await bench.message("releases") == message
    bench.events.paused = True
    await cycles(dut, 2)
    events, said = [], 0
    for number in range(300):
        event = {"connection": bench.connection(), "kind": bench.rng.getrandbits(2)}
        events.append(event | {"value": bench.rng.getrandbits(32)})
        bench.events_in.put(events[-1])
        if number == EVENTS - 1:  # there is room for so many
            await until(dut, lambda: not bench.events_in.pending, 500)
            assert not bench.events.items and not len(bench.sinks["taken"])
            bench.events.paused = False
    for event in events:
        await until(dut, lambda: bench.events.items)
        assert bench.events.items.popleft() == event
    while said != len(events):
        kind, count = await bench.message("taken")
        said += (count - said - 1) % 256 + 1
        assert kind == Kind.LLP_EVENTS_TAKEN and said <= len(events)
    await cycles(dut, 50)
    assert not len(bench.sinks["taken"])


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_passed_says_that_all_before_the_mark_has_left(dut: Any) -> None:
    bench = Bench(dut)
    rng = bench.rng
    await bench.start()
    for sink in bench.sinks.values():
        sink.set_pattern("random", rng)
    begun = dict.fromkeys(OUTPUTS, 0)  # messages of what was taken
    left = dict.fromkeys(OUTPUTS, 0)
    target: dict[str, int] | None = None
    beats = passes = 0
    marked = False
    for cycle in range(9000):
        for name, chance in (("tx", 0.004), ("requests", 0.002), ("releases", 0.004)):
            if cycle % 3000 < 2000 and rng.random() < chance:
                if name == "tx":
                    bench.send(rng.randbytes(4 * rng.choice([1, 20, 80])), False)
                elif name == "requests":
                    bench.request(4 * rng.choice([1, 60, 100]))
                else:
                    bench.release()
        await RisingEdge(dut.clk)
        if not marked and target is not None and dut.passed.value:
            assert all(left[name] >= target[name] for name in OUTPUTS), (left, target)
            target, passes = None, passes + 1
        if dut.llp__tx_valid.value and dut.llp__tx_ready.value:
            begun["sends"] += beats == 0
            ends = bool(dut.llp__tx_last.value) or beats == MAXIMUM_BEATS - 1
            beats = 0 if ends else beats + 1
        if dut.llp__rx_request_valid.value and dut.llp__rx_request_ready.value:
            begun["requests"] += -(-int(dut.llp__rx_request_octets.value) // PART_OCTETS)
        if dut.llp__rx_release_valid.value and dut.llp__rx_release_ready.value:
            begun["releases"] += 1
        if marked:
            target = dict(begun)
        for name in OUTPUTS:
            valid, ready, payload = (
                getattr(dut, f"{name}__{part}") for part in ("valid", "ready", "payload")
            )
            if valid.value and ready.value and int(payload.value) >> 8:
                left[name] += 1
        # What was asked for is answered, so that there is room.
        for item in bench.sinks["requests"].take_all():
            if item["last"]:
                bench.answer(1)
        marked = target is None and rng.random() < 0.1
        dut.mark.value = int(marked)
    assert passes > 20 and all(begun[name] > 3 for name in OUTPUTS if name != "taken")


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_beats_come_as_often_as_was_said(dut: Any) -> None:
    if parameter("PATTERN") != "always":
        return
    bench = Bench(dut)
    await bench.start()
    sent: list[int] = []
    came: list[int] = []
    bench.send(bench.rng.randbytes(20 * WORD), False)
    bench.request(PART_OCTETS)
    bench.answer(20)
    for cycle in range(500):
        await RisingEdge(dut.clk)
        if dut.llp__tx_valid.value and dut.llp__tx_ready.value:
            sent.append(cycle)
        if dut.llp__rx_valid.value and dut.llp__rx_ready.value:
            came.append(cycle)
    assert {after - before for before, after in pairwise(came)} == {CYCLES_PER_RECEIVED_BEAT}
    assert {after - before for before, after in pairwise(sent)} == {CYCLES_PER_SENT_BEAT}
