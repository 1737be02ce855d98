"""Devices by name: `simulation`, `sim://?wire=tap:tap0&ip=192.0.2.2/24`,
`serial:///dev/ttyUSB0?baud=2000000`, or that with `&ip=192.0.2.10/24` for a board with Ethernet.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from stagecoach.host_driver.board_memory.levelling import Progress
from stagecoach.host_driver.board_memory.memory import no_progress
from stagecoach.host_driver.hostlink.serial_device import SerialDevice
from stagecoach.host_driver.hostlink.serial_link import DEFAULT_BAUD, LinkTimes
from stagecoach.host_driver.hostlink.serial_nic import SerialNic
from stagecoach.host_driver.network.errors import NetworkSettingsError
from stagecoach.host_driver.network.settings import NetworkSettings

SIMULATION = "simulation"
NETWORK_CARD = "sim"
"""Scheme of the addresses of simulated network cards."""
DEVICE_VARIABLE = "STAGECOACH_DEVICE"
"""Of the environment: the device of a program that is told of none; else it is `simulation`."""
TRANSPORTS = "stagecoach.transports"
"""Entry points: devices that are not the driver's, by name."""

ALLOWED = (
    f"allowed: {SIMULATION}, {NETWORK_CARD}://?wire=WIRE&ip=192.0.2.2/24, "
    f"or serial:///dev/ttyUSB0?baud={DEFAULT_BAUD}, with &ip=192.0.2.10/24 if it has Ethernet"
)

MAXIMUM_BAUD = 100_000_000

LOCAL_MAC = b"\x02\x00" + bytes(4)
"""One that is administered locally; the last four bytes are those of the IP address."""

_SECONDS = {field.name.removesuffix("_seconds"): field.name for field in fields(LinkTimes)}
_INTERFACE = ("ip", "gw", "mac")


class DeviceNameError(ValueError):
    """A name that is not that of a device; the message says what is allowed."""


@dataclass(frozen=True)
class Locator:
    """A device that can be opened, as a program is told of it.

    port: of a serial device; `None` is a simulated one. options: of a serial device: its baud, and
    fields of `LinkTimes`. is_card: whether it is a simulated network card. interface: address of a
    serial device with a network of its own, else `None`.
    """

    text: str = SIMULATION
    port: str | None = None
    options: tuple[tuple[str, float], ...] = ()
    is_card: bool = False
    interface: NetworkSettings | None = None

    @property
    def is_simulated(self) -> bool:
        """Whether it is the compiled simulation in this process, with sockets for its LLP."""
        return self.port is None and not self.is_card

    @property
    def has_network(self) -> bool:
        """Whether it has a network of its own."""
        return self.is_card or self.interface is not None

    def open(
        self,
        *,
        library: Callable[..., Path] | None = None,
        record: bool = False,
        memory_progress: Progress = no_progress,
        **simulation: Any,
    ) -> Any:
        """Opens it: a `Transport`. `library`, which is called for a simulated device only, and
        `simulation` are options of that. A network card gives `library` a function that builds it,
        with arguments as those of `sim.build.build_device`. `memory_progress` is told of the start
        of a board's memory.
        """
        if self.is_card:
            return _transport(NETWORK_CARD)(self.text, library=library, record=record, **simulation)
        if self.port is None:
            built = library() if library is not None else None
            return _transport(SIMULATION)(library=built, record=record, **simulation)
        options: dict[str, Any] = dict(self.options)
        baud = options.pop("baud", DEFAULT_BAUD)
        if self.interface is not None:
            return SerialNic(
                self.port,
                self.interface,
                baud,
                link_times=LinkTimes(**options),
                memory_progress=memory_progress,
            )
        return SerialDevice(self.port, baud, record=record, **options)


def _transport(name: str) -> Any:
    """The class of an entry point. Raises `DeviceNameError` if the installation has none."""
    found = list(entry_points(group=TRANSPORTS, name=name))
    if not found:
        raise DeviceNameError(
            f"the installed package has no transport {name!r}; allowed: after it is installed again"
        )
    return found[0].load()


SIMULATED = Locator()
"""The simulated device."""


def parse_device(text: str) -> Locator:
    """The device of a name. Raises `DeviceNameError`."""
    if text == SIMULATION:
        return SIMULATED
    if text.startswith(f"{NETWORK_CARD}:"):
        try:
            _transport(NETWORK_CARD).check_address(text)
        except ValueError as error:
            raise DeviceNameError(str(error)) from None
        return Locator(text, is_card=True)
    parts = urlsplit(text)
    if parts.scheme != "serial" or parts.netloc or not parts.path.strip("/") or parts.fragment:
        raise DeviceNameError(f"device is {text!r}; {ALLOWED}")
    options: dict[str, float] = {}
    interface: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        try:
            if name in _INTERFACE and name not in interface:
                interface[name] = value
                continue
            if name == "baud" and 0 < int(value) <= MAXIMUM_BAUD:
                options["baud"] = int(value)
                continue
            if name in _SECONDS and 0 < float(value) <= 3600:
                options[_SECONDS[name]] = float(value)
                continue
        except ValueError:
            pass
        raise DeviceNameError(
            f"{name}={value} in device {text!r}; allowed: baud, 1 to {MAXIMUM_BAUD}, and "
            f"{', '.join(_SECONDS)}, seconds above 0; {', '.join(_INTERFACE)}, once each"
        )
    settings = _interface(text, interface) if interface else None
    return Locator(text, parts.path, tuple(options.items()), interface=settings)


def _interface(text: str, given: dict[str, str]) -> NetworkSettings:
    """The interface of a board with Ethernet. Its MAC address follows from the IP address."""
    if "ip" not in given:
        raise DeviceNameError(
            f"{next(iter(given))} without ip in device {text!r}; allowed: ip=192.0.2.10/24"
        )
    try:
        own = NetworkSettings.parse(given["ip"], LOCAL_MAC).own
        mac = LOCAL_MAC[:2] + own.packed
        if "mac" in given:
            mac = bytes.fromhex(given["mac"].replace(":", ""))
        return NetworkSettings.parse(given["ip"], mac, given.get("gw"))
    except (NetworkSettingsError, ValueError) as error:
        raise DeviceNameError(f"device {text!r}: {error}") from None


def device_option(text: str) -> Locator:
    """`parse_device` for argparse."""
    try:
        return parse_device(text)
    except DeviceNameError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
