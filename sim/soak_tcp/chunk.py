"""A chunk: so many segments of two NICs on one wire; what soaking is divided into."""

import contextlib
import faulthandler
import os
import random
import traceback
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

from stagecoach.gateware.config import RnicConfig
from stagecoach.host_driver import Context, network_registers
from stagecoach.hw.interface.network_entries import FrameFate
from stagecoach.sim.network.nic import SimulatedNic
from stagecoach.sim.network.timeline import CycleTime
from stagecoach.sim.soak_tcp.frames import SegmentLog
from stagecoach.sim.soak_tcp.report import Report
from stagecoach.sim.soak_tcp.traffic import QPTraffic, StreamTraffic, Traffic

CONFIG = RnicConfig(qps=8)
CONNECTIONS = 6
"""That are open at once; those that end stay in the engine for a while."""

_ADDRESSES = "192.0.2.1", "192.0.2.2"
_PORT = 7
_PATIENCE_SECONDS = 30.0
"""Of the wall's time, for threads on a machine that does other things: no time passes meanwhile."""

_IDLE_CYCLES = 200_000
"""More than the least retransmission timeout."""

_ENDED_ROUNDS = 200

HUNG_SECONDS = 3600
"""Of a chunk in a process of its own, which ends then, and tells where its threads are."""


