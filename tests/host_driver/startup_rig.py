"""What the tests of MPA startup share: open fake devices, raw peers, and devices that send RTR."""

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from stagecoach.host_driver import (
    CQ,
    PD,
    QP,
    RTR,
    Context,
    QPInitAttr,
    SendFlags,
    WROpcode,
    registers,
)
from stagecoach.host_driver.device import CommandOpcode
from stagecoach.host_driver.mpa_startup import StartupFrame
from stagecoach.host_driver.transport.base import ByteStream
from stagecoach.hw.interface.queue_entries import CompletionOpcode
from stagecoach.sim.model import startup as model
from stagecoach.sim.model.endpoint import Endpoint
from stagecoach.sim.model.mpa import Deframer
from tests.host_driver.fake_device import FakeDevice, entry_at

PATIENCE = 10.0
"""Seconds after which something that must come at once is missing."""

SHORT = 0.1
"""Seconds of a timer that is meant to run out."""


GOOD_REPLY = StartupFrame(reply=True, ird=8, ord=8)
"""Accepts a Request of the fake device."""


def changed(frame: StartupFrame, **changes) -> bytes:
    """The octets of a frame with other fields."""
    return StartupFrame(**{**vars(frame), **changes}).encode()


def to_model(frame: StartupFrame) -> model.StartupFrame:
    """The same frame of the reference model."""
    enhanced = None
    if frame.ird is not None and frame.ord is not None:
        enhanced = model.EnhancedData(
            frame.ird,
            frame.ord,
            frame.peer_to_peer,
            *(bool(frame.rtr & option) for option in (RTR.SEND, RTR.WRITE, RTR.READ)),
        )
    return model.StartupFrame(
        reply=frame.reply,
        markers=frame.markers,
        crc=frame.crc,
        reject=frame.reject,
        revision=frame.revision,
        private_data=frame.private_data,
        enhanced=enhanced,
    )


def to_driver(frame: model.StartupFrame) -> StartupFrame:
    """The same frame of the driver."""
    return StartupFrame.decode(frame.encode(), reply=frame.reply)


