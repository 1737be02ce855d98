"""Linux' end of all cases: plain sockets, told by lines of JSON what to do.

A request is `{"id": 1, "do": "receive", ...arguments}`, its answer `{"id": 1, "value": ...}` or
`{"id": 1, "error": "ConnectionResetError"}`. Each request has a thread, so that one connection can
send and receive at once. The program ends with its standard input. It needs Python alone.
"""

import errno
import json
import os
import random
import select
import socket
import struct
import subprocess
import sys
import threading
import time

_PATIENCE = 120.0
_CHUNK = 1 << 16
# struct tcp_info of linux/tcp.h: offset and format.
_INFO = {
    "state": (0, "=B"),
    "probes": (3, "=B"),
    "snd_mss": (16, "=I"),
    "pmtu": (60, "=I"),
    "total_retrans": (100, "=I"),
    "segs_in": (140, "=I"),
    "data_segs_in": (152, "=I"),
    "snd_wnd": (228, "=I"),
    "rcv_wnd": (232, "=I"),
}


class Peer:
    """What can be asked; sockets are numbers."""

    def __init__(self):
        self._sockets = {}
        self._next = 0
        self._lock = threading.Lock()

    def _new(self, made):
        made.settimeout(_PATIENCE)
        with self._lock:
            self._next += 1
            self._sockets[self._next] = made
            return self._next

    @staticmethod
    def _socket(local, receive_buffer, send_buffer):
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_buffer is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if send_buffer is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        made.bind(("0.0.0.0", local))
        return made

    def listen(self, port, receive_buffer=None, send_buffer=None):
        """A listener, whose buffers those of its connections are."""
        made = self._socket(port, receive_buffer, send_buffer)
        made.listen(8)
        return self._new(made)

    def accept(self, of):
        """The next connection."""
        return self._new(self._sockets[of].accept()[0])

    def begin(self, host, port, local=0, receive_buffer=None, send_buffer=None):
        """Send SYN; `established` waits for the rest."""
        made = self._socket(local, receive_buffer, send_buffer)
        made.setblocking(False)
        result = made.connect_ex((host, port))
        if result not in (0, errno.EINPROGRESS):
            raise OSError(result, os.strerror(result))
        made.setblocking(True)
        return self._new(made)

    def established(self, of):
        """Wait for the end of the handshake."""
        made = self._sockets[of]
        if not select.select([], [made], [], _PATIENCE)[1]:
            raise TimeoutError
        result = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if result:
            raise OSError(result, os.strerror(result))
        return of

    def send(self, of, seed, count, piece=None):
        """Octets that both ends know, in segments of their own of at most `piece` each."""
        octets = random.Random(seed).randbytes(count)
        for at in range(0, count, piece or count or 1):
            self._sockets[of].sendall(octets[at : at + (piece or count)])

    def receive(self, of, seed, count):
        """Whether so many octets, and these, come."""
        expected = random.Random(seed).randbytes(count)
        got = bytearray()
        while len(got) < count:
            part = self._sockets[of].recv(min(_CHUNK, count - len(got)))
            if not part:
                return f"the end after {len(got)} of {count} bytes"
            got += part
        if got != expected:
            at = next(i for i in range(count) if got[i] != expected[i])
            return f"octet {at} of {count} is wrong"
        return "equal"

    def receive_end(self, of):
        """What comes until the end: a count of octets."""
        got = 0
        while part := self._sockets[of].recv(_CHUNK):
            got += len(part)
        return got

    def shutdown(self, of):
        """FIN."""
        self._sockets[of].shutdown(socket.SHUT_WR)

    def close(self, of):
        """FIN, or RST if octets were not read."""
        self._sockets.pop(of).close()

    def abort(self, of):
        """RST."""
        linger = struct.pack("ii", 1, 0)
        self._sockets[of].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close(of)

    def info(self, of):
        """Some of TCP_INFO."""
        octets = self._sockets[of].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        return {
            name: struct.unpack_from(form, octets, at)[0]
            for name, (at, form) in _INFO.items()
            if at + struct.calcsize(form) <= len(octets)
        }

    def wait_info(self, of, name, least=0, most=1 << 32):
        """Wait until a value of TCP_INFO is between two others; returns all of them."""
        give_up = time.monotonic() + _PATIENCE
        while True:
            info = self.info(of)
            if least <= info[name] <= most:
                return info
            if time.monotonic() > give_up:
                raise TimeoutError
            time.sleep(0.005)

    def ip(self, arguments):
        """The command of iproute2, in this program's namespace."""
        subprocess.run(["ip", *arguments], check=True, stdout=subprocess.DEVNULL)

    def ping(self, host, octets):
        """An ICMP echo, again until its reply comes; the octets of that."""
        data = random.Random(octets).randbytes(octets)
        head = struct.pack(">BBHHH", 8, 0, 0, os.getpid() & 0xFFFF, 1)
        total = sum(struct.unpack(f">{(8 + octets + 1) // 2}H", head + data + b"\0" * (octets % 2)))
        while total > 0xFFFF:
            total = (total & 0xFFFF) + (total >> 16)
        request = head[:2] + (total ^ 0xFFFF).to_bytes(2, "big") + head[4:] + data
        give_up = time.monotonic() + _PATIENCE
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
            raw.settimeout(1)
            while time.monotonic() < give_up:
                raw.sendto(request, (host, 0))
                try:
                    reply = raw.recv(1 << 16)[20:]
                except TimeoutError:
                    continue
                if reply[0] == 0 and reply[4:8] == request[4:8]:
                    return "equal" if reply[8:] == data else "other octets"
        raise TimeoutError


def main():
    """Serve standard input."""
    peer = Peer()
    lock = threading.Lock()

    def answer(request):
        number, name = request.pop("id"), request.pop("do")
        try:
            reply = {"id": number, "value": getattr(peer, name)(**request)}
        except OSError as error:
            reply = {"id": number, "error": type(error).__name__, "text": str(error)}
        except BaseException as error:
            reply = {"id": number, "error": "Fault", "text": repr(error)}
        with lock:
            print(json.dumps(reply), flush=True)

    print(json.dumps({"pid": os.getpid()}), flush=True)
    for line in sys.stdin:
        threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()
    os._exit(0)


if __name__ == "__main__":
    main()
