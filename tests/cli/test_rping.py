"""`stagecoach rping`: both sides as processes, and against a peer that does not keep to it."""

import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from stagecoach.cli.main import main
from stagecoach.host_driver import (
    CQ,
    PD,
    QP,
    AccessFlags,
    ConnectionRejected,
    Context,
    QPCap,
    QPInitAttr,
    StartupOptions,
    WROpcode,
    connect,
    listen,
)
from stagecoach.sim.capture.decode import Decoded, SeenFpdu, Startup, decode_file
from stagecoach.sim.conversation import write_conversation
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.direction import Direction
from stagecoach.sim.model.mpa import frame_fpdu
from stagecoach.sim.model.rdmap import Opcode, control_octet
from stagecoach.sim.model.startup import EnhancedData, StartupFrame
from stagecoach.sim.transport import SimulatedDevice
from stagecoach.ulp.rping import ends, serving
from stagecoach.ulp.rping.ends import Server, Settings
from stagecoach.ulp.rping.link import Link, PeerClosed
from stagecoach.ulp.rping.messages import GO_AHEAD, Advertisement, ping_text, text_of
from tests.cli.processes import SECONDS, Process, Processes

pytestmark = pytest.mark.usefixtures("compiled_device")

ROOT = Path(__file__).parents[2]
CAPTURES = ROOT / "tests" / "data" / "captures"
BUILDS_A_DEVICE = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "one of the arguments -s -c is required"),
        (["-s", "-c"], "not allowed with argument -s"),
        (["-c"], "-c without -a; allowed: -c with -a and the address of the server"),
        (["-s", "-S", "25"], "size is 25; allowed: 26 to 65535"),
        (["-s", "-S", "65536"], "size is 65536; allowed: 26 to 65535"),
        (["-s", "-S", "4k"], "size is 4k; allowed: 26 to 65535"),
        (["-s", "-C", "-1"], "count is -1; allowed: 0 to 2147483647"),
        (["-s", "-p", "65536"], "port is 65536; allowed: 0 to 65535"),
        (["-s", "-p", "x"], "port is x; allowed: 0 to 65535"),
        (["-s", "-x"], "unrecognized arguments: -x"),
        (["-s", "--timeout", "0"], "timeout is 0; allowed: above 0 to 86400 s"),
        (["-s", "--idle", "-1"], "idle is -1; allowed: above 0 to 86400 s"),
        (["-c", "-a", "::1", "--idle", "1"], "--idle with -c; allowed: at the server"),
        (["-c", "-a", "::1", "--revision", "3"], "revision is 3; allowed: 1 to 2"),
        (
            ["-c", "-a", "::1", "--revision", "1", "--peer-to-peer"],
            "--peer-to-peer with --revision 1; allowed: with revision 2",
        ),
    ],
)
def test_bad_options_are_one_line_and_status_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["rping", *arguments])
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and err.endswith("\n")
    assert message in err


@pytest.mark.parametrize(("idle", "patience"), [(0.0, 120.0), (600.0, 120.0), (7.0, 7.0)])
def test_a_client_has_no_more_time_in_a_ping_than_idle_says(idle, patience):
    assert Settings(idle=idle).patience == patience


@pytest.mark.parametrize("number", [0, 1, 57, 58, 12345])
@pytest.mark.parametrize("size", [26, 64, 4000])
def test_a_ping_has_the_wanted_octets(number, size):
    text = ping_text(number, size)
    assert len(text) == size
    assert text.endswith(b"\0") and text.count(b"\0") == 1
    assert text.startswith(f"rdma-ping-{number}: ".encode())
    assert text_of(text) == text[:-1].decode()


def test_an_advertisement_is_big_endian():
    packed = bytes.fromhex("000055e2ba676e20 3b988800 00000040")
    advertisement = Advertisement(addr=0x55E2BA676E20, rkey=0x3B988800, length=64)
    assert advertisement.pack() == packed
    assert Advertisement.unpack(packed) == advertisement
    assert len(GO_AHEAD) == len(packed)


# The messages of a capture


def fpdus(decoded: Decoded) -> list[SeenFpdu]:
    return [item for item in decoded.items if isinstance(item, SeenFpdu)]


