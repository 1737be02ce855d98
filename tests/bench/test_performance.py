"""The page of figures and curves, from results that are made up."""

import json

import pytest

from bench import scaling, speed
from bench.catalogue import FIGURES as CASES
from bench.curves import FAMILIES
from bench.limits import port_limit, wire_limit
from bench.many_qps import PATTERNS, SLOW_MEMORY, figure_key
from bench.performance import page
from bench.plots import AREA as AREA_FILE
from bench.plots import FIGURES, cycles_per_message, octets_per_cycle, write_area_plots, write_plots
from bench.required import MANY_QPS, REQUIRED

SIZES, QPS, LATENCIES = FAMILIES
BESIDE = [name for name in CASES if "beside" in name]


def results_of(cycles):
    """Of every point 100 messages, which take `cycles(octets)` each."""
    return {
        curve.key: {
            str(point.x): {
                "octets": 100 * point.case.options["octets"],
                "messages": 100,
                "cycles": 100 * cycles(point.case.options["octets"]),
            }
            for point in curve.points
        }
        for family in FAMILIES
        for curve in family.curves
    }


# RFC 5044, 4.1 and RFC 5041, 4.2: 2 + 14 + 0 + 4 octets for an FPDU without payload; 1440 fill one
# of 1460 octets, and 1441 take a second one of 24 with its pad.
@pytest.mark.parametrize(
    "octets, fpdus, segments", [(8, 28, 1), (1440, 1460, 1), (1441, 1484, 2), (2880, 2920, 2)]
)
def test_limits(octets, fpdus, segments):
    assert port_limit(octets) == pytest.approx(8 * octets / fpdus)
    assert wire_limit(octets) == pytest.approx(8 * octets / (fpdus + 78 * segments))


def test_smallest_fpdu_takes_12_25_cycles_of_the_wire():
    assert 8 / wire_limit(8) - 1 == pytest.approx(12.25)


