"""What each frame says is told once, and its message taken if it is the next one."""

from dataclasses import dataclass, field

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.hostlink.frame_receiver import FrameReceiver
from stagecoach.gateware.hostlink.octets import OCTET
from stagecoach.host_driver.hostlink.frames import Frame, parse
from stagecoach.hw.interface.hostlink import FIRST_MESSAGE, FLAG, MAXIMUM_PAYLOAD, Kind
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb

PULSES = ("acknowledged", "again", "acknowledge", "reject", "open")


@pytest.mark.parametrize("pattern", ["always", "random"])
def test_frame_receiver(pattern):
    run_cocotb(FrameReceiver(), __name__, parameters={"PATTERN": pattern})


@dataclass
class Expected:
    """What docs/hostlink.md says of each frame."""

    session: bool = False
    number: int = 0
    rejected: bool = False
    messages: list[bytes] = field(default_factory=list)

    def take(self, octets: bytes) -> set[str]:
        """The pulses after what stood between two flags."""
        if not octets:  # two flags with nothing between them are no frame
            return set()
        frame = parse(octets)
        if frame is not None and frame.kind == Kind.OPEN:
            return {"open", "acknowledged"} if self.session else {"open"}
        if not self.session:
            return set()
        pulses: set[str] = set()
        if frame is not None:
            pulses.add("acknowledged")
            if frame.kind == Kind.REJECT:
                pulses.add("again")
            if frame.kind < FIRST_MESSAGE:
                return pulses
            pulses.add("acknowledge")
            ahead = (frame.number - self.number) % 256
            if ahead == 0:
                self.messages.append(bytes([frame.kind]) + frame.payload)
                self.number = (self.number + 1) % 256
                self.rejected = False
                return pulses
            if ahead >= 128:  # it came before
                return pulses
        if not self.rejected:
            pulses.add("reject")
        self.rejected = True
        return pulses


class Bench:
    def __init__(self, dut):
        self.dut = dut
        self.rng = seeded_random(parameter("PATTERN"))
        self.pattern = parameter("PATTERN")
        self.expected = Expected()
        self.pulses: list[str] = []
        self.numbers: list[int] = []
        self.sink = StreamSink(dut, "o", OCTET, rng=self.rng, pattern=self.pattern)
        StreamMonitor(dut, "o", OCTET)
        for name in ("i__valid", "i__payload", "session", "restart"):
            getattr(dut, name).value = 0
        cocotb.start_soon(self._watch())

    async def _watch(self):
        while True:
            await RisingEdge(self.dut.clk)
            if self.dut.rst.value:
                continue
            self.pulses += [name for name in PULSES if getattr(self.dut, name).value]
            if self.dut.acknowledged.value:
                self.numbers.append(int(self.dut.acknowledged_number.value))

    async def octets(self, octets: bytes):
        dut = self.dut
        for octet in octets:
            while self.pattern == "random" and self.rng.random() < 0.2:
                await RisingEdge(dut.clk)
            dut.i__valid.value, dut.i__payload.value = 1, octet
            await RisingEdge(dut.clk)
            while not dut.i__ready.value:
                await RisingEdge(dut.clk)
            dut.i__valid.value = 0

    async def frame(self, octets: bytes):
        """One frame as the line has it, with its flag."""
        assert octets.count(FLAG) == 1
        wanted = self.expected.take(octets[:-1])
        await self.octets(octets)
        await ClockCycles(self.dut.clk, 6)
        assert sorted(self.pulses) == sorted(wanted), octets.hex()
        if "acknowledged" in wanted:
            frame = parse(octets[:-1])
            assert frame is not None and self.numbers.pop() == frame.acknowledge
        assert not self.numbers
        assert self.dut.expected.value == self.expected.number
        self.pulses.clear()

    async def open(self, nonce: int):
        await self.frame(Frame(Kind.OPEN, 0, 0, nonce.to_bytes(4, "little")).pack())
        assert self.dut.nonce.value == nonce
        self.dut.restart.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.restart.value, self.dut.session.value = 0, 1
        self.expected.session, self.expected.number, self.expected.rejected = True, 0, False
        await ClockCycles(self.dut.clk, 3)

    async def check_messages(self):
        for message in self.expected.messages:
            came = await self.sink.get_until()
            assert bytes(item["octet"] for item in came) == message
        self.expected.messages.clear()
        await ClockCycles(self.dut.clk, 20)
        assert not len(self.sink)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_each_frame(dut):
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    every = [Frame(kind, 0, 77, b"\x7d\x7e\x5e\x5d") for kind in Kind if kind != Kind.OPEN]
    for frame in every:  # no session is open
        await bench.frame(frame.pack())
    await bench.open(0x7D7E_5D5E)
    for frame in every:
        number = bench.expected.number
        await bench.frame(Frame(frame.kind, number, 77, frame.payload).pack())
    number = bench.expected.number
    repeated, ahead = (number + 128) % 256, (number + 127) % 256
    for other in (number - 1, repeated, number + 1, ahead, number, ahead, number + 1, number + 2):
        await bench.frame(Frame(Kind.INTERRUPT, other % 256, 3, bytes(5)).pack())
    # The smallest and the largest, and one octet less and more.
    for octets in (0, MAXIMUM_PAYLOAD, MAXIMUM_PAYLOAD + 1, MAXIMUM_PAYLOAD + 2, 2000, 1):
        payload = bench.rng.randbytes(octets)
        await bench.frame(Frame(Kind.LLP_DATA, bench.expected.number, 9, payload).pack())
    for octets in (b"", b"\x10", bytes(6), b"\x7d", Frame(0x10, 0, 0).pack()[:-2]):
        await bench.frame(octets + bytes([FLAG]))
    await bench.check_messages()
    await bench.open(1)
    await bench.frame(Frame(Kind.LLP_DATA, 0, 9, bytes(1)).pack())
    await bench.check_messages()


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def check_random_frames(dut):
    bench = Bench(dut)
    rng = bench.rng
    await start_clock_and_reset(dut)
    await bench.open(rng.getrandbits(32))
    for _ in range(400):
        kind = rng.choice([k for k in Kind if k != Kind.OPEN])
        number = (bench.expected.number + rng.choice([0, 0, 0, 0, 1, -1, 50, -50])) % 256
        payload = rng.randbytes(rng.choice([0, 1, 2, 8, 40]))
        octets = Frame(kind, number, rng.randrange(256), payload).pack()
        if rng.random() < 0.2:
            at = rng.randrange(len(octets) - 1)
            changed = octets[at] ^ 1 << rng.randrange(8)
            if changed != FLAG:
                octets = octets[:at] + bytes([changed]) + octets[at + 1 :]
        await bench.frame(octets)
    await bench.check_messages()