def story(decoded: Decoded) -> list[tuple]:
    """Every message: who sends it, what it is, and its octets.

    Buffers, which are an STag and an address, are numbered in the order in which they appear.
    Segments of a message are put together.
    """
    buffers: dict[tuple[int, int], int] = {}

    def buffer(stag: int, addr: int) -> int:
        return buffers.setdefault((stag, addr), len(buffers))

    told: list[tuple] = []
    payload = b""
    begin = -1
    for item in fpdus(decoded):
        seen = item.observation
        assert seen.opcode is not None
        what = Opcode(seen.opcode).name
        match seen.header:
            case TaggedHeader() as header:
                begin = begin if payload else buffer(header.stag, header.tagged_offset)
                payload += seen.payload
                if header.last:
                    told.append((seen.direction, what, begin, payload))
                    payload = b""
            case UntaggedHeader() as header:
                queue = (header.qn, header.msn, header.mo, header.last)
                content: object = seen.payload
                if seen.read_request is not None:
                    read = seen.read_request
                    content = (
                        buffer(read.sink_stag, read.sink_tagged_offset),
                        buffer(read.source_stag, read.source_tagged_offset),
                        read.size,
                    )
                elif seen.direction is Direction.TO_RESPONDER:
                    sent = Advertisement.unpack(seen.payload)
                    content = (buffer(sent.rkey, sent.addr), sent.length)
                told.append((seen.direction, what, queue, content))
    assert not payload
    return told


def startup(decoded: Decoded) -> list[tuple]:
    frames = [item.frame for item in decoded.items if isinstance(item, Startup)]
    return [
        (frame.revision, frame.crc, frame.markers, frame.enhanced, frame.private_data)
        for frame in frames
        if frame is not None
    ]


def test_the_captured_conversation_is_what_is_compared():
    """The comparison sees the order, the buffers and the octets."""
    messages = story(decode_file(CAPTURES / "crc1-rping-64.pcap"))
    assert [what for _, what, _, _ in messages[:6]] == [
        "SEND",
        "RDMA_READ_REQUEST",
        "RDMA_READ_RESPONSE",
        "SEND",
        "SEND",
        "RDMA_WRITE",
    ]
    assert messages[0][3] == (0, 64)
    assert messages[1][3] == (1, 0, 64)
    assert messages[2][2:] == (1, ping_text(0, 64))
    assert messages[5][2:] == (2, ping_text(0, 64))


class Pair:
    """Both ends in this process."""

    def __init__(self, settings: Settings, record: bool = False):
        self.device = SimulatedDevice(record=record)
        self.context, self.peer = Context(self.device), Context(SimulatedDevice())
        self.settings = settings
        self.ports: list[int] = []
        self.error: Exception | None = None
        self._thread = Thread(target=self._serve)

    def _serve(self) -> None:
        try:
            serving.serve(self.peer, self.settings, self.ports.append)
        except Exception as error:
            self.error = error

    def __enter__(self) -> "Pair":
        self._thread.start()
        end = time.monotonic() + SECONDS
        while not self.ports:
            assert time.monotonic() < end and self.error is None
            time.sleep(0.01)
        return self

    def wait_served(self) -> None:
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()

    def __exit__(self, kind: object, *_: object) -> None:
        self.context.close()
        if kind is not None:
            self.peer.close()
        self._thread.join(SECONDS)
        self.peer.close()


def here(port: int = 0, **options: object) -> Settings:
    return Settings(address="127.0.0.1", port=port, **options)  # type: ignore[arg-type]


