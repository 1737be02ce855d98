"""A scripted end of perftest 4.5+0.17: its C structs, and its steps, one call each.

It shares no code with the protocol under test. **No octets of a real run exist**: all of this was
read, in the six binaries of Debian's perftest 4.5+0.17-1 (amd64), or in the source of perftest
(github.com/linux-rdma/perftest). ctypes lays the structs out as on x86-64. Where each is from:

* `VERSION`: binaries; main of ib_send_bw stores the 16 octets at 0x5b5f and 0x5b6b. They are
  sent by exchange_versions in src/perftest_communication.c.
* `PAGE`, `LINE`: source, check_sys_data in the same file: ints, turned by hton_int.
* `MTU`: source, check_mtu in the same file: 2 octets of a text.
* `PingpongDest`: source, struct pingpong_dest in src/perftest_resources.h; rdma_write_keys in
  src/perftest_communication.c turns its numbers in a struct of its stack, and not its padding.
* report, `doubles`: source, xchg_bw_reports in the same file.
* `HANDSHAKES`: source, calls of ctx_hand_shake in main of src/write_bw.c, write_lat.c, read_bw.c,
  read_lat.c, send_bw.c, send_lat.c.

The binaries are stripped: there are no symbols to name. Lines move from commit to commit of the
source, and Debian's copy of it was not at hand: functions are named instead.
"""

import ctypes
import mmap
import struct
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Self

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    ConnectionListener,
    Context,
    QPCap,
    QPInitAttr,
    QPState,
    RecvWR,
    SendWR,
    WCOpcode,
    WCStatus,
    WROpcode,
    connect,
)
from tests.ulp.perftest.rig import SECONDS

VERSION = b"6.06" + bytes(12)
PAGE = (4096).to_bytes(4, "big")
LINE = (64).to_bytes(4, "big")
MTU = b"3\0"

HANDSHAKES = {
    "ib_write_bw": 3,
    "ib_write_lat": 4,
    "ib_read_bw": 3,
    "ib_read_lat": 4,
    "ib_send_bw": 4,
    "ib_send_lat": 4,
}
"""Between the second connection and the first message, counted in the main function of each."""


class PingpongDest(ctypes.BigEndianStructure):
    """struct pingpong_dest, with the numbers as rdma_write_keys turns them."""

    _fields_ = [
        ("lid", ctypes.c_int),
        ("out_reads", ctypes.c_int),
        ("qpn", ctypes.c_int),
        ("psn", ctypes.c_int),
        ("rkey", ctypes.c_uint),
        ("vaddr", ctypes.c_ulonglong),
        ("gid", ctypes.c_ubyte * 16),
        ("srqn", ctypes.c_uint),
        ("gid_index", ctypes.c_int),
    ]


def dest(rkey: int = 0, vaddr: int = 0, **fields: Any) -> bytes:
    """The octets of one; its padding is what the stack had."""
    octets = bytearray(bytes(PingpongDest(rkey=rkey, vaddr=vaddr, **fields)))
    octets[20:24] = b"\xde\xad\xbe\xef"
    return bytes(octets)


