"""FPDUs and received octets pass an LLP port of 32 or 128 bits unchanged."""

import itertools

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.layouts import MpaLayouts
from stagecoach.gateware.mpa.llp_width import LlpReceiveWidth, LlpTransmitWidth
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb

WIDTHS = (32, 128)
PATTERNS = ("always", "random", "bursty")


def config(width):
    return RnicConfig(qps=4, data_width=width)


@pytest.mark.parametrize("width", WIDTHS)
def test_fpdus_leave_as_they_came(width):
    parameters = {"WIDTH": str(width)}
    component = LlpTransmitWidth(config(width))
    run_cocotb(component, __name__, test_filter="check_transmit", parameters=parameters)


@pytest.mark.parametrize("width", WIDTHS)
def test_answers_become_words(width):
    parameters = {"WIDTH": str(width)}
    component = LlpReceiveWidth(config(width))
    run_cocotb(component, __name__, test_filter="check_receive", parameters=parameters)


def cut(octets, step):
    """The octets as integers of `step` octets; the last one has what is left."""
    return [int.from_bytes(octets[at : at + step], "little") for at in range(0, len(octets), step)]


def beats_of(connection, fpdu, close, step):
    """An FPDU as beats of `step` octets; one without octets is a beat too."""
    values = cut(fpdu, step) or [0]
    counts = [min(step, len(fpdu) - at) for at in range(0, len(fpdu), step)] or [0]
    return [
        {
            "connection": connection,
            "data": value,
            "octets": count,
            "first": int(number == 0),
            "last": int(number == len(values) - 1),
            "close": int(close and number == len(values) - 1),
        }
        for number, (value, count) in enumerate(zip(values, counts, strict=True))
    ]


def only_octets(beat):
    """A beat without what follows its octets."""
    return beat | {"data": beat["data"] & ((1 << 8 * beat["octets"]) - 1)}


