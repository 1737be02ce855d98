"""A board at a serial port as a device of the driver, with the sockets of this machine."""

from concurrent.futures import Future
from typing import Any

from stagecoach.host_driver.hostlink.device import ACCESS_SECONDS
from stagecoach.host_driver.hostlink.endpoint import GIVE_UP_SECONDS, RETRY_SECONDS, Endpoint
from stagecoach.host_driver.hostlink.rnic import LinkedRnic
from stagecoach.host_driver.hostlink.serial_link import (
    DEFAULT_BAUD,
    OPEN_SECONDS,
    Hello,
    LinkTimes,
    SerialLink,
)
from stagecoach.host_driver.transport.base import ByteStream, TransportError, TransportTimeout
from stagecoach.host_driver.transport.lending import SocketLender
from stagecoach.host_driver.transport.records import Record


class SerialDevice(SerialLink, SocketLender):
    """A `Transport` to a board at a serial port, or to what stands for one at a pseudo-terminal.

    The board's device is reset when it is opened. A thread serves the port and the sockets.

    Parameters
    ----------
    port: of the system, e.g. /dev/ttyUSB0.
    baud: that of the board.
    record: keep the bytes of all streams, for `take_records`.
    retry_seconds, give_up_seconds: of the link, see `Endpoint`.
    open_seconds: for which the board may take to answer.
    access_seconds: for which a register access may take.

    Raises TransportTimeout if no board answers, TransportError if there is no such port, or if the
    board has a network of its own: that is a `SerialNic`.
    """

    _device: LinkedRnic

    def __init__(
        self,
        port: str,
        baud: int = DEFAULT_BAUD,
        *,
        record: bool = False,
        retry_seconds: float = RETRY_SECONDS,
        give_up_seconds: float = GIVE_UP_SECONDS,
        open_seconds: float = OPEN_SECONDS,
        access_seconds: float = ACCESS_SECONDS,
    ):
        SocketLender.__init__(self, record)
        times = LinkTimes(retry_seconds, give_up_seconds, open_seconds, access_seconds)
        SerialLink.__init__(self, port, baud, times)

    def _make_device(self, hello: Hello, endpoint: Endpoint, access_seconds: float) -> LinkedRnic:
        if hello.is_nic:
            raise TransportError(
                f"the board at {self._name} has a network of its own, and needs an address; "
                f"allowed: serial://{self._name}?ip=192.0.2.10/24"
            )
        return LinkedRnic(
            endpoint,
            self._memory,
            self._take_interrupt,
            access_seconds,
            selector=self._selector,
            events=hello.events,
            record=self._record,
        )

    def attach(self, connection: int, stream: ByteStream) -> None:
        """Lend the socket of a `SocketStream` to the device."""

        def take(descriptor: int) -> None:
            self._call(lambda: self._device.llp.attach(connection, descriptor))

        self._lend(connection, stream, take)

    def detach(self, connection: int, timeout: float = 2.0) -> None:
        """Send what the device has sent, close the socket, free the connection."""

        def begin(result: "Future[Any]") -> None:
            self._device.llp.detach(connection, timeout, result.set_result)

        if not self._submit(begin):
            raise TransportTimeout(
                f"detach of connection {connection}: not everything could be sent in time"
            )

    def take_records(self) -> list[Record]:
        """Return what crossed the LLP since the last call; needs `record=True`."""
        records, self._device.llp.records = self._device.llp.records, []
        return records