class Foreign:
    """The two QPs of an end.

    rx: receives of the second QP, posted by hand. octets: of its memory.
    stag, addr: of the memory, if they shall not be drawn.

    Attributes
    ----------
    spoke_at: monotonic time before the last message of the exchange, or connection.
    """

    def __init__(
        self,
        context: Context,
        *,
        octets: int = 1 << 17,
        rx: int = 1,
        stag: int | None = None,
        addr: int | None = None,
    ):
        self.pd = PD(context)
        self.cq, self.data_cq = CQ(context, 64), CQ(context, 2048)
        self.control = QP(self.pd, QPInitAttr(self.cq, self.cq, QPCap(2, 1)))
        self.data = QP(self.pd, QPInitAttr(self.data_cq, self.data_cq, QPCap(512, rx)))
        self.memory = mmap.mmap(-1, octets)
        access = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_READ
        self.mr = MR(self.pd, self.memory, access, stag=stag, addr=addr)
        # One buffer for both directions, as there.
        self._buffer = bytearray(56)
        self._buffer_mr = MR(self.pd, self._buffer)
        self._heard: list[bytes] = []
        self._completed: defaultdict[WCOpcode, list[int]] = defaultdict(list)
        self.spoke_at = 0.0
        self._post()

    def _post(self) -> None:
        mr = self._buffer_mr
        self.control.post_recv(RecvWR(sg=[SGE(mr.addr, 56, mr.lkey)]))

    # Connections

    def call(self, port: int) -> None:
        self.spoke_at = time.monotonic()
        connect(self.control, "127.0.0.1", port, ord=0, ird=0)

    def call_again(self, port: int, **options: Any) -> None:
        self.spoke_at = time.monotonic()
        connect(self.data, "127.0.0.1", port, **options)

    def answer(self, listener: ConnectionListener) -> None:
        request = listener.get_request(SECONDS)
        self.spoke_at = time.monotonic()
        request.accept(self.control, ord=0, ird=0)

    def answer_again(self, listener: ConnectionListener) -> None:
        request = listener.get_request(SECONDS)
        self.spoke_at = time.monotonic()
        request.accept(self.data)

    # The exchange

    def say(self, octets: bytes) -> None:
        self.spoke_at = time.monotonic()
        self._buffer[: len(octets)] = octets
        mr = self._buffer_mr
        self.control.post_send(SendWR(sg=[SGE(mr.addr, len(octets), mr.lkey)]))
        while self._poll() != WCOpcode.SEND:
            pass

    def hear(self) -> bytes:
        while not self._heard:
            self._poll()
        return self._heard.pop(0)

    def _poll(self) -> WCOpcode:
        (found,) = self.cq.wait(1, SECONDS)
        assert found.status == WCStatus.SUCCESS, found.describe()
        if found.opcode == WCOpcode.RECV:
            self._heard.append(bytes(self._buffer[: found.byte_len]))
            self._post()
        return found.opcode

    def tell(self, octets: bytes) -> bytes:
        """The step of a client."""
        self.say(octets)
        return self.hear()

    def reply(self, octets: bytes) -> bytes:
        """The step of a server."""
        heard = self.hear()
        self.say(octets)
        return heard

    # The test

    def receive(self, number: int, octets: int, offset: int = 0) -> None:
        """Posts receives."""
        element = SGE(self.mr.addr + offset, octets, self.mr.lkey)
        for _ in range(number):
            self.data.post_recv(RecvWR(sg=[element]))

    def post(self, opcode: WROpcode, octets: int, remote: PingpongDest | None = None) -> None:
        element = SGE(self.mr.addr, octets, self.mr.lkey)
        where = {} if remote is None else {"remote_addr": remote.vaddr, "rkey": remote.rkey}
        self.data.post_send(SendWR(0, opcode, [element], **where))  # type: ignore[arg-type]

    def complete(self, opcode: WCOpcode, number: int = 1) -> list[int]:
        """Waits for completions of a kind; their lengths."""
        while len(self._completed[opcode]) < number:
            (found,) = self.data_cq.wait(1, SECONDS)
            assert found.status == WCStatus.SUCCESS, found.describe()
            self._completed[found.opcode].append(found.byte_len)
        taken, self._completed[opcode] = (
            self._completed[opcode][:number],
            self._completed[opcode][number:],
        )
        return taken

    def await_ended(self) -> None:
        """Waits until the peer has ended the second connection."""
        await_true(lambda: not self.data_cq.poll() and self.data.state == QPState.ERR)

    def await_closed(self) -> None:
        """Waits until the peer has ended the first connection, which it does last."""
        await_true(lambda: not self.cq.poll() and self.control.state == QPState.ERR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pd.close()
        self.cq.close()
        self.data_cq.close()


def await_true(done: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < end
        time.sleep(0.002)


def doubles(*values: float) -> list[bytes]:
    return [struct.pack(">d", value) for value in values]


def parse(octets: bytes) -> PingpongDest:
    assert len(octets) == 56
    return PingpongDest.from_buffer_copy(octets)
