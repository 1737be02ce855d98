"""`stagecoach perf` without a device: limits, sizes, options, table and plot."""

import dataclasses
import itertools
import json

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from stagecoach.cli.main import main
from stagecoach.cli.perf.command import show
from stagecoach.cli.perf.latency import Latencies, histogram
from stagecoach.cli.perf.limit import Framing
from stagecoach.cli.perf.notes import END, Asked, Part, Receives, parse_note, parse_receives
from stagecoach.cli.perf.operations import OPERATIONS, Remote
from stagecoach.cli.perf.plot import _draw
from stagecoach.cli.perf.result import Point, Result
from stagecoach.cli.perf.settings import (
    MAXIMUM_OUTSTANDING,
    PerfError,
    Plan,
    ServerPlan,
    pack_remote,
    unpack_remote,
)
from stagecoach.cli.perf.sizes import parse_sizes
from stagecoach.cli.perf.table import latency_table, table_of
from stagecoach.sim.model.ddp import (
    TAGGED_HEADER_OCTETS,
    UNTAGGED_HEADER_OCTETS,
    segment_tagged,
    segment_untagged,
)
from stagecoach.sim.model.mpa import frame_fpdu, mulpdu

WRITE, READ, SEND, ATOMIC = (OPERATIONS[name] for name in ("write", "read", "send", "atomic"))
FRAMING = Framing(1460)
LATENCIES = Latencies((700, 690, 800))


# The limit of the protocol


@pytest.mark.parametrize(
    ("emss", "markers", "expected"),
    [
        (1460, False, 1454),
        (1460, True, 1442),
        (536, True, 522),
        (8960, True, 8882),
        (128, False, 128),
        (65535, False, 64768),
    ],
)
def test_the_mulpdu_is_that_of_rfc_5044(emss, markers, expected):
    assert Framing(emss, markers).mulpdu == expected


@pytest.mark.parametrize(
    ("operation", "octets", "there", "back"),
    [
        # Length 2, header 14, one octet, pad 3, CRC 4.
        (WRITE, 1, 24, 0),
        (WRITE, 64, 84, 0),
        # One FPDU of 1440 octets of payload; one octet more is another FPDU.
        (WRITE, 1440, 1460, 0),
        (WRITE, 1441, 1460 + 24, 0),
        # 22 full FPDUs and one of 1088 octets of payload.
        (WRITE, 32 << 10, 22 * 1460 + 1108, 0),
        # Header 18: 1436 octets fill an FPDU.
        (SEND, 1, 28, 0),
        (SEND, 1436, 1460, 0),
        (SEND, 1437, 1460 + 28, 0),
        # A Read Request is 52 octets, and more than its answer up to 32 octets.
        (READ, 1, 52, 24),
        (READ, 32, 52, 52),
        (READ, 33, 52, 56),
        (READ, 1441, 52, 1484),
        # Header 18 and 52 octets of request; header 18 and 12 of response.
        (ATOMIC, 8, 76, 36),
    ],
)
def test_octets_on_the_wire_are_those_counted_by_hand(operation, octets, there, back):
    wire = operation.wire(FRAMING, octets)
    assert (wire.there, wire.back) == (there, back)
    assert wire.messages_per_cycle == 8 / max(there, back)


def test_markers_are_4_of_512_octets():
    wire = WRITE.wire(Framing(1460, markers=True), 1428)
    # 1428 + 14 octets of segment are the MULPDU; the FPDU without Markers has 1448.
    assert wire.there == pytest.approx(1448 * 512 / 508)


@pytest.mark.parametrize("emss", [128, 536, 1460, 8960, 65535])
@pytest.mark.parametrize("octets", [1, 2, 3, 4, 113, 1000, 1436, 1440, 70_000])
def test_octets_on_the_wire_are_those_of_the_reference_model(emss, octets):
    framing, payload = Framing(emss), bytes(octets)
    tagged = segment_tagged(payload, stag=1, tagged_offset=0, mulpdu=mulpdu(emss, False))
    untagged = segment_untagged(payload, qn=0, msn=1, mulpdu=mulpdu(emss, False))
    for segments, header in ((tagged, TAGGED_HEADER_OCTETS), (untagged, UNTAGGED_HEADER_OCTETS)):
        assert framing.message(octets, header) == sum(len(frame_fpdu(each)) for each in segments)


