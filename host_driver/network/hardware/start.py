"""A network's start: is it one that the driver knows, and what it is told before anything else."""

import secrets
import time
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from stagecoach.host_driver import network_registers as registers
from stagecoach.host_driver.errors import DeviceError
from stagecoach.host_driver.network.ethernet import check_mac
from stagecoach.host_driver.network.hardware.commands import NetworkCommands
from stagecoach.host_driver.network.hardware.frame_queues import (
    QueueSizes,
    ReceiveQueue,
    SendQueue,
)
from stagecoach.host_driver.network.hardware.handover import (
    R2_US,
    RTO_MAXIMUM_US,
    delayed_ack,
)
from stagecoach.host_driver.network.hardware.memory import check_ring
from stagecoach.host_driver.network.settings import MAXIMUM_MTU, MINIMUM_MTU

_SECRET_WORDS = (
    registers.NETWORK_SECRET_0,
    registers.NETWORK_SECRET_1,
    registers.NETWORK_SECRET_2,
    registers.NETWORK_SECRET_3,
)
_LEAST_CONNECTIONS, _MOST_CONNECTIONS = 2, 256
_IDLE_SECONDS = 5.0


@dataclass(frozen=True)
class HardwareSettings:
    """Of a network. Raises `ValueError`.

    Attributes
    ----------
    mac: six bytes. rx_ring, tx_ring: bytes of the rings of a connection, powers of two from
        131,072 to 2^30. rto_minimum: in microseconds, 4 to 60,000,000. queues: of frames.
    """

    mac: bytes
    rx_ring: int = 1 << 18
    tx_ring: int = 1 << 18
    rto_minimum: int = 200_000
    queues: QueueSizes = field(default_factory=QueueSizes)

    def __post_init__(self) -> None:
        check_mac(self.mac)
        check_ring("rx_ring", self.rx_ring)
        check_ring("tx_ring", self.tx_ring)
        if not 4 <= self.rto_minimum <= RTO_MAXIMUM_US:
            raise ValueError(
                f"rto_minimum is {self.rto_minimum} microseconds; allowed: 4 to {RTO_MAXIMUM_US}"
            )


def identify(commands: NetworkCommands) -> tuple[int, int]:
    """Connections and MTU of a device. Raises `DeviceError` if the driver does not know it."""
    magic = commands.read(registers.NETWORK_ID)["magic"]
    if magic != registers.NETWORK_ID.constant:
        raise DeviceError(
            f"the device has NETWORK_ID 0x{magic:08X}; "
            f"allowed: 0x{registers.NETWORK_ID.constant:08X}"
        )
    expected = registers.NETWORK_VERSION.unpack(registers.NETWORK_VERSION.constant or 0)
    known = expected["major"], expected["minor"]
    fields = commands.read(registers.NETWORK_VERSION)
    version = fields["major"], fields["minor"]
    digest = commands.read(registers.NETWORK_INTERFACE)["digest"]
    is_known = version == known and digest == registers.NETWORK_INTERFACE.constant
    if not is_known and not (version[0] == known[0] and version[1] > known[1]):
        raise DeviceError(
            f"the network has interface {version[0]}.{version[1]} with digest 0x{digest:08X}; "
            f"allowed: {known[0]}.{known[1]} with digest "
            f"0x{registers.NETWORK_INTERFACE.constant:08X}, or a later {known[0]}.x"
        )
    sizes = commands.read(registers.NETWORK_SIZES)
    for name, least, most in (
        ("connections", _LEAST_CONNECTIONS, _MOST_CONNECTIONS),
        ("mtu", MINIMUM_MTU, MAXIMUM_MTU),
    ):
        if not least <= sizes[name] <= most:
            raise DeviceError(
                f"the device has NETWORK_SIZES.{name} {sizes[name]}; allowed: {least} to {most}"
            )
    return sizes["connections"], sizes["mtu"]


def switch_off(commands: NetworkCommands) -> None:
    """Have neither frames nor notices any more. Raises `DeviceError` if something goes on."""
    commands.write(registers.NETWORK_ENABLE)
    end = time.monotonic() + _IDLE_SECONDS
    while True:
        late = time.monotonic() >= end
        status = commands.read(registers.NETWORK_STATUS)
        if status["receive_idle"] and status["transmit_idle"]:
            return
        if late:
            raise DeviceError(
                f"the rings of the network are in use for {_IDLE_SECONDS:g} s after they were "
                f"switched off: NETWORK_STATUS has receive_idle {status['receive_idle']}, "
                f"transmit_idle {status['transmit_idle']}; allowed: a device that is reset"
            )


def answer_requests(commands: NetworkCommands, address: IPv4Address) -> bool:
    """Have a network that is on answer ARP and echo requests by itself; `False` if it cannot."""
    if not commands.read(registers.NETWORK_STATUS)["answers"]:
        return False
    commands.write(registers.NETWORK_ADDRESS, value=int(address))
    commands.write(registers.NETWORK_ENABLE, receive=1, transmit=1, answer=1)
    return True


def switch_on(
    commands: NetworkCommands, settings: HardwareSettings, received: ReceiveQueue, sent: SendQueue
) -> None:
    """Tell a network that is off all that it has to know, and enable it."""
    write, wide = commands.write, commands.write_wide
    mac = int.from_bytes(settings.mac, "little")
    wide(registers.NETWORK_MAC_LOW, registers.NETWORK_MAC_HIGH, mac)
    wide(registers.NETWORK_QUEUE_LOW, registers.NETWORK_QUEUE_HIGH, received.memory.address)
    wide(registers.NETWORK_SLOTS_LOW, registers.NETWORK_SLOTS_HIGH, received.slots.address)
    wide(registers.NETWORK_FRAMES_LOW, registers.NETWORK_FRAMES_HIGH, sent.memory.address)
    write(registers.NETWORK_RINGS, **vars(settings.queues))
    write(registers.NETWORK_CONSUMERS)
    write(registers.NETWORK_PRODUCER)
    write(registers.NETWORK_RTO_MINIMUM, value=settings.rto_minimum)
    write(registers.NETWORK_RTO_MAXIMUM, value=RTO_MAXIMUM_US)
    write(registers.NETWORK_R2, value=R2_US)
    write(registers.NETWORK_DELAYED_ACK, value=delayed_ack(settings.rto_minimum))
    for register in _SECRET_WORDS:
        write(register, value=secrets.randbits(register.fields["value"].width))
    write(registers.NETWORK_INTERRUPT_STATUS, queue=1, failed=1)
    write(registers.NETWORK_INTERRUPT_ENABLE, queue=1, failed=1)
    write(registers.NETWORK_ENABLE, receive=1, transmit=1)
