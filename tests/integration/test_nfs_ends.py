"""The NFS server tells a client that vanished in the middle of an FPDU from one that closed."""

import logging
import socket
import time
from pathlib import Path

import pytest

from stagecoach.sim.model.ddp import UntaggedHeader
from stagecoach.sim.model.mpa import frame_fpdu
from stagecoach.sim.model.rdmap import Opcode, control_octet
from stagecoach.sim.model.startup import EnhancedData, StartupFrame
from tests.integration.nfs_rig import HOST, NfsPair

pytestmark = pytest.mark.timeout(600)  # the first test may have to build the device

SECONDS = 20.0
# RDMA_DONE, which has no answer (RFC 8166, 4.5).
DONE = b"".join(word.to_bytes(4, "big") for word in (7, 1, 1, 3))


def fpdu(msn: int) -> bytes:
    header = UntaggedHeader(0, msn, rsvd_ulp=control_octet(Opcode.SEND))
    return frame_fpdu(header.encode() + DONE)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name.endswith(".ends")]


@pytest.mark.requirement("MPA-8-02")
@pytest.mark.parametrize("octets", [0, 1, 39])
def test_an_end_inside_an_fpdu_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, octets: int
) -> None:
    request = StartupFrame(reply=False, revision=2, enhanced=EnhancedData(ird=1, ord=1))
    caplog.set_level(logging.WARNING, "stagecoach.ulp.nfs.server.ends")
    with NfsPair(tmp_path) as pair:
        with socket.create_connection((HOST, pair.url.port)) as stream:
            stream.sendall(request.encode())
            assert stream.recv(1000).startswith(b"MPA ID Rep Frame")
            stream.sendall(fpdu(1) + fpdu(2)[:octets])
            stream.shutdown(socket.SHUT_WR)
            stream.settimeout(SECONDS)
            while stream.recv(1000):
                pass
        # The device has closed its half; the server hears of it from the event, or has heard.
        end = time.monotonic() + SECONDS
        while not pair.server_context.events and not lines(caplog) and time.monotonic() < end:
            time.sleep(0.01)
    text = (
        "a connection over RDMA failed: connection closed or lost inside an FPDU "
        "(layer 2, type 0, code 0x01)"
    )
    assert lines(caplog) == ([text] if octets else [])
