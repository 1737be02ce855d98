"""`make packetdrill` without packetdrill: its server, the excuses, the verdicts, archives."""

import contextlib
import errno
import fcntl
import hashlib
import io
import os
import select
import socket
import struct
import tarfile
import threading

import pytest

from stagecoach.sim.model.tcp.options import Options
from stagecoach.sim.model.tcp.segment import Flags, Segment, decode_packet, encode_packet
from tests.support.compiled_nic import NIC_CONFIG, nic_library
from tools.packetdrill import __main__ as command
from tools.packetdrill import build, judge, scripts
from tools.packetdrill.engine_world import CONFIG, EngineWorld
from tools.packetdrill.scripts import Excuse, Outcome
from tools.packetdrill.server import Server, serve
from tools.packetdrill.trace import Recorder, Trace, read_traces
from tools.packetdrill.world import LOCAL, REMOTE, START_US, AnyWorld, World

MAIN, OTHER = 0, 1
PORT, PEER_PORT = 8080, 40000
MS = 1_000
LISTENER, FD = 5, 7


class Client:
    """What packetdrill does: asks, and reads replies."""

    def __init__(self, world: AnyWorld | None = None) -> None:
        self.server = Server(world or World(Recorder("test")))
        self.iss = 0

    def ask(self, name, *numbers, octets=b"", thread=MAIN):
        numbers = (*numbers, 0, 0, 0, 0)[:4]
        return decoded(self.server.answer(thread, name, numbers, octets))

    def result(self, name, *numbers, **more):
        """What a call returns: a number, or the negative one of its error."""
        result, number, _, _ = self.ask(name, *numbers, **more)
        return result if result >= 0 else -number

    def arrive(self, flags, seq, ack=0, payload=b"", options=None):
        segment = Segment(
            PEER_PORT, PORT, seq, self.iss + ack, flags, 1000, payload, options or Options()
        )
        assert self.result("packet", octets=encode_packet(segment, REMOTE, LOCAL.ip)) == 0

    def sniff(self):
        """The next segment, and when it left."""
        result, _, at, octets = self.ask("sniff")
        assert result == 0
        return decode_packet(octets)[1], at - START_US

    def accept(self):
        """A connection of the peer; its first byte of data has number 1."""
        assert self.result("socket", LISTENER, socket.AF_INET, socket.SOCK_STREAM) == LISTENER
        assert self.result("bind", LISTENER, int(LOCAL.ip), PORT) == 0
        assert self.result("listen", LISTENER, 1) == 0
        self.arrive(Flags.SYN, 0, options=Options(mss=1000))
        segment, _ = self.sniff()
        self.iss = segment.sequence
        self.arrive(Flags.ACK, 1, 1)
        result, _, address, _ = self.ask("accept", LISTENER, FD)
        assert (result, address) == (FD, int(REMOTE) << 16 | PEER_PORT)


def decoded(reply):
    """A reply's numbers and octets."""
    header, _, octets = reply.partition(b"\n")
    return (*map(int, header.split()), octets)


@pytest.fixture
def client():
    return Client()


@pytest.mark.usefixtures("compiled_nic")
def test_the_engine_has_the_same_sockets():
    assert CONFIG == NIC_CONFIG
    with contextlib.closing(EngineWorld(Recorder("engine"), nic_library())) as world:
        client = Client(world)
        client.accept()
        client.arrive(Flags.ACK | Flags.PSH, 1, 1, bytes(range(10)))
        segment, _ = client.sniff()
        assert (segment.acknowledgment, segment.payload) == (11, b"")
        result, _, _, octets = client.ask("read", FD, 100)
        assert (result, octets) == (10, bytes(range(10)))
        assert client.result("write", FD, 3, octets=b"abc") == 3
        segment, at = client.sniff()
        assert segment.payload == b"abc"
        assert at + START_US <= world.now
        client.arrive(Flags.ACK, 11, 4)
        assert client.result("close", FD) == 0
        segment, _ = client.sniff()
        assert Flags.FIN in segment.flags
    sent = [words for _, words in world.recorder.trace.events if words.startswith(">")]
    assert len(sent) == 4


@pytest.fixture
def accepted(client):
    client.accept()
    return client