class RtrDevice(FakeDevice):
    """A fake device that sends zero-length messages, with the reference model's FPDUs.

    As responder it completes the first posted receive when the first FPDU is a Send.

    Attributes
    ----------
    completes: whether what was sent is completed. sent: FPDUs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.completes = True
        self.sent: list[bytes] = []
        self._endpoint = Endpoint(responder=False)
        self._rings: dict[int, tuple[memoryview, int]] = {}  # send ring and CQ of a QP
        self._next: dict[int, int] = {}

    def _command(self, opcode: int) -> None:
        super()._command(opcode)
        if opcode == CommandOpcode.QP_CREATE:
            qp = self.field(registers.QP_NUMBER, "qp")
            base = self.wide(registers.QP_SEND_BASE_LOW, registers.QP_SEND_BASE_HIGH)
            self._rings[qp] = self.mapped[base], self.field(registers.QP_CQS, "send_cq")
            self._next[qp] = 0

    def write_register(self, address: int, value: int) -> None:
        super().write_register(address, value)
        if address == registers.SEND_DOORBELL.address:
            fields = registers.SEND_DOORBELL.unpack(value)
            for index in range(self._next[fields["qp"]], fields["producer"]):
                self._send(fields["qp"], index)
            self._next[fields["qp"]] = fields["producer"]

    def _send(self, qp: int, index: int) -> None:
        memory, cq = self._rings[qp]
        entry = entry_at(memory, index)
        assert (entry["length"], entry["element_count"]) == (0, 0)
        assert entry["flags"] == SendFlags.SIGNALED, "nobody would learn that it is sent"
        stag, offset = int(entry["remote_stag"]), int(entry["remote_tagged_offset"])
        match entry["opcode"]:
            case WROpcode.RDMA_WRITE:
                self._endpoint.rdma_write(b"", stag, offset)
            case WROpcode.RDMA_READ:
                self._endpoint.rdma_read(0, 0, 0, stag, offset)
            case WROpcode.SEND:
                self._endpoint.post_send(b"")
        fpdus = self._endpoint.take_output()
        self.sent += fpdus
        self.attached[qp].sendall(b"".join(fpdus))
        if self.completes:
            self.complete(cq, qp, index, int(entry["opcode"]))

    def attach(self, connection: int, stream: ByteStream) -> None:
        super().attach(connection, stream)
        if self.field(registers.QP_MODE, "initiator") or not self.receives_posted:
            return
        deframer, ulpdus = Deframer(), list[bytes]()
        while not ulpdus:
            ulpdus += deframer.feed(stream.receive_exactly(1, PATIENCE))
        if ulpdus[0][1] & 0xF == WROpcode.SEND:
            cq = self.field(registers.QP_CQS, "receive_cq")
            self.complete(cq, connection, 0, CompletionOpcode.RECEIVE)

    @property
    def receives_posted(self) -> int:
        return sum(name == "RECEIVE_DOORBELL" for name, _ in self.doorbells)


class Side:
    """An open fake device with a QP."""

    def __init__(self, device: FakeDevice | None = None) -> None:
        self.device = device or FakeDevice()
        self.context = Context(self.device)
        self.pd, self.cq = PD(self.context), CQ(self.context)
        self.qp = self.another_qp()

    def another_qp(self) -> QP:
        return QP(self.pd, QPInitAttr(self.cq, self.cq))

    def told(self) -> dict[str, int]:
        """What the device was told of the connection that was made last."""
        found: dict[str, int] = {}
        for register in (registers.QP_READS, registers.QP_EMSS, registers.QP_MODE):
            found |= register.unpack(self.device.words[register.address])
        return found


class Background:
    """Runs something in a thread; leaving the `with` block joins it and raises what it raised.

    Where the block raises, too, its error stays, with a note of that of the thread.
    """

    def __init__(self, work: Callable[[], Any]):
        self._work = work
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self.result: Any = None

    def _run(self) -> None:
        try:
            self.result = self._work()
        except BaseException as error:
            self._error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the thread does not end"
        if self._error is None:
            return
        if error is None:
            raise self._error
        error.add_note(f"meanwhile in the thread: {self._error!r}")


def receive_frame(peer: socket.socket, *, reply: bool) -> model.StartupFrame:
    """The next startup frame, judged by the reference model."""
    octets = b""
    while (parsed := model.StartupFrame.parse(octets)) is None:
        part = peer.recv(1)  # nothing beyond the frame
        assert part, f"the stream ended after {octets!r}"
        octets += part
    frame, end = parsed
    assert (end, frame.reply) == (len(octets), reply)
    return frame


def receive_all(peer: socket.socket) -> bytes:
    """Everything up to the end of the stream, be it with a reset."""
    octets = b""
    with contextlib.suppress(ConnectionResetError):
        while part := peer.recv(4096):
            octets += part
    return octets


class RawResponder:
    """A listening socket; what it accepts is handled in a thread, then closed.

    Attributes
    ----------
    port: where it listens. result: what `handle` returned.
    """

    def __init__(self, handle: Callable[[socket.socket], Any]):
        self._handle = handle
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._background = Background(self._run)
        self.port = self._listener.getsockname()[1]

    def _run(self) -> Any:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return None
        with peer:
            peer.settimeout(PATIENCE)
            return self._handle(peer)

    @property
    def result(self) -> Any:
        return self._background.result

    def __enter__(self) -> Self:
        self._background.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        # Wakes up a thread to which nobody connected.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._background.__exit__(*error)
        self._listener.close()


def answer_with(octets: bytes) -> Callable[[socket.socket], tuple[model.StartupFrame, bytes]]:
    """Handler of a `RawResponder`: reads a Request, answers; returns it and what comes after."""

    def handle(peer: socket.socket) -> tuple[model.StartupFrame, bytes]:
        request = receive_frame(peer, reply=False)
        peer.sendall(octets)
        return request, receive_all(peer)

    return handle


def raw_initiator(
    port: int, octets: bytes = b"", host: str = "127.0.0.1", source: str = ""
) -> socket.socket:
    """A connected socket that has sent some octets; `source` is its own address."""
    peer = socket.create_connection((host, port), PATIENCE, (source, 0) if source else None)
    peer.sendall(octets)
    return peer
