"""`make mutate` draws the same changes again, knows which are changes of the hardware and who
looks at them, takes only failed checks for kills, and keeps what it found."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.hw.rtlil import export
from tools.mutate import __main__ as command
from tools.mutate import points
from tools.mutate.designs import designs_of
from tools.mutate.explained import BadExplanations, read_explanations
from tools.mutate.judge import KILLED, NOT_BUILT, SAME, SURVIVED, Result
from tools.mutate.nearest import imports, nearest, slow_tests
from tools.mutate.netlist import flat_fingerprint, is_same, modules
from tools.mutate.operators import OURS
from tools.mutate.points import Change, change, draw, places
from tools.mutate.verdict import kind

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("operator", OURS)
def test_operators_make_of_their_examples_what_they_say(operator: Any) -> None:
    for example in operator.examples():
        choices = itertools.chain.from_iterable(places(example.pre_mutation_code).values())
        texts = [
            change("f", example.pre_mutation_code, what).text
            for what in choices
            if what[0] == operator.__name__
        ]
        assert texts == [example.post_mutation_code]


def test_annotations_and_messages_are_not_changed() -> None:
    source = '''
"""1 + 1"""
x: In(8)
y: Out(3 + 4) = None
def f(a: 1 | 2, b: int = 5) -> 3 | 4:  # 6 + 7
    raise ValueError(f"{a + 1}", 8)
'''
    assert {line for line, _ in places(source)} == {5}
    texts = {change("f", source, what).after for what in places(source)[5, 25]}
    assert texts == {
        "def f(a: 1 | 2, b: int = 6) -> 3 | 4:  # 6 + 7",
        "def f(a: 1 | 2, b: int = 4) -> 3 | 4:  # 6 + 7",
    }


def _project(folder: Path) -> Path:
    (folder / "gateware").mkdir()
    (folder / "gateware" / "short.py").write_text("a = b + 1\n")
    (folder / "gateware" / "long.py").write_text("\n".join(f"a{n} = {n}" for n in range(99)))
    return folder


def test_a_seed_draws_the_same_changes_and_each_once(tmp_path: Path) -> None:
    root = _project(tmp_path)
    first, again, other = (list(draw(root, seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert len({(c.file, c.text) for c in first}) == len(first) == len(other)
    assert set(first) == set(other)
    # 99 of 100 lines are there.
    assert sum(c.file == "gateware/short.py" for c in first[:20]) < 5


def test_a_change_tells_its_lines() -> None:
    source = "x = [\n    a.eq(\n        b\n    ),\n    c,\n]\n"
    (what,) = (w for w in places(source)[2, 4] if w[0] == "DropAssignment")
    found = change("f.py", source, what)
    assert (found.line, found.before, found.after) == (2, "a.eq( b ),", "[],")
    assert found.name == "f.py:2: a.eq( b ), -> [],"


class Counter(wiring.Component):
    enable: In(1)
    other: In(1)
    value: Out(8)
    changed: Out(1)

    def __init__(self, step: int = 1, first: int = 0, names: str = "", swaps: bool = False) -> None:
        super().__init__()
        self._step, self._first, self._names, self._swaps = step, first, names, swaps

    def elaborate(self, platform: object) -> Module:
        m = Module()
        more = [Signal(8, name=f"{self._names}value") for _ in self._names]
        for signal in more:
            m.d.comb += signal.eq(self.value ^ 3)
        count = Signal(8, init=self._first, name=self._names or "count")
        enable, other = (self.other, self.enable) if self._swaps else (self.enable, self.other)
        with m.If(enable):
            m.d.sync += count.eq(count + self._step)
        m.d.comb += [self.value.eq(count), self.changed.eq(enable & ~other)]
        return m


@pytest.mark.parametrize(
    ("arguments", "same"),
    [
        ({}, True),
        ({"names": "abc"}, True),
        ({"step": 2}, False),
        ({"first": 1}, False),
        ({"swaps": True}, False),
    ],
)
def test_netlists_differ_when_the_logic_does(
    arguments: dict[str, Any], same: bool, tmp_path: Path
) -> None:
    one, other = (modules(export(Counter(**a), "top")) for a in ({}, arguments))
    assert is_same(one, other, tmp_path) == same


def test_numbers_of_names_make_no_other_netlist(tmp_path: Path) -> None:
    text = export(Counter(), "top")
    again = re.sub(r"\$(\d+)", lambda match: f"${int(match[1]) + 100}", text)
    assert is_same(modules(text), modules(again), tmp_path)


class Wide(wiring.Component):
    """Drives one bit of `flags`; the others stay 0."""

    def __init__(self, width: int) -> None:
        super().__init__({"enable": In(1), "flags": Out(width)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.flags.eq(self.enable)
        return m


class Reader(wiring.Component):
    enable: In(1)
    some: Out(1)

    def __init__(self, width: int = 1, bit: int = 0) -> None:
        super().__init__()
        self._width, self._bit = width, bit

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.wide = wide = Wide(self._width)
        chosen = wide.flags.any() if self._bit == 0 else wide.flags[self._bit]
        m.d.comb += [wide.enable.eq(self.enable), self.some.eq(chosen)]
        return m


def test_a_bit_that_nothing_drives_makes_no_other_netlist(tmp_path: Path) -> None:
    plain, wider, other = (modules(export(Reader(*a), "top")) for a in ((), (2,), (2, 1)))
    assert not is_same(plain, wider, tmp_path)
    digests = [flat_fingerprint(design, tmp_path) for design in (plain, wider, other)]
    assert digests[0] == digests[1] != digests[2]


def test_nearest_tests_mirror_the_file_then_use_it_then_use_the_device() -> None:
    graph = imports(ROOT)
    found = nearest(graph, "gateware/mpa/crc32c.py")
    assert found.mirrored == ("tests/mpa/test_crc32c.py",)
    assert {"tests/mpa/test_framer.py", "tests/mpa/test_deframer.py"} <= set(found.users)
    assert found.users[0].startswith("tests/mpa/")
    assert found.whole[0].startswith("tests/integration/")
    assert len(set(found.all)) == len(found.all)
    # What is slow comes last.
    slow = slow_tests(ROOT)
    later = nearest(graph, "gateware/mpa/crc32c.py", slow).whole
    assert set(later) == set(found.whole)
    is_slow = [test in slow for test in later]
    assert is_slow == sorted(is_slow) and len(set(is_slow)) == 2
    assert not any(test.startswith("tests/hw") for test in found.all)


def test_a_file_of_the_host_link_has_its_tests() -> None:
    found = nearest(imports(ROOT), "gateware/hostlink/llp_bridge.py")
    assert found.mirrored == ("tests/hostlink/test_llp_bridge.py",)
    assert "tests/hostlink/test_link.py" in found.all
    assert all(test.startswith("tests/hostlink/") for test in found.all)


def test_a_block_that_no_device_has_is_a_design_of_its_own() -> None:
    """What is changed in it would be the same netlist everywhere else, and no mutant."""
    graph = imports(ROOT)
    assert designs_of("gateware/tcp/congestion.py", graph)[0] == "congestion"
    assert "receive side" in designs_of("gateware/tcp/segment_verdict.py", graph)
    assert designs_of("gateware/mpa/framer.py", graph)[0] == "rnic"
    assert designs_of("gateware/hostlink/uart.py", graph) == ["board", "serial nic"]
    assert not nearest(graph, "gateware/tcp/congestion.py").whole
    alone = [
        file
        for file in graph
        if file.startswith("gateware/") and not file.endswith("/__init__.py")
        if not designs_of(file, graph)
    ]
    assert not alone, "in no netlist that is compared"


@pytest.mark.parametrize(
    ("text", "trace", "expected"),
    [
        ("AssertionError: assert 1 == 2", ["tests/mpa/test_a.py"], "check"),
        ("AssertionError: 3", ["tests/t.py", "amaranth/sim/_pyrtl.py", "tests/t.py"], "check"),
        (
            "stagecoach.sim.cosim.runner.CocotbFailure: 1 of 3 cocotb tests failed",
            ["tests/t.py"],
            "check",
        ),
        ("Failed: Timeout (>300.0s) from pytest-timeout.", ["tests/t.py"], "timeout"),
        ("RuntimeError: building Framer with verilator failed", ["tests/t.py"], "build"),
        ("stagecoach.sim.build.BuildError: verilator", ["tests/t.py"], "build"),
        ("ValueError: 3", ["tests/t.py", "gateware/mpa/framer.py"], "build"),
        ("AssertionError: 3", ["tests/t.py", "gateware/mpa/framer.py"], "build"),
        ("TypeError: 3", ["tests/t.py", "gateware/a.py", "amaranth/hdl/_ast.py"], "build"),
        ("CocotbFailure: ... %Error: dut.v: did not converge", ["tests/t.py"], "build"),
    ],
)
def test_a_failure_of_a_build_is_no_check(text: str, trace: list[str], expected: str) -> None:
    assert kind(text, trace) == expected


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(command, "RESULTS", tmp_path / "mutants.json")

    def make(wanted: int = 2, seed: int = 1) -> command.Book:
        return command.Book(seed, wanted)

    return make


def _drawn(number: int) -> Change:
    return Change("gateware/a.py", number, "", f"a{number}", "b", f"text {number}")


def test_results_are_kept_and_survivors_are_judged_again_when_a_test_changed(
    book: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = book()
    for number, verdict in enumerate((NOT_BUILT, KILLED, SAME, SURVIVED, KILLED)):
        first.add(number, _drawn(number), Result(verdict, tests=["t"]))
    written = json.loads((tmp_path / "mutants.json").read_text())
    assert (written["mutants"], written["killed"], written["equivalent"]) == (2, 1, 0)
    assert (written["not_counted_not_built"], written["not_counted_same_netlist"]) == (1, 1)
    (survivor,) = written["survivors"]
    assert (survivor["file"], survivor["line"], survivor["change"]) == (
        "gateware/a.py",
        3,
        "a3 -> b",
    )
    assert all(book().known(number, _drawn(number)) for number in range(5))
    assert not book(seed=2).known(1, _drawn(1))
    monkeypatch.setattr(command, "_digest", lambda folders: f"{len(folders)}" * 3)
    assert not book().known(1, _drawn(1))
    again = book()
    again.add(1, _drawn(1), Result(KILLED))
    again.add(2, _drawn(2), Result(SURVIVED))
    monkeypatch.setattr(command, "_digest", lambda folders: "222" if len(folders) == 2 else "new")
    assert book().known(1, _drawn(1))
    assert not book().known(2, _drawn(2))


def test_an_explained_survivor_is_no_error(
    book: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    explained = tmp_path / "explained.toml"
    monkeypatch.setattr(command, "read_explanations", lambda: read_explanations(explained))
    explained.write_text("")
    changes = iter(_drawn(number) for number in range(2))

    def judged(given: command.Book, *_: object) -> None:
        for number, one in enumerate(changes):
            given.add(number, one, Result(SURVIVED if number else KILLED))

    monkeypatch.setattr(command, "run", judged)
    assert command.main(["--mutants", "2"]) == 1
    said = capsys.readouterr().out
    assert "1 of 2 mutants killed (50.0 %)" in said
    assert "gateware/a.py:1: a1 -> b\n    not explained" in said
    explained.write_text(
        '[[mutant]]\nfile = "gateware/a.py"\nchange = "a1 -> b"\nequivalent = true\nreason = "so"\n'
    )
    changes = iter(_drawn(number) for number in range(2))
    assert command.main(["--mutants", "2"]) == 0
    assert "1 of the others equivalent" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["[[mutant]]\nfile = 'a'\n", "x ="])
def test_bad_explanations_are_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "explained.toml"
    file.write_text(text)
    with pytest.raises(BadExplanations, match=r"explained\.toml"):
        read_explanations(file)


def test_explanations_of_the_project_are_about_its_gateware() -> None:
    for file, text in read_explanations():
        assert " -> " in text
        assert (ROOT / file).is_file(), file


@pytest.mark.parametrize("arguments", [["--mutants", "0"], ["--seed", "x"], ["--jobs", "-1"]])
def test_bad_arguments_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2
    assert f"invalid number '{arguments[1]}' (expected 1 or more)" in capsys.readouterr().err


def test_operators_have_no_chance_of_their_own() -> None:
    assert not any("Variable" in name for name in points.OPERATORS)