def test_time_stands_still_until_it_is_waited_for(client):
    assert {client.ask("time")[2] for _ in range(8)} == {START_US}
    assert [client.ask("time")[2] for _ in range(3)] == [START_US + n for n in (1, 2, 3)]
    client.ask("sleep", 100)
    assert [client.ask("time")[2] for _ in range(3)] == [START_US + 103] * 3


def test_packet_has_the_microsecond_at_which_it_left(accepted):
    accepted.ask("sleep", 10 * MS)
    assert accepted.result("write", FD, 300, octets=bytes(300)) == 300
    segment, at = accepted.sniff()
    assert (len(segment.payload), segment.flags, at) == (300, Flags.PSH | Flags.ACK, 10 * MS)
    # The retransmission is looked at when it is late: a round trip of no time, 200 ms at least.
    accepted.ask("sleep", 500 * MS)
    assert accepted.sniff() == (segment, 210 * MS)
    assert accepted.ask("time")[2] == START_US + 510 * MS
    # The next one is waited for.
    assert accepted.sniff() == (segment, 610 * MS)
    assert accepted.ask("time")[2] == START_US + 610 * MS


def test_packet_that_never_leaves_ends_the_wait(client):
    assert client.result("sniff") == -errno.ETIMEDOUT


def test_call_of_the_other_thread_returns_when_its_data_is_there(accepted):
    assert accepted.server.answer(OTHER, "read", (FD, 100, 0, 0), b"") is None
    accepted.ask("sleep", 5 * MS)
    assert accepted.server.late is None
    accepted.arrive(Flags.ACK, 1, 1, b"data")
    assert decoded(accepted.server.late) == (4, 0, 0, b"data")
    # The main thread goes on before the other one asks for the time.
    accepted.ask("sleep", 5 * MS)
    assert accepted.ask("time", thread=OTHER)[2] == START_US + 5 * MS
    assert accepted.ask("time", thread=OTHER)[2] == START_US + 10 * MS


def test_call_of_the_main_thread_that_nothing_can_end_is_refused(accepted):
    assert accepted.result("read", FD, 100) == -errno.EDEADLK


def test_call_that_does_not_block_says_so(accepted):
    assert accepted.result("fcntl", FD, fcntl.F_GETFL) == os.O_RDWR
    assert accepted.result("fcntl", FD, fcntl.F_SETFL, os.O_RDWR | os.O_NONBLOCK) == 0
    assert accepted.result("fcntl", FD, fcntl.F_GETFL) == os.O_RDWR | os.O_NONBLOCK
    assert accepted.result("read", FD, 100) == -errno.EAGAIN
    assert accepted.result("fcntl", FD, fcntl.F_GETFD) == -errno.EINVAL


@pytest.mark.parametrize(("blocking", "result"), [(True, 0), (False, -errno.EINPROGRESS)])
def test_connect(client, blocking, result):
    kind = socket.SOCK_STREAM | (0 if blocking else socket.SOCK_NONBLOCK)
    assert client.result("socket", FD, socket.AF_INET, kind) == FD
    assert client.result("bind", FD, 0, PORT) == 0
    reply = client.server.answer(OTHER, "connect", (FD, int(REMOTE), PEER_PORT, 0), b"")
    syn, _ = client.sniff()
    assert syn.flags == Flags.SYN
    client.iss = syn.sequence
    client.arrive(Flags.SYN | Flags.ACK, 0, 1)
    number = decoded(client.server.late if blocking else reply)[1]
    assert -number == result
    assert client.ask("getsockopt", FD, socket.SOL_SOCKET, socket.SO_ERROR)[2] == 0
    assert client.result("write", FD, 4, octets=b"data") == 4


def test_refused_connect_has_its_error(client):
    client.ask("socket", FD, socket.AF_INET, socket.SOCK_STREAM)
    client.ask("bind", FD, 0, PORT)
    assert client.server.answer(OTHER, "connect", (FD, int(REMOTE), PEER_PORT, 0), b"") is None
    client.iss = client.sniff()[0].sequence
    client.arrive(Flags.RST | Flags.ACK, 0, 1)
    assert decoded(client.server.late)[:2] == (-1, errno.ECONNREFUSED)
    assert client.ask("getsockopt", FD, socket.SOL_SOCKET, socket.SO_ERROR)[2] == errno.ECONNREFUSED


