"""A key-value cache: clients read it by RDMA Reads, and lock it by atomics.

    python kv_cache.py serve --port 7000
    python kv_cache.py put 127.0.0.1:7000 apple red
    python kv_cache.py get 127.0.0.1:7000 apple
    python kv_cache.py drop 127.0.0.1:7000 apple

The server takes no part in get, put and drop. It gives each client a number, and breaks the
locks of clients that have gone.

The table has buckets. A bucket is a lock, a count of changes, and four entries:

    lock      8 bytes   number of the client that changes the bucket, 0 if none does
    changes   8 bytes   which entry is driven out next
    entry    64 bytes   CRC 4, length of key 1, length of value 1, key 24, value 34

`get` reads the bucket by one RDMA Read. A CRC that is wrong says that somebody is writing: it reads
again. Nothing is tried for longer than `PATIENCE` seconds.
"""

import argparse
import struct
import sys
import time
from zlib import crc32

from stagecoach import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    AsyncEvent,
    Context,
    QPInitAttr,
    SendFlags,
    SendWR,
    SimulatedDevice,
    StagecoachError,
    WCStatus,
    WROpcode,
    connect,
    listen,
)

MAGIC = b"KVC1"
OFFER = struct.Struct("!4sQIII")  # magic, address, STag, buckets, number of the client
HEAD = struct.Struct("<QQ")
ENTRY = struct.Struct("<IBB24s34s")
WAYS = 4
BUCKET = HEAD.size + WAYS * ENTRY.size
PATIENCE = 10.0


class CacheError(Exception):
    """The cache cannot do what was asked."""


def encode(key: bytes, value: bytes) -> bytes:
    """An entry."""
    if not 1 <= len(key) <= 24 or len(value) > 34:
        raise CacheError("a key has 1 to 24 bytes, a value at most 34")
    rest = struct.pack("<BB24s34s", len(key), len(value), key, value)
    return crc32(rest).to_bytes(4, "little") + rest


def decode(entry: bytes) -> tuple[bytes, bytes] | None:
    """Key and value; None if the entry is empty. Raises `ValueError` if it is half written."""
    if not any(entry):
        return None
    crc, key_length, value_length, key, value = ENTRY.unpack(entry)
    if crc32(entry[4:]) != crc:
        raise ValueError("half written")
    return key[:key_length], value[:value_length]


class Server:
    """Has the table, and says where it is."""

    def __init__(self, context: Context, port: int = 0, buckets: int = 64) -> None:
        self.buckets = buckets
        self.pd, self.cq = PD(context), CQ(context)
        self.table = MR(self.pd, buckets * BUCKET, AccessFlags.REMOTE_ATOMIC)
        self.listener = listen(context, port=port)
        self.port = self.listener.port
        self.clients: dict[int, tuple[int, QP]] = {}
        self.last = 0
        context.add_event_handler(self.gone)

    def accept_one(self, timeout: float = 10.0) -> None:
        """Waits for a client."""
        request = self.listener.get_request(timeout)
        if request.private_data != MAGIC:
            request.reject(MAGIC)
            return
        self.last += 1
        qp = QP(self.pd, QPInitAttr(self.cq, self.cq, rfc7306=True))
        self.clients[qp.qp_num] = self.last, qp
        where = OFFER.pack(MAGIC, self.table.addr, self.table.rkey, self.buckets, self.last)
        try:
            request.accept(qp, private_data=where)
        except StagecoachError:
            if self.clients.pop(qp.qp_num, None):  # else an event was before us
                qp.close()
            raise

    def gone(self, event: AsyncEvent) -> None:
        """A QP has stopped: breaks the locks of its client, and empties what it may have spoilt."""
        number, qp = self.clients.pop(event.qp_num, (0, None))
        if qp is None:
            return
        qp.close()
        for offset in range(0, self.table.length, BUCKET):
            lock, changes = HEAD.unpack(self.table.read(HEAD.size, offset))
            if lock == number:
                for way in range(offset + HEAD.size, offset + BUCKET, ENTRY.size):
                    try:
                        decode(self.table.read(ENTRY.size, way))
                    except ValueError:
                        self.table.write(bytes(ENTRY.size), offset=way)
                self.table.write(HEAD.pack(0, changes), offset=offset)


