"""`stagecoach perftest`: options, tables, and both sides as processes."""

import re
import signal
from collections.abc import Callable, Iterator

import pytest

from stagecoach.cli.main import main
from stagecoach.cli.perftest import show
from stagecoach.host_driver import Context, listen
from stagecoach.sim.transport import SimulatedDevice
from stagecoach.ulp.perftest.ends import Met, Settings
from stagecoach.ulp.perftest.messages import Destination
from stagecoach.ulp.perftest.results import Bandwidth, Latency
from stagecoach.ulp.perftest.tools import TOOLS
from tests.cli.processes import Process, Processes
from tests.ulp.perftest.foreign import Foreign

pytestmark = pytest.mark.usefixtures("compiled_device")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: TOOL"),
        (["ib_atomic_bw"], "argument TOOL: invalid choice: 'ib_atomic_bw'"),
        (["ib_write_bw", "-s", "0"], "size is 0; allowed: 1 to 8388608, K and M"),
        (["ib_write_bw", "-s", "9M"], "size is 9M; allowed: 1 to 8388608, K and M"),
        (["ib_write_bw", "-s", "-1"], "size is -1; allowed: 1 to 8388608, K and M"),
        (["ib_write_bw", "-s", "4KiB"], "size is 4KiB; allowed"),
        (["ib_write_bw", "-n", "4"], "iterations is 4; allowed: 5 to 100000000"),
        (["ib_write_bw", "-p", "65536"], "port is 65536; allowed: 0 to 65535"),
        (["ib_write_bw", "host", "-p", "0"], "port is 0; allowed at the client: 1 to 65535"),
        (["ib_write_bw", "-t", "0"], "tx-depth is 0; allowed: 1 to 8192"),
        (["ib_send_bw", "-r", "2"], "rx-depth is 2; allowed: 3 to 8192"),
        (["ib_read_bw", "-o", "0"], "outs is 0; allowed: 1 to 255"),
        (["ib_write_bw", "-Q", "x"], "cq-mod is x; allowed: 1 to 8192"),
        (["ib_write_bw", "--timeout", "0"], "timeout is 0; allowed: above 0 to 86400 s"),
        (["ib_write_bw", "--timeout", "nan"], "timeout is nan; allowed"),
        (["ib_write_bw", "host", "--source_ip", "::"], "--source_ip at the client; allowed: at"),
        (["ib_write_lat", "h", "--revision", "1"], "--revision 1 with ib_write_lat, whose client"),
        (["ib_write_bw", "-x", "3"], "unrecognized arguments: -x"),
    ],
)
def test_bad_options_are_one_line_and_status_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["perftest", *arguments])
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and err.endswith("\n")
    assert message in err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["ib_write_bw"], {"size": 65536, "iters": 5000, "tx_depth": 128, "port": 18515}),
        (["ib_send_lat", "h"], {"size": 2, "iters": 1000, "tx_depth": 50, "host": "h"}),
        (["ib_read_bw", "-R", "-s", "4K", "-n", "7", "-o", "3"], {"size": 4096, "outs": 3}),
        (["ib_read_bw", "--size", "2M", "--tx-depth", "9"], {"size": 1 << 21, "tx_depth": 9}),
        (["ib_write_lat", "h", "--no-peer-to-peer"], {"peer_to_peer": False}),
        (["ib_read_bw", "h", "--no-crc", "--revision", "1"], {"crc": False, "revision": 1}),
        (["ib_read_bw", "--markers"], {"crc": True, "markers": True, "revision": 2}),
        (["ib_write_lat"], {"peer_to_peer": None, "timeout": 120.0, "rx_depth": 512}),
    ],
)
def test_options_are_those_of_the_tools(arguments, expected, monkeypatch):
    from stagecoach.cli.perftest import command

    seen: list[Settings] = []
    monkeypatch.setattr(command, "perftest", lambda settings, _: seen.append(settings) or 0)
    assert main(["perftest", *arguments]) == 0
    (settings,) = seen
    assert settings.tool is TOOLS[arguments[0]]
    assert {name: getattr(settings, name) for name in expected} == expected


def test_the_tables_have_the_headings_of_the_tools_and_cycles():
    words = re.split(r"\s+", show.headings(TOOLS["ib_send_bw"]).strip())
    assert words == [
        *("#bytes", "#iterations", "BW", "peak[MB/sec]", "BW", "average[MB/sec]"),
        *("MsgRate[Mpps]", "cycles"),
    ]
    words = re.split(r"\s+", show.headings(TOOLS["ib_send_lat"]).strip())
    assert words == [
        *("#bytes", "#iterations", "t_min[usec]", "t_max[usec]", "t_typical[usec]"),
        *("t_avg[usec]", "t_stdev[usec]", "99%", "percentile[usec]"),
        *("99.9%", "percentile[usec]", "t_avg[cycles]"),
    ]