@pytest.mark.parametrize("how", [socket.SHUT_WR, socket.SHUT_RDWR])
def test_shutdown_sends_fin_and_ends_writing(accepted, how):
    assert accepted.result("shutdown", FD, how) == 0
    assert accepted.sniff()[0].flags == Flags.FIN | Flags.ACK
    assert accepted.result("write", FD, 4, octets=b"data") == -errno.EPIPE
    accepted.arrive(Flags.ACK, 1, 2, b"more")
    assert accepted.ask("read", FD, 100)[3] == b"more"
    assert accepted.result("close", FD) == 0
    assert accepted.result("close", FD) == -errno.EBADF


def test_read_after_shutdown_of_reading_is_the_end_of_the_stream(accepted):
    assert accepted.result("shutdown", FD, socket.SHUT_RD) == 0
    assert accepted.result("read", FD, 100) == 0
    assert accepted.result("write", FD, 4, octets=b"data") == 4


@pytest.mark.parametrize("shut", [False, True])
def test_close_with_unread_data_is_a_reset(accepted, shut):
    accepted.arrive(Flags.ACK, 1, 1, b"data")
    accepted.sniff()
    if shut:
        accepted.ask("shutdown", FD, socket.SHUT_WR)
        accepted.sniff()
    assert accepted.result("close", FD) == 0
    assert accepted.sniff()[0].flags == Flags.RST | Flags.ACK


def test_peer_that_closed_or_reset_ends_reading(accepted):
    accepted.arrive(Flags.FIN | Flags.ACK, 1, 1)
    assert accepted.result("read", FD, 100) == 0
    accepted.arrive(Flags.RST, 2)
    assert accepted.result("write", FD, 4, octets=b"data") == -errno.ECONNRESET


def test_poll(accepted):
    def poll(timeout, events=select.POLLIN, fd=FD):
        result, _, _, octets = accepted.ask(
            "poll", 1, timeout, octets=struct.pack("=ihh", fd, events, 0)
        )
        return result, struct.unpack("=ihh", octets)[2]

    assert poll(0) == (0, 0)
    assert poll(30) == (0, 0)
    assert accepted.ask("time")[2] == START_US + 30 * MS
    assert poll(-1, select.POLLIN | select.POLLOUT) == (1, select.POLLOUT)
    accepted.arrive(Flags.ACK, 1, 1, b"data")
    assert poll(-1) == (1, select.POLLIN)
    assert poll(-1, fd=LISTENER + 100) == (1, select.POLLNVAL)
    assert poll(0, fd=LISTENER) == (0, 0)


def test_poll_of_the_other_thread_ends_at_its_time(accepted):
    poll = struct.pack("=ihh", FD, select.POLLIN, 0)
    assert accepted.server.answer(OTHER, "poll", (1, 20, 0, 0), poll) is None
    accepted.ask("sleep", 50 * MS)
    assert decoded(accepted.server.late)[0] == 0
    assert accepted.ask("time", thread=OTHER)[2] == START_US + 20 * MS


