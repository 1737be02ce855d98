"""Copies a file from one process to another by RDMA Writes.

    python file_copy.py receive FOLDER --port 7000
    python file_copy.py send FILE 127.0.0.1:7000

The receiver offers a ring of slots. The sender writes a piece of the file into each slot, and says
so by a Send. The receiver takes the piece and gives the slot back by a Send: this is the flow
control. At the end the sender sends the SHA-256 of the file, and the receiver answers whether it
has the same. What has come is in FOLDER/NAME.part until then, and a bad copy is removed.

Request, private data: length of the file (8 bytes), name.
Reply: address (8), STag (4), slots (4), bytes of a slot (4).
Send of the sender: bytes in the next slot (4); or, after the last one, the SHA-256 (32).
Send of the receiver: "+" for a slot that is free, "K" for a good copy, "X" for a bad one.
"""

import argparse
import hashlib
import os
import struct
import sys
from pathlib import Path

from stagecoach import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    WC,
    AccessFlags,
    Context,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendFlags,
    SendWR,
    SimulatedDevice,
    StagecoachError,
    WCOpcode,
    WCStatus,
    WROpcode,
    connect,
    listen,
)

SLOTS, SLOT = 8, 256 * 1024
OFFER = struct.Struct("!QIII")
LENGTH = struct.Struct("!I")
MESSAGE = 32  # bytes of the longest Send


class CopyError(Exception):
    """The file was not copied."""


class End:
    """A QP with its memory: data, then room for messages."""

    def __init__(self, context: Context, access: AccessFlags) -> None:
        self.pd, self.cq = PD(context), CQ(context)
        cap = QPCap(max_inline_data=MESSAGE)
        self.qp = QP(self.pd, QPInitAttr(self.cq, self.cq, cap))
        self.data = MR(self.pd, SLOTS * SLOT, access)
        self.inbox = MR(self.pd, (SLOTS + 2) * MESSAGE)
        self.outbox = MR(self.pd, MESSAGE)
        for place in range(SLOTS + 2):
            self.receive(place)

    def receive(self, place: int) -> None:
        sg = [SGE(self.inbox.addr + place * MESSAGE, MESSAGE, self.inbox.lkey)]
        self.qp.post_recv(RecvWR(place, sg))

    def send(self, message: bytes, *before: SendWR) -> None:
        self.outbox.write(message)
        sg = [SGE(self.outbox.addr, len(message), self.outbox.lkey)]
        flags = SendFlags.INLINE | SendFlags.SIGNALED
        self.qp.post_send(*before, SendWR(sg=sg, send_flags=flags))

    def message(self) -> bytes:
        """The next one; its receive is posted again."""
        while True:
            (wc,) = self.cq.wait(timeout=30)
            self.check(wc)
            if wc.opcode == WCOpcode.RECV:
                message = self.inbox.read(wc.byte_len, wc.wr_id * MESSAGE)
                self.receive(wc.wr_id)
                return message

    @staticmethod
    def check(wc: WC) -> None:
        if wc.status != WCStatus.SUCCESS:
            raise CopyError(wc.describe())


def send(context: Context, path: Path, host: str, port: int) -> None:
    """Sends a file."""
    with path.open("rb") as file:
        end = End(context, AccessFlags.LOCAL_WRITE)
        length = os.fstat(file.fileno()).st_size
        request = length.to_bytes(8) + path.name.encode()
        addr, rkey, slots, slot_size = OFFER.unpack(
            connect(end.qp, host, port, private_data=request)
        )
        digest = hashlib.sha256()
        free, slot = slots, 0
        while piece := file.read(min(slot_size, SLOT)):
            while not free:
                if end.message() != b"+":
                    raise CopyError("the receiver has given up")
                free += 1
            digest.update(piece)
            mine = slot % SLOTS
            end.data.write(piece, offset=mine * SLOT)
            write = SendWR(
                opcode=WROpcode.RDMA_WRITE,
                sg=[SGE(end.data.addr + mine * SLOT, len(piece), end.data.lkey)],
                send_flags=SendFlags(0),
                remote_addr=addr + slot % slots * slot_size,
                rkey=rkey,
            )
            end.send(LENGTH.pack(len(piece)), write)
            free -= 1
            slot += 1
        end.send(digest.digest())
        while (answer := end.message()) == b"+":
            pass
        if answer != b"K":
            raise CopyError("the copy is not the same")
        print(f"sent {length} bytes, SHA-256 {digest.hexdigest()}")


def take(end: End, path: Path, left: int) -> bytes:
    """Writes so many bytes to a file, as they come; returns their SHA-256."""
    digest, slot = hashlib.sha256(), 0
    with path.open("wb") as file:
        while left:
            message = end.message()
            if len(message) != LENGTH.size:
                raise CopyError(f"the sender ended {left} bytes too early")
            (size,) = LENGTH.unpack(message)
            if not 0 < size <= min(left, SLOT):
                raise CopyError(f"a piece of {size} bytes; allowed: 1 to {min(left, SLOT)}")
            piece = end.data.read(size, slot % SLOTS * SLOT)
            end.send(b"+")
            digest.update(piece)
            file.write(piece)
            left -= size
            slot += 1
    return digest.digest()


def receive(context: Context, folder: Path, port: int) -> None:
    """Receives one file; leaves nothing if it is not the same."""
    listener = listen(context, port=port)
    print(f"waiting on port {listener.port}", flush=True)
    request = listener.get_request(timeout=3600)
    length = int.from_bytes(request.private_data[:8])
    name = Path(request.private_data[8:].decode()).name
    end = End(context, AccessFlags.REMOTE_WRITE)
    request.accept(end.qp, private_data=OFFER.pack(end.data.addr, end.data.rkey, SLOTS, SLOT))
    part = folder / f"{name}.part"
    try:
        digest = take(end, part, length)
        good = end.message() == digest
        if good:
            part.rename(folder / name)
        end.send(b"K" if good else b"X")
        end.qp.disconnect(drain=5)
    finally:
        part.unlink(missing_ok=True)
    if not good:
        raise CopyError("the SHA-256 is another one")
    print(f"received {folder / name}, {length} bytes, SHA-256 {digest.hex()}")


def address(text: str) -> tuple[str, int]:
    """HOST:PORT of a command line."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a host and a port, as 127.0.0.1:7700")
    return host, int(port)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("receive")
    command.add_argument("folder", type=Path)
    command.add_argument("--port", type=int, default=0)
    command = commands.add_parser("send")
    command.add_argument("file", type=Path)
    command.add_argument("server", type=address, metavar="HOST:PORT")
    options = parser.parse_args()
    try:
        with Context(SimulatedDevice()) as context:
            if options.command == "receive":
                receive(context, options.folder, options.port)
            else:
                send(context, options.file, *options.server)
    except (StagecoachError, CopyError, OSError, ValueError) as error:
        sys.exit(f"file_copy: {error}")


if __name__ == "__main__":
    main()
