"""The test support itself: a two-entry buffer passes, and a broken one is found out."""

import cocotb
import cocotb_tools.config
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.hw import cache
from stagecoach.sim.cosim import runner
from stagecoach.sim.cosim.runner import BuildError, build
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from tests.support.runner import CocotbFailure, parameter, run_cocotb

WORD = data.StructLayout(
    {
        "data": 64,
        "part": data.StructLayout({"last": 1, "offset": 3}),
        "lanes": data.ArrayLayout(2, 3),
    }
)


class Buffer(wiring.Component):
    """Two-entry buffer; `broken` makes it change a payload that waits."""

    i: In(stream.Signature(WORD))
    o: Out(stream.Signature(WORD))

    def __init__(self, *, broken: bool = False) -> None:
        self._broken = broken
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        spare = Signal(WORD)
        spare_full = Signal()
        m.d.comb += self.i.ready.eq(~spare_full)
        with m.If(self.o.ready | ~self.o.valid):
            with m.If(spare_full):
                m.d.sync += self.o.payload.eq(spare)
            with m.Else():
                m.d.sync += self.o.payload.eq(self.i.payload)
            m.d.sync += [self.o.valid.eq(spare_full | self.i.valid), spare_full.eq(0)]
        with m.Elif(self.i.valid & self.i.ready):
            m.d.sync += [spare.eq(self.i.payload), spare_full.eq(1)]
            if self._broken:
                m.d.sync += self.o.payload.eq(self.i.payload)
        return m


@pytest.mark.parametrize("pattern", ["always", "random", "bursty"])
def test_buffer_passes(pattern):
    run_cocotb(Buffer(), __name__, test_filter="check_", parameters={"PATTERN": pattern})


def test_buffer_passes_under_icarus():
    run_cocotb(Buffer(), __name__, parameters={"PATTERN": "random"}, simulator="icarus")


def test_broken_buffer_is_found_out():
    with pytest.raises(CocotbFailure, match="payload changed"):
        run_cocotb(Buffer(broken=True), __name__, parameters={"PATTERN": "random"})


def test_waveform_is_written():
    run = run_cocotb(
        Buffer(), __name__, test_filter="one_word", parameters={"PATTERN": "always"}, waves=True
    )
    assert (run / "dut.fst").stat().st_size > 100


def test_filter_that_matches_nothing_fails():
    with pytest.raises(CocotbFailure):
        run_cocotb(Buffer(), __name__, test_filter="no_such_check")


def test_a_space_in_the_path_of_the_cache_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path / "with space"))
    with pytest.raises(BuildError, match=f"space, and the cache is '{tmp_path}/with space'; name"):
        build(Buffer())


def test_a_build_is_told_and_what_is_built_is_not(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path))
    build(Buffer(), ports_only=True)
    out, told = capsys.readouterr()
    begin, *steps, end = told.splitlines()
    assert begin.startswith("stagecoach: building the simulator of Buffer: takes some seconds,")
    assert [step.split("s: ")[1] for step in steps] == ["export Verilog", "compile with verilator"]
    assert end.startswith("stagecoach: the simulator of Buffer is built: ")
    assert not out
    build(Buffer(), ports_only=True)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_a_simulator_runs_for_who_did_not_build_it(simulator, tmp_path, monkeypatch):
    """The cache is shared by all environments of a user; that of the builder may be gone."""
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path))
    built = build(Buffer(), simulator=simulator, ports_only=True)
    room = sum(path.stat().st_size for path in built.iterdir())
    assert room < 2 << 20, f"{room} bytes: intermediate files are left in {built}"
    here = str(cocotb_tools.config.libs_dir).encode()
    for path in built.iterdir():
        path.write_bytes(path.read_bytes().replace(here, b"/" + b"x" * (len(here) - 1)))
    run_cocotb(
        Buffer(),
        __name__,
        simulator=simulator,
        test_filter="check_",
        parameters={"PATTERN": "always"},
    )


@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_a_simulator_is_for_one_compiler_and_machine(simulator, tmp_path, monkeypatch):
    """A folder that two machines share has one for each; Icarus compiles for none."""
    keys = []

    def kept(kind, key, wanted, make, waits):
        keys.append(key)
        return tmp_path / wanted

    monkeypatch.setattr(cache, "kept", kept)
    for machine in ("x86_64", "x86_64", "aarch64"):
        monkeypatch.setattr(runner, "compiled_by", lambda compiler, name=machine: name)
        build(Buffer(), simulator=simulator)
    assert keys[0] == keys[1]
    assert (keys[0] == keys[2]) == (simulator == "icarus")


def test_pack_and_unpack_are_inverse():
    fields = {"data": 5, "part": {"last": 1, "offset": 6}, "lanes": [1, 2, 3]}
    bits = pack(WORD, fields)
    assert bits == 5 | 1 << 64 | 6 << 65 | 0b111001 << 68
    assert unpack(WORD, bits) == fields
    assert unpack(4, pack(4, 9)) == 9


def test_pack_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match=r"payload\.part\.offset is 8, allowed: 0 to 7"):
        pack(WORD, part={"offset": 8})
    with pytest.raises(ValueError, match="no field 'lost'"):
        pack(WORD, lost=1)


def _random_words(rng, count):
    return [unpack(WORD, rng.getrandbits(74)) for _ in range(count)]


@cocotb.test(timeout_time=100, timeout_unit="us")
async def check_words_arrive_in_order(dut):
    rng = seeded_random()
    source = StreamSource(dut, "i", WORD, rng=rng, pattern=parameter("PATTERN"))
    sink = StreamSink(dut, "o", WORD, rng=rng, pattern=parameter("PATTERN"))
    StreamMonitor(dut, "i")
    monitor = StreamMonitor(dut, "o", WORD)
    await start_clock_and_reset(dut)
    sent = _random_words(rng, 200)
    source.put_all(sent)
    assert await sink.get_many(len(sent)) == sent
    await source.wait_idle()
    assert monitor.items == sent
    if parameter("PATTERN") == "always":
        assert monitor.cycles < len(sent) + 8


@cocotb.test(timeout_time=10, timeout_unit="us")
async def check_one_word(dut):
    source = StreamSource(dut, "i", WORD)
    sink = StreamSink(dut, "o", WORD)
    await start_clock_and_reset(dut)
    word = {"data": 1, "part": {"last": 1, "offset": 2}, "lanes": [0, 1, 2]}
    await source.send(word)
    assert await sink.get() == word