@pytest.mark.parametrize(
    ("name", "numbers", "number"),
    [
        ("socket", (9, socket.AF_INET6, socket.SOCK_STREAM), errno.EAFNOSUPPORT),
        ("socket", (9, socket.AF_INET, socket.SOCK_DGRAM), errno.EPROTONOSUPPORT),
        ("bind", (LISTENER, int(REMOTE), PORT), errno.EADDRNOTAVAIL),
        ("listen", (FD + 1, 1), errno.EBADF),
        ("listen", (LISTENER, 1), errno.EINVAL),
        ("accept", (FD, 9), errno.EINVAL),
        ("read", (LISTENER, 1), errno.ENOTCONN),
        ("read", (FD, 1, socket.MSG_PEEK), errno.EOPNOTSUPP),
        ("write", (FD, 1, socket.MSG_MORE), errno.EOPNOTSUPP),
        ("setsockopt", (FD, socket.IPPROTO_TCP, socket.TCP_CORK, 1), errno.ENOPROTOOPT),
        ("setsockopt", (FD, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), errno.ENOPROTOOPT),
        ("getsockopt", (FD, socket.IPPROTO_TCP, socket.TCP_INFO), errno.ENOPROTOOPT),
    ],
)
def test_call_that_cannot_be_made_is_refused(accepted, name, numbers, number):
    assert accepted.result(name, *numbers) == -number


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("../common/defaults.sh", 0),
        ("../common/defaults.sh\n ethtool -K tun0 tso off gso off\n", 0),
        ("a/set_sysctls.py /proc/sys/net/ipv4/tcp_timestamps=0", 0),
        ("a/set_sysctls.py \\\n  /proc/sys/net/ipv4/tcp_timestamps=0", 0),
        ("/tmp/sysctl_restore_${PPID}.sh", 0),
        ("a/set_sysctls.py /proc/sys/net/ipv4/tcp_mtu_probing=2", 1),
        ("../common/defaults.sh; touch x", 1),
        ("touch x", 1),
    ],
)
def test_command_is_never_run(client, text, status, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert client.result("command", octets=text.encode()) == status
    assert bool(client.server.refused) == bool(status)
    assert list(tmp_path.iterdir()) == []


def test_trace_ends_with_the_last_segment_that_was_accepted(accepted):
    accepted.ask("write", FD, 2000, octets=bytes(2000))
    accepted.sniff()
    # Until it goes on to something else it has not accepted what it looked at.
    assert accepted.server.trace(passed=False).sent == 1
    accepted.arrive(Flags.ACK, 1, 2001)
    trace = accepted.server.trace(passed=True)
    assert accepted.server.trace(passed=False) == trace
    assert trace.events == [
        (0, "listen"),
        (0, "< S 0 win 1000 mss 1000"),
        (0, "> SA 0 ack 1 win 65535 mss 1460"),
        (0, "< A 1 ack 1 win 1000"),
        (0, "send 2000"),
        (0, "> A 1+1000 ack 1 win 65535"),
    ]
    assert read_traces("# none\n\n" + trace.write() + "\n") == [trace]


def test_requests_and_replies_go_over_sockets():
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    (main, main_end), (other, other_end) = pairs
    server = Server(World(Recorder("test")))
    thread = threading.Thread(target=serve, args=(server, main_end, other_end))
    thread.start()
    main.send(b"0 socket 7 2 1 6\n")
    assert main.recv(100) == b"7 0 0\n"
    main.send(b"1 time 0 0 0 0\n")
    assert other.recv(100) == b"0 0 %d\n" % START_US
    main.close()
    thread.join(10)
    assert not thread.is_alive()
    for end in (other, main_end, other_end):
        end.close()


ROW = '[[script]]\nname = "a/b.pkt"\nline = 3\nmessage = "bad"\nreason = "Linux"\n'


def test_excuses_are_read():
    excuses = scripts.read_excuses(ROW + "unpushed = [2, 4]\n")
    assert excuses == {"a/b.pkt": Excuse("a/b.pkt", 3, "Linux", "bad", (2, 4))}
    assert scripts.read_excuses("") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ROW + ROW, "two rows"),
        (ROW.replace('"Linux"', '" "'), "no reason"),
        (ROW.replace('"bad"', '""'), "no message"),
        (ROW.replace("line = 3", ""), "line"),
        (ROW + "lines = 3", "lines"),
        ("[[script]", "Expected"),
    ],
)
def test_bad_excuse_is_named(text, message):
    with pytest.raises(ValueError, match=message):
        scripts.read_excuses(text)


def test_all_excuses_give_their_reason():
    excuses = scripts.read_excuses(scripts.EXCUSED.read_text())
    assert len(excuses) == 14
    assert all("RFC" in x.reason or "Linux" in x.reason for x in excuses.values())
    on_engine = scripts.read_excuses(scripts.EXCUSED_ENGINE.read_text())
    assert len(excuses | on_engine) == 18


def test_script_is_changed_where_its_row_says():
    text = (
        "+0 > P. 1:2(1)\n+0 > P. 2:3(1) <nop,nop,TS val 1 ecr 2>\n"
        "+0 < S 0:0(0) <mss 1,sackOK,TS val 1 ecr 0>\n"
    )
    assert Excuse("x", 1, "r", "m", (2,)).change(text) == text.replace("P. 2", ". 2")
    plain = "+0 > P. 1:2(1)\n+0 > P. 2:3(1) \n+0 < S 0:0(0) <mss 1,nop,nop,sackOK>\n"
    assert Excuse("x", 1, "r", "m", timestamps=True).change(text) == plain