class Client:
    """One connection to the cache.

    patience: seconds for which `get`, `put` and `drop` wait for other clients, before they raise
    `CacheError`.
    """

    def __init__(self, context: Context, host: str, port: int, patience: float = PATIENCE) -> None:
        self.patience = patience
        pd, self.cq = PD(context), CQ(context)
        self.qp = QP(pd, QPInitAttr(self.cq, self.cq, rfc7306=True))
        self.memory = MR(pd, BUCKET + 8)
        answer = connect(self.qp, host, port, private_data=MAGIC)
        magic, self.table, self.rkey, self.buckets, self.number = OFFER.unpack(answer)
        if magic != MAGIC:
            raise CacheError("this is no cache")

    def close(self) -> None:
        """Leaves the cache."""
        self.qp.close()

    def _request(
        self,
        opcode: WROpcode,
        remote: int,
        local: int,
        length: int,
        flags: SendFlags | None = None,
        compare_add: int = 0,
        swap: int = 0,
    ) -> SendWR:
        sg = [SGE(self.memory.addr + local, length, self.memory.lkey)]
        return SendWR(
            0,
            opcode,
            sg,
            flags or SendFlags(0),
            remote_addr=self.table + remote,
            rkey=self.rkey,
            compare_add=compare_add,
            swap=swap,
        )

    def _ask(self, *requests: SendWR) -> None:
        self.qp.post_send(*requests)
        (done,) = self.cq.wait()
        if done.status != WCStatus.SUCCESS:
            raise CacheError(done.describe())

    def _bucket(self, key: bytes) -> int:
        number: int = crc32(key) % self.buckets
        return number * BUCKET

    def _read(self, bucket: int) -> tuple[int, list[bytes]]:
        """Changes, and entries."""
        self._ask(self._request(WROpcode.RDMA_READ, bucket, 0, BUCKET, SendFlags.SIGNALED))
        data = self.memory.read(BUCKET)
        changes: int = HEAD.unpack_from(data)[1]
        ways = [data[n : n + ENTRY.size] for n in range(HEAD.size, BUCKET, ENTRY.size)]
        return changes, ways

    def get(self, key: bytes) -> bytes | None:
        """The value, `None` if the cache does not have it."""
        bucket, end = self._bucket(key), time.monotonic() + self.patience
        while True:
            try:
                found = dict(filter(None, map(decode, self._read(bucket)[1])))
            except ValueError:
                self._give_up(end, key, "is being written")
            else:
                return found.get(key)

    def _give_up(self, end: float, key: bytes, why: str) -> None:
        """Raises `CacheError` if it is too late to try again."""
        if time.monotonic() > end:
            raise CacheError(f"the bucket of {key!r} {why} for {self.patience:g} s")

    def _compare_and_swap(self, bucket: int, old: int, new: int, *before: SendWR) -> bool:
        opcode = WROpcode.ATOMIC_CMP_AND_SWP
        flags = SendFlags.SIGNALED | SendFlags.FENCE
        swap = self._request(opcode, bucket, BUCKET, 8, flags, compare_add=old, swap=new)
        self._ask(*before, swap)
        return int.from_bytes(self.memory.read(8, BUCKET), sys.byteorder) == old

    def _change(self, key: bytes, entry: bytes) -> None:
        """Puts an entry into the bucket of its key; an empty one drops the key."""
        bucket, end = self._bucket(key), time.monotonic() + self.patience
        while not self._compare_and_swap(bucket, 0, self.number):
            self._give_up(end, key, "is locked by another client")
        changes, ways = self._read(bucket)
        keys = [(decode(way) or (b"",))[0] for way in ways]
        if key in keys:
            way = keys.index(key)
        elif not any(entry):  # another client has dropped it
            self._compare_and_swap(bucket, self.number, 0)
            return
        elif b"" in keys:
            way = keys.index(b"")
        else:
            way = changes % WAYS
        self.memory.write((changes + 1).to_bytes(8, "little"))
        self.memory.write(entry, offset=8)
        place = bucket + HEAD.size + way * ENTRY.size
        self._compare_and_swap(
            bucket,
            self.number,
            0,
            self._request(WROpcode.RDMA_WRITE, bucket + 8, 0, 8),
            self._request(WROpcode.RDMA_WRITE, place, 8, ENTRY.size),
            # what was written is there before the lock is given back
            self._request(WROpcode.RDMA_READ, place + ENTRY.size - 1, BUCKET - 1, 1),
        )

    def put(self, key: bytes, value: bytes) -> None:
        """Puts it into the cache; another key may be driven out."""
        self._change(key, encode(key, value))

    def drop(self, key: bytes) -> None:
        """Takes it out, if it is there."""
        self._change(key, bytes(ENTRY.size))


def serve(port: int) -> None:
    """Serves until it is interrupted."""
    with Context(SimulatedDevice()) as context:
        server = Server(context, port)
        print(f"serving on port {server.port}", flush=True)
        while True:
            try:
                server.accept_one(timeout=3600)
            except StagecoachError as error:
                print(error, file=sys.stderr)


def address(text: str) -> tuple[str, int]:
    """HOST:PORT of a command line."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a host and a port, as 127.0.0.1:7700")
    return host, int(port)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("serve")
    command.add_argument("--port", type=int, default=0)
    for name in ("get", "put", "drop"):
        command = commands.add_parser(name)
        command.add_argument("server", type=address, metavar="HOST:PORT")
        command.add_argument("key")
        if name == "put":
            command.add_argument("value")
    options = parser.parse_args()
    if options.command == "serve":
        try:
            serve(options.port)
        except KeyboardInterrupt:
            return
    with Context(SimulatedDevice()) as context:
        client = Client(context, *options.server)
        key = options.key.encode()
        if options.command == "put":
            client.put(key, options.value.encode())
        elif options.command == "drop":
            client.drop(key)
        else:
            value = client.get(key)
            print("not there" if value is None else value.decode())


if __name__ == "__main__":
    try:
        main()
    except (StagecoachError, CacheError, OSError, ValueError) as error:
        sys.exit(str(error))
