"""What the driver needs of a device that has a network of its own.

The driver opens and closes connections, by frames; the device's TCP engine keeps them while they
are established: data, acknowledgments, retransmission, FIN and RST. Frames that belong to no
connection of the engine come to the driver (FlexTOE's split; network interfaces of Chelsio have
the same border).

Positions of TCP are 32-bit sequence numbers as on the wire. Times are integer microseconds of the
device's clock, which is that of a simulation or the wall's; it never goes back.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any, Protocol, runtime_checkable

from stagecoach.host_driver.errors import StagecoachError
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.transport.base import Transport

ETHERNET_HEADER_OCTETS = 14
"""Destination, source, EtherType. Frames here have no FCS."""


@dataclass(frozen=True)
class Established:
    """A connection at the moment at which the engine gets it: the handshake is over.

    Attributes
    ----------
    local, remote: address and port. local_mac, remote_mac: six bytes; the latter is that of the
        gateway if the peer is behind one.
    next_sent: SND.NXT, which is SND.UNA: the byte after SYN. next_received: RCV.NXT.
    window: SND.WND in bytes, scaled. update: SEG.SEQ and SEG.ACK of the segment that it is from
        (SND.WL1, SND.WL2).
    send_shift, receive_shift: of the window field (RFC 7323); 0 without the option.
    receive_window: bytes that were last announced.
    maximum_segment_size: bytes of data in a segment that is sent: the peer's MSS, or less where
        the path takes less.
    selective_acknowledgments: both ends agreed on them (RFC 2018).
    round_trip_us: of the handshake; `None` if SYN was retransmitted (Karn).
    syn_lost: SYN was retransmitted: the congestion window begins with one segment (RFC 5681, 3.1).
    dscp, ttl: of all packets of the connection until `set_ip` changes them.
    """

    local: tuple[IPv4Address, int]
    remote: tuple[IPv4Address, int]
    local_mac: bytes
    remote_mac: bytes
    next_sent: int
    next_received: int
    window: int
    update: tuple[int, int]
    send_shift: int
    receive_shift: int
    receive_window: int
    maximum_segment_size: int
    selective_acknowledgments: bool
    round_trip_us: int | None
    syn_lost: bool
    dscp: int
    ttl: int


@dataclass(frozen=True)
class Ended:
    """The engine forgot a connection; frames of it come to the driver from now on.

    Attributes
    ----------
    handle: of the connection. how: it ended. next_sent, next_received: SND.NXT and RCV.NXT, with
        which TIME-WAIT answers. closed_first: whether this end sent the first FIN, or both at
        once: it waits in TIME-WAIT. peer_closed: whether the peer's FIN had come, with all bytes
        before it.
    """

    handle: int
    how: StreamEnd
    next_sent: int
    next_received: int
    closed_first: bool
    peer_closed: bool


@dataclass(frozen=True)
class ConnectionInfo:
    """How a connection of the engine does, as `ss -ti` shows it. Bytes and microseconds.

    Attributes
    ----------
    state: of RFC 9293. smoothed_rtt_us, rtt_variance_us: `None` before the first measurement.
    rto_us: of the next retransmission. congestion_window, slow_start_threshold. send_window: of
        the peer. receive_window: announced. in_flight: sent, not acknowledged. queued: not sent.
    segments_sent, segments_received, octets_sent, octets_received, retransmissions: since the
        engine has the connection. One in gateware counts modulo 2^32, and bytes that were received
        once and in order.
    unacknowledged, next_sent, next_received: SND.UNA, SND.NXT and RCV.NXT. An ICMP error is
        believed only if it quotes a sequence number between the first two (RFC 5927, 4.1).
    """

    state: str
    smoothed_rtt_us: int | None
    rtt_variance_us: int | None
    rto_us: int
    congestion_window: int
    slow_start_threshold: int
    maximum_segment_size: int
    send_window: int
    receive_window: int
    in_flight: int
    queued: int
    segments_sent: int
    segments_received: int
    octets_sent: int
    octets_received: int
    retransmissions: int
    unacknowledged: int
    next_sent: int
    next_received: int


@dataclass(frozen=True)
class Link:
    """How the wire of an interface is.

    Attributes
    ----------
    carrier: `up`, or why frames are lost: `down: no peer yet`, or `lost: ` and the reason.
    refused: what the other end sent that is no frame, by name.
    """

    carrier: str
    refused: dict[str, int]

    def explain(self, text: str) -> str:
        """The text of an error that something did not come, and what the wire has to do with it.

        >>> Link("down: no peer yet", {}).explain("192.0.2.1 does not answer ARP requests")
        '192.0.2.1 does not answer ARP requests (carrier down: no peer yet)'
        """
        return text if self.carrier == "up" else f"{text} (carrier {self.carrier})"


HEAD_OCTETS = 128
"""Bytes of a frame that `FrameHead` has at most: all headers, with options."""


@dataclass(frozen=True)
class FrameHead:
    """A frame that passed the interface.

    Attributes
    ----------
    time_us: when. sent: by this device. octets: of the whole frame. head: its first `HEAD_OCTETS`.
    """

    time_us: int
    sent: bool
    octets: int
    head: bytes


class SharedMemory(Protocol):
    """Memory that the engine of a device and the driver read and write.

    Attributes
    ----------
    address: of its first byte, for the engine.
    """

    address: int

    def read(self, at: int, octets: int) -> bytes:
        """The bytes at a place of it."""
        ...

    def write(self, at: int, data: bytes) -> None:
        """Put bytes at a place of it; the engine sees them when this returns."""
        ...

    def close(self) -> None:
        """Give it back; the engine uses it no more."""
        ...


@runtime_checkable
class NetworkHost(Protocol):
    """What the driver of a TCP engine in gateware needs of the transport of its device.

    Calls may come from any thread, and raise `DeviceClosed` after the device's end.
    """

    def read_register(self, address: int) -> int:
        """Return the 32-bit register at a byte address."""
        ...

    def write_register(self, address: int, value: int) -> None:
        """Write a 32-bit register; reads and writes happen in the order of the calls."""
        ...

    def allocate(self, octets: int, alignment: int = 8) -> SharedMemory:
        """Memory for the engine, that begins at a multiple of `alignment` there.

        Raises `TransportError` if there is none any more.
        """
        ...

    def now_us(self) -> int:
        """The time."""
        ...

    def wait_network(self, until_us: int | None) -> None:
        """Wait until the interrupt of the network is high or rose, or it is so late.

        Also until `wake_network` is called. It may return too early.
        """
        ...

    def wake_network(self) -> None:
        """End a `wait_network`, also the next one if none is under way."""
        ...

    def pause(self) -> AbstractContextManager[None]:
        """As `NetworkPort.pause`; the driver's thread is the one in `wait_network`."""
        ...

    def new_lock(self) -> Any:
        """As `NetworkPort.new_lock`."""
        ...

    def frame_heads(self) -> list[FrameHead]:
        """As `NetworkPort.frame_heads`."""
        ...

    def link(self) -> Link:
        """As `NetworkPort.link`."""
        ...


