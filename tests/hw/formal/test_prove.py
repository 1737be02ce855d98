"""A proof fails for a block that is broken, with inputs that show it, and only then."""

import importlib
import inspect
import io
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from amaranth.hdl import Signal
from amaranth.lib import memory
from rich.console import Console

from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.hw.cache import FOLDER_VARIABLE
from stagecoach.hw.formal import __main__ as command
from stagecoach.hw.formal import device, linear, paths
from stagecoach.hw.formal import prove as proving
from stagecoach.hw.formal import run as running
from stagecoach.hw.formal.harness import GATEWARE, Harness, Model
from stagecoach.hw.formal.properties import all_properties
from stagecoach.hw.formal.properties.atomic_arithmetic import PROPERTIES as ARITHMETIC
from stagecoach.hw.formal.property import PROMPT, Mutation, Property, in_harness
from stagecoach.hw.formal.prove import Mode, ProofError, Task, cached, last_values, prove
from stagecoach.hw.formal.run import Killed, Result, attempt, break_all, breaks
from stagecoach.sim.model.atomics import cmp_swap, fetch_add


def reference(values):
    original = values["original"]
    if values["operation"] == 0:
        return fetch_add(original, values["data"], values["mask"])
    if values["operation"] == 1:
        return values["data"]
    if values["operation"] == 2:
        given = (values[name] for name in ("data", "mask", "compare", "compare_mask"))
        return cmp_swap(original, *given)
    return original


def test_broken_block_has_a_counterexample():
    mutants = list(break_all({"atomic_arithmetic": ARITHMETIC}, 1))
    assert len(mutants) == len(ARITHMETIC) == 5
    for mutant in mutants:
        values = mutant.counterexample
        assert mutant.killed and mutant.reason == "does not hold from the reset"
        assert values["expected"] == reference(values)
        if mutant.name.startswith("memory is written"):
            assert values["operation"] == 2 and values["writes"]
            assert (values["compare"] ^ values["original"]) & values["compare_mask"]
        else:
            assert values["result"] != values["expected"]


def counter(limit, covered=5):
    """A register that counts up to `limit`, and the property that it is never above 5."""

    def build(h):
        count = Signal(4, name="count")
        with h.m.If(count != limit):
            h.m.d.sync += count.eq(count + 1)
        h.check("never above 5", count <= 5)
        h.show("shown", count)
        h.cover("reached", count == covered)

    return in_harness(build)()


def task(model, mode=Mode.INDUCTION, depth=2):
    return Task(model, mode, depth, PROMPT)


def test_property_that_holds_is_proved(tmp_path):
    assert prove(task(counter(5)), tmp_path).passed


def test_property_that_fails_from_the_reset_has_the_values_of_its_last_cycle(tmp_path):
    outcome = prove(task(counter(6), Mode.BOUNDED, 8), tmp_path)
    assert outcome.status == "FAIL"
    assert outcome.counterexample == {"assert_never_above_5": 0, "shown": 6}


def test_property_that_fails_from_a_state_that_is_not_reached_is_unknown(tmp_path):
    # It takes six cycles from the reset, but one from an arbitrary state.
    outcome = prove(task(counter(6), depth=2), tmp_path)
    assert outcome.status == "UNKNOWN"
    assert outcome.counterexample["shown"] == 6


def test_cover_that_is_out_of_reach_fails(tmp_path):
    assert prove(task(counter(5), Mode.COVER, 7), tmp_path).passed
    assert prove(task(counter(5), Mode.COVER, 4), tmp_path).status == "FAIL"


FAR = 1 << 39


def gate(kind="good"):
    """Counts to FAR and has a copy of the count, of which nothing is claimed; passes after it."""

    def build(h):
        count, copy = Signal(40, name="count"), Signal(40, name="copy")
        passes = Signal()
        h.m.d.sync += [count.eq(count + 1), copy.eq(0 if kind == "copy" else copy + 1)]
        h.m.d.comb += passes.eq((kind == "open") | (count >= FAR))
        with h.m.If(count == (1 << 40) - 1):
            h.m.d.sync += [count.eq(count), copy.eq(copy)]
        ever = Signal()
        h.m.d.sync += ever.eq(ever | passes)
        h.check("late", ~ever | (count >= FAR))
        h.invariant("same", copy == count)
        h.cover("passes", passes & ~h.past(passes) & h.started)

    model = in_harness(build)
    return Property("block", f"gate {kind}", model, (), reached=1, mutant_cycles=2)


