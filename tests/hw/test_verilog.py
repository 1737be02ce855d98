"""The exported Verilog file as a black box: lint without a warning, a Write and a Read."""

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import cocotb
import pytest
import yaml
from amaranth.lib import wiring
from cocotb.task import bridge
from cocotb_tools.runner import get_runner

from stagecoach.cli.main import main
from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.nic import RnicNic
from stagecoach.gateware.rnic import Rnic
from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    Context,
    QPInitAttr,
    SendWR,
    WROpcode,
    registers,
)
from stagecoach.host_driver.counters import CounterWord, query_qp
from stagecoach.host_driver.errors import DeviceError
from stagecoach.hw import cache
from stagecoach.hw.verilog import (
    MODULE,
    NIC_MODULE,
    OptionError,
    device_verilog,
    parse_device,
    parse_prefix,
    parse_sizes,
    start_processes,
)
from stagecoach.hw.verilog_notes import STATE_NAMES
from stagecoach.hw.verilog_top import exported_interfaces, top_module
from stagecoach.sim.cosim.device import CocotbDevice, Link, start_clock
from stagecoach.sim.cosim.runner import NOT_OPTIMISED
from stagecoach.sim.verilator import verilator_environment

ROOT = Path(__file__).resolve().parents[2]
SMALL = RnicConfig(qps=4, cqs=4, stags=16, counters=False)
OCTETS = 3000
EMSS = 1460


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    path = tmp_path_factory.mktemp("verilog") / f"{MODULE}.v"
    assert main(["verilog", "QPS=4", "CQS=4", "STAGS=16", "-o", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def exported_nic(tmp_path_factory):
    path = tmp_path_factory.mktemp("verilog") / f"{NIC_MODULE}.v"
    assert main(["verilog", "NIC=1", "QPS=4", "CQS=4", "STAGS=16", "-o", str(path)]) == 0
    return path


def lint(*arguments: Path | str) -> subprocess.CompletedProcess[str]:
    command = ["verilator", "--lint-only", "-Wall", *map(str, arguments)]
    return subprocess.run(command, env=verilator_environment(), capture_output=True, text=True)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("macros", [[], [f"-D{STATE_NAMES}"]])
@pytest.mark.parametrize("device", ["exported", "exported_nic"])
def test_lint_has_no_warning(device, macros, request):
    result = lint(*macros, request.getfixturevalue(device))
    assert (result.returncode, result.stdout.count("%Warning"), result.stderr) == (0, 0, "")


def test_lint_of_what_surrounds_the_device_is_not_switched_off(exported, tmp_path):
    """The pragmas end with the file."""
    pragmas = [line for line in exported.read_text().splitlines() if "verilator lint_" in line]
    device = tmp_path / "device.v"
    device.write_text("\n".join([*pragmas[:-1], "module device; endmodule", pragmas[-1], ""]))
    other = tmp_path / "other.v"
    other.write_text(
        "module other(input wire [3:0] a, output wire b);\n  assign b = a;\nendmodule\n"
    )
    result = lint(device, other)
    assert "WIDTHTRUNC" in result.stderr


def modules(text: str) -> list[str]:
    return re.findall(r"^module (\S+)", text, re.MULTILINE)


@pytest.mark.parametrize("prefix", ["", "left_"])
def test_names_of_all_modules_begin_with_prefix_and_name_of_the_device(prefix):
    text = device_verilog(parse_sizes(["QPS=4", "CQS=4", "STAGS=16"]), prefix)
    top, *others = modules(text)
    assert top == f"{prefix}{MODULE}"
    assert all(name.startswith(rf"\{prefix}{MODULE}.rnic") for name in others)
    assert len(others) > 20
    instances = set(re.findall(r"^ +(\\\S*stagecoach_rnic\S*) +\S+ +\($", text, re.MULTILINE))
    assert instances == set(others)


@pytest.mark.parametrize("prefix", ["4x", "a-b", "a.b", "a b", "ä", "a\n"])
def test_a_prefix_that_is_no_name_is_refused(prefix):
    with pytest.raises(OptionError, match="allowed: letters, digits and _, the first one no digit"):
        parse_prefix(prefix)


def ports_of_the_file(text: str) -> dict[str, tuple[str, int]]:
    """Direction and width of each port of the first module."""
    module = text[re.search("^module ", text, re.MULTILINE).start() :].partition("\n);")[0]
    port = r"^    (input|output) +wire +(?:\[(\d+):0\] +)?(\w+),?$"
    found = re.findall(port, module, re.MULTILINE)
    return {name: (direction, int(high or 0) + 1) for direction, high, name in found}


RNIC_TABLE, NIC_TABLE = (f"| interface{of} | out | in |\n" for of in ("", " of the NIC"))


def ports_of_the_document(config: RnicConfig, head: str = RNIC_TABLE) -> dict[str, tuple[str, int]]:
    """The same from a table in docs/integration.md."""
    table = (ROOT / "docs" / "integration.md").read_text().partition(head)[2]
    octets = config.data_width // 8
    widths = {"": 1, "Q": config.qp_bits, "W": 8 * octets, "L": octets}
    found = {}
    prefix = ""
    for line in table.partition("\n\n")[0].splitlines()[1:]:
        first, *columns = line.strip("|").split("|")
        if match := re.search(r"`(\w+)`", first):
            prefix = f"{match[1]}_"
        for direction, column in zip(("output", "input"), columns, strict=True):
            for name, width in re.findall(r"`(\w+)`(?: (\w+))?", column):
                bits = widths.get(width) or int(width)
                found[prefix + name] = (direction, bits)
    return found


def test_the_document_names_every_port_with_its_width(exported):
    found = ports_of_the_file(exported.read_text())
    assert len(found) > 60
    assert ports_of_the_document(RnicConfig(qps=4)) == found


def test_the_document_names_every_port_of_the_nic_with_its_width(exported_nic):
    found = ports_of_the_file(exported_nic.read_text())
    config = RnicConfig(qps=4)
    shared = {
        name: port for name, port in ports_of_the_document(config).items() if "_llp_" not in name
    }
    added = ports_of_the_document(config, NIC_TABLE)
    assert not shared.keys() & added.keys()
    assert shared | added == found


@pytest.mark.parametrize("width", [32, 128])
def test_ports_of_another_width_are_as_the_document_says(width):
    config = parse_sizes(["QPS=4", f"DATA_WIDTH={width}"])
    found = {
        f"{interface.name}_{name}": ("output" if flow is wiring.Out else "input", bits)
        for interface in exported_interfaces(Rnic(config).signature)
        for name, flow, bits in interface.ports
    }
    document = ports_of_the_document(config)
    others = ("clk", "rst", "irq")
    assert found == {name: port for name, port in document.items() if name not in others}


def test_ports_of_an_interface_stand_together(exported):
    ports = ports_of_the_file(exported.read_text())
    interfaces = [interface.name for interface in exported_interfaces(Rnic(SMALL).signature)]
    at = [next((i for i in interfaces if name.startswith(f"{i}_")), name) for name in ports]
    together = [name for name, before in zip(at, ["", *at], strict=False) if name != before]
    assert len(together) == len(set(together))
    assert set(interfaces) < set(together)


ALONE = {Rnic: ["irq"], RnicNic: ["irq", "network_irq", "time_us", "deadline", "armed"]}
"""Signals of each device that belong to no interface."""


@pytest.mark.parametrize("device", [Rnic, RnicNic])
def test_every_signal_of_the_device_is_joined_once(device):
    made = device(SMALL)
    inside = ["__".join(map(str, path)) for path, _, _ in made.signature.flatten(made)]
    joined = [name for one in exported_interfaces(made.signature) for name in one.joined]
    assert sorted([*joined, *ALONE[device]]) == sorted(inside)
    top = top_module(made.signature, "m", "device")
    assert all(f".{name}(" in top for name in inside)


def test_core_file_names_the_verilog(tmp_path, capsys):
    """FuseSoC's own reader takes it, too; here it is only YAML."""
    path = tmp_path / "right one.v"
    sizes = ["QPS=4", "CQS=4", "STAGS=16"]
    assert main(["verilog", *sizes, "--prefix", "right_", "-o", str(path)]) == 0
    first, _, rest = path.with_suffix(".core").read_text().partition("\n")
    assert first == "CAPI=2:"
    core = yaml.safe_load(rest)
    assert core["filesets"]["rtl"]["files"] == [path.name]
    assert core["targets"]["default"]["toplevel"] == modules(path.read_text())[0]
    assert re.fullmatch(r"::right_stagecoach_rnic:\d+\.\d+\.\d+", core["name"])
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        str(path),
        str(path.with_suffix(".core")),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["QPS=5"], "RnicConfig.qps is 5; allowed: a power of two from 2 to 256"),
        (["QPS"], "'QPS' is not a size"),
        (["LANES=4"], "'LANES=4' is not a size of the device; allowed: DATA_WIDTH="),
        (["DATA_WIDTH=256"], "RnicConfig.data_width is 256; allowed: 32, 64, 128"),
        (["QPS=many"], "QPS is 'many'; allowed: a whole number"),
    ],
)
def test_sizes_that_are_not_allowed_are_named(arguments, message):
    with pytest.raises(OptionError, match=message.replace("(", "\\(")):
        parse_sizes(arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["NIC=2"], "NIC is '2'; allowed: 0, 1"),
        (["NIC"], "'NIC' is not a size of the device; allowed: .*, NIC=, MTU="),
        (["MTU=9000"], "MTU is '9000', and only a NIC has one; allowed: with NIC=1"),
        (["NIC=1", "MTU=575"], "MTU is 575; allowed: 576 to 9000"),
        (["NIC=1", "MTU=9001"], "MTU is 9001; allowed: 576 to 9000"),
        (["NIC=1", "MTU=jumbo"], "MTU is 'jumbo'; allowed: 576 to 9000"),
        (["NIC=1", "DATA_WIDTH=128"], "DATA_WIDTH of a NIC is 128; allowed: 64"),
        (["NIC=1", "QPS=5"], "RnicConfig.qps is 5"),
    ],
)
def test_a_nic_that_cannot_be_is_refused(arguments, message):
    with pytest.raises(OptionError, match=message):
        parse_device(arguments)