def test_values_of_a_curve():
    results = results_of(lambda octets: 10 + octets // 8)
    (curve, *_) = SIZES.curves
    assert octets_per_cycle(curve, results)[:3] == [0, 8 / 11, 64 / 18]
    assert cycles_per_message(curve, results)[:3] == [10, 11, 18]


def test_page_has_figures_plots_and_a_sentence_for_each_curve():
    figures = {"send_8_rx_cycles_per_message": 74.5, "write_0_rx_cycles_per_message": 5.0}
    text = page(figures, results_of(lambda octets: 100 + octets / 7.95), {})
    assert "| `send_8_rx_cycles_per_message` | 74.5 | at most 12 | 4 | not met |" in text
    assert "| `write_0_rx_cycles_per_message` | 5.0 | at most 12 | 3 | met |" in text
    for family in FAMILIES:
        assert f"figures/performance/{family.name}.svg" in text
        for curve in family.curves:
            assert f"- {curve.label}: " in text
    assert "{" not in text


def test_sentence_says_where_a_curve_leaves_the_limit():
    text = page({}, results_of(lambda octets: 100 + octets / 7.9), {})
    assert "- RDMA Write, sent: within 5 % of the port's limit from 32KiB on. " in text
    assert "An empty message takes 100.0 cycles." in text
    near = page({}, results_of(lambda octets: octets / port_limit(octets) if octets else 2.5), {})
    assert (
        "- RDMA Write, sent: within 5 % of the port's limit at every size. "
        "An empty message takes 2.5 cycles."
    ) in near


def test_sentence_about_qps_looks_at_all_of_them():
    results = results_of(lambda octets: 10)
    same = "10.0 to 10.0 cycles, which is within 10 %"
    assert page({}, results, {}).count(same) == len(QPS.curves)
    results["write_64_tx"]["4"]["cycles"] = 500
    text = page({}, results, {})
    assert text.count(same) == len(QPS.curves) - 1
    assert "- RDMA Write of 64 bytes, sent: 5.0 to 10.0 cycles. 4 QPs at a time have" in text


def test_page_has_the_figures_over_qps_beside_those_of_the_wire():
    figures = dict.fromkeys(MANY_QPS, 12.6) | {figure_key(PATTERNS[1], 16, SLOW_MEMORY): 20.5}
    figures |= dict.fromkeys(BESIDE, 10.0)
    text = page(figures, results_of(lambda octets: 100), {})
    low = " | ".join(["12.6, not met"] * 5)
    assert f"| Send of 8 bytes, received | {low} | 12.5 | 13.75 |" in text
    assert f"| RDMA Write of 64 bytes, sent | {' | '.join(['12.6'] * 5)} | 16.5 | 20.25 |" in text
    assert "| Send of 8 bytes, received | 20.5, not met | 12.6 | 12.6 | 20 | 13.75 |" in text
    assert text.count("| its LLP window is shut |") == 2
    assert "| Send of 8 bytes, sent | 10 | 10 | 12.6, not met |" in text
    assert "| 12.6, not met | 12.5 | 13.75 |\n" in text
    for latency in (100, 320):
        assert f"### Cycles per message, LLP latency {latency} cycles\n" in text
    met = sum(requirement.met(figures[name]) for name, requirement in MANY_QPS.items())
    assert f"{met} of the {len(MANY_QPS)} figures in these tables" in text


def test_figures_over_qps_are_not_in_the_table_of_all_others():
    figures = dict.fromkeys(REQUIRED, 5.0) | dict.fromkeys(BESIDE, 10.0)
    text = page(figures, results_of(lambda octets: 100), {})
    for name in REQUIRED:
        assert (f"| `{name}` |" in text) == (name not in MANY_QPS)


def test_latency_sentence_says_up_to_where_it_is_hidden():
    results = results_of(lambda octets: octets / port_limit(octets) if octets else 1)
    results["write_long_tx"]["1000"]["cycles"] *= 2
    text = page({}, results, {})
    assert (
        "Reads of 4,096 bytes, answered: within 5 % of the port's limit at every latency." in text
    )
    assert (
        "- RDMA Writes of 92,160 bytes, sent: within 5 % of the port's limit up to 500 cycles. "
        "At 1,000 cycles it has 3.95 bytes per cycle."
    ) in text


def test_page_has_the_simulators_of_one_run():
    figures = {key: 1000.0 * number for number, key in enumerate(speed.KEYS, 1)}
    text = page(figures, results_of(lambda octets: 100), {})
    assert "| compiled device | 1,000 |  |" in text
    assert "uses\n5000 microseconds" in text
    assert "| Icarus | 6,000 | 14,000 |" in text
    assert "| Amaranth's own | 10,000 | 15,000 |" in text
    assert "## Simulation" not in page({}, results_of(lambda octets: 100), {})


def test_plots_are_files_that_say_nothing_of_when_they_were_made(tmp_path):
    paths = write_plots(results_of(lambda octets: 100 + octets), tmp_path)
    assert sorted(path.name for path in paths) == sorted(f"{each.name}.svg" for each in FAMILIES)
    for path in paths:
        assert path.stat().st_size > 1000
        assert "<dc:date>" not in path.read_text()


AREA = {
    "by_qps": {
        "2": {"lut4": 20_000, "ff": 10_000, "dp16kd": 100, "fmax_mhz": 120.5},
        "64": {"lut4": 26_200, "ff": 16_200, "dp16kd": 110},
    },
    "by_data_width_bits": {
        "32": {"lut4": 26_350, "ff": 16_190, "dp16kd": 110},
        "64": {"lut4": 26_200, "ff": 16_200, "dp16kd": 110},
    },
}


def test_page_has_the_area_for_each_number_of_qps_and_each_width(tmp_path):
    text = page({}, results_of(lambda octets: 100), AREA)
    assert "| 2 | 20000 | 10000 | 100 | 120.5 |" in text
    assert text.count("| 64 | 26200 | 16200 | 110 |  |") == 2
    assert "was not placed" in text
    assert "Each further QP takes 100 LUT4, 100 flip-flops and 0.2 DP16KD" in text
    assert "With 32 bits: +150 LUT4 and -10 flip-flops, for the converters" in text
    assert "## Area" not in page({}, results_of(lambda octets: 100), {})
    write_area_plots(AREA, tmp_path)
    for key, label in (("by_qps", "QPs"), ("by_data_width_bits", "bits of data width")):
        assert f"({FIGURES.name}/{AREA_FILE.stem}_{key}.svg)" in text.replace("figures/", "")
        assert (tmp_path / f"{AREA_FILE.stem}_{key}.svg").read_text().count(label) == 2
    assert json.loads((tmp_path / AREA_FILE.name).read_text()) == AREA


def test_device_in_both_series_is_measured_once(monkeypatch):
    measured = []

    def measure(config, *_):
        measured.append(config)
        return {"lut4": config.qps, "ff": config.data_width, "dp16kd": 1}

    monkeypatch.setattr("bench.scaling.measure", measure)
    series = scaling.scale([8, 64], [32, 64], jobs=1, place=False)
    assert len(measured) == 3
    assert series["by_qps"]["64"] == series["by_data_width_bits"]["64"]
    assert series["by_data_width_bits"]["32"] == {"lut4": 64, "ff": 32, "dp16kd": 1}
    assert list(scaling.scale([], [32, 64], jobs=1, place=False)) == ["by_data_width_bits"]


def test_wrong_width(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["scaling", "--qps", "--widths", "32", "48"])
    with pytest.raises(SystemExit):
        scaling.main()
    assert "48 (choose from 32, 64, 128)" in capsys.readouterr().err


def test_no_sizes_at_all(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["scaling", "--qps", "--widths"])
    with pytest.raises(SystemExit):
        scaling.main()
    assert "--qps and --widths are both empty" in capsys.readouterr().err


def test_wrong_number_of_qps(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["scaling", "--qps", "3", "8"])
    assert scaling.main() == 1
    assert "RnicConfig.qps is 3; allowed: a power of two from 2 to 256" in capsys.readouterr().err


def test_one_number_of_qps_is_no_curve(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["scaling", "--qps", "8", "8"])
    with pytest.raises(SystemExit):
        scaling.main()
    assert "--qps 8; allowed: two or more numbers" in capsys.readouterr().err
