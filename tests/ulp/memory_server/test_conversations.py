"""Server and client on two simulated devices, and what may go wrong between them."""

import io
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Thread

import pytest

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    ConnectionRejected,
    Context,
    DeviceMemoryExhausted,
    NoDeviceMemory,
    QPInitAttr,
    ResourceError,
    SendWR,
    WCStatus,
    WROpcode,
    connect,
    listen,
)
from stagecoach.hw.interface.device_memory import DEVICE_MEMORY_BASE, LEAST_MEMORY
from stagecoach.sim.transport import SimulatedDevice
from stagecoach.ulp.memory_server.bench import bench
from stagecoach.ulp.memory_server.client import DEPTH, MESSAGE_OCTETS, Client
from stagecoach.ulp.memory_server.errors import (
    MemoryServerError,
    NotAMemoryServer,
    OutsideRegion,
)
from stagecoach.ulp.memory_server.protocol import Region
from stagecoach.ulp.memory_server.server import MemoryServer

FAST = False  # runs whole devices

pytestmark = [pytest.mark.usefixtures("compiled_device"), pytest.mark.timeout(240)]

HERE = "127.0.0.1"
OCTETS = 4 << 20
SECONDS = 60


class Serving:
    """A server in threads of this process.

    Attributes
    ----------
    told, reported: lines.
    """

    def __init__(self, context: Context, octets: int | None = None):
        self.told: list[str] = []
        self.reported: list[str] = []
        self.server = MemoryServer(
            context,
            octets,
            address=HERE,
            port=0,
            tell=self.told.append,
            report=self.reported.append,
        )
        self.thread = Thread(target=self.server.serve)

    def __enter__(self) -> "Serving":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.close()
        self.thread.join(SECONDS)
        assert not self.thread.is_alive()