class Transmit:
    def __init__(self, dut, rng, pattern):
        self.step = int(parameter("WIDTH")) // 8
        layouts = MpaLayouts(config(8 * self.step))
        self.source = StreamSource(dut, "i", layouts.tx, rng=rng, pattern=pattern)
        self.sink = StreamSink(dut, "o", layouts.port_tx, rng=rng, pattern=pattern)
        self.monitor = StreamMonitor(dut, "o", keep=False)

    def set_pattern(self, pattern, rng):
        for end in (self.source, self.sink):
            end.set_pattern(pattern, rng)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_transmit_of_every_length(dut):
    rng = seeded_random(parameter("WIDTH"))
    transmit = Transmit(dut, rng, "always")
    await start_clock_and_reset(dut)
    for pattern in PATTERNS:
        transmit.set_pattern(pattern, rng)
        fpdus = [
            (rng.randrange(4), rng.randbytes(4 * words), rng.random() < 0.2)
            for words in (*range(1, 20), *range(1, 9), *(rng.randint(1, 30) for _ in range(20)))
        ]
        # Nothing but the word that the connection is closed
        fpdus[3:3] = [(2, b"", True)]
        fpdus[12:12] = [(1, b"", True), (3, b"", True)]
        for fpdu in fpdus:
            transmit.source.put_all(beats_of(*fpdu, 8))
        for fpdu in fpdus:
            wanted = beats_of(*fpdu, transmit.step)
            got = await transmit.sink.get_many(len(wanted))
            assert [only_octets(beat) for beat in got] == wanted
        await ClockCycles(dut.clk, 10)
        assert len(transmit.sink) == 0


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_transmit_keeps_the_last_word_until_the_last_beat_is_taken(dut):
    rng = seeded_random(parameter("WIDTH"))
    transmit = Transmit(dut, rng, "always")
    transmit.sink.paused = True
    await start_clock_and_reset(dut)
    transmit.source.put_all(beats_of(1, rng.randbytes(16), False, 8))
    await ClockCycles(dut.clk, 20)
    assert dut.o__valid.value == 1
    assert transmit.source.pending >= 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_transmit_loses_no_cycle(dut):
    rng = seeded_random(parameter("WIDTH"))
    transmit = Transmit(dut, rng, "always")
    await start_clock_and_reset(dut)
    words = 0
    for octets in (20, 1480, 24, 8, 1480):
        transmit.source.put_all(beats_of(1, rng.randbytes(octets), False, 8))
        words += -(-octets // 8) if transmit.step == 16 else octets // 4
    begin = transmit.monitor.cycles
    await transmit.source.wait_idle()
    cycles = transmit.monitor.cycles - begin
    print(f"transmit, {8 * transmit.step} bits: {words} words or beats in {cycles} cycles")
    assert cycles <= words + 3


class Receive:
    """The LLP at the other end answers with random octets."""

    def __init__(self, dut, rng, pattern):
        self.step = int(parameter("WIDTH")) // 8
        layout = MpaLayouts(config(8 * self.step)).rx_request
        self._rng = rng
        self.request = StreamSource(dut, "request", layout, rng=rng, pattern=pattern)
        self.port_request = StreamSink(dut, "port_request", layout, rng=rng, pattern=pattern)
        self.source = StreamSource(dut, "i", rng=rng, pattern=pattern)
        self.sink = StreamSink(dut, "o", rng=rng, pattern=pattern)
        self.monitors = [StreamMonitor(dut, name, keep=False) for name in ("o", "port_request")]
        self.answers = []

    def set_pattern(self, pattern, rng):
        for end in (self.request, self.port_request, self.source, self.sink):
            end.set_pattern(pattern, rng)

    async def answer(self):
        """Answers requests for ever."""
        while True:
            request = await self.port_request.get()
            octets = self._rng.randbytes(request["octets"])
            self.answers.append((request, octets))
            self.source.put_all(
                cut(octets + self._rng.randbytes(-len(octets) % self.step), self.step)
            )


def request_of(rng, octets):
    return {
        "connection": rng.randrange(4),
        "position": rng.getrandbits(30) << 2,
        "octets": octets,
    }


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_receive_of_every_length(dut):
    rng = seeded_random(parameter("WIDTH"))
    receive = Receive(dut, rng, "always")
    await start_clock_and_reset(dut)
    cocotb.start_soon(receive.answer())
    for pattern in PATTERNS:
        receive.set_pattern(pattern, rng)
        receive.answers.clear()
        sizes = (*range(1, 50), 2048, *(4 * rng.randint(1, 60) for _ in range(20)), 4, 4, 8, 16)
        requests = [request_of(rng, octets) for octets in sizes]
        receive.request.put_all(requests)
        for number, request in enumerate(requests):
            words = await receive.sink.get_many(-(-request["octets"] // 8))
            assert receive.answers[number][0] == request
            octets = b"".join(word.to_bytes(8, "little") for word in words)
            assert octets[: request["octets"]] == receive.answers[number][1]
        await ClockCycles(dut.clk, 10)
        assert len(receive.sink) == 0 and receive.source.pending == 0


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_receive_has_room_for_many_requests(dut):
    """As many as may be unanswered, and never more than can be remembered."""
    rng = seeded_random(parameter("WIDTH"))
    receive = Receive(dut, rng, "always")
    await start_clock_and_reset(dut)
    receive.request.put_all(request_of(rng, 4 * rng.randint(1, 9)) for _ in range(30))
    await ClockCycles(dut.clk, 100)
    assert 16 <= len(receive.port_request) <= 17
    answering = cocotb.start_soon(receive.answer())
    while len(receive.answers) < 30:
        await ClockCycles(dut.clk, 1)
    answering.cancel()
    await receive.sink.get_many(sum(-(-len(octets) // 8) for _, octets in receive.answers))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_receive_loses_no_cycle(dut):
    rng = seeded_random(parameter("WIDTH"))
    receive = Receive(dut, rng, "always")
    await start_clock_and_reset(dut)
    sizes = list(itertools.chain([20] * 14, [1480]))
    receive.request.put_all(request_of(rng, octets) for octets in sizes)
    await ClockCycles(dut.clk, 40)
    cocotb.start_soon(receive.answer())
    cycles_per_word = sum(-(-octets // min(8, receive.step)) for octets in sizes)
    await receive.sink.get()
    begin = receive.monitors[0].cycles
    await receive.sink.get_many(sum(-(-octets // 8) for octets in sizes) - 1)
    cycles = receive.monitors[0].cycles - begin
    print(f"receive, {8 * receive.step} bits: {cycles} of {cycles_per_word} cycles")
    assert cycles <= cycles_per_word