class NumbersNearTheWrap:
    """Initial sequence numbers up to 64 KiB below 2^32, or 2^31, for half of all connections."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def choose(
        self, local: tuple[IPv4Address, int], remote: tuple[IPv4Address, int], now_us: int
    ) -> int:
        """As that of `SequenceNumbers`."""
        rng = self._rng
        near = rng.choice((1 << 32, 1 << 31)) - rng.randrange(1 << 16)
        return rng.choice((near, rng.getrandbits(32))) % (1 << 32)


def _options(rng: random.Random) -> str:
    """Of the wire: all impairments, each with another probability."""
    mtu = rng.choice((576, 576, 1500, 1500, 1006))
    chances = "".join(
        f"&{name}={rng.uniform(0.001, 0.012):.4f}"
        for name in ("loss", "duplicate", "reorder", "corrupt")
    )
    return f"&mtu={mtu}&delay_us={rng.choice((1, 5, 20))}{chances}"


class Pair:
    """Two NICs and their connections. A context manager.

    Parameters
    ----------
    name: of the wire, no other process has it. library: of the NIC of `CONFIG`, or `None`.
    """

    def __init__(self, rng: random.Random, name: str, library: Path | None) -> None:
        self.report = Report(chunks=1)
        self._rng = rng
        self._time = CycleTime(_PATIENCE_SECONDS)
        self._logs: list[SegmentLog] = []
        self._nics: list[SimulatedNic] = []
        self._contexts: list[Context] = []
        self._stack = contextlib.ExitStack()
        options = _options(rng)
        with self._stack:
            for address in _ADDRESSES:
                self._open(f"sim://?wire=pair:{name}&ip={address}/24{options}", library)
            self._traffic = self._connect()
            self._stack = self._stack.pop_all()

    def _open(self, address: str, library: Path | None) -> None:
        # Of each direction frames have another fate.
        seed = self._rng.getrandbits(32)
        address += f"&tcp=engine&rto_min_ms=1&seed={seed}"
        nic = SimulatedNic(address, CONFIG, time=self._time, library=library)
        self._nics.append(nic)
        self._contexts.append(self._stack.enter_context(Context(nic)))
        log = SegmentLog()
        with self._time.lock:
            log.received = nic._card.log.received
            nic._card.log = log
        self._logs.append(log)
        nic.stack._connections.openings._numbers = NumbersNearTheWrap(  # type: ignore[assignment]
            random.Random(self._rng.getrandbits(32))
        )

    def _connect(self) -> list[Traffic]:
        contexts = self._contexts[0], self._contexts[1]
        nics = self._nics[0], self._nics[1]
        listener = self._stack.enter_context(nics[1].listen("", _PORT))
        made: list[Traffic] = []
        for number in range(CONNECTIONS):
            rng = random.Random(self._rng.getrandbits(32))
            if number % 2:
                made.append(StreamTraffic(nics, _ADDRESSES[1], listener, rng))
            else:
                made.append(QPTraffic(nics, contexts, _ADDRESSES[1], _PORT + 1 + number, rng))
        return made

    def __enter__(self) -> "Pair":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def segments(self) -> int:
        """That both NICs have sent."""
        return sum(log.counts["segments"] for log in self._logs)

    def run(self, segments: int) -> None:
        """Rounds of all connections until so many segments were sent."""
        while self.segments < segments:
            order = self._rng.sample(self._traffic, len(self._traffic))
            for each in order:
                each.begin()
            for each in order:
                self.report.octets += each.finish()

    def end(self) -> None:
        """End all connections, and see that nothing is left of them."""
        for each in self._traffic:
            each.close()
        nic = self._nics[0]
        for _ in range(_ENDED_ROUNDS):
            if not any(each.info for nic in self._nics for each in nic.stack.connections()):
                break
            nic.run_cycles(_IDLE_CYCLES)
        else:
            raise AssertionError("the engines still have connections that have ended")
        nic.run_cycles(_IDLE_CYCLES)
        self._check_frames()

    def _check_frames(self) -> None:
        """No frame is missing in the NICs' counts, and no corrupted one was taken for good."""
        for nic in self._nics:
            faults = nic.statistics()["faults"]
            assert not faults, f"the ports of the NIC were not used as they have to be: {faults}"
            counts = network_registers.NETWORK_FAULTS
            told = counts.unpack(nic.read_register(counts.address))
            assert not any(told.values()), f"memory failed: {told}"
        self.count()
        fates, wire = self.report.fates, self.report.wire
        arrived = wire["arrived"]
        assert fates.total() == arrived, f"{arrived} frames arrived, {fates.total()} are counted"
        bad = arrived - fates["SEGMENT"] - fates["RAW"] - fates["FULL"]
        most = 2 * wire["corrupted"]  # a corrupted frame may be duplicated
        assert bad <= most, f"{bad} frames were bad, {wire['corrupted']} were corrupted"

    def describe(self) -> Iterator[str]:
        """What is known of connections and of the last frames, after a failure."""
        for nic in self._nics:
            yield f"{nic.address.text}: {nic.stack.counters}"
            yield from map(str, nic.stack.connections())
            for each in nic.network.frame_heads():
                way = "sent" if each.sent else "came"
                yield f"{each.time_us} us: {way}, {each.octets} octets, {each.head.hex()}"

    def count(self) -> None:
        """Take all counts into the report."""
        report = self.report
        report.cycles = self._time.cycles
        report.connections = sum(
            each.opened if isinstance(each, StreamTraffic) else 1 for each in self._traffic
        )
        report.segments = sum((log.counts for log in self._logs), start=report.segments)
        report.wire["arrived"] = sum(log.received for log in self._logs)
        for nic in self._nics:
            report.driver.update(nic.stack.counters)
            report.wire.update(nic._wire.counts)
            for fate in FrameFate:
                nic.write_register(network_registers.NETWORK_FRAME_FATE.address, fate)
                seen = nic.read_register(network_registers.NETWORK_FRAMES_SEEN.address)
                if seen:
                    report.fates[fate.name] += seen


def run_chunk(seed: int, chunk: int, segments: int, library: Path | None = None) -> Report:
    """Runs a chunk; what is not as it has to be is in the report's `failures`."""
    rng = random.Random(f"soak-tcp {seed} {chunk}")
    report = Report(chunks=1)
    try:
        with Pair(rng, f"soak-{os.getpid()}-{seed}-{chunk}", library) as pair:
            report = pair.report
            try:
                pair.run(segments)
                pair.end()
            except Exception:
                report.failures.append("\n".join((traceback.format_exc(), *pair.describe())))
    except Exception:
        report.failures.append(traceback.format_exc())
    report.failures = [f"SEED={seed}, chunk {chunk}:\n{text}" for text in report.failures]
    return report


def run_watched(seed: int, chunk: int, segments: int, library: Path) -> Report:
    """As `run_chunk`, in a process that ends if the chunk does not."""
    faulthandler.dump_traceback_later(HUNG_SECONDS, exit=True)
    try:
        return run_chunk(seed, chunk, segments, library)
    finally:
        faulthandler.cancel_dump_traceback_later()