def await_that(done: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def board() -> Iterator[Context]:
    with Context(SimulatedDevice(memory=OCTETS)) as context:
        yield context


@pytest.fixture
def context() -> Iterator[Context]:
    with Context(SimulatedDevice()) as context:
        yield context


@pytest.fixture
def serving(board: Context) -> Iterator[Serving]:
    with Serving(board) as serving:
        yield serving


@pytest.fixture
def client(serving: Serving, context: Context) -> Iterator[Client]:
    with Client(context, HERE, serving.server.port) as client:
        yield client


def test_a_peer_is_told_of_the_whole_memory(serving, client):
    assert client.region == serving.server.region
    assert (client.region.addr, client.region.length) == (0, OCTETS)
    assert serving.server.memory.address == DEVICE_MEMORY_BASE


SIZES = [1, 8, MESSAGE_OCTETS, MESSAGE_OCTETS + 1, (DEPTH + 1) * MESSAGE_OCTETS + 5]


@pytest.mark.parametrize("octets", SIZES)
def test_what_is_put_is_in_the_memory_and_comes_back(serving, client, octets):
    content = bytes(n * 7 % 251 for n in range(octets))
    offset = OCTETS - octets
    client.put(io.BytesIO(content), offset, octets)
    assert serving.server.memory.read(offset, octets) == content
    assert not any(serving.server.memory.read(max(0, offset - 100), min(100, offset)))
    sink = io.BytesIO()
    client.get(sink, offset, octets)
    assert sink.getvalue() == content


def test_nothing_is_put_and_got(client):
    client.put(io.BytesIO(), OCTETS, 0)
    sink = io.BytesIO()
    client.get(sink, OCTETS, 0)
    assert sink.getvalue() == b""


def test_what_the_server_set_up_is_got(serving, client):
    serving.server.memory.write(1000, b"set up")
    sink = io.BytesIO()
    client.get(sink, 1000, 6)
    assert sink.getvalue() == b"set up"


def test_an_atomic_adds(serving, client):
    assert [client.fetch_add(16, 3) for _ in range(3)] == [0, 3, 6]
    assert serving.server.memory.read(16, 8) == (9).to_bytes(8, "little")


def test_the_data_crosses_the_port_of_the_device_by_address(serving, board, client):
    before = board.transport.statistics()
    client.put(io.BytesIO(bytes(4096)), 0, 4096)
    after = board.transport.statistics()
    assert after["write_beats"] - before["write_beats"] >= 4096 // 8
    assert after["faults"] == []


def test_clients_share_the_memory_and_one_that_goes_holds_up_no_other(serving, context):
    with Context(SimulatedDevice()) as other:
        second = Client(other, HERE, serving.server.port)
        with Client(context, HERE, serving.server.port) as first:
            first.put(io.BytesIO(b"shared"), 0, 6)
            sink = io.BytesIO()
            second.get(sink, 0, 6)
            assert sink.getvalue() == b"shared"
            second.close()
            await_that(lambda: any("has gone" in line for line in serving.told))
            first.put(io.BytesIO(b"still"), 0, 5)
    assert serving.reported == []


def test_a_qp_is_free_again_when_its_peer_has_gone(serving, board, context):
    for _ in range(3):
        with Client(context, HERE, serving.server.port) as client:
            client.fetch_add(0, 1)
    await_that(lambda: not board.qps)
    assert serving.server.memory.read(0, 1) == b"\x03"


@pytest.mark.parametrize(
    ("offset", "octets", "left"),
    [(0, OCTETS + 1, OCTETS), (OCTETS, 1, 0), (OCTETS + 1, 0, 0), (OCTETS - 4, 5, 4)],
)
def test_more_than_there_is_is_refused_before_anything_is_sent(client, offset, octets, left):
    for move in (client.put, client.get):
        with pytest.raises(OutsideRegion, match=rf"allowed: up to {left}, what is left there of t"):
            move(io.BytesIO(), offset, octets)
    client.fetch_add(0, 1)


def test_a_file_that_became_shorter_is_named(client):
    with pytest.raises(MemoryServerError, match="the file ends 2 bytes too early"):
        client.put(io.BytesIO(b"abc"), 0, 5)


@contextmanager
def stranger(context: Context, port: int) -> Iterator[tuple[QP, MR, Region]]:
    """A peer that does what it likes."""
    with PD(context) as pd, CQ(context, 8) as cq:
        qp = QP(pd, QPInitAttr(cq, cq))
        region = Region.unpack(connect(qp, HERE, port))
        yield qp, MR(pd, 64), region
        qp.close()


@pytest.mark.parametrize("opcode", [WROpcode.RDMA_WRITE, WROpcode.RDMA_READ])
def test_a_peer_that_goes_past_the_region_is_cut_off_and_no_other(serving, client, opcode):
    port = serving.server.port
    with Context(SimulatedDevice()) as other, stranger(other, port) as (qp, mr, region):
        outside = SendWR(
            0,
            opcode,
            [SGE(mr.addr, 2, mr.lkey)],
            remote_addr=region.addr + region.length - 1,
            rkey=region.rkey,
        )
        qp.post_send(outside)
        await_that(lambda: bool(serving.reported))
        if opcode == WROpcode.RDMA_READ:
            assert qp.context.get_async_event().qp_num == qp.qp_num
    assert "stopped" in serving.reported[0]
    assert not any(serving.server.memory.read(OCTETS - 64, 64))
    assert client.fetch_add(0, 1) == 0


def test_a_peer_with_another_stag_is_cut_off(serving, context):
    with stranger(context, serving.server.port) as (qp, mr, region):
        wrong = SendWR(0, WROpcode.RDMA_READ, [SGE(mr.addr, 8, mr.lkey)], rkey=region.rkey ^ 0x100)
        qp.post_send(wrong)
        (found,) = qp.scq.wait(1, SECONDS)
        assert found.status == WCStatus.REM_ACCESS_ERR
    await_that(lambda: bool(serving.reported))


def test_a_client_of_a_server_that_ends_is_told(board, context):
    with Serving(board) as serving:
        client = Client(context, HERE, serving.server.port)
    with pytest.raises(MemoryServerError), client:
        client.put(io.BytesIO(bytes(8)), 0, 8)


def test_what_is_no_memory_server_is_named(board, context):
    with listen(board, HERE) as listener, PD(board) as pd, CQ(board, 8) as cq:
        qp = QP(pd, QPInitAttr(cq, cq))
        serve = Thread(target=lambda: listener.get_request(SECONDS).accept(qp))
        serve.start()
        with pytest.raises(NotAMemoryServer, match=rf"{HERE}:\d+ is no memory server: its private"):
            Client(context, HERE, listener.port)
        serve.join(SECONDS)
        qp.close()
    with pytest.raises(ResourceError), ExitStack() as opened:  # all QPs of the client are free
        for _ in range(context.attr.max_qp + 1):
            pd = opened.enter_context(PD(context))
            cq = opened.enter_context(CQ(context, 200))
            opened.callback(QP(pd, QPInitAttr(cq, cq)).close)


def test_a_client_for_which_there_is_no_qp_is_refused_and_told_of(serving, board, context):
    with ExitStack() as opened:
        pd, cq = opened.enter_context(PD(board)), opened.enter_context(CQ(board, 8192))
        for _ in range(board.attr.max_qp):
            opened.callback(QP(pd, QPInitAttr(cq, cq)).close)
        with pytest.raises(ConnectionRejected):
            Client(context, HERE, serving.server.port)
        await_that(lambda: bool(serving.reported))
    assert "refused: all" in serving.reported[0]
    with Client(context, HERE, serving.server.port) as client:
        client.fetch_add(0, 1)


def test_a_device_without_memory_cannot_serve(context):
    with pytest.raises(NoDeviceMemory):
        MemoryServer(context)


@pytest.mark.parametrize("octets", [1, LEAST_MEMORY, OCTETS])
def test_a_part_of_the_memory_is_offered(board, context, octets):
    with Serving(board, octets) as serving:
        with Client(context, HERE, serving.server.port) as client:
            assert client.region.length == octets
            with pytest.raises(OutsideRegion):
                client.put(io.BytesIO(b"a"), octets, 1)


def test_more_than_the_device_has_says_what_is_free_and_leaves_nothing(board):
    for _ in range(2):
        with pytest.raises(DeviceMemoryExhausted, match=f"allowed: up to {OCTETS}"):
            MemoryServer(board, OCTETS + 1, address=HERE, port=0)
    with Serving(board):
        pass


def test_bench_measures_everything_and_stays_where_it_is_told(serving, board, context, client):
    rates, latencies = bench(context, client, 4096, 1024, 2 * DEPTH + 1, 3)
    assert [each.operation for each in rates] == ["Write", "Read"]
    for rate in rates:
        assert (rate.size, rate.messages, rate.octets) == (1024, 33, 33 * 1024)
        assert rate.cycles >= rate.octets / 8 and rate.megabytes_per_second > 0
    assert [each.operation for each in latencies] == ["Write", "Read", "FetchAdd"]
    assert all(each.cycles > 0 and each.microseconds > 0 for each in latencies)
    serving.server.memory.write(4096, bytes(1024))
    assert not any(serving.server.memory.read(0, 8192))


@pytest.mark.parametrize(("offset", "size"), [(OCTETS - 8, 9), (OCTETS - 7, 1), (OCTETS, 1)])
def test_bench_needs_room(context, client, offset, size):
    with pytest.raises(OutsideRegion, match="bench of"):
        bench(context, client, offset, size, 1, 1)
