"""The example with two exported devices in one design: lint, and what it prints."""

import subprocess
from pathlib import Path

import pytest

from stagecoach.hw.reference import ENTRY_HEADER, LLP_HEADER, REGISTER_HEADER, write_headers
from stagecoach.hw.verilog import MODULE, device_verilog, parse_sizes
from stagecoach.sim.verilator import verilator_environment

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "integration"
SIZES = ["QPS=4", "CQS=4", "STAGS=16"]
PREFIXES = ["initiator_", "responder_"]
BUILD = ROOT / "build" / "integration"


def update(path: Path, text: str) -> None:
    """Writes a file unless it is so already: make looks at its time."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Runs make in the example's folder, with the exported files and the headers."""
    BUILD.mkdir(parents=True, exist_ok=True)
    devices = [BUILD / f"{prefix}{MODULE}.v" for prefix in PREFIXES]
    for prefix, device in zip(PREFIXES, devices, strict=True):
        update(device, device_verilog(parse_sizes(SIZES), prefix))
    fresh = tmp_path_factory.mktemp("headers")
    write_headers(fresh)
    for name in (REGISTER_HEADER, ENTRY_HEADER, LLP_HEADER):
        update(BUILD / name, (fresh / name).read_text())

    def run(target: str) -> subprocess.CompletedProcess[str]:
        settings = [
            f"DEVICES={' '.join(map(str, devices))}",
            f"HEADERS={BUILD}",
            f"BUILD={BUILD / 'model'}",
            "OPTIMISE=-O0",  # the run is short, the build is not
        ]
        command = ["make", "-C", str(EXAMPLE), target, *settings]
        return subprocess.run(
            command, env=verilator_environment(), capture_output=True, text=True, check=False
        )

    return run


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_verilog_of_the_example_has_no_warning(make):
    result = make("lint")
    assert result.returncode == 0, result.stderr
    assert "%Warning" not in result.stderr


@pytest.mark.slow
@pytest.mark.timeout(1800)  # the first run builds the simulator
def test_firmware_of_the_example_writes_and_reads_back(make):
    result = make("run")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "5000 bytes written to the other host and read back\n" in result.stdout


def test_the_project_exports_the_devices_of_the_example():
    makefile = (ROOT / "Makefile").read_text()
    readme = (EXAMPLE / "README.md").read_text()
    assert f"EXAMPLE_SIZES := {' '.join(SIZES)}\n" in makefile
    for prefix in PREFIXES:
        assert f"stagecoach verilog $(EXAMPLE_SIZES) --prefix {prefix}\n" in makefile
        assert " ".join(["make verilog", *SIZES, f"PREFIX={prefix}\n"]) in readme