def test_a_row_has_a_cell_under_each_heading():
    row = show.row(Bandwidth(65536, 5000, 12.345, 11.0, 0.0001234, 987654))
    assert row.split() == ["65536", "5000", "12.35", "11.00", "0.000123", "987654"]
    headings = show.headings(TOOLS["ib_write_bw"])
    for heading, cell in (("#iterations", "5000"), ("BW average", "11.00"), ("cycles", "987654")):
        assert headings.index(heading) == row.index(cell)
    assert show.row(Bandwidth(1, 5, 0, 0, 0)).split()[-1] == "-"
    row = show.row(Latency(2, 1000, 1.5, 9.0, 2.0, 2.25, 0.5, 8.0, 8.5, 812.34))
    assert row.split() == [
        *("2", "1000", "1.50", "9.00", "2.00", "2.25", "0.50", "8.00", "8.50", "812.3")
    ]
    headings = show.headings(TOOLS["ib_write_lat"])
    assert headings.index("99.9%") == row.index("8.50")


@pytest.mark.parametrize(("hertz", "clock"), [(None, "none: simulated"), (50e6, "50 MHz")])
def test_the_clock_of_a_board_is_shown(hertz, clock):
    lines = show.header(Settings(TOOLS["ib_write_bw"], 64, 10, 10), "serial:///dev/x", hertz)
    assert f" Device clock    : {clock}" in lines


def test_both_addresses_are_shown():
    met = Met(Destination(qpn=3, rkey=0xABC, vaddr=0x7F00), Destination(psn=0x123456))
    local, remote = show.addresses(met)
    assert local.startswith(" local address: LID 0x00 QPN 0x0003 PSN 0x000000 ")
    assert local.endswith("RKey 0x00000abc VAddr 0x0000000000007f00")
    assert "PSN 0x123456" in remote


@pytest.fixture
def serve(processes: Processes) -> Callable[..., Process]:
    def start(*arguments: str) -> Process:
        return processes.start("perftest", *arguments, "-p", "0", "--source_ip", "127.0.0.1")

    return start


@pytest.fixture
def ask(processes: Processes) -> Callable[..., tuple[int, str, str]]:
    def run(tool: str, port: int, *options: str) -> tuple[int, str, str]:
        return processes.start("perftest", tool, "127.0.0.1", "-p", str(port), *options).end()

    return run


def port_of(server: Process) -> int:
    return server.await_port("stdout", "Waiting for a client at port")


@pytest.fixture
def context() -> Iterator[Context]:
    with Context(SimulatedDevice()) as context:
        yield context


class TestProcesses:
    """Two processes, joined by TCP."""

    pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

    @pytest.mark.parametrize("tool", TOOLS)
    def test_both_print_the_table_of_the_tool(self, serve, ask, tool):
        options = ["-s", "100", "-n", "9"]
        server = serve(tool, *options)
        port = port_of(server)
        status, out, err = ask(tool, port, *options)
        assert (status, err) == (0, "")
        lines = out.splitlines()
        assert lines[1].strip() == TOOLS[tool].title
        table = lines.index(show.headings(TOOLS[tool]))
        assert lines[table + 1].split()[:2] == ["100", "9"]
        assert lines[table + 2] == show.LINE and len(lines) == table + 3
        status, there, err = server.end()
        assert (status, err) == (0, "")
        assert show.headings(TOOLS[tool]) in there
        rows = [line for line in there.splitlines() if line.split()[:2] == ["100", "9"]]
        assert len(rows) == (0 if tool == "ib_read_lat" else 1)
        local, remote = (re.findall(rf"^ {name} address: (.*)$", out, re.M) for name in ENDS)
        assert [re.findall(rf"^ {name} address: (.*)$", there, re.M) for name in ENDS] == [
            remote,
            local,
        ]

    def test_no_server_is_one_line_and_status_1(self, ask, context):
        listener = listen(context)
        port = listener.port
        listener.close()
        status, _, err = ask("ib_write_bw", port)
        assert status == 1 and err.count("\n") == 1
        assert err.startswith("stagecoach perftest: ") and "refused" in err

    def test_another_version_is_one_line_and_status_1(self, serve, context):
        server = serve("ib_read_bw")
        port = port_of(server)
        with Foreign(context) as end:
            end.call(port)
            end.tell(b"5.96" + bytes(12))
        status, _, err = server.end()
        assert status == 1
        assert err == (
            "stagecoach perftest: the peer's version of perftest is "
            "'5.96'; allowed: '6.06', that of perftest 4.5+0.17\n"
        )

    def test_a_silent_client_is_one_line_and_status_1(self, serve, context):
        server = serve("ib_read_bw", "--timeout", "1")
        port = port_of(server)
        with Foreign(context) as end:
            end.call(port)
            status, _, err = server.end()
        assert status == 1
        assert err == ("stagecoach perftest: the peer's version: nothing from the peer in 1 s\n")

    def test_an_interrupted_server_ends(self, serve):
        server = serve("ib_send_lat")
        port_of(server)
        server.process.send_signal(signal.SIGINT)
        status, _, err = server.end()
        assert (status, err) == (130, "stagecoach perftest: interrupted\n")


ENDS = ("local", "remote")