class TestDevice:
    """What needs a built device."""

    pytestmark = BUILDS_A_DEVICE

    @pytest.mark.parametrize(
        ("capture", "size"),
        [("crc1-rping-64", 64), ("crc1-rping-4000-clientside", 4000)],
    )
    def test_the_messages_are_those_of_the_captured_conversation(self, capture, size, tmp_path):
        captured = decode_file(CAPTURES / f"{capture}.pcap")
        with Pair(here(size=size), record=True) as pair:
            ends.ping(pair.context, here(pair.ports[0], size=size, count=3, validate=True))
            pair.wait_served()
            assert pair.error is None
            path = tmp_path / "rping.pcapng"
            write_conversation(path, pair.device.recorded_streams, pair.device.take_records())
        recorded = decode_file(path)
        assert all(not item.problems for item in fpdus(recorded))
        assert story(recorded) == story(captured)
        assert startup(recorded) == startup(captured)

    def test_a_client_may_come_late(self, monkeypatch):
        monkeypatch.setattr(serving, "_LISTEN_SECONDS", 0.05)
        with Pair(here()) as pair:
            time.sleep(0.5)
            ends.ping(pair.context, here(pair.ports[0], count=1, validate=True))
            pair.wait_served()
            assert pair.error is None

    def test_a_longer_ping_than_the_server_has_room_for_is_named(self):
        with Pair(here(size=64)) as pair:
            with pytest.raises(PeerClosed, match="go-ahead after the Read of ping 0"):
                ends.ping(pair.context, here(pair.ports[0], size=65, count=1))
            pair.wait_served()
            assert "65 bytes; allowed: 0 to 64, the -S of the server" in str(pair.error)

    def test_a_persistent_server_serves_client_after_client(self, capsys):
        with Pair(here(persistent=True, debug=True)) as pair:
            for count in (1, 2):
                ends.ping(pair.context, here(pair.ports[0], count=count, validate=True))
            # One that fails does not end it.
            with pytest.raises(PeerClosed):
                ends.ping(pair.context, here(pair.ports[0], size=65, count=1))
            ends.ping(pair.context, here(pair.ports[0], count=3, validate=True))
            err = told(capsys, "after 3 pings")
            assert "after 1 pings" in err and "after 2 pings" in err
            pair.peer.close()  # nothing else ends it

    def test_clients_are_served_side_by_side_and_a_silent_one_holds_up_nobody(self, capsys):
        with Pair(here(persistent=True, debug=True)) as pair, Link(pair.context) as silent:
            connect(silent.qp, "127.0.0.1", pair.ports[0])
            mine = here(pair.ports[0], count=20, validate=True)
            pingers = [Thread(target=ends.ping, args=(pair.context, mine)) for _ in range(4)]
            for each in pingers:
                each.start()
            for each in pingers:
                each.join(SECONDS)
            err = told(capsys, "closed after 20 pings: 127.0.0.1:", 4)
            assert err.count("a client has connected: 127.0.0.1:") == 5
            assert "closed after 0 pings" not in err
            pair.peer.close()

    def test_a_silent_client_has_a_named_end(self, capsys):
        with Pair(here(persistent=True, idle=0.5)) as pair:
            with Link(pair.context) as silent:
                connect(silent.qp, "127.0.0.1", pair.ports[0])
                with pytest.raises(PeerClosed):
                    silent.receive("nothing", SECONDS)
            err = told(capsys, "PeerSilent")
            assert re.fullmatch(
                r"rping: 127\.0\.0\.1:\d+: PeerSilent: nothing from the peer in 0\.5 s; "
                "it still owed an advertisement\n",
                err,
            )
            pair.peer.close()

    def test_a_client_that_freezes_in_a_ping_has_the_same_end(self, capsys):
        with Pair(here(persistent=True, idle=0.5)) as pair:
            with Link(pair.context) as frozen:
                connect(frozen.qp, "127.0.0.1", pair.ports[0])
                mr = frozen.register(bytearray(64), AccessFlags.REMOTE_READ)
                frozen.send(Advertisement(mr.addr, mr.rkey, 64).pack())
                assert frozen.receive("the go-ahead") == GO_AHEAD
                err = told(capsys, "PeerSilent", seconds=30)
            assert "in 0.5 s; it still owed the second advertisement of ping 0" in err
            pair.peer.close()

    def test_a_client_for_which_there_is_no_qp_is_told_and_the_others_go_on(self, capsys):
        with Pair(here(persistent=True)) as pair:
            held = [QP(pd, init) for pd, init in all_but_one_qp(pair.peer)]
            with Link(pair.context) as first, Link(pair.context) as second:
                connect(first.qp, "127.0.0.1", pair.ports[0])
                with pytest.raises(ConnectionRejected):
                    connect(second.qp, "127.0.0.1", pair.ports[0])
                told(capsys, "ResourceError: all 64 QPs of the device are in use")
                mr = first.register(bytearray(64), AccessFlags.REMOTE_READ)
                first.send(Advertisement(mr.addr, mr.rkey, 64).pack())
                assert first.receive("the go-ahead") == GO_AHEAD
            assert held
            pair.peer.close()

    @pytest.mark.parametrize(
        "asked",
        [
            {"crc": False},
            {"markers": True},
            {"revision": 1},
            {"peer_to_peer": True},
            {"crc": False, "markers": True, "revision": 1, "timeout": 60.0},
        ],
    )
    def test_what_is_asked_for_in_startup_is_on_the_wire(self, asked, tmp_path):
        options = StartupOptions(**asked)
        with Pair(here(startup=options), record=True) as pair:
            mine = here(pair.ports[0], count=2, validate=True, startup=options)
            ends.ping(pair.context, mine)
            pair.wait_served()
            assert pair.error is None
            path = tmp_path / "rping.pcapng"
            write_conversation(path, pair.device.recorded_streams, pair.device.take_records())
        decoded = decode_file(path)
        frames = [item.frame for item in decoded.items if isinstance(item, Startup)]
        for frame in frames:
            assert (frame.crc, frame.markers, frame.revision) == (
                options.crc,
                options.markers,
                options.revision,
            )
            assert (frame.enhanced is None) == (options.revision == 1)
            if frame.enhanced is not None:
                assert frame.enhanced.peer_to_peer == options.peer_to_peer
        assert all(not item.problems for item in fpdus(decoded))
        assert len(fpdus(decoded)) == 2 * 7 + options.peer_to_peer