# Sizes and plans


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("64", (64,)),
        ("4KiB,1,1000,1", (1, 1000, 4096)),
        ("1-16", (1, 2, 4, 8, 16)),
        ("32KiB-128KiB,3", (3, 1 << 15, 1 << 16, 1 << 17)),
        ("16MiB-16MiB", (1 << 24,)),
    ],
)
def test_sizes_are_lists_and_ranges_of_powers_of_two(text, sizes):
    assert parse_sizes(text) == sizes


def test_a_plan_has_enough_messages_and_not_too_many():
    def messages(size: int, depth: int = 16, qps: int = 1) -> int:
        return Plan(WRITE, (size,), depth, qps, FRAMING).messages_of(size)

    assert messages(1) == 1024
    assert messages(4096) == 128
    assert messages(1 << 16) == 32  # twice as many as are outstanding
    assert messages(1 << 16, depth=128) == 32  # twice those of 1 MiB
    assert messages(1 << 20, depth=128) == 16
    assert messages(1 << 20, depth=128, qps=63) == 126  # two on each QP
    assert messages(1, depth=128) == 1024
    assert messages(1, depth=16, qps=63) == 2016
    assert messages(1, depth=MAXIMUM_OUTSTANDING) == MAXIMUM_OUTSTANDING
    assert Plan(WRITE, (1,), 16, 1, FRAMING, 5).messages_of(1) == 5


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_the_server_learns_what_it_needs(operation):
    plan = Plan(operation, (1, 1000), 4, 3, Framing(1460, True), 100)
    told = ServerPlan.unpack(plan.for_server().pack())
    assert told == plan.for_server()
    assert (told.operation, told.qps) == (operation.name, 3)
    assert told.octets == 1000 + (16 if operation is ATOMIC else 0)  # three targets
    assert told.receives == (34 if operation is SEND else 0)
    assert (told.emss, told.markers) == (1460, True)


def test_the_server_learns_where_its_own_messages_go():
    plan = Plan(SEND, (1000,), 4, 1, FRAMING, 8, latency_messages=300, pingpong=True)
    told = ServerPlan.unpack(plan.for_server(Remote(1 << 63, 5)).pack())
    assert told.back == Remote(1 << 63, 5)
    assert (told.receives, told.depth) == (300, 1)
    both = Plan(SEND, (1000,), 4, 2, FRAMING, 9, latency_messages=1, bidirectional=True)
    told = ServerPlan.unpack(both.for_server(Remote(1, 5)).pack())
    assert (told.receives, told.depth, told.back) == (5, 4, Remote(1, 5))
    assert ServerPlan.unpack(plan.for_server().pack()).back is None


@pytest.mark.parametrize("part", Part)
def test_a_note_that_asks_for_a_part_is_no_number_of_receives(part):
    for asked in (Asked(part, MAXIMUM_OUTSTANDING, 16 << 20), Asked(part, 1, 1)):
        assert parse_note(asked.note) == asked
        assert MAXIMUM_OUTSTANDING + 63 < asked.note < END
    assert parse_note(0) is parse_note(MAXIMUM_OUTSTANDING + 63) is parse_note(END) is None


