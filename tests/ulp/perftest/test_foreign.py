"""Each tool against a scripted end of perftest 4.5+0.17: its octets, its order, its messages.

Sizes, numbers of messages, keys and addresses vary: no recorded conversation would do.
"""

import time
from random import Random

import pytest

from stagecoach.host_driver import WC, QPState, WCOpcode, WCStatus, WROpcode, listen
from stagecoach.ulp.perftest import ends, memory
from stagecoach.ulp.perftest.link import Link
from stagecoach.ulp.perftest.results import Bandwidth
from tests.ulp.perftest.foreign import (
    HANDSHAKES,
    LINE,
    MTU,
    PAGE,
    VERSION,
    Foreign,
    PingpongDest,
    await_true,
    dest,
    doubles,
    parse,
)
from tests.ulp.perftest.rig import Devices, Scripted, Serving, settings

pytestmark = pytest.mark.usefixtures("compiled_device")

TOOLS = sorted(HANDSHAKES)
CASES = [(tool, seed) for tool in TOOLS for seed in range(3)]


OPEN_SECONDS = 0.05
"""Longer than a server needs that ends both connections at once."""

SEED = 5
"""Of the octets that our end has in its memory."""


@pytest.fixture(autouse=True)
def known_memory(monkeypatch):
    monkeypatch.setattr(memory.secrets, "token_bytes", lambda octets: ours(octets))


def ours(octets: int) -> bytes:
    return Random(SEED).randbytes(octets)


class Case:
    """What varies."""

    def __init__(self, tool: str, seed: int):
        random = Random(f"{tool} {seed}")
        self.tool = tool
        self.size = random.choice([1, 2, 64, 65, 1000, 2048, 2049, 4095, 4097, 10_000])
        self.iters = random.randint(5, 40)
        self.stag = random.getrandbits(32)
        self.addr = random.getrandbits(60)
        self.random = random

    @property
    def half(self) -> int:
        """BUFF_SIZE: the second half of the memory is for what comes."""
        return max(self.size, 4096)

    def foreign(self, context) -> Foreign:
        sends = "send" in self.tool
        rx = self.iters if sends else 1
        end = Foreign(context, rx=rx, stag=self.stag, addr=self.addr)
        end.memory[: self.half] = self.random.randbytes(self.half)
        return end

    @property
    def dest(self) -> bytes:
        """What the end tells of its memory; the other fields say nothing to iWARP."""
        return dest(
            self.stag,
            self.addr + self.half,
            lid=self.random.getrandbits(15),
            out_reads=self.random.randint(1, 16),
            qpn=self.random.getrandbits(24),
            psn=self.random.getrandbits(24),
            gid=(0x20, 0x01, 0x0D, 0xB8, *[0] * 12),
            gid_index=0,
        )