def test_a_nic_is_asked_for_by_name():
    config = RnicConfig(qps=8)
    assert parse_device(["QPS=8"]) == parse_device(["nic=0", "QPS=8"]) == (config, None)
    assert parse_device(["QPS=8", "NIC=1"]) == (config, 1500)
    assert parse_device(["MTU=576", "NIC=1", "QPS=8"]) == (config, 576)
    assert parse_device(["MTU=9000", "NIC=1", "QPS=8"]) == (config, 9000)


def test_sizes_are_taken_by_name():
    assert parse_sizes(["QPS=8", "stags=0x20"]) == RnicConfig(qps=8, stags=32)


def test_a_process_without_inputs_runs_at_time_0():
    text = "module top(a);\n  always @*\n    a = 1'h1;\nendmodule\n"
    assert "initial _start <= 0;" in start_processes(text)
    assert "if (_start)" in start_processes(text)


def build() -> Path:
    """Builds the exported file for cocotb, unless the same was built before."""
    text = device_verilog(SMALL)
    recipe = f"export {sys.prefix} {NOT_OPTIMISED} {text}"
    key = hashlib.sha256(recipe.encode()).hexdigest()[:20]

    def make(folder: Path) -> None:
        source = folder / f"{MODULE}.v"
        source.write_text(text)
        # cocotb needs the ports, and nothing inside.
        ports = folder / "ports.vlt"
        ports.write_text(f'`verilator_config\npublic_flat_rw -module "{MODULE}" -var "*"\n')
        runner = get_runner("verilator")
        runner.build(
            sources=[source, ports],
            hdl_toplevel=MODULE,
            build_dir=folder,
            # What is undefined is unlikely to look right.
            build_args=["--no-public-flat-rw", "--x-assign", "1"],
            timescale=("1ns", "1ps"),
            always=True,
            log_file=folder / "build.txt",
        )
        (folder / "done").touch()

    return cache.kept("cocotb", key, "done", make).parent