@pytest.mark.parametrize("kind, killed", [("good", False), ("copy", False), ("open", True)])
def test_mutant_is_killed_by_a_claim_far_from_the_reset_and_not_by_an_invariant(
    kind, killed, tmp_path
):
    outcome = prove(breaks(gate(kind)), tmp_path)
    assert outcome.status == ("FAIL" if killed else "PASS")
    assert ("assert_late" in outcome.counterexample) == killed
    # The induction fails for both of them.
    induction = prove(task(gate(kind).build()), tmp_path)
    assert induction.passed == (kind == "good")


def test_mutant_without_an_induction_is_attempted_as_the_property_is():
    assert breaks(ARITHMETIC[0]).mode is Mode.INDUCTION  # of Verilog: no claim is known by name
    bounded = Property("block", "name", lambda: counter(5), (), bounded="because", covered=1)
    assert breaks(bounded).mode is Mode.BOUNDED


def test_assertions_of_one_name_are_told_apart():
    def build(h):
        for value in (0, 1):
            h.check("same name", value)

    assert in_harness(build)().claims == ("assert_same_name", "assert_same_name_2")


def test_event_far_from_the_reset_is_reached_from_a_state_that_the_assertions_allow(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(running, "BUILD", tmp_path)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    result = attempt(gate(), 60)
    assert (result.result, result.covers_met, result.covers_total) == ("proved", 1, 1)

    def never(h):
        held = Signal()
        h.m.d.sync += held.eq(held)
        h.check("low", ~held)
        h.cover("high", held)
        # From an arbitrary state the past is arbitrary, too: what is covered is a step.
        h.cover("rises", h.past(held))
        h.cover("low", ~held)

    unreached = Property("block", "never", in_harness(never), (), reached=1)
    result = attempt(unreached, 60)
    assert (result.result, result.covers_met, result.covers_total) == ("failed", 1, 3)
    assert result.counterexample == {"cover_high": 0, "cover_rises": 0}
    assert result.reason == "holds, but some of what it covers is not reached from any state"


def test_report_counts_what_was_reached_apart_from_what_was_proved(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "REPORT", tmp_path / "formal.json")
    results = [
        Result("a", "one", "proved", 1.0, covers_total=3, covers_met=3),
        Result("a", "two", "failed", 1.0, covers_total=2, covers_met=1),
        Result("b", "three", 12, 1.0),
    ]
    command.write_report(results)
    report = json.loads((tmp_path / "formal.json").read_text())
    del report["blocks"]
    assert report == {
        "properties_total": 3,
        "properties_proved": 1,
        "properties_bounded": 1,
        "covers_total": 5,
        "covers_met": 4,
    }


def test_what_passed_is_not_attempted_again(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    first = cached(task(counter(5)), tmp_path / "first")
    assert "PASS" in first.log.read_text()
    assert cached(task(counter(5)), tmp_path / "second") == first
    assert not (tmp_path / "second").exists()
    # Another model, and one that failed, are attempted.
    assert not cached(task(counter(6)), tmp_path / "third").passed
    failed = cached(task(counter(6)), tmp_path / "fourth")
    assert not failed.passed and failed.log == tmp_path / "fourth" / "log.txt"


def test_a_netlist_is_looked_at_again_when_streams_are_found_in_another_way(monkeypatch, tmp_path):
    finders = {Path(module.__file__) for module in (device, paths, linear)}
    assert finders == set(proving.FINDERS)
    monkeypatch.setattr(proving, "FINDERS", (tmp_path / "device.py",))
    looks = Task(counter(5), Mode.NETLIST, 0, "", partial(reference))
    digests = set()
    for text in ("one", "another"):
        (tmp_path / "device.py").write_text(text)
        digests.add(looks.digest())
    assert len(digests) == 2


def test_model_that_yosys_does_not_read_is_an_error(tmp_path):
    model = Model(files={"properties.il": "no RTLIL"}, script=("read_rtlil properties.il",))
    with pytest.raises(ProofError, match=r"sby ended with an error; see .*log\.txt"):
        prove(task(model), tmp_path)


def test_memory_word_that_is_read_while_it_is_written_may_be_anything(tmp_path):
    def build(h):
        store = memory.Memory(shape=1, depth=2, init=[], attrs=NO_COLLISION)
        h.m.submodules.store = store
        write, read = store.write_port(), store.read_port()
        h.m.d.comb += [write.en.eq(1), write.data.eq(0), read.en.eq(1)]
        h.check("the old word or the new one", read.data == 0)

    assert prove(task(in_harness(build)(), Mode.BOUNDED, 4), tmp_path).status == "FAIL"


def test_past_of_a_value_is_one_register():
    h = Harness()
    value, other = Signal(4), Signal(4)
    assert h.past(value) is h.past(value)
    assert h.past(h.past(value)) is h.past(h.past(value))
    assert h.past(value) is not h.past(other)
    assert h.past(value) is not h.past(value, init=1)


def test_bounded_property_needs_a_cover():
    with pytest.raises(ValueError, match="bounded, but nothing is covered"):
        Property("block", "name", counter, (), bounded="there is no invariant")


def test_every_property_has_a_mutation_and_a_block_of_gateware():
    for each in (each for those in all_properties().values() for each in those):
        assert each.mutations, each.key
        module = importlib.import_module(GATEWARE + each.block.rpartition(".")[0])
        assert hasattr(module, each.block.rpartition(".")[2]), each.key


def test_every_mutation_changes_one_place_of_a_module():
    for each in (each for those in all_properties().values() for each in those):
        for mutation in each.mutations:
            if isinstance(mutation, Mutation):
                source = inspect.getsource(importlib.import_module(mutation.module))
                assert source.count(mutation.old) == 1, (each.key, mutation)


def test_mutation_that_fits_nowhere_is_told():
    absent = replace(
        ARITHMETIC[0], mutations=(Mutation("stagecoach.gateware.stream.fork", "absent", ""),)
    )
    (mutant,) = break_all({"atomic_arithmetic": [absent]}, 1)
    assert not mutant.killed
    assert mutant.reason == "stagecoach.gateware.stream.fork has 'absent' 0 times; allowed: once"


def test_mutant_that_is_no_block_is_told_beside_the_others():
    module, old = (
        "stagecoach.gateware.rdmap.atomic.arithmetic",
        "given.data & ~given.mask & ~compares",
    )
    broken = replace(ARITHMETIC[0], mutations=(Mutation(module, old, "absent"),))
    fits_nowhere = replace(ARITHMETIC[1], mutations=(Mutation(module, "absent", ""),))
    mutants = {
        each.name: each for each in break_all({"atomic_arithmetic": [broken, fits_nowhere]}, 1)
    }
    assert not any(each.killed for each in mutants.values())
    assert mutants[broken.name].reason == (
        "cannot be built: NameError: name 'absent' is not defined"
    )
    assert fits_nowhere.name in mutants


def test_table_of_mutants_names_the_assertions_that_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "MUTANTS_REPORT", tmp_path / "mutants.json")
    values = {"assert_room": 0, "assert_order": 0, "item": 0}
    mutant = Killed("stream.fork.Fork", "name", "a -> b", True, 1.0, "does not hold", values)
    text = io.StringIO()
    command.show_mutants([mutant], Console(file=text, width=200))
    assert "does not hold: room, order" in text.getvalue()
    assert "item" not in text.getvalue()


def test_values_are_those_at_the_end_of_the_trace(tmp_path):
    trace = tmp_path / "trace.vcd"
    trace.write_text(
        "$scope module properties $end\n$var wire 4 ! data $end\n$var wire 1 # writes $end\n"
        "$scope module dut $end\n$var wire 4 % data $end\n$upscope $end\n$upscope $end\n"
        "$enddefinitions $end\n#0\nb0101 !\n1#\nb1111 %\n#10\nb1x10 !\n"
    )
    assert last_values(trace, ("writes", "data", "absent")) == {"writes": 1, "data": 0b1010}