@runtime_checkable
class NetworkPort(Protocol):
    """Raw frames, and connections of the engine. Calls may come from any thread.

    Calls raise `DeviceClosed` after the device's end, `KeyError` for a handle that is not known.
    Events and frames of a connection that ended are in order: `Ended` is there before frames
    that the engine no longer takes.
    """

    @property
    def engine(self) -> str:
        """What stands there: `gateware`, or `reference`, the reference model in software."""
        ...

    @property
    def maximum_connections(self) -> int:
        """Connections that the engine keeps at once."""
        ...

    def now_us(self) -> int:
        """The time."""
        ...

    def send_frame(self, frame: bytes) -> bool:
        """Send a frame, without FCS; `False` if there is no room, and it is not taken."""
        ...

    def receive_frame(self) -> bytes | None:
        """The next frame that is no business of the engine; `None` if there is none.

        A bounded queue: more frames than it holds are dropped and counted.
        """
        ...

    def answer(self, address: IPv4Address) -> bool:
        """Have the device answer ARP and echo requests for the address from now on, by itself.

        They do not come as frames then, but for those that it leaves. `False`: it cannot.
        """
        ...

    @property
    def dropped_frames(self) -> int:
        """Frames that the queue of `receive_frame` had no room for."""
        ...

    @property
    def frame_fates(self) -> dict[str, int]:
        """What became of the frames of the wire, as far as the engine counts them: names are those
        of `hw.interface.network_entries.FrameFate` in lower case. Beside them, of those that are
        `raw`: requests that the device has `answered`, or left `unanswered` because it was busy.
        And `urgent`: segments of connections of the engine with an urgent pointer; the reference
        TCP has it alone.
        """
        ...

    def take_ended(self) -> Ended | None:
        """The next connection that ended, or `None`.

        Bytes of its stream that were not received can be, until the next call.
        """
        ...

    def take_doubtful(self) -> int | None:
        """The handle of the next connection with R1 retransmissions that were not answered.

        `None` if there is none. A connection comes once, and again only after an answer (RFC 9293,
        3.8.3, MUST-20).
        """
        ...

    def wait(self, until_us: int | None) -> None:
        """Wait until a frame or an `Ended` is there, `wake` was called, or it is so late.

        Also until a connection is doubtful, and until bytes, FIN or room came for one that no QP
        has.

        It may return too early. Simulated time passes while a thread of a program waits, too.
        """
        ...

    def wake(self) -> None:
        """End a `wait`, also the next one if none is under way."""
        ...

    def pause(self) -> AbstractContextManager[None]:
        """A program's thread waits in this block for something that comes of the network.

        Simulated time passes only while all threads of programs wait. Once the driver's thread
        has done something and is back in `wait`, this thread counts as running until it comes to
        `pause` again: so it looks then at what it waits for, and the driver's thread notifies it
        before it waits.
        """
        ...

    def new_lock(self) -> Any:
        """A re-entrant lock, as `threading.RLock` and for a `threading.Condition`.

        Threads that wait for it wait as in `pause`: who has it may call the port, which may take
        simulated time.
        """
        ...

    def establish(self, connection: Established, early: tuple[bytes, ...] = ()) -> int:
        """Give a connection to the engine, with frames that came for it before: its handle.

        Raises `TransportError` if it has no room or knows these endpoints already.
        """
        ...

    def readable(self, handle: int) -> bool:
        """Whether `receive` has something to return, or the stream has ended there."""
        ...

    def send(self, handle: int, octets: bytes) -> int:
        """Write to the stream before the LLP has it; returns how many bytes were taken.

        Raises `StreamClosed`.
        """
        ...

    def receive(self, handle: int, maximum: int) -> bytes:
        """Take up to so many bytes of the stream before the LLP has it; nothing if none is there.

        Raises `StreamClosed` if none will come any more; with a maximum of 0 it tells just that.
        """
        ...

    def attach(self, handle: int, connection: int) -> None:
        """Join a connection's stream to the LLP connection of a QP: all bytes not received."""
        ...

    def detach(self, connection: int, timeout: float) -> None:
        """Take it from the LLP after sending what the device has sent, then send FIN.

        Raises `TransportError` as `Transport.detach` does.
        """
        ...

    def shutdown(self, handle: int) -> None:
        """Send FIN after all bytes that were sent; may be called again.

        What the peer still sends is acknowledged and discarded: `receive` has no more.
        """
        ...

    def abort(self, handle: int) -> None:
        """Send RST, forget the connection; may be called again. `Ended` tells of it."""
        ...

    def set_segment_size(self, handle: int, octets: int) -> None:
        """The path takes less (RFC 1191): segments from now on are no longer than this.

        The LLP announces it as an event EMSS. Raises `ValueError` below 1.
        """
        ...

    def set_remote_mac(self, handle: int, mac: bytes) -> None:
        """The peer, or the gateway to it, has another MAC address from now on.

        Raises `ValueError` unless it has six bytes.
        """
        ...

    def set_ip(self, handle: int, dscp: int, ttl: int) -> None:
        """All packets of the connection have these from now on (RFC 9293, MUST-48, MUST-49).

        Raises `ValueError` unless the DSCP is 0 to 63 and the TTL 1 to 255.
        """
        ...

    def frame_heads(self) -> list[FrameHead]:
        """The headers of the last frames, also of those of connections, the oldest first."""
        ...

    def link(self) -> Link:
        """How the wire is, also after the device's end."""
        ...

    def info(self, handle: int) -> ConnectionInfo:
        """How it does."""
        ...


@runtime_checkable
class NetworkTransport(Transport, Protocol):
    """A device with a network of its own; `listen` and `connect` are the driver's then."""

    @property
    def network(self) -> NetworkPort:
        """Its frames and connections."""
        ...

    def stream_end(self, connection: int) -> StreamEnd | None:
        """How the stream of a connection ended, once the LLP has said that it is over.

        Good until `detach`; `None` if that is not known. A FIN of the peer is the end also if the
        connection was reset or timed out after it.
        """
        ...


def note_carrier(error: BaseException | None, transport: Transport) -> None:
    """Notes on an error of a device that its wire carries nothing, unless the text says so."""
    if isinstance(error, StagecoachError) and isinstance(transport, NetworkTransport):
        carrier = transport.network.link().carrier
        if carrier != "up" and carrier not in str(error):
            error.add_note(f"carrier {carrier}")