@pytest.mark.slow
@pytest.mark.timeout(1800)  # the first run builds the simulator
def test_write_and_read_through_the_exported_file(monkeypatch, tmp_path):
    environment = verilator_environment()
    environment["MAKEFLAGS"] += f" {NOT_OPTIMISED}"  # the run is short, the build is not
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    folder = build()
    results = get_runner("verilator").test(
        test_module=__name__,
        hdl_toplevel=MODULE,
        hdl_toplevel_lang="verilog",
        build_dir=folder,
        test_dir=tmp_path,
        results_xml=str(tmp_path / "results.xml"),
        log_file=tmp_path / "run.txt",
        timescale=("1ns", "1ps"),
    )
    cases = list(ElementTree.parse(results).getroot().iter("testcase"))
    assert [case.get("name") for case in cases] == ["check_write_and_read"]
    problems = [one for case in cases for one in case if one.tag in ("failure", "error", "skipped")]
    assert not problems, (tmp_path / "run.txt").read_text()[-4000:]


TIED = {"lock": 0, "cache": 0b0010, "prot": 0b000, "qos": 0}
"""What the document says of the address channels of `m_axi`."""

LLP_PORTS = {
    "tx_valid": "m_axis_llp_tx_tvalid",
    "tx_ready": "m_axis_llp_tx_tready",
    "tx_connection": "m_axis_llp_tx_tdest",
    "tx_data": "m_axis_llp_tx_tdata",
    "tx_last": "m_axis_llp_tx_tlast",
    "rx_request_valid": "m_axis_llp_rx_request_tvalid",
    "rx_request_ready": "m_axis_llp_rx_request_tready",
    "rx_request_connection": "m_axis_llp_rx_request_tdest",
    "rx_request_position": "m_axis_llp_rx_request_tdata",
    "rx_request_octets": "m_axis_llp_rx_request_tuser",
    "rx_valid": "s_axis_llp_rx_tvalid",
    "rx_ready": "s_axis_llp_rx_tready",
    "rx_data": "s_axis_llp_rx_tdata",
    "rx_release_valid": "m_axis_llp_rx_release_tvalid",
    "rx_release_ready": "m_axis_llp_rx_release_tready",
    "rx_release_connection": "m_axis_llp_rx_release_tdest",
    "rx_release_position": "m_axis_llp_rx_release_tdata",
    "event_valid": "s_axis_llp_event_tvalid",
    "event_ready": "s_axis_llp_event_tready",
    "event_connection": "s_axis_llp_event_tdest",
    "event_kind": "s_axis_llp_event_tuser",
    "event_value": "s_axis_llp_event_tdata",
}


