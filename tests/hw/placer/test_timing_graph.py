"""When a value is there, and when it must be, is what the longest of all paths says."""

import pytest

from stagecoach.hw.placer.delays import Delays
from stagecoach.hw.placer.timing_graph import NEVER, TimingGraph
from stagecoach.sim.cosim.streams import seeded_random

GOAL = 5.0


def small():
    """A register, two LUTs one after the other, and two registers: what `TimingGraph` is told."""
    return Delays(
        wires={
            "one/A": ("from/Q", 0.3),
            "one/B": ("$PACKER_VCC/F", 90.0),
            "two/A": ("one/F", 0.4),
            "two/B": ("from/Q", 2.0),
            "to/DI": ("two/F", 0.1),
            "to/CE": ("one/F", 0.2),
            "to/CLK": ("buffer/CLKO", 50.0),
            "open/A": ("from/Q", 1.0),
        },
        through={
            "from/Q": [("from/CLK", 0.5), ("from/LSR", 70.0)],
            "one/F": [("one/A", 0.2), ("one/B", 0.2)],
            "two/F": [("two/A", 0.2), ("two/B", 0.3)],
            "unused/F": [("one/A", 80.0)],
        },
        setup={"to/DI": 0.0, "to/CE": 0.1, "other/DI": 60.0},
    )


def test_small_graph():
    graph = TimingGraph(small())
    graph.update(GOAL)
    inputs, outputs = graph.inputs, graph.outputs
    # Neither clocks nor constants are paths.
    assert set(inputs) == {"one/A", "two/A", "two/B", "to/DI", "to/CE", "open/A"}
    assert set(outputs) == {"from/Q", "one/F", "two/F"}
    arrival = {name: graph.arrival[number] for name, number in outputs.items()}
    assert arrival == {
        "from/Q": 0.5,
        "one/F": pytest.approx(0.5 + 0.3 + 0.2),
        "two/F": pytest.approx(0.5 + 2.0 + 0.3),
    }
    required = {name: graph.required[number] for name, number in inputs.items()}
    assert required == {
        "to/DI": GOAL,
        "to/CE": pytest.approx(GOAL - 0.1),
        "two/A": pytest.approx(GOAL - 0.1 - 0.2),
        "two/B": pytest.approx(GOAL - 0.1 - 0.3),
        "one/A": pytest.approx(GOAL - 0.1 - 0.2 - 0.4 - 0.2),
        "open/A": -NEVER,
    }
    assert graph.slack[inputs["two/B"]] == pytest.approx(GOAL - 0.1 - 0.3 - 2.0 - 0.5)
    assert graph.latest_input(outputs["two/F"]) == inputs["two/B"]
    assert graph.latest_input(outputs["from/Q"]) is None
    assert {*graph.sinks(outputs["one/F"])} == {inputs["two/A"], inputs["to/CE"]}
    assert [graph.level[outputs[name]] for name in ("from/Q", "one/F", "two/F")] == [0, 1, 2]
    ends, times = graph.ends()
    assert dict(zip(ends, times, strict=True)) == {
        inputs["to/DI"]: pytest.approx(2.8 + 0.1),
        inputs["to/CE"]: pytest.approx(1.0 + 0.2 + 0.1),
    }
    assert graph.slowest() == pytest.approx(2.9)


def test_nothing_is_slow_in_a_netlist_without_wires():
    graph = TimingGraph(Delays())
    graph.update(GOAL)
    assert graph.slowest() == 0


def random_delays(rng):
    """LUTs in any order, each with inputs from registers or LUTs of lower number."""
    registers, luts = rng.randint(1, 4), rng.randint(1, 12)
    sources = [f"r{number}/Q" for number in range(registers)]
    delays = Delays(
        through={name: [(name.replace("/Q", "/CLK"), rng.uniform(0.3, 0.6))] for name in sources}
    )
    for number in range(luts):
        arcs = []
        for port in "ABCD"[: rng.randint(1, 4)]:
            delays.wires[f"l{number}/{port}"] = rng.choice(sources), rng.uniform(0.1, 3.0)
            arcs.append((f"l{number}/{port}", rng.uniform(0.1, 0.4)))
        delays.through[f"l{number}/F"] = arcs
        sources.append(f"l{number}/F")
    for number in range(rng.randint(1, 6)):
        delays.wires[f"e{number}/DI"] = rng.choice(sources), rng.uniform(0.1, 3.0)
        delays.setup[f"e{number}/DI"] = rng.uniform(0.0, 0.2)
    wires = list(delays.wires.items())
    rng.shuffle(wires)
    delays.wires = dict(wires)
    return delays


def paths_to(delays, pin):
    """Lengths of all paths from the clock to an input."""
    source, wire = delays.wires[pin]
    for before, delay in delays.through[source]:
        if before.endswith("/CLK"):
            yield delay + wire
        else:
            yield from (length + delay + wire for length in paths_to(delays, before))


def paths_from(delays, pin):
    """Lengths of all paths from an input to the clock."""
    if pin in delays.setup:
        yield delays.setup[pin]
    for output, arcs in delays.through.items():
        for delay in (delay for before, delay in arcs if before == pin):
            for after, (source, wire) in delays.wires.items():
                if source == output:
                    yield from (delay + wire + length for length in paths_from(delays, after))


@pytest.mark.parametrize("salt", range(40))
def test_the_longest_of_all_paths_counts(salt):
    delays = random_delays(seeded_random(salt))
    graph = TimingGraph(delays)
    graph.update(GOAL)
    longest = []
    for pin, number in graph.inputs.items():
        before, after = max(paths_to(delays, pin)), max(paths_from(delays, pin), default=None)
        assert graph.arrival[graph.driver[number]] + graph.wire[number] == pytest.approx(before)
        if after is None:
            assert graph.required[number] > -NEVER / 2
        else:
            assert graph.required[number] == pytest.approx(GOAL - after)
            assert graph.slack[number] == pytest.approx(GOAL - before - after)
            longest.append(before + after)
    assert graph.slowest() == pytest.approx(max(longest))


def test_a_loop_is_cut_somewhere():
    delays = Delays(
        wires={
            "g/DI": ("d/F", 1.0),  # after the loop, and looked at first
            "d/A": ("b/F", 1.0),
            "a/A": ("s/Q", 1.0),
            "a/B": ("b/F", 1.0),
            "b/A": ("a/F", 1.0),
            "c/A": ("s/Q", 1.0),
            "b/B": ("c/F", 1.0),
            "e/DI": ("b/F", 1.0),
        },
        through={
            "s/Q": [("s/CLK", 0.5)],
            "a/F": [("a/A", 0.1), ("a/B", 0.1)],
            "b/F": [("b/A", 0.1), ("b/B", 0.1)],
            "c/F": [("c/A", 0.1)],
            "d/F": [("d/A", 0.1)],
        },
        setup={"e/DI": 0.0, "g/DI": 0.0},
    )
    graph = TimingGraph(delays)
    graph.update(5)
    ends, times = graph.ends()
    names = list(graph.inputs)
    shorter = 0.5 + 3 * 1.0 + 2 * 0.1
    assert {names[end]: time for end, time in zip(ends, times, strict=True)} == {
        "e/DI": pytest.approx(shorter),
        "g/DI": pytest.approx(shorter + 1.1),
    }