def placed(case: Case, before: bytes, sent: bytes) -> bytes:
    """A half after all messages: small ones take turns in a page, a cache line apart."""
    if case.size <= 2048:
        apart = (case.size + 63) // 64 * 64
        places = [turn * apart for turn in range(4096 // apart)]
    else:
        places = [0]
    expected = bytearray(before)
    for number in range(case.iters):
        place = places[number % len(places)]
        expected[place : place + case.size] = sent[place : place + case.size]
    return bytes(expected)


CREDITS = {
    9: [3, 6, 9],
    10: [3, 6, 9, 10],
    15: [5, 10, 15],
}
"""The credits that a receiver writes, by the messages, of which each has a receive posted."""


# The scripted client


def ask(end: Foreign, case: Case, port: int) -> PingpongDest:
    """Up to the first message; the last handshake is what counts."""
    end.call(port)
    assert end.tell(VERSION) == VERSION
    assert end.tell(PAGE) == PAGE
    assert end.tell(LINE) == LINE
    assert end.tell(MTU) == MTU
    assert end.tell(dest()) == bytes(56)
    end.call_again(port, peer_to_peer=case.tool == "ib_write_lat")
    assert end.tell(dest()) == bytes(56)
    if case.tool == "ib_send_lat":
        end.receive(case.iters, case.size, case.half)
    told = [end.tell(case.dest) for _ in range(HANDSHAKES[case.tool])]
    assert len(set(told)) == 1
    return parse(told[0])


@pytest.mark.parametrize(("tool", "seed"), CASES)
def test_a_client_of_the_release(devices: Devices, tool, seed):
    case = Case(tool, seed)
    options = settings(tool, size=case.size, iters=case.iters)
    with Serving(devices.ours, options) as server, case.foreign(devices.theirs) as end:
        remote = ask(end, case, server.port)
        region = devices.ours.mrs[remote.rkey].buf  # type: ignore[attr-defined]
        CLIENTS[tool](end, case, remote, region)
        if tool == "ib_write_lat":
            # There is no last handshake: the tool may still wait for its last completion.
            time.sleep(OPEN_SECONDS)
            assert end.data.state == QPState.RTS
        end.await_ended()
        # The tool posts a receive after the last message: the first connection is still open.
        time.sleep(OPEN_SECONDS)
        assert end.control.state == QPState.RTS
    assert server.error is None
    if tool in ("ib_write_bw", "ib_read_bw"):
        assert server.result == Bandwidth(case.size, case.iters, 3.5, 2.25, 0.125)
    elif tool != "ib_read_lat":
        assert server.result is not None and server.result.iterations == case.iters
    devices.check_clean()


def report(end: Foreign, case: Case) -> None:
    """xchg_bw_reports; the server's own has whatever it has, in 8 octets each."""
    end.tell(case.dest)
    told = [case.size.to_bytes(8, "big"), case.iters.to_bytes(8, "big")]
    for octets in [*told, *doubles(3.5, 2.25, 0.125)]:
        assert len(end.tell(octets)) == 8
    assert len(end.tell(case.dest)) == 56


def write_bw_client(end: Foreign, case: Case, remote: PingpongDest, region) -> None:
    """Each message elsewhere than our own client puts it: anywhere in the half is allowed."""
    room = case.half - case.size
    expected = bytearray(ours(2 * case.half))
    sent = end.memory[: case.size]
    for number in range(case.iters):
        place = (0, room, room // 2)[number % 3]
        where = PingpongDest(rkey=remote.rkey, vaddr=remote.vaddr + place)
        end.post(WROpcode.RDMA_WRITE, case.size, where)
        expected[case.half + place : case.half + place + case.size] = sent
    end.complete(WCOpcode.RDMA_WRITE, case.iters)
    await_true(lambda: region[:] == expected)
    report(end, case)


def read_bw_client(end: Foreign, case: Case, remote: PingpongDest, region) -> None:
    for _ in range(case.iters):
        end.post(WROpcode.RDMA_READ, case.size, remote)
    end.complete(WCOpcode.RDMA_READ, case.iters)
    assert end.memory[: case.size] == ours(2 * case.half)[case.half : case.half + case.size]
    report(end, case)


def read_lat_client(end: Foreign, case: Case, remote: PingpongDest, region) -> None:
    for _ in range(case.iters):
        end.post(WROpcode.RDMA_READ, case.size, remote)
        end.complete(WCOpcode.RDMA_READ)
    assert len(end.tell(case.dest)) == 56


def write_lat_client(end: Foreign, case: Case, remote: PingpongDest, region) -> None:
    for number in range(1, case.iters + 1):
        last = case.half + case.size - 1
        await_true(lambda: end.memory[last] == number)  # noqa: B023
        end.memory[case.size - 1] = number
        end.post(WROpcode.RDMA_WRITE, case.size, remote)
        if number < case.iters:
            end.complete(WCOpcode.RDMA_WRITE)
    # There is no handshake at the end.


def send_lat_client(end: Foreign, case: Case, remote: PingpongDest, region) -> None:
    for _ in range(case.iters):
        end.post(WROpcode.SEND, case.size)
        assert end.complete(WCOpcode.RECV) == [case.size]
    assert len(end.tell(case.dest)) == 56


def send_bw_client(end: Foreign, case: Case, remote: PingpongDest, region) -> None:
    there = slice(case.half, case.half + 4)
    before = 0
    for credit in CREDITS[case.iters]:
        for number in range(before + 1, credit + 1):
            assert end.memory[there] == before.to_bytes(4, "little"), number
            end.post(WROpcode.SEND, case.size)
            end.complete(WCOpcode.SEND)
        await_true(lambda: end.memory[there] == credit.to_bytes(4, "little"))  # noqa: B023
        before = credit
    assert len(end.tell(case.dest)) == 56


CLIENTS = {
    "ib_write_bw": write_bw_client,
    "ib_write_lat": write_lat_client,
    "ib_read_bw": read_bw_client,
    "ib_read_lat": read_lat_client,
    "ib_send_bw": send_bw_client,
    "ib_send_lat": send_lat_client,
}


# The scripted server


class Server(Scripted):
    """In a thread of its own: the steps of one test."""

    def __init__(self, end: Foreign, case: Case, listener):
        super().__init__(self.steps)
        self.end, self.case, self.listener = end, case, listener
        self.reported: list[bytes] = []

    def steps(self) -> None:
        end, case = self.end, self.case
        end.answer(self.listener)
        assert end.reply(VERSION) == VERSION
        assert end.reply(PAGE) == PAGE
        assert end.reply(LINE) == LINE
        assert end.reply(MTU) == MTU
        assert end.reply(dest()) == bytes(56)
        end.answer_again(self.listener)
        assert end.reply(dest()) == bytes(56)
        if "send" in case.tool:
            end.receive(case.iters, case.size, case.half)
        told = [end.reply(case.dest) for _ in range(HANDSHAKES[case.tool])]
        assert len(set(told)) == 1
        self.test(parse(told[0]))
        end.data.disconnect()

    def test(self, remote: PingpongDest) -> None:
        end, case = self.end, self.case
        match case.tool:
            case "ib_write_lat":
                for number in range(1, case.iters + 1):
                    end.memory[case.size - 1] = number
                    end.post(WROpcode.RDMA_WRITE, case.size, remote)
                    end.complete(WCOpcode.RDMA_WRITE)
                    last = case.half + case.size - 1
                    await_true(lambda: end.memory[last] == number)  # noqa: B023
                return
            case "ib_send_lat":
                for _ in range(case.iters):
                    assert end.complete(WCOpcode.RECV) == [case.size]
                    end.post(WROpcode.SEND, case.size)
            case "ib_send_bw":
                self.take_sends(remote)
            case "ib_write_bw" | "ib_read_bw":
                end.reply(case.dest)
                self.reported = [end.reply(bytes(8)) for _ in range(5)]
                if case.tool == "ib_write_bw":
                    expected = placed(case, bytes(case.half), ours(2 * case.half))
                    there = slice(case.half, 2 * case.half)
                    await_true(lambda: end.memory[there] == expected)
        end.reply(case.dest)

    def take_sends(self, remote: PingpongDest) -> None:
        end, case = self.end, self.case
        for number in range(1, case.iters + 1):
            assert end.complete(WCOpcode.RECV) == [case.size]
            if number in CREDITS[case.iters]:
                end.memory[:4] = number.to_bytes(4, "little")
                end.post(WROpcode.RDMA_WRITE, 4, remote)
                end.complete(WCOpcode.RDMA_WRITE)


@pytest.mark.parametrize(("tool", "seed"), CASES)
def test_a_server_of_the_release(devices: Devices, tool, seed):
    case = Case(tool, seed)
    with listen(devices.theirs) as listener, case.foreign(devices.theirs) as end:
        options = settings(
            tool, size=case.size, iters=case.iters, host="127.0.0.1", port=listener.port
        )
        with Server(end, case, listener) as server:
            result = ends.ask(devices.ours, options)
    assert result is not None
    assert (result.size, result.iterations) == (case.size, case.iters)
    if server.reported:
        assert isinstance(result, Bandwidth)
        told = [case.size.to_bytes(8, "big"), case.iters.to_bytes(8, "big")]
        assert server.reported == [*told, *doubles(result.peak, result.average, result.rate)]
    devices.check_clean()


def test_a_server_that_is_faster_than_the_last_completion(devices: Devices, monkeypatch):
    """Nobody meets at the end of ib_write_lat: the server disconnects when it has everything."""
    case = Case("ib_write_lat", 0)
    completed = []
    keep = Link._keep

    def keep_but_the_last(self: Link, found: WC) -> None:
        if found.status == WCStatus.SUCCESS and found.opcode == WCOpcode.RDMA_WRITE:
            completed.append(found)
            if len(completed) == case.iters:
                return
        keep(self, found)

    monkeypatch.setattr(Link, "_keep", keep_but_the_last)
    with listen(devices.theirs) as listener, case.foreign(devices.theirs) as end:
        options = {"size": case.size, "iters": case.iters, "port": listener.port}
        with Server(end, case, listener):
            result = ends.ask(devices.ours, settings(case.tool, host="127.0.0.1", **options))
    assert result is not None and len(completed) == case.iters
