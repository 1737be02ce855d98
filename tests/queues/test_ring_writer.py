"""Entries stand in the right ring in order, interrupts are not lost, overflow is reported."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.queues.ring_writer import RingWriter
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import (
    COMPLETION_ENTRY,
    EVENT_ENTRY,
    CompletionFlags,
    Fields,
)
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.queues.ports import Pulses, WriteMemory
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig(qps=4, cqs=4)
LAYOUTS = Layouts(CONFIG)
EVENTS = CONFIG.cqs
ENTRY = 32


@pytest.mark.parametrize("pattern", ["always", "random"])
def test_writer(pattern):
    run_cocotb(RingWriter(CONFIG), __name__, parameters={"PATTERN": pattern, "LOG2": "0"})


@pytest.mark.parametrize("log2", [0, 1, 5])
def test_a_full_ring_takes_no_more(log2):
    parameters = {"PATTERN": "always", "LOG2": str(log2)}
    test = "check_a_full_ring_takes_no_more"
    run_cocotb(RingWriter(CONFIG), __name__, parameters=parameters, test_filter=test)


def parse(fields: Fields, octets: bytes) -> dict[str, int]:
    """Return the fields of an entry without the reserved ones."""
    values, at = {}, 0
    for name, size, _ in fields:
        values[name] = int.from_bytes(octets[at : at + size], "little")
        at += size
    return {name: value for name, value in values.items() if not name.startswith("reserved")}


class Bench:
    """A host that owns rings, polls the phase bit and rings doorbells."""

    def __init__(self, dut, rng):
        pattern = parameter("PATTERN")
        self.dut, self.rng = dut, rng
        self.memory = WriteMemory(dut, "write", rng)
        completion = LAYOUTS.completion
        self.send = StreamSource(dut, "send", completion, rng=rng, pattern=pattern)
        self.receive = StreamSource(dut, "receive", completion, rng=rng, pattern=pattern)
        self.event = StreamSource(dut, "event", LAYOUTS.event, rng=rng, pattern=pattern)
        self.cq_commands = StreamSource(dut, "cq_command", LAYOUTS.cq_command)
        self.doorbells = StreamSource(dut, "cq_doorbell", LAYOUTS.cq_doorbell)
        self.overflow = StreamSink(dut, "overflow", LAYOUTS.qp_error, rng=rng, pattern=pattern)
        for name in ("write__command", "write__data", "overflow"):
            StreamMonitor(dut, name)
        self.completion_interrupts = Pulses(dut, dut.completion_interrupt)
        self.event_interrupts = Pulses(dut, dut.event_interrupt)
        self.accepted = Pulses(dut, dut.accepted)
        self.finished = Pulses(dut, dut.finished)
        dut.forget__valid.value = 0
        self.base, self.log2, self.consumer = {}, {}, {}
        self.cqs = {}  # send and receive CQ of each QP

    async def create_ring(self, ring, log2):
        self.base[ring] = 0x1000_0000_0000 * (ring + 1) + self.rng.randrange(1024) * ENTRY
        self.log2[ring], self.consumer[ring] = log2, 0
        for at in range(self.base[ring], self.base[ring] + (ENTRY << log2), 8):
            self.memory.words.pop(at, None)
        await self.cq_commands.send(
            {
                "cq": ring,
                "enable": 1,
                "base": self.base[ring] + self.rng.randrange(ENTRY),
                "log2": log2,
            }
        )

    def create_qp(self, qp, send_cq, receive_cq):
        self.cqs[qp] = (send_cq, receive_cq)

    def poll(self, ring):
        """Return the next entry, or None: as a driver does, by the phase bit alone."""
        number, log2 = self.consumer[ring], self.log2[ring]
        at = self.base[ring] + number % (1 << log2) * ENTRY
        octets = self.memory.octets(at, ENTRY)
        phase = 1 - (number >> log2 & 1)
        if octets[-1] & 1 != phase:
            return None
        self.consumer[ring] += 1
        return parse(EVENT_ENTRY if ring == EVENTS else COMPLETION_ENTRY, octets)

    async def answered(self, ring):
        self.dut.query_ring.value = ring
        await cycles(self.dut, 4)
        return int(self.dut.query_answered.value)

    async def ring_doorbell(self, ring, arm=0, solicited=0):
        consumer = self.consumer[ring] % 65536
        await self.doorbells.send(
            {"cq": ring, "consumer": consumer, "arm": arm, "solicited": solicited}
        )

    def completion(self, qp, receive, index):
        return {
            "qp": qp,
            "cq": self.cqs[qp][receive],
            "index": index,
            "opcode": self.rng.getrandbits(8),
            "flags": self.rng.getrandbits(8),
            "detail": self.rng.getrandbits(64),
            "length": self.rng.getrandbits(32),
        }

    def error(self, qp):
        return {
            "qp": qp,
            "cause": self.rng.randint(1, 46),
            "srq": self.rng.getrandbits(1),
            "index": self.rng.getrandbits(16),
            "ulpdu_length": self.rng.getrandbits(16),
            "header": self.rng.getrandbits(144),
        }


def same(entry, item):
    if "detail" in item:
        detail = item["detail"]
        item = item | {"invalidated_stag": detail % 2**32, "immediate_data": detail}
    return all(entry[name] == item[name] for name in entry if name != "phase")


@cocotb.test(timeout_time=6, timeout_unit="ms")
async def check_entries_come_in_order_in_the_right_ring(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    # QPs 0 and 1 share CQ 1 for receives; the CQ of the sends of QP 0 is also theirs.
    cqs = {0: (1, 1), 1: (0, 1), 2: (2, 3), 3: (3, 0)}
    for ring in range(CONFIG.cqs + 1):
        await bench.create_ring(ring, rng.randint(3, 6))
    for qp, pair in cqs.items():
        bench.create_qp(qp, *pair)
    expected = {(qp, receive): [] for qp in cqs for receive in (0, 1)}
    events, got_events, given, read = [], [], 0, 0
    inside = [0] * (CONFIG.cqs + 1)
    index = 0
    while read < 400:
        qp, receive = rng.randrange(4), rng.getrandbits(1)
        ring = cqs[qp][receive]
        if rng.random() < 0.2:
            ring = EVENTS
        if inside[ring] < 1 << bench.log2[ring]:
            inside[ring] += 1
            given += 1
            if ring == EVENTS:
                events.append(bench.error(qp))
                bench.event.put(events[-1])
            else:
                item = bench.completion(qp, receive, index & 0xFFFF)
                index += 1
                expected[qp, receive].append(item)
                (bench.receive if receive else bench.send).put(item)
        await cycles(dut, rng.choice([0, 2, 10, 20]))
        ring = rng.randrange(CONFIG.cqs + 1)
        taken = 0
        while entry := bench.poll(ring):
            taken += 1
            if ring == EVENTS:
                got_events.append(entry)
                assert same(entry, events[len(got_events) - 1])
                continue
            # Which queue it belongs to is in the opcode for a driver; here in the index.
            queues = [
                queue
                for queue in expected.values()
                if queue and queue[0]["index"] == entry["index"]
            ]
            assert queues, f"entry {entry} is not the next of any queue"
            item = queues[0].pop(0)
            assert same(entry, item) and item["cq"] == ring
        read += taken
        if taken:
            await bench.ring_doorbell(ring)
            # The doorbell has an effect a little later than `send` returns.
            await cycles(dut, 4)
            inside[ring] -= taken
    await cycles(dut, 1500)
    assert bench.accepted.count == bench.finished.count == given == bench.memory.writes
    assert not len(bench.overflow)
    assert bench.completion_interrupts.count == bench.event_interrupts.count == 0


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_full_ring_drops_and_reports(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    await bench.create_ring(0, 2)
    await bench.create_ring(1, 1)
    await bench.create_ring(EVENTS, 1)
    bench.create_qp(2, 0, 1)
    sent = [bench.completion(2, 0, i) for i in range(6)]
    received = [bench.completion(2, 1, i) for i in range(100, 105)]
    bench.send.put_all(sent)
    bench.receive.put_all(received)
    bench.event.put_all([bench.error(2) for _ in range(5)])
    await cycles(dut, 800)
    errors = await bench.overflow.get_many(len(bench.overflow))
    assert 1 <= len(errors) <= 5
    assert all(e["qp"] == 2 and e["cause"] == Cause.CQ_OVERFLOW for e in errors)
    assert int(dut.dropped_events.value) == 3
    assert bench.accepted.count == bench.finished.count == 16
    for item in sent[:4]:
        assert same(bench.poll(0), item)
    await bench.ring_doorbell(0)
    # Room again: what comes now is written after it.
    bench.send.put(sent[5])
    await cycles(dut, 200)
    assert same(bench.poll(0), sent[5])
    # A ring that was disabled takes nothing.
    await bench.cq_commands.send({"cq": 0, "enable": 0})
    bench.send.put(sent[0])
    assert (await bench.overflow.get())["cause"] == Cause.CQ_OVERFLOW
    # Enabled again, it starts anew.
    await bench.create_ring(0, 2)
    bench.send.put(sent[1])
    await cycles(dut, 200)
    assert same(bench.poll(0), sent[1])


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_everything_passes_while_nobody_takes_overflow(dut):
    """Who is to take it may wait for a completion itself."""
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    bench.overflow.paused = True
    for ring, log2 in ((0, 0), (1, 3), (EVENTS, 4)):
        await bench.create_ring(ring, log2)
    for qp in range(3):
        bench.create_qp(qp, 0, 1)
    bench.send.put_all([bench.completion(i % 3, 0, i) for i in range(200)])
    await cycles(dut, 4000)
    assert bench.send.pending == 0
    events = [bench.error(1) for _ in range(10)]
    received = [bench.completion(2, 1, i) for i in range(5)]
    bench.event.put_all(events)
    bench.receive.put_all(received)
    await cycles(dut, 1000)
    for ring, items in ((EVENTS, events), (1, received)):
        for item in items:
            assert same(bench.poll(ring), item)
    bench.overflow.paused = False
    await cycles(dut, 300)
    errors = await bench.overflow.get_many(len(bench.overflow))
    assert {error["qp"] for error in errors} == {0, 1, 2}
    # One of them stood at the port.
    assert len(errors) <= 4 and all(error["cause"] == Cause.CQ_OVERFLOW for error in errors)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_a_new_qp_has_no_error_of_the_one_before(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    bench.overflow.paused = True
    for qp in range(2):
        bench.create_qp(qp, 0, 0)
    # No ring: all are dropped. That of QP 0 is at the port when QP 1 has one.
    for qp in range(2):
        bench.send.put(bench.completion(qp, 0, qp))
        await cycles(dut, 100)
    dut.forget__qp.value = 1
    dut.forget__valid.value = 1
    await cycles(dut, 1)
    dut.forget__valid.value = 0
    await cycles(dut, 20)
    bench.overflow.paused = False
    await cycles(dut, 100)
    errors = await bench.overflow.get_many(len(bench.overflow))
    assert [error["qp"] for error in errors] == [0]
    bench.send.put(bench.completion(1, 0, 2))
    assert (await bench.overflow.get())["qp"] == 1


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_failed_write_is_reported(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    await bench.create_ring(0, 3)
    bench.create_qp(1, 0, 0)
    bench.create_qp(2, 0, 0)
    bench.memory.failing.add(bench.base[0] + 2 * ENTRY)
    bench.send.put_all([bench.completion(2 if i == 2 else 1, 0, 50 + i) for i in range(5)])
    error = await bench.overflow.get()
    assert (error["qp"], error["cause"]) == (2, Cause.HOST_WRITE_ERROR)
    await cycles(dut, 300)
    assert not len(bench.overflow)
    assert bench.accepted.count == bench.finished.count == 5


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_answered_writes_are_counted_also_those_that_failed(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    for ring in (0, EVENTS):
        await bench.create_ring(ring, 3)
    bench.create_qp(1, 0, 0)
    bench.memory.failing |= {bench.base[0] + ENTRY, bench.base[EVENTS]}
    bench.memory.held = True
    bench.send.put_all([bench.completion(1, 0, i) for i in range(3)])
    bench.event.put(bench.error(1))
    await cycles(dut, 300)
    assert [await bench.answered(ring) for ring in (0, EVENTS)] == [0, 0]
    bench.memory.held = False
    seen = 0
    while seen < 3:
        # What is counted is there, unless it has failed.
        seen = await bench.answered(0)
        for number in range(seen):
            bench.consumer[0] = number
            assert (bench.poll(0) is None) == (number == 1)
    await cycles(dut, 100)
    assert [await bench.answered(ring) for ring in (0, 1, EVENTS)] == [3, 0, 1]
    bench.consumer[EVENTS] = 0
    assert bench.poll(EVENTS) is None
    await bench.cq_commands.send({"cq": 0, "enable": 0})
    await bench.create_ring(0, 3)
    assert [await bench.answered(ring) for ring in (0, EVENTS)] == [0, 1]


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_interrupt_is_one_shot_and_comes_after_the_entry(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    for ring in (0, EVENTS):
        await bench.create_ring(ring, 3)
    bench.create_qp(1, 0, 0)
    for ring, interrupts, give in (
        (0, bench.completion_interrupts, lambda: bench.send.put(bench.completion(1, 0, 0))),
        (EVENTS, bench.event_interrupts, lambda: bench.event.put(bench.error(1))),
    ):
        await bench.ring_doorbell(ring, arm=1)
        await bench.ring_doorbell(ring)  # without arm: nothing changes
        await cycles(dut, 50)
        assert interrupts.count == 0
        bench.memory.held = True
        give()
        await cycles(dut, 100)
        assert interrupts.count == 0
        bench.memory.held = False
        give()
        await cycles(dut, 200)
        assert interrupts.count == 1, "one-shot"
        assert bench.poll(ring)
        # One entry was consumed, the other one not: armed, it wakes at once.
        await bench.ring_doorbell(ring, arm=1)
        await cycles(dut, 10)
        assert interrupts.count == 2
        assert bench.poll(ring)
        await bench.ring_doorbell(ring, arm=1)
        await cycles(dut, 100)
        assert interrupts.count == 2
        give()
        await cycles(dut, 200)
        assert interrupts.count == 3
    assert bench.completion_interrupts.count == 3


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_a_ring_armed_for_solicited_entries_is_silent_about_others(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    for ring in (0, 1):
        await bench.create_ring(ring, 5)
    bench.create_qp(1, 0, 0)
    bench.create_qp(2, 1, 1)
    interrupts = bench.completion_interrupts

    async def give(solicited, qp=1):
        flags = rng.getrandbits(8) & ~CompletionFlags.SOLICITED | solicited
        bench.receive.put(bench.completion(qp, 1, 0) | {"flags": flags})
        await cycles(dut, 200)

    # Plain entries are there before, and come afterwards; another ring has a solicited one.
    await give(0)
    await bench.ring_doorbell(0, arm=1, solicited=1)
    await give(0)
    await give(1, qp=2)
    assert interrupts.count == 0
    await give(1)
    assert interrupts.count == 1
    await give(1)
    assert interrupts.count == 1, "one-shot"
    # Two solicited ones are not consumed: armed, it wakes at once. Then only plain ones are left.
    for expected in (2, 3):
        await bench.ring_doorbell(0, arm=1, solicited=1)
        await cycles(dut, 20)
        assert interrupts.count == expected
        while bench.consumer[0] < 2 + expected - 1:
            assert bench.poll(0)
    await give(0)
    await bench.ring_doorbell(0, arm=1, solicited=1)
    await cycles(dut, 50)
    assert interrupts.count == 3
    # Armed for all as well, it wakes; it does not matter which came first.
    await bench.ring_doorbell(0, arm=1)
    await cycles(dut, 20)
    assert interrupts.count == 4
    assert bench.poll(0)
    await bench.ring_doorbell(0, arm=1)
    await bench.ring_doorbell(0, arm=1, solicited=1)
    await give(0)
    assert interrupts.count == 5
    # Both were taken back by that.
    await give(1)
    assert interrupts.count == 5
    # A new ring is not armed and knows of no entry.
    while bench.poll(0):
        pass
    await bench.ring_doorbell(0, arm=1, solicited=1)
    before = interrupts.count
    await bench.cq_commands.send({"cq": 0, "enable": 0})
    await bench.create_ring(0, 5)
    await give(1)
    assert interrupts.count == before
    await bench.cq_commands.send({"cq": 0, "enable": 0})
    await bench.create_ring(0, 5)
    await bench.ring_doorbell(0, arm=1, solicited=1)
    await cycles(dut, 50)
    assert interrupts.count == before


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_no_wake_up_is_lost(dut):
    await arm_and_sleep(dut, solicited=0)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_no_wake_up_by_a_solicited_entry_is_lost(dut):
    await arm_and_sleep(dut, solicited=1)


async def arm_and_sleep(dut, solicited):
    """As a driver does, against completions at every distance."""
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    bench.memory.latency = (1, 12)
    await bench.create_ring(0, 4)
    bench.create_qp(0, 0, 0)
    total = 300
    consumed = given = 0
    while consumed < total:
        # The driver polls until nothing is there, then arms, then sleeps.
        while bench.poll(0):
            consumed += 1
        before = bench.completion_interrupts.count
        for _ in range(rng.randint(0, 3)):
            if given < total and given - consumed < 6:
                flags = {"flags": CompletionFlags.SOLICITED.value}
                bench.send.put(bench.completion(0, 0, given & 0xFFFF) | flags)
                given += 1
        await cycles(dut, rng.randint(0, 40))
        await bench.ring_doorbell(0, arm=1, solicited=solicited)
        if given == consumed:
            continue
        for _ in range(400):
            if bench.completion_interrupts.count != before:
                break
            await RisingEdge(dut.clk)
        else:
            raise AssertionError(f"slept for ever with {given - consumed} entries to come")
    assert not len(bench.overflow)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_throughput(dut):
    if parameter("PATTERN") != "always":
        return
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    await bench.create_ring(0, 7)
    bench.create_qp(0, 0, 0)
    bench.send.put_all([bench.completion(0, 0, i) for i in range(100)])
    start = cocotb.utils.get_sim_time("ns")
    while bench.accepted.count < 100:
        await RisingEdge(dut.clk)
    each = (cocotb.utils.get_sim_time("ns") - start) / 10 / 100
    dut._log.info(f"{each} cycles per entry")
    assert each <= 8


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_what_is_dropped_finishes_behind_what_came_before(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    await bench.create_ring(0, 5)
    bench.create_qp(1, 0, 1)  # CQ 1 has no ring
    for written, dropped in ((1, 1), (3, 2), (0, 3), (5, 1)):
        before = bench.finished.count
        bench.memory.held = True
        for _ in range(written):
            bench.send.put(bench.completion(1, 0, 0))
        await cycles(dut, 300)
        for _ in range(dropped):
            bench.receive.put(bench.completion(1, 1, 0))
        await cycles(dut, 300)
        assert bench.finished.count - before == (0 if written else dropped)
        bench.memory.held = False
        await cycles(dut, 600)
        assert bench.finished.count == bench.accepted.count == before + written + dropped
        while bench.poll(0):
            pass
        await bench.ring_doorbell(0)


@cocotb.test(timeout_time=12, timeout_unit="ms")
async def check_a_full_ring_takes_no_more(dut):
    """Of completions and of events; full at its last entry, and then at one in the middle."""
    log2, more = int(parameter("LOG2")), 3
    bench = Bench(dut, seeded_random())
    await start_clock_and_reset(dut)
    bench.memory.always_ready, bench.memory.latency = True, (4, 4)
    size = 1 << log2
    sources = ((0, bench.send), (EVENTS, bench.event))
    for ring, _ in sources:
        await bench.create_ring(ring, log2)
    bench.create_qp(1, 0, 1)
    items = {
        0: [bench.completion(1, 0, i & 0xFFFF) for i in range(size + more)],
        EVENTS: [bench.error(2) for _ in range(size + more)],
    }
    for ring, source in sources:
        source.put_all(items[ring])
    await cycles(dut, 10 * (size + more) + 100)
    assert bench.accepted.count == bench.finished.count == 2 * (size + more)
    assert int(dut.dropped_events.value) == more
    errors = await bench.overflow.get_many(len(bench.overflow))
    assert errors and all((e["qp"], e["cause"]) == (1, Cause.CQ_OVERFLOW) for e in errors)
    # So many fit as were consumed, and no more.
    taken = max(1, size // 8)
    for ring, source in sources:
        for item in items[ring][:taken]:
            assert same(bench.poll(ring), item)
        await bench.ring_doorbell(ring)
        source.put_all(items[ring][:taken])
    await cycles(dut, 10 * taken + 100)
    assert not len(bench.overflow) and int(dut.dropped_events.value) == more
    for ring, source in sources:
        source.put(items[ring][0])
    assert (await bench.overflow.get())["qp"] == 1
    await cycles(dut, 100)
    assert int(dut.dropped_events.value) == more + 1
    for ring, _ in sources:
        for item in items[ring][taken:size] + items[ring][:taken]:
            assert same(bench.poll(ring), item)
        assert bench.poll(ring) is None