@pytest.mark.parametrize("posted", [0, MAXIMUM_OUTSTANDING + 63])
@pytest.mark.parametrize("taken", [0, 1, (1 << 30) - 1])
def test_a_note_says_how_many_messages_come_before_it_counts(posted, taken):
    wanted = Receives(posted, taken)
    assert parse_receives(wanted.note) == wanted
    assert parse_note(wanted.note) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"qps": 0}, "0 QPs; allowed: 1 to 63"),
        ({"qps": 64}, "64 QPs; allowed: 1 to 63"),
        ({"octets": 1 << 25}, "33554432 bytes; allowed: 1 to 16777216"),
        ({"receives": 10_000}, "10000 receives; allowed: 0 to"),
        ({"emss": 127}, "127 bytes of EMSS; allowed: 128 to 65535"),
        ({"depth": 0}, "0 messages outstanding; allowed: 1 to 8192"),
        ({"depth": 4097, "qps": 2}, "8194 messages outstanding; allowed: 2 to 8192"),
    ],
)
def test_a_server_refuses_what_it_cannot_give(change, message):
    plan = {
        "operation": "send",
        "qps": 1,
        "octets": 1,
        "receives": 1,
        "emss": 1460,
        "markers": False,
    }
    with pytest.raises(PerfError, match=message):
        ServerPlan.unpack(ServerPlan(**{**plan, **change}).pack())


@pytest.mark.parametrize("octets", [b"", b"rping", bytes(40), b"perf 1", bytes(508)])
def test_other_private_data_is_refused(octets):
    with pytest.raises(PerfError, match="allowed: a perf client"):
        ServerPlan.unpack(octets)
    with pytest.raises(PerfError, match="allowed: a perf server"):
        unpack_remote(octets)
    assert unpack_remote(pack_remote(Remote(1 << 63, 5))) == Remote(1 << 63, 5)


# Options


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: OPERATION"),
        (["fly"], "invalid choice: 'fly'"),
        (["write", "-s", "-c"], "not allowed with argument -s"),
        (["write", "-c"], "-c without -a; allowed: -c with -a and the address of the server"),
        (["write", "-a", "localhost"], "-a or -p without -s or -c"),
        (["write", "-p", "1"], "-a or -p without -s or -c"),
        (["write", "-s", "-p", "65536"], "port is 65536; allowed: 0 to 65535"),
        (["write", "-s", "--sizes", "1"], "--sizes with -s; allowed: at the client"),
        (["write", "-s", "--markers"], "--markers with -s; allowed: at the client"),
        (["write", "--sizes", ""], "invalid size '' (expected a size such as"),
        (["write", "--sizes", "1,x"], "invalid size 'x' (expected a size such as"),
        (["write", "--sizes", "0"], "size is 0; allowed: 1 to 16MiB"),
        (["write", "--sizes", "17MiB"], "size is 17MiB; allowed: 1 to 16MiB"),
        (["write", "--sizes", "1-3"], "range of sizes is 1-3; allowed: from a power of two"),
        (["write", "--sizes", "4-2"], "range of sizes is 4-2; allowed: from a power of two"),
        (["atomic", "--sizes", "8,4KiB"], "--sizes is 8,4KiB with atomic; allowed: 8, the bytes"),
        (["atomic", "--sizes", "1-8"], "--sizes is 1,2,4,8 with atomic; allowed: 8, the bytes"),
        (["atomic", "-s", "--sizes", "8"], "--sizes with -s; allowed: at the client"),
        (["write", "--depth", "0"], "depth is 0; allowed: 1 to 8192"),
        (["write", "--qps", "64"], "QPs is 64; allowed: 1 to 63"),
        (["write", "--depth", "200", "--qps", "63"], "200 messages on each of 63 QPs; allowed"),
        (["write", "--messages", "none"], "messages is none; allowed: 1 to 8192"),
        (["read", "--pingpong"], "--pingpong with read; allowed: with write and send"),
        (["atomic", "--pingpong"], "--pingpong with atomic; allowed: with write and send"),
        (["write", "-s", "--pingpong"], "--pingpong with -s; allowed: at the client"),
        (
            ["send", "--qps", "63", "--latency-messages", "1000"],
            "1000 latency messages with 63 QPs, each with as many receives; allowed: 8192",
        ),
        (["write", "-s", "--histogram"], "--histogram with -s; allowed: at the client"),
        (["write", "-s", "--latency-messages", "1"], "--latency-messages with -s; allowed"),
        (["write", "--latency-messages", "0"], "latency messages is 0; allowed: 1 to 8192"),
        (["write", "--emss", "127"], "EMSS is 127; allowed: 128 to 65535"),
        (["write", "--clock", "0"], "clock is 0; allowed: above 0 to 10000 MHz"),
        (["write", "--clock", "nan"], "clock is nan; allowed: above 0 to 10000 MHz"),
        (["write", "--json", "/no/such/x.json"], "cannot write /no/such/x.json: /no/such is no"),
        (["write", "--json", "/"], "cannot write /: it is a directory"),
        (["write", "--plot", "/no/such/x"], "cannot write /no/such/x.png: /no/such is no"),
        (["write", "--plot", "."], "--plot is .; allowed: a path that ends with a name"),
        (["write", "--plot", "/"], "--plot is /; allowed: a path that ends with a name"),
        (["write", "--plot", "n" * 300], "n.png: File name too long"),
        (["write", "--json", "n" * 300], "n: File name too long"),
        (["write", "--json", "n" * 300 + "/x"], "n/x: File name too long"),
    ],
)
def test_bad_options_are_one_line_and_status_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["perf", *arguments])
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and err.endswith("\n")
    assert message in err