def outcome(passed, line=0):
    return Outcome(passed, line, "" if passed else "bad", Trace("x"))


THEN = Excuse("x", 3, "Linux", "bad", (1,), then=9)


@pytest.mark.parametrize(
    ("excuse", "outcomes", "verdict", "why"),
    [
        (None, [outcome(True)], judge.PASSED, ""),
        (None, [outcome(False, 3)], judge.FAILED, "bad"),
        (Excuse("x", 3, "Linux", "bad"), [outcome(False, 3)], judge.EXCUSED, "Linux"),
        (Excuse("x", 3, "Linux", "bad"), [outcome(False, 2)], judge.FAILED, "ends at line 2"),
        (Excuse("x", 3, "Linux", "bad"), [outcome(True)], judge.FAILED, "it passes"),
        (Excuse("x", 3, "Linux", "worse"), [outcome(False, 3)], judge.FAILED, "its row says"),
        (
            Excuse("x", 3, "Linux", "bad", (1,)),
            [outcome(False, 3), outcome(True)],
            judge.EXCUSED,
            "Linux",
        ),
        (
            Excuse("x", 3, "Linux", "bad", (1,)),
            [outcome(False, 3), outcome(False)],
            judge.FAILED,
            "changed",
        ),
    ],
)
def test_verdict(tmp_path, excuse, outcomes, verdict, why):
    path = tmp_path / "x"
    path.write_text("> P.\n")
    runs = iter(outcomes)
    excuses = {"x": excuse} if excuse else {}
    (found,) = judge.judge({"x": path}, excuses, lambda name, text: next(runs))
    assert found.verdict == verdict
    assert found.why.startswith(why) or why in found.why
    assert found.changed == (verdict == judge.EXCUSED and outcomes[-1].passed)
    assert list(runs) == []


def test_row_without_a_script_fails():
    (found,) = judge.judge(
        {}, {"x": Excuse("x", 0, "Linux", "bad")}, lambda name, text: outcome(True)
    )
    assert (found.name, found.verdict) == ("x", judge.FAILED)


@pytest.fixture
def archive(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "BUILD", tmp_path / "build")
    path = tmp_path / "p.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        entry = tarfile.TarInfo("p/a/b.pkt")
        entry.size = 4
        tar.addfile(entry, io.BytesIO(b"text"))
    return path


def test_archive_with_its_pin_is_unpacked(archive):
    pin = hashlib.sha256(archive.read_bytes()).hexdigest()
    folder = build.source(str(archive), pin.upper())
    assert {name: path.read_text() for name, path in scripts.find(folder).items()} == {
        "a/b.pkt": "text"
    }
    assert build.source(str(archive), pin) == folder


def test_scripts_of_one_name_are_all_found(tmp_path):
    for place in ("a/x/s.pkt", "b/x/s.pkt", "b/y/s.pkt"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).touch()
    assert list(scripts.find(tmp_path)) == ["x/s.pkt", "b/x/s.pkt", "y/s.pkt"]


def test_place_that_is_no_packetdrill_is_named(archive, tmp_path):
    with pytest.raises(build.BuildError, match="needs PACKETDRILL_SHA256"):
        build.source(str(archive), None)
    with pytest.raises(build.BuildError, match=r"SHA-256 is [0-9a-f]{64} \(expected 00\)"):
        build.source(str(archive), "00")
    with pytest.raises(build.BuildError, match="none is not there"):
        build.source(str(tmp_path / "none"), "00")
    octets = b"no archive"
    archive.write_bytes(octets)
    with pytest.raises(build.BuildError, match=archive.name):
        build.source(str(archive), hashlib.sha256(octets).hexdigest())
    with pytest.raises(build.BuildError, match=r"no packetdrill\.h"):
        build.build(tmp_path)


def test_without_packetdrill_nothing_runs_and_it_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "_DEFAULT", tmp_path / "none")
    monkeypatch.setattr(command, "RESULTS", tmp_path / "packetdrill.json")
    assert command.main([]) == 0
    said = capsys.readouterr().out
    assert said.startswith("packetdrill: 0 scripts ran: ") and said.count("\n") == 1
    assert '"scripts_total": 0' in (tmp_path / "packetdrill.json").read_text()
    assert command.main([str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