class Part:
    """What a function makes of the value of a port."""

    def __init__(self, port: Any, make: Callable[[int], int]):
        self._port = port
        self._make = make

    @property
    def value(self) -> int:
        return self._make(int(self._port.value))


def octets_of(keep: int) -> int:
    assert keep & (keep + 1) == 0, f"TKEEP is 0b{keep:b}"
    return keep.bit_count()


class Ports:
    """The exported ports by their names in Amaranth, which the models of `sim.cosim` know."""

    def __init__(self, dut: Any):
        self._name, self._log = dut._name, dut._log
        self.clk, self.irq = dut.clk, dut.irq
        for outside, inside in (("s_axil_", "s_axi__"), ("m_axi_", "m_axi__")):
            for name in dir(dut):
                if name.startswith(outside):
                    setattr(self, inside + name.removeprefix(outside), getattr(dut, name))
        for inside, name in LLP_PORTS.items():
            setattr(self, f"llp__{inside}", getattr(dut, name))
        user = dut.m_axis_llp_tx_tuser
        self.llp__tx_octets = Part(dut.m_axis_llp_tx_tkeep, octets_of)
        self.llp__tx_first = Part(user, lambda bits: bits & 1)
        self.llp__tx_close = Part(user, lambda bits: bits >> 1)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_write_and_read(dut):
    device = CocotbDevice(Ports(dut), foreign=True)  # cocotbext-axi at both AXI ports
    await start_clock(dut)
    for address in ("aw", "ar"):
        tied = {name: int(getattr(dut, f"m_axi_{address}{name}").value) for name in TIED}
        assert tied == TIED
    device.start()
    await bridge(use)(device)


def use(device):
    """Two QPs of one device, joined: one writes into, and reads, what the other has registered.

    The device has no counters; whoever asks for one gets an answer all the same.
    """
    with Context(device) as context:
        assert not context.attr.counters
        context.write(registers.COUNTER_SELECT, counter=CounterWord.FPDUS_SENT, index=0)
        for register in (registers.COUNTER_LOW, registers.COUNTER_HIGH, registers.COUNTER_LOST):
            assert context.read(register)["value"] == 0
        with pytest.raises(DeviceError, match="built without counters"):
            query_qp(context, 0)
        pd, cq = PD(context), CQ(context)
        near, far = (QP(pd, QPInitAttr(cq, cq)) for _ in range(2))
        links = Link(device, EMSS), Link(device, EMSS)
        links[0].other, links[1].other = links[1], links[0]
        for qp, link, initiator in ((near, links[0], True), (far, links[1], False)):
            qp.connect(link, initiator=initiator, crc=True, ord=4, ird=4, emss=EMSS)
        access = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_READ
        target = MR(pd, bytearray(OCTETS), access)
        data = bytearray(index * 7 & 0xFF for index in range(OCTETS))
        source, sink = MR(pd, data), MR(pd, bytearray(OCTETS), access)
        remote = {"remote_addr": target.addr, "rkey": target.rkey}
        near.post_send(
            SendWR(1, WROpcode.RDMA_WRITE, [SGE(source.addr, OCTETS, source.lkey)], **remote),
            SendWR(2, WROpcode.RDMA_READ, [SGE(sink.addr, OCTETS, sink.lkey)], **remote),
        )
        assert [wc.status.name for wc in cq.wait(2, timeout=300)] == ["SUCCESS"] * 2
        assert bytes(target.buf) == bytes(sink.buf) == bytes(data)
