"""The MPA receiver keeps its rate at any LLP latency, FPDU size and number of connections."""

from collections import Counter
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, LlpEventKind, QpCommandKind
from stagecoach.gateware.mpa.layouts import MpaLayouts
from stagecoach.gateware.mpa.receive_requests import VISIT_OCTETS
from stagecoach.gateware.mpa.receiver import MpaReceiver
from stagecoach.sim.cosim.streams import pack, seeded_random, start_clock_and_reset, unpack
from stagecoach.sim.model.mpa import frame_fpdu
from tests.support.runner import parameter, run_cocotb

pytestmark = pytest.mark.slow

CONFIG = RnicConfig(qps=256)
LAYOUTS = Layouts(CONFIG)
MPA = MpaLayouts(CONFIG)
LATENCIES = (1, 100, 320)
ULPDU_OCTETS = (2, 26, 82, 502, 1454, 8954)
"""Of the smallest FPDU, those of 32 and 88 octets, and those of whole segments."""


class Llp:
    """Connections whose FPDUs are announced by turns, each `ahead` before what was released.

    An answer begins `latency` cycles after its request, and comes one beat a cycle.
    """

    def __init__(self, dut: Any, fpdu: bytes, connections: int, ahead: int, latency: int) -> None:
        self.dut = dut
        self.fpdu, self.latency = fpdu, latency
        # Each octet position of a connection has the same octets modulo the FPDU.
        self.beats = {}
        self.events = [
            number for _ in range(-(-ahead // connections)) for number in range(connections)
        ]
        self.given = [0] * connections
        self.released = [0] * connections
        self.answers: list[tuple[int, int, int, int]] = []
        self.segments: list[int] = []
        self.turns: list[int] = []
        self.now = 0

    async def run(self, segments: int) -> None:
        dut, size = self.dut, len(self.fpdu)
        twice = self.fpdu + self.fpdu
        answers = self.answers
        head = 0
        events, at = self.events, 0
        dut.rx_request__ready.value = 1
        dut.rx_release__ready.value = 1
        dut.segment__ready.value = 1
        dut.rx__valid.value = 0
        dut.llp_event__valid.value = 0
        dut.store__release.value = 0
        beat: tuple[int, int, int] | None = None  # that is offered: answer, offset, octets
        event = False
        while len(self.segments) < segments:
            await RisingEdge(dut.clk)
            self.now += 1
            if dut.rx_request__valid.value:
                item = unpack(MPA.rx_request, dut.rx_request__payload.value)
                answers.append(
                    (self.now + self.latency, item["connection"], item["position"], item["octets"])
                )
            if dut.rx_release__valid.value:
                item = unpack(MPA.rx_release, dut.rx_release__payload.value)
                number = item["connection"]
                while self.released[number] + size <= item["position"]:
                    self.released[number] += size
                    events.append(number)
            if beat is not None and dut.rx__ready.value:
                beat = None
            if beat is None and head < len(answers) and answers[head][0] <= self.now:
                due, number, position, octets = answers[head]
                start = position % size
                some = min(8, octets)
                key = (start, some)
                if key not in self.beats:
                    word = (twice + twice)[start : start + some]
                    self.beats[key] = int.from_bytes(word, "little")
                dut.rx__payload.value = self.beats[key]
                beat = (number, position, octets)
                if octets > 8:
                    answers[head] = (due, number, position + 8, octets - 8)
                else:
                    head += 1
            dut.rx__valid.value = int(beat is not None)
            segment = dut.segment__valid.value
            dut.store__release.value = int(segment)
            if segment:
                item = unpack(LAYOUTS.segment, dut.segment__payload.value)
                assert item["kind"] == 0, "an error"
                self.segments.append(self.now)
                self.turns.append(item["qp"])
                dut.store__released.value = pack(LAYOUTS.stored, item["stored"])
            if event and dut.llp_event__ready.value:
                event = False
            if not event and at < len(events):
                number = events[at]
                at += 1
                self.given[number] += size
                dut.llp_event__payload.value = pack(
                    LAYOUTS.llp_event,
                    {
                        "connection": number,
                        "kind": LlpEventKind.RX_AVAILABLE.value,
                        "value": self.given[number],
                    },
                )
                event = True
            dut.llp_event__valid.value = int(event)


def limit(octets: int) -> float:
    """Cycles for an FPDU: its beats, and a turn; or what a visit takes of the table."""
    return max(-(-octets // 8) + 1.05, 5)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_rate(dut: Any) -> None:
    rng = seeded_random()
    latency, connections = int(parameter("LATENCY")), int(parameter("CONNECTIONS"))
    dut.qp_command__valid.value = 0
    await start_clock_and_reset(dut)
    for ulpdu in ULPDU_OCTETS:
        # What is offered and released still is of the size before.
        for pin in (dut.llp_event__valid, dut.rx__valid, dut.store__release):
            pin.value = 0
        dut.rst.value = 1
        for _ in range(3):
            await RisingEdge(dut.clk)
        dut.rst.value = 0
        await connect(dut, connections)
        fpdu = frame_fpdu(rng.randbytes(ulpdu))
        beats = -(-len(fpdu) // 8)
        # More are at hand than are on the way: a single connection with fewer has a visit for all
        # of them, and ten cycles before the next one.
        ahead = max(min(2 * connections, 4000 // beats), 3 * (latency + 300) // beats, 3)
        # At first visits are short, and return after a latency, or one is as long as it may be
        # before there is anybody else: that is not counted.
        first = 2 * ahead + min(VISIT_OCTETS // len(fpdu) + 1, 16)
        count = first + ahead + 2000 // beats
        llp = Llp(dut, fpdu, connections, ahead, latency)
        await llp.run(count)
        each = (llp.segments[-1] - llp.segments[first]) / (count - 1 - first)
        print(
            f"receiver, LLP latency {latency}, {connections} connections, FPDUs of {len(fpdu)} "
            f"octets: {each:.2f} cycles, {len(fpdu) / each:.2f} octets per cycle"
        )
        assert each <= limit(len(fpdu))
        turns = Counter(llp.turns)
        assert min(turns[qp] for qp in range(connections)) >= count // connections // 2, "starves"


async def connect(dut: Any, connections: int) -> None:
    for qp in range(connections):
        for kind in (QpCommandKind.CREATE, QpCommandKind.CONNECT):
            dut.qp_command__valid.value = 1
            dut.qp_command__payload.value = pack(
                LAYOUTS.qp_command, {"kind": kind.value, "qp": qp, "crc": 1}
            )
            await RisingEdge(dut.clk)
            while not dut.qp_command__ready.value:
                await RisingEdge(dut.clk)
    dut.qp_command__valid.value = 0


@pytest.mark.parametrize(
    ("latency", "connections"),
    [(latency, number) for latency in LATENCIES for number in (1, 64)]
    # The largest latency is the hardest.
    + [(max(LATENCIES), number) for number in (2, 256)],
)
def test_receiver_rates(latency: int, connections: int) -> None:
    run_cocotb(
        MpaReceiver(CONFIG),
        __name__,
        parameters={"LATENCY": str(latency), "CONNECTIONS": str(connections)},
    )
