"""What a network can do to a connection, each with a name; a text has one line."""

from stagecoach.host_driver.errors import StagecoachError
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.transport.base import StreamClosed, TransportError


class NetworkSettingsError(StagecoachError, ValueError):
    """Address, prefix, gateway, MAC address or MTU cannot be those of an interface."""


class DuplicateAddress(TransportError):
    """Another interface has this IPv4 address (RFC 5227)."""


class NoRoute(TransportError):
    """No way leads to the address: it is outside the prefix and there is no gateway, or it is no
    address of one peer."""


class NoNeighbour(TransportError):
    """The peer, or the gateway before it, does not answer ARP requests."""


class PortInUse(TransportError):
    """A listener has this port already, or none is free."""


class ConnectionRefused(TransportError, ConnectionRefusedError):
    """The peer answered the SYN with RST, or with an ICMP error that says so."""


class ConnectionReset(StreamClosed, ConnectionResetError):
    """The peer sent RST."""


class ConnectionTimedOut(StreamClosed):
    """The peer acknowledges nothing: the connection was given up after R2 (RFC 9293, 3.8.3)."""


def stream_error(how: StreamEnd, text: str) -> StreamClosed:
    """The error of a connection that ended so."""
    match how:
        case StreamEnd.RESET:
            return ConnectionReset(text)
        case StreamEnd.TIMED_OUT:
            return ConnectionTimedOut(text)
    return StreamClosed(text)