def told(
    capsys: pytest.CaptureFixture[str], text: str, count: int = 1, seconds: float = SECONDS
) -> str:
    """What came on standard error until it had a text so many times."""
    end = time.monotonic() + seconds
    err = ""
    while err.count(text) < count:
        assert time.monotonic() < end
        time.sleep(0.02)
        err += capsys.readouterr().err
    return err


def all_but_one_qp(context: Context) -> list[tuple[PD, QPInitAttr]]:
    """What uses up a device."""
    pd, cq = PD(context), CQ(context, 1024)
    return [(pd, QPInitAttr(cq, cq, QPCap(1, 1)))] * (context.attr.max_qp - 1)


@pytest.fixture
def serve(processes: Processes) -> Callable[..., Process]:
    def start(*options: str) -> Process:
        return processes.start("rping", "-s", "-d", "-p", "0", "-a", "127.0.0.1", *options)

    return start


@pytest.fixture
def server(serve: Callable[..., Process]) -> Process:
    return serve("-v", "-S", "4000")


@pytest.fixture
def ping(processes: Processes) -> Callable[..., Process]:
    def start(port: int, *options: str) -> Process:
        return processes.start("rping", "-c", "-a", "127.0.0.1", "-p", str(port), *options)

    return start


def port_of(server: Process) -> int:
    return server.await_port("stderr", "listening at port")


@pytest.fixture
def context() -> Iterator[Context]:
    with Context(SimulatedDevice()) as context:
        yield context


