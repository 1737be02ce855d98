"""The FPDU store keeps every committed word until it is released, also when it is full."""

from collections import deque

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.fpdu_store import MARGIN_WORDS, FpduStore
from stagecoach.gateware.mpa.ports import StorePort
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.support.runner import run_cocotb

CONFIG = RnicConfig()
WORDS = CONFIG.fpdu_store_octets // 8
WRITES_AFTER_FULL = 8
# The store is filled until it is full, then emptied until so many words are in use, in turns.
EMPTY_TO = (WORDS // 2, 0)


def test_fpdu_store():
    run_cocotb(FpduStore(CONFIG), __name__)


class Bench:
    """Drives every input at random; words have the number of all words before them."""

    def __init__(self, dut, rng):
        self.dut, self.rng = dut, rng
        self.words = {}
        self.next = self.verified = self.released = 0
        # What the outputs must be: one, three and LATENCY + 1 edges after an edge.
        self._address, self._used = deque([0]), deque([0, 0, 0])
        self._read = deque([None] * (StorePort.LATENCY + 1))
        self.full_cycles = self.compared = self.rewound = 0

    @property
    def used(self):
        return self.next - self.released

    async def cycle(self, *, writing, releasing, longest_release):
        """One cycle; `writing` and `releasing` are probabilities."""
        dut, rng = self.dut, self.rng
        await RisingEdge(dut.clk)
        assert int(dut.writer__address.value) == self._address.popleft() % WORDS
        full = bool(dut.writer__full.value)
        assert full == (self._used.popleft() >= WORDS - MARGIN_WORDS)
        self.full_cycles = self.full_cycles + 1 if full else 0
        word = self._read.popleft()
        if word is not None:
            self.compared += 1
            assert int(dut.data.value) == word

        self._address.append(self.next)
        self._used.append(self.used)
        readable = range(self.released, self.verified)
        number = rng.choice(readable) if readable else None
        self._read.append(self.words.get(number))
        write = self.full_cycles <= WRITES_AFTER_FULL and rng.random() < writing
        commit = rng.random() < 0.1
        rewind = not commit and rng.random() < 0.01
        release = rng.random() < releasing
        value = rng.getrandbits(64)
        commit_end = rng.randint(self.verified, self.next)
        release_end = rng.randint(
            self.released, min(self.verified, self.released + longest_release)
        )
        dut.address.value = (number or 0) % WORDS
        dut.writer__write.value, dut.writer__word.value = int(write), value
        dut.writer__commit.value, dut.writer__commit_end.value = int(commit), commit_end % WORDS
        dut.writer__rewind.value = int(rewind)
        dut.free.value = int(release)
        dut.free_end.value = release_end % WORDS

        if release:
            for number in range(self.released, release_end):
                del self.words[number]
            self.released = release_end
        if rewind:
            self.rewound += self.next - self.verified
            self.next = self.verified
        elif write:
            self.words[self.next] = value
            self.next += 1
        if commit:
            self.verified = commit_end
        assert self.used <= WORDS


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_committed_words_are_kept_until_released(dut):
    for name in ("writer__write", "writer__commit", "writer__rewind", "free"):
        getattr(dut, name).value = 0
    await start_clock_and_reset(dut)
    bench = Bench(dut, seeded_random())
    for limit in EMPTY_TO:
        while bench.full_cycles < 2 * WRITES_AFTER_FULL:
            releasing = 0.02 if bench.used < WORDS - 1000 else 0
            await bench.cycle(writing=0.98, releasing=releasing, longest_release=20)
        while bench.used > limit:
            await bench.cycle(writing=0.3, releasing=0.3, longest_release=200)
    assert bench.next > WORDS
    assert bench.compared > WORDS
    assert bench.rewound > 100
