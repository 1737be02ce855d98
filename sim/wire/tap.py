"""A TAP of Linux: frames to and from its network stack (Documentation/networking/tuntap.rst)."""

import errno
import fcntl
import os
import socket
import struct

from stagecoach.sim.wire.errors import (
    NoSuchWire,
    PeerGone,
    WireDown,
    WireError,
    WireInUse,
    WireNotPermitted,
    WireTooNarrow,
    WrongWire,
)

CLONE = "/dev/net/tun"

TUNSETIFF = 0x400454CA
IFF_TAP = 0x0002
IFF_NO_PI = 0x1000

SIOCGIFFLAGS = 0x8913
SIOCGIFMTU = 0x8921
IFF_UP = 0x1
IFF_RUNNING = 0x40

# struct ifreq of netdevice(7): the name, then a union of 24 octets.
IFREQ_FLAGS = struct.Struct("16sh22x")
IFREQ_INTEGER = struct.Struct("16si20x")


class TapEnd:
    """One end of a wire: a TAP that is there and up. Nothing here waits.

    name: of the interface. maximum: bytes of the longest frame; of a longer one comes one more.
    """

    def __init__(self, name: str, maximum: int) -> None:
        self._name = name
        self._maximum = maximum
        # TUNSETIFF would make one that is not there.
        if name not in (known for _, known in socket.if_nameindex()):
            raise NoSuchWire(f"tap:{name}: no such TAP; `stagecoach wire {name}` as root makes it")
        self._file = attach_tap(name)
        if not interface_flags(name) & IFF_UP:
            self.close()
            raise WireDown(f"tap:{name}: it is down; `stagecoach wire {name}` as root sets it up")

    def fileno(self) -> int:
        """What is readable when a frame is there."""
        return self._file

    @property
    def connected(self) -> bool:
        """Whether Linux takes and sends frames. It begins up to a second after the TAP was opened,
        and ends when the interface is set down.
        """
        wanted = IFF_UP | IFF_RUNNING
        try:
            return interface_flags(self._name) & wanted == wanted
        except OSError:
            return False

    def send(self, frame: bytes) -> bool:
        """Gives a frame to Linux; `False` if it has no room for it yet. It is lost while the
        interface is down, or if it was removed; `receive` tells of the latter.
        """
        try:
            os.write(self._file, frame)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True

    def receive(self) -> bytes | None:
        """The next frame of Linux, or `None`. Raises `PeerGone`."""
        try:
            return os.read(self._file, self._maximum + 1)
        except BlockingIOError:
            return None
        except OSError as error:
            raise PeerGone(f"tap:{self._name}: {error.strerror}; was it removed?") from None

    def close(self) -> None:
        """Closes it; twice is allowed. The TAP stays if it was there before."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


def attach_tap(name: str) -> int:
    """A file of the TAP of a name, which is made if it is not there and the user may do that."""
    try:
        file = os.open(CLONE, os.O_RDWR | os.O_NONBLOCK)
    except FileNotFoundError:
        raise NoSuchWire(f"tap:{name}: no {CLONE}; `modprobe tun` as root makes it") from None
    except OSError as error:
        raise WireNotPermitted(f"tap:{name}: {CLONE}: {error.strerror}") from None
    try:
        fcntl.ioctl(file, TUNSETIFF, IFREQ_FLAGS.pack(name.encode(), IFF_TAP | IFF_NO_PI))
    except OSError as error:
        os.close(file)
        raise _attach_error(name, error) from None
    return file


def interface_flags(name: str) -> int:
    """The flags of an interface (IFF_UP and others)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = fcntl.ioctl(any_socket, SIOCGIFFLAGS, IFREQ_FLAGS.pack(name.encode(), 0))
    _, flags = IFREQ_FLAGS.unpack(request)
    return int(flags)


def interface_mtu(name: str) -> int | None:
    """The MTU of an interface, `None` if it cannot be read."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            request = fcntl.ioctl(any_socket, SIOCGIFMTU, IFREQ_INTEGER.pack(name.encode(), 0))
        except OSError:
            return None
    _, mtu = IFREQ_INTEGER.unpack(request)
    return int(mtu)


def require_mtu(name: str, mtu: int) -> None:
    """Raises `WireTooNarrow` if a TAP is known to have a smaller MTU."""
    found = interface_mtu(name)
    if found is not None and mtu > found:
        raise WireTooNarrow(
            f"tap:{name}: mtu is {mtu}; allowed: up to {found}, which the TAP has, or "
            f"`stagecoach wire {name} --mtu {mtu}` as root"
        )


def _attach_error(name: str, error: OSError) -> WireError:
    match error.errno:
        case errno.EPERM:
            return WireNotPermitted(
                f"tap:{name}: this user may not open it; `stagecoach wire {name} --user USER` as "
                "root gives it to a user"
            )
        case errno.EBUSY:
            return WireInUse(f"tap:{name}: another program has it open")
        case errno.EINVAL:
            return WrongWire(f"tap:{name}: an interface, but no TAP; allowed: the name of a TAP")
    return WireError(f"tap:{name}: {error.strerror}")