class TestProcesses:
    """Two processes, joined by TCP."""

    pytestmark = BUILDS_A_DEVICE

    @pytest.mark.parametrize("size", [26, 64, 4000])
    def test_both_print_every_ping(self, server, ping, size):
        port = port_of(server)
        status, out, err = ping(port, "-v", "-V", "-C", "3", "-S", str(size)).end()
        assert (status, err) == (0, "")
        texts = [text_of(ping_text(number, size)) for number in range(3)]
        assert out == "".join(f"ping data: {text}\n" for text in texts)
        status, out, err = server.end()
        assert status == 0
        assert out == "".join(f"server ping data: {text}\n" for text in texts)
        assert "closed after 3 pings" in err

    def test_no_server_is_one_line_and_status_1(self, ping, context):
        listener = listen(context)
        port = listener.port
        listener.close()
        status, out, err = ping(port, "-C", "1").end()
        assert (status, out) == (1, "")
        assert err.startswith("stagecoach rping: TCP connection: cannot connect")
        assert (
            err.endswith(": Connection refused\n") and "Errno" not in err and err.count("\n") == 1
        )

    def test_a_client_that_goes_half_way_is_an_error_of_the_server(self, server, context):
        port = port_of(server)
        with Link(context) as link:
            connect(link.qp, "127.0.0.1", port)
            mr = link.register(bytearray(64), AccessFlags.REMOTE_READ)
            link.send(Advertisement(mr.addr, mr.rkey, 64).pack())
            assert link.receive("the go-ahead") == GO_AHEAD
        status, out, err = server.end()
        assert (status, out) == (1, "server ping data: \n")
        last = err.splitlines()[-1]
        assert last.startswith("stagecoach rping: the peer closed the connection")
        assert "second advertisement of ping 0" in last
        assert "Traceback" not in err

    def test_a_client_that_is_killed_is_an_end_of_the_server(self, server, ping):
        port = port_of(server)
        killed = ping(port, "-v")
        assert killed.process.stdout is not None
        assert killed.process.stdout.readline().startswith("ping data: rdma-ping-0: ")
        killed.kill()
        status, _, err = server.end()
        # In the middle of a ping, or between two, or of an FPDU.
        assert (status == 1) == ("the peer closed the connection" in err or "inside an FPDU" in err)
        assert status in (0, 1) and "Traceback" not in err

    @pytest.mark.requirement("MPA-8-02")
    @pytest.mark.parametrize("cut", [0, 1, 39])
    def test_a_stream_that_ends_inside_an_fpdu_is_no_end_of_the_server(self, server, cut):
        """As that of a client whose host goes down: `cut` octets of its first Send are missing."""
        request = StartupFrame(reply=False, revision=2, enhanced=EnhancedData(ird=1, ord=1))
        header = UntaggedHeader(0, 1, rsvd_ulp=control_octet(Opcode.SEND)).encode()
        fpdu = frame_fpdu(header + Advertisement(0, 0, 64).pack())
        with socket.create_connection(("127.0.0.1", port_of(server))) as stream:
            stream.sendall(request.encode())
            assert stream.recv(1000).startswith(b"MPA ID Rep Frame")
            # Not one octet of the Send, or all but some.
            stream.sendall(fpdu[: len(fpdu) - cut] if cut else b"")
        status, out, err = server.end()
        assert out == ""
        if not cut:
            assert (status, "the client has closed after 0 pings" in err) == (0, True)
            return
        assert status == 1 and "Traceback" not in err
        last = err.splitlines()[-1]
        assert last.startswith("stagecoach rping: ")
        assert "connection closed or lost inside an FPDU" in last

    @pytest.mark.requirement("MPA-7.1.1-08", "MPA-7.1.1-09")
    @pytest.mark.parametrize("option", ["--no-crc", "--crc"])
    @pytest.mark.parametrize("asked", [False, True])
    def test_crc_is_off_only_if_neither_end_asks_for_it(self, serve, option, asked):
        """Whether it is off is seen by an FPDU whose CRC is wrong."""
        process = serve(option)
        request = StartupFrame(reply=False, crc=asked, revision=1)
        header = UntaggedHeader(0, 1, rsvd_ulp=control_octet(Opcode.SEND)).encode()
        fpdu = frame_fpdu(header + Advertisement(0, 1, 64).pack())[:-4] + b"\xff\0\xff\0"
        with socket.create_connection(("127.0.0.1", port_of(process))) as stream:
            stream.settimeout(SECONDS)
            stream.sendall(request.encode())
            parsed = StartupFrame.parse(stream.recv(20, socket.MSG_WAITALL))
            off = option == "--no-crc" and not asked
            assert parsed is not None and parsed[0].crc != off
            stream.sendall(fpdu)
            if off:
                start = stream.recv(4, socket.MSG_WAITALL)
                assert Opcode(start[3] & 0x0F) == Opcode.RDMA_READ_REQUEST
            else:
                status, out, err = process.end()
                assert (status, out) == (1, "")
                assert err.endswith(", MPA CRC error (layer 2, type 0, code 0x02)\n")
                return
        status, _, err = process.end()
        assert status == 1 and "CRC" not in err

    def serve_one(self, context: Context, listener, corrupt: int | None) -> None:
        """A server that closes in the first ping, or changes an octet of what it has read."""
        with Link(context) as link:
            listener.get_request(SECONDS).accept(link.qp)
            if corrupt is None:
                link.receive("an advertisement", SECONDS)
                return
            server = Server(link, Settings())
            move = link.move

            def spoil(opcode: WROpcode, *arguments) -> None:
                move(opcode, *arguments)
                if opcode == WROpcode.RDMA_READ:
                    server._buffer[corrupt] ^= 0x01

            link.move = spoil  # type: ignore[method-assign]
            server.run()

    @pytest.mark.parametrize(
        ("corrupt", "options", "status", "message"),
        [
            (40, ["-V"], 1, r"rping: data mismatch in ping 0: byte 40 came back as 0x\w\w"),
            (40, [], 0, ""),
            (None, ["-V"], 1, "rping: the peer closed the connection; it still owed the go-a"),
        ],
        ids=["validate", "do not validate", "closes"],
    )
    def test_a_server_that_does_wrong(self, ping, context, corrupt, options, status, message):
        with listen(context) as listener:
            thread = Thread(target=self.serve_one, args=(context, listener, corrupt))
            thread.start()
            found, out, err = ping(listener.port, "-C", "1", *options).end()
            thread.join(SECONDS)
        assert (found, out) == (status, "")
        assert re.search(message, err)
        assert err.count("\n") == (1 if message else 0)

    def test_an_interrupted_server_ends(self, server):
        port_of(server)
        server.process.send_signal(signal.SIGINT)
        status, out, err = server.end()
        assert (status, out) == (130, ""), err
        assert err.splitlines()[-1] == "stagecoach rping: interrupted"