@pytest.mark.parametrize("operation", OPERATIONS)
def test_help_says_what_is_measured(operation, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["perf", operation, "--help"])
    assert caught.value.code == 0
    out, _ = capsys.readouterr()
    text = " ".join(out.split())
    assert "cycles of the client's device" in text
    assert "from the doorbell of its post to the interrupt of its completion" in text


# What is shown


def result(sizes: tuple[int, ...] = (1, 1 << 10, 1 << 24), clock: float = 100.0) -> Result:
    plan = Plan(WRITE, sizes, 8192, 1, FRAMING)
    points = []
    for size in sizes:
        limit = WRITE.wire(FRAMING, size).messages_per_cycle
        points.append(Point(size, 8192, round(16384 / limit), limit / 2, limit, LATENCIES))
    return Result(plan, clock, points)


def test_rates_follow_from_cycles_and_the_clock():
    found = result((1440,))
    (point,) = found.points
    assert point.octets_per_cycle == pytest.approx(1440 / 1460 * 4)
    assert point.limit_octets_per_cycle == pytest.approx(1440 / 1460 * 8)
    assert found.gbit_per_second(point) == pytest.approx(3.2 * 1440 / 1460)
    assert found.messages_per_second(point) == pytest.approx(4e8 / 1460)
    twice = result((1440,), 200.0)
    assert twice.messages_per_second(point) == pytest.approx(8e8 / 1460)


def test_the_table_fits_80_columns(capsys):
    Console(width=80).print(table_of(result()))
    out = capsys.readouterr().out
    assert "…" not in out
    assert "RDMA Write, queue depth 8192 on 1 QP, EMSS 1460" in out
    assert "16MiB" in out and "16,666,667" in out


def test_the_table_of_a_device_with_a_network_says_what_is_not_counted(capsys):
    words = "Cycles in which the device waits for its network are not counted."
    card = dataclasses.replace(result(), device="sim://?wire=pair:a&ip=192.0.2.1/24")
    Console(width=80).print(table_of(result()), table_of(card))
    assert capsys.readouterr().out.count(words) == 1


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_the_limit_is_near_the_top_of_its_plot(operation):
    sizes = (8, 1 << 16) if operation.size is None else (operation.size,)
    limits = [operation.wire(FRAMING, size).messages_per_cycle for size in sizes]
    points = [
        Point(size, 16, round(32 / limit), limit / 2, limit, LATENCIES)
        for size, limit in zip(sizes, limits, strict=True)
    ]
    panels = Figure().subplots(1, 3)
    _draw(Result(Plan(operation, sizes, 16, 1, FRAMING), 100.0, points), *panels)
    most = points[-1].limit_octets_per_cycle
    assert most < panels[0].get_ylim()[1] < 1.3 * most


