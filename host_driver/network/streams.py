"""The streams of a transport whose device has a network of its own."""

from stagecoach.host_driver.network.network import Network
from stagecoach.host_driver.network.stream import NetworkListener, NetworkStream
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.transport.base import ByteStream


class NetworkStreams:
    """The part of a `NetworkTransport` that makes streams and hands them over.

    Attributes
    ----------
    stack: the driver's network.
    """

    stack: Network

    def listen(
        self, host: str, port: int, *, dscp: int | None = None, ttl: int | None = None
    ) -> NetworkListener:
        """Open a listener at the address of the interface; `stack.listen` has more."""
        return self.stack.listen(host, port, dscp=dscp, ttl=ttl)

    def connect(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        *,
        dscp: int | None = None,
        ttl: int | None = None,
    ) -> NetworkStream:
        """Open a stream to a peer; `stack.set_ip` changes DSCP and TTL later."""
        return self.stack.connect(host, port, timeout, dscp=dscp, ttl=ttl)

    def attach(self, connection: int, stream: ByteStream) -> None:
        """Join a stream to the device's LLP."""
        self.stack.attach(connection, stream)

    def detach(self, connection: int, timeout: float = 2.0) -> None:
        """Take a connection from the LLP; FIN follows what the device has sent."""
        self.stack.detach(connection, timeout)

    def stream_end(self, connection: int) -> StreamEnd | None:
        """How the stream of a connection ended, once the LLP has said that it is over."""
        return self.stack.stream_end(connection)
