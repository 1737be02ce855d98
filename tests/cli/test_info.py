"""`stagecoach info`: sizes and versions of the device."""

import json

import pytest

from stagecoach.host_driver.enums import WROpcode
from stagecoach.host_driver.registers import INTERFACE
from tests.cli.processes import run

pytestmark = pytest.mark.usefixtures("compiled_device")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_info_tells_sizes_and_versions():
    ran = run("info", "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["device"]["max_qp"] == found["configuration"]["qps"] == 64
    assert found["versions"]["register description"] == "3.3"
    assert found["versions"]["digest of the interface"] == f"0x{INTERFACE.constant:08X}"
    assert "RDMA_READ" in found["capabilities"]["operations"]
    assert set(found["capabilities"]["operations"]) == {opcode.name for opcode in WROpcode}
    table = run("info")
    assert table.returncode == 0
    assert "max_qp_rd_atom" in table.stdout