@pytest.mark.parametrize(("longest", "lines"), [(1030, 1), (1040, 3)])
def test_percentiles_that_the_median_would_hide_are_not_plotted(longest, lines):
    point = Point(8, 16, 100, 0.1, 0.2, Latencies((1000, 1000, longest)))
    panels = Figure().subplots(1, 3)
    _draw(Result(Plan(OPERATIONS["write"], (8,), 16, 1, FRAMING), 100.0, [point]), *panels)
    assert len(panels[2].lines) == lines


def test_percentiles_are_by_nearest_rank():
    found = Latencies(tuple(range(2000, 0, -1)))
    assert (found.least, found.median, found.average, found.most) == (1, 1000, 1000.5, 2000)
    assert [found.per_mille(rank) for rank in (1, 500, 990, 999, 1000)] == [
        2,
        1000,
        1980,
        1998,
        2000,
    ]
    few = Latencies((7,))
    assert (few.median, few.per_mille(990), few.per_mille(999), few.average) == (7, 7, 7, 7)
    # 99 of 100 do not exceed the second longest.
    assert Latencies(tuple(range(100))).per_mille(990) == 98
    assert Latencies(tuple(range(100))).per_mille(999) == 99
    for rank in (0, 1001):
        with pytest.raises(ValueError, match=f"rank is {rank} per mille; allowed: 1 to 1000"):
            few.per_mille(rank)


@pytest.mark.parametrize("values", [(5,), (5, 5, 6), tuple(range(0, 5000, 7)), (1, 10**6)])
def test_each_latency_is_in_one_bin(values):
    bins = Latencies(values).bins()
    assert len(bins) <= 12
    assert bins[0][0] == min(values) and bins[-1][0] <= max(values) <= bins[-1][1]
    for (_, last, _), (first, _, _) in itertools.pairwise(bins):
        assert first == last + 1
    for first, last, count in bins:
        assert count == sum(first <= each <= last for each in values)


def test_a_histogram_has_bars_as_long_as_messages_are_many():
    assert histogram([10] * 80 + [12]) == "\n".join(
        ["  10      80  " + "#" * 40, "  11       0", "  12       1  #"]
    )


def test_the_latency_table_has_percentiles_and_microseconds(capsys):
    Console(width=80).print(latency_table(result((64,))))
    out = capsys.readouterr().out
    assert "…" not in out
    row = next(line for line in out.splitlines() if line.split()[:1] == ["64"])
    assert row.split() == ["64", "690", "700", "730.0", "800", "800", "800", "7.000"]


def test_histograms_are_shown_if_wanted(tmp_path, capsys):
    show(result((8, 64)), tmp_path / "one", None, histograms=True)
    out = capsys.readouterr().out
    assert out.count("cycles, messages\n") == 2 and "Latencies of 64: " in out
    show(result((8,)), tmp_path / "one", None)
    assert "cycles, messages\n" not in capsys.readouterr().out


def test_a_single_size_is_plotted(tmp_path):
    show(result((8,)), tmp_path / "one", None)
    assert "protocol limit" in (tmp_path / "one.svg").read_text()


def test_plots_and_figures_are_written(tmp_path, capsys):
    show(result(), tmp_path / "perf.write", tmp_path / "perf.json")
    assert (tmp_path / "perf.write.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    svg = (tmp_path / "perf.write.svg").read_text()
    for words in ("protocol limit", "payload, bytes per cycle", "latency, cycles", "16MiB"):
        assert words in svg
    found = json.loads((tmp_path / "perf.json").read_text())
    assert (found["operation"], found["clock_mhz"], found["queue_depth"]) == ("write", 100.0, 8192)
    assert [point["size"] for point in found["points"]] == [1, 1 << 10, 1 << 24]
    first = found["points"][0]
    assert (first["latency_least"], first["latency"], first["latency_most"]) == (690, 700, 800)
    assert (first["latency_average"], first["latency_99"]) == (730, 800)
    assert first["latencies"] == [700, 690, 800]
    assert found["points"][0]["messages_per_second"] == pytest.approx(1e8 / 6)
    out = capsys.readouterr().out
    assert out.count("Written: ") == 3
    # The same figures are the same file.
    show(result(), tmp_path / "again", None)
    assert (tmp_path / "again.svg").read_text() == svg
