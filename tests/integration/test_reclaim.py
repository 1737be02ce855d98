"""Nothing is left on the device of a Context that was reset, abandoned, or killed."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stagecoach.host_driver import Cause, Context, QPState, SendWR, WCStatus, WROpcode, connect
from stagecoach.host_driver.device import CommandOpcode
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.transport import SimulatedDevice
from tests.integration.rig import OPCODES, End, RawPeer
from tests.integration.test_revoke import AFTERWARDS, LONGEST_WAIT, REQUESTS, SECONDS, Link

ROOT = Path(__file__).parents[2]
ROUNDS = 5
NEW = 0xEE

pytestmark = pytest.mark.timeout(150)  # the first test may have to build the device


def check_usable(context: Context, rng: random.Random) -> None:
    """A Write goes through, on a QP that may have the number of an old one."""
    link = Link(context, rng)
    link.active.buffer[:] = bytes([NEW]) * len(link.active.buffer)
    link.post(WROpcode.RDMA_WRITE)
    done = link.active.cq.wait(REQUESTS, SECONDS)
    assert [wc.status for wc in done] == [WCStatus.SUCCESS] * REQUESTS
    context.poll_until(lambda: link.passive.buffer == link.active.buffer, SECONDS, "the Write")
    assert context.events == []
    link.close()


def start(context: Context, rng: random.Random, opcode: WROpcode) -> tuple[Link, bytearray]:
    """Traffic under way, and the buffer that it changes, which stays mapped whatever happens."""
    link = Link(context, rng)
    sink, source = link.passive, link.active
    if opcode == WROpcode.RDMA_READ:
        sink, source = source, sink
    source.buffer[:] = bytes([NEW]) * len(source.buffer)
    # Else the host memory would refuse a late access, and nothing would be seen of it.
    context.transport.map_memory(sink.buffer)
    link.post(opcode)
    link.run(rng.randrange(LONGEST_WAIT))
    return link, sink.buffer


def test_the_stag_table_is_empty_when_its_reset_has_ended():
    """One entry is made invalid in a cycle, and the command is busy until the last one is."""
    with Context(SimulatedDevice()) as context:
        before = context.cycles
        context.command(CommandOpcode.STAG_RESET)
        assert context.cycles - before > context.attr.max_mr


@pytest.mark.requirement("RDMAP-8.1.1-06", "DDP-8.3.1-07", "SEC-6.2.2-01")
@pytest.mark.parametrize("opcode", OPCODES)
def test_after_a_reset_under_traffic_no_octet_changes(opcode: WROpcode):
    rng = seeded_random(opcode.name)
    cut = 0
    with Context(SimulatedDevice()) as context:
        for number in range(ROUNDS):
            link, buffer = start(context, rng, opcode)
            context.reset()
            after = bytes(buffer)
            link.run(AFTERWARDS)
            assert buffer == after, f"round {number}"
            assert not context.qps and not context.cqs and not context.mrs
            cut += NEW in after and 0 in after
        check_usable(context, rng)
    assert cut, "no round was in the midst of a message"


@pytest.mark.requirement("RDMAP-8.1.1-06", "DDP-8.3.1-07", "SEC-6.2.2-01")
def test_a_device_that_was_abandoned_under_traffic_can_be_opened_again():
    """As after the death of a driver on a device that lives on."""
    rng = seeded_random()
    device = SimulatedDevice()
    abandoned: list[tuple[Context, Link | None]] = []
    for number in range(ROUNDS):
        context = Context(device)
        link, buffer = start(context, rng, rng.choice(OPCODES))
        abandoned.append((context, link))  # nothing is closed
        with_new = Context(device)
        after = bytes(buffer)
        link.run(AFTERWARDS)
        assert buffer == after, f"round {number}"
        check_usable(with_new, rng)
        abandoned.append((with_new, None))
    device.close()


HOST = """
import sys, time
from stagecoach.host_driver import Context, listen
from stagecoach.sim.transport import SimulatedDevice
from tests.integration.rig import End

context = Context(SimulatedDevice())
end = End(context, 1 << 16)
listener = listen(context, port=int(sys.argv[1]))
print(listener.port, flush=True)
region = end.mr.addr.to_bytes(8) + end.mr.rkey.to_bytes(4)
listener.get_request(60).accept(end.qp, private_data=region)
print("connected", flush=True)
time.sleep(600)
"""


def start_host(port: int) -> tuple[subprocess.Popen, int]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOST, str(port)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def processes_of(session: int) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(path.parent.name)
    return found


def shared_memory() -> set[str]:
    """Names of the machine's shared memory; the semaphores of other tests come and go."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("sem.")}


def test_nothing_is_left_of_a_host_that_is_killed():
    shared = shared_memory()
    port = 0
    with Context(SimulatedDevice()) as context:
        for _ in range(2):  # the second one has the port of the first
            process, port = start_host(port)
            assert process.stdout is not None
            end = End(context, 1 << 16)
            region = connect(end.qp, "127.0.0.1", port, timeout=SECONDS)
            addr, rkey = int.from_bytes(region[:8]), int.from_bytes(region[8:])
            assert process.stdout.readline() == "connected\n"
            write = SendWR(0, WROpcode.RDMA_WRITE, [end.element()], remote_addr=addr, rkey=rkey)
            end.qp.post_send(*[write] * 16)
            end.cq.wait(1, SECONDS)
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            assert processes_of(process.pid) == []
            context.poll_until(lambda end=end: end.qp.state == QPState.ERR, SECONDS, "the end")
            assert end.qp.cause == Cause.LLP_CLOSED
            end.close()
    assert shared_memory() == shared


def test_a_raw_peer_of_a_qp_that_was_reset_sees_the_end_of_the_stream():
    with Context(SimulatedDevice()) as context:
        peer = RawPeer(End(context).qp, tcp=True)
        context.reset()
        peer.pump_until(lambda: peer.ended)
        peer.close()
