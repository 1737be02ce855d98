"""What decisions need of a connection at once: RFC 9293, 3.4, RFC 6298, 5 and RFC 5681, 4.1."""

from typing import Any

from amaranth.hdl import Value
from amaranth.sim import Simulator

from stagecoach.gateware.tcp.transmit_state import TRANSMIT_STATE
from stagecoach.gateware.tcp.transmit_status import TransmitStatus
from stagecoach.sim.cosim.streams import pack, seeded_random, unpack

SPACE = 1 << 32
RING = 1 << 30
"""Bytes that a connection has at most between SND.UNA and its end."""

CASES = 400


def test_numbers_and_times_at_random() -> None:
    """Positions count from SND.UNA, times from now: both may be near the end of all numbers."""
    dut, rng = TransmitStatus(), seeded_random()
    seen = dict.fromkeys(("outstanding", "newest", "waits", "quiet", "fin alone"), 0)

    async def bench(ctx: Any) -> None:
        state = Value.cast(dut.state)
        for _ in range(CASES):
            una = rng.choice([rng.getrandbits(32), SPACE - 1 - rng.randrange(4), 0])
            queued = rng.choice([0, 0, 1, 2, rng.randrange(RING), RING])
            closing = rng.getrandbits(1)
            most = queued + closing  # FIN counts
            following = rng.choice([0, queued, most, rng.randint(0, most), max(0, queued - 1)])
            highest = rng.choice([following, most, rng.randint(following, most)])
            now = rng.choice([rng.getrandbits(32), rng.randrange(3), SPACE - 1])
            timeout = rng.choice([0, 1, 200_000, rng.getrandbits(31), (1 << 31) - 1])
            rest = rng.choice([timeout, timeout + 1, max(0, timeout - 1), 0, SPACE - 1])
            random: Any = unpack(TRANSMIT_STATE, rng.getrandbits(TRANSMIT_STATE.size))
            random["numbers"] |= {
                "una": una,
                "next": (una + following) % SPACE,
                "max": (una + highest) % SPACE,
                "end": (una + queued) % SPACE,
                "closing": closing,
                "sent_at": (now - rest) % SPACE,
            }
            random["times"]["rto"]["timeout"] = timeout
            ctx.set(state, rng.getrandbits(TRANSMIT_STATE.size))
            ctx.set(dut.now, rng.getrandbits(32))
            await ctx.tick().repeat(2)

            ctx.set(state, pack(TRANSMIT_STATE, random))
            ctx.set(dut.now, now)
            await ctx.tick()
            expected = {
                "outstanding": highest > 0,
                "newest": following == highest,
                "waits": following < most,
                "expiry": (now + timeout) % SPACE,
            }
            found = {name: ctx.get(getattr(dut, name)) for name in expected}
            assert found == expected, (queued, closing, following, highest, now, timeout)
            await ctx.tick()
            quiet = rest > timeout
            assert ctx.get(dut.quiet) == quiet, (rest, timeout)
            for name in ("outstanding", "newest", "waits"):
                seen[name] += expected[name]
            seen["quiet"] += quiet
            seen["fin alone"] += closing and following == queued

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert all(CASES // 20 < count < CASES for count in seen.values()), seen
