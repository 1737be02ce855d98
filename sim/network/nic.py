"""A device with a network of its own: `SimulatedNic("sim://?wire=pair:a&ip=192.0.2.1/24")`."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stagecoach.host_driver.network.address_claim import SHORT, ProbeTimes
from stagecoach.host_driver.network.hardware.start import HardwareSettings
from stagecoach.host_driver.network.hardware_port import HardwarePort
from stagecoach.host_driver.network.network import Network
from stagecoach.host_driver.network.settings import NetworkSettings
from stagecoach.host_driver.network.streams import NetworkStreams
from stagecoach.host_driver.transport.base import TransportError, check_access
from stagecoach.host_driver.transport.network import NetworkPort
from stagecoach.sim.device import Device, DeviceCallError
from stagecoach.sim.irq import Irq
from stagecoach.sim.network.card import Card
from stagecoach.sim.network.channel import Channel, LlpChannel
from stagecoach.sim.network.engine import EngineSettings
from stagecoach.sim.network.gateware_card import GatewareCard, GatewareHost
from stagecoach.sim.network.port import EnginePort
from stagecoach.sim.network.reference_card import ReferenceCard
from stagecoach.sim.network.timeline import CycleTime, WallTime
from stagecoach.sim.transport import SimulatedDevice
from stagecoach.sim.wire.address import MAXIMUM_MTU, WireAddress, parse_wire
from stagecoach.sim.wire.clock import CYCLE_PS, WallClock
from stagecoach.sim.wire.impairments import PS_PER_US
from stagecoach.sim.wire.wire import Wire

if TYPE_CHECKING:
    from stagecoach.gateware.config import RnicConfig

MS_US = 1000

NIC_MTUS = (1500, MAXIMUM_MTU)
"""Of devices with an engine that are built; each takes shorter packets, too."""


class SimulatedNic(NetworkStreams, SimulatedDevice):  # type: ignore[misc]  # other streams
    """A `NetworkTransport`: the compiled device with a wire.

    It has a TCP engine in gateware; with `tcp=reference` in the address, the reference TCP stands
    behind its LLP port instead.

    Parameters
    ----------
    address: of the interface and its wire, `sim://?wire=WIRE&ip=192.0.2.2/24`; see docs/network.md.
    config: sizes of the device; `RnicConfig()` if None.
    time: counts cycles for all cards that have the same one, so that a run repeats exactly;
        without it the wall's time holds, as peers such as Linux have it.
    times: of the probes for the address (RFC 5227).
    library: a built device, or what returns one once the wire is open; that is given a function of
        `trace` and `progress` that builds it.
    record, read_latency, write_latency, progress: as those of `SimulatedDevice`; a device with an
        engine has no LLP port to record.
    memory: bytes of the device's own memory; that of the address if not given.

    The constructor returns when the address is claimed. Raises `WireError` for a wire that cannot
    be opened, `DuplicateAddress` if another interface has the address.

    Attributes
    ----------
    address: that was parsed. stack: the driver's network on it.
    """

    def __init__(
        self,
        address: str | WireAddress,
        config: "RnicConfig | None" = None,
        *,
        time: CycleTime | None = None,
        times: ProbeTimes = SHORT,
        record: bool = False,
        library: Path | Callable[[Callable[..., Path]], Path] | None = None,
        read_latency: int | None = None,
        write_latency: int | None = None,
        memory: int | None = None,
        progress: Callable[[str], None] | None = None,
    ):
        # Only a build needs Amaranth.
        from stagecoach.gateware.config import RnicConfig

        self.address = parse_wire(address) if isinstance(address, str) else address
        self.config = RnicConfig() if config is None else config
        self._cycle_time = time
        self._time = WallTime() if time is None else time
        self._has_engine = self.address.tcp == "engine"
        self._channel = Channel() if self._has_engine else LlpChannel()
        self._open = False
        with contextlib.ExitStack() as undo:
            undo.callback(self._channel.close)
            # Before the device: what is wrong with the wire is told at once.
            self._wire = Wire(self.address, self._time.clock)
            undo.callback(self._wire.close)
            super().__init__(
                self.config,
                record=record,
                library=library(self._build) if callable(library) else library,
                read_latency=read_latency,
                write_latency=write_latency,
                memory=self.address.memory if memory is None else memory,
                progress=progress,
            )
            undo.callback(self._device.close)
            self._card, serve_port = self._make_card()
            self._time._add(self._card)
            undo.callback(self._time._remove, self._card)
            undo.callback(self._card.close, "the device is closed")
            self._port = serve_port()
            undo.callback(self._port.close, "the device is closed")
            self.stack = Network(self._port, self._network_settings(), times)
            undo.pop_all()
        self._open = True

    runs_in_step = False

    @staticmethod
    def check_address(text: str) -> None:
        """Raises `WireAddressError`, a `ValueError`, for an invalid address of a card."""
        parse_wire(text)

    def _build(self, trace: bool = False, progress: Callable[[str], None] | None = None) -> Path:
        if not self._has_engine:
            return super()._build(trace, progress)
        from stagecoach.sim.build import build_nic

        mtu = next(each for each in NIC_MTUS if each >= self.address.mtu)
        return build_nic(self.config, mtu, trace=trace, progress=progress)

    def _start(self, library: Path, **options: Any) -> Device:
        clock = self._time.clock
        return self._sim.Device(
            library,
            self.config.qps,
            network=self._channel.give_away(),
            paced=self._cycle_time is not None,
            clock_offset_ns=clock.offset_ns if isinstance(clock, WallClock) else 0,
            **options,
        )

    def _make_card(self) -> tuple[Card, Callable[[], EnginePort | HardwarePort]]:
        """The card, and what makes its port once the card is served."""
        device, channel, wire, time = self._device, self._channel, self._wire, self._time
        paced = self._cycle_time is not None
        if isinstance(channel, LlpChannel):
            settings = self._engine_settings()
            reference = ReferenceCard(device, channel, wire, settings, time, paced=paced)
            return reference, lambda: reference.port
        card = GatewareCard(device, channel, wire, time, paced=paced)
        host = GatewareHost(self, device, card, time, paced=paced)
        return card, lambda: HardwarePort(host, self._hardware_settings())

    def _hardware_settings(self) -> HardwareSettings:
        address = self.address
        rings = address.rx_ring, address.tx_ring
        return HardwareSettings(address.mac, *rings, address.rto_min_ms * MS_US)

    def _engine_settings(self) -> EngineSettings:
        address = self.address
        sizes = address.mac, address.mtu, address.rx_ring, address.tx_ring
        return EngineSettings(*sizes, address.rto_min_ms * MS_US, self.config.qps)

    def _network_settings(self) -> NetworkSettings:
        address = self.address
        return NetworkSettings(
            address.ip,
            address.mac,
            address.gateway,
            address.mtu,
            ttl=address.ttl,
            dscp=address.dscp,
            receive_buffer=address.rx_ring,
            keep_alive=address.keep_alive_s,
        )

    @property
    def network(self) -> NetworkPort:
        """Frames and connections of the engine."""
        return self._port

    @property
    def carrier(self) -> bool:
        """Whether a peer is at the other end of the wire. Frames are lost until then."""
        return self._card.link().carrier == "up"

    @property
    def _about(self) -> str:
        return f"{super()._about}, {self.address.ip} at {self.address.wire}"

    @property
    def info(self) -> dict[str, Any]:
        """Those of `SimulatedDevice`, what the interface is, and whether its wire has a peer."""
        address = self.address
        return {
            **super().info,
            "kind": "simulated NIC",
            "tcp": self._port.engine,
            "wire": str(address.wire),
            "ip": str(address.ip),
            "gateway": "none" if address.gateway is None else str(address.gateway),
            "mac": address.mac.hex(":"),
            "mtu": address.mtu,
            "carrier": self._card.link().carrier,
        }

    # Registers: through the time if that is counted in cycles.

    def read_register(self, address: int) -> int:
        """Return the 32-bit register at a byte address."""
        if self._cycle_time is None:
            return super().read_register(address)
        return self._access(address)

    def write_register(self, address: int, value: int) -> None:
        """Write a 32-bit register; returns when the device has answered."""
        if self._cycle_time is None:
            super().write_register(address, value)
        else:
            self._access(address, value)

    def _access(self, address: int, value: int | None = None) -> int:
        check_access(address, value or 0)
        try:
            return self._card.access(address, value)
        except DeviceCallError as error:
            raise self._translate(error) from error

    def wait_interrupt(self, timeout: float | None = None) -> bool:
        """Wait for the irq output; False after the time, which is that of the card."""
        if self._cycle_time is None:
            return super().wait_interrupt(timeout)
        until = None
        if timeout is not None:
            until = self._cycle_time._now_ps() + round(timeout * MS_US * 1000) * PS_PER_US
        return self._card.wait_irq(Irq.RNIC, until)

    @property
    def cycles(self) -> int:
        """Cycles that have passed; with a `CycleTime` those in which the device rested, too."""
        return super().cycles if self._cycle_time is None else self._cycle_time.cycles

    def run_cycles(self, cycles: int) -> None:
        """Let at least so many cycles pass."""
        if self._cycle_time is None:
            super().run_cycles(cycles)
            return
        with self._cycle_time.lock:
            until = self._cycle_time._now_ps() + cycles * CYCLE_PS
            self._cycle_time._block(lambda: False, until)

    def run_in_step(self, stream: object) -> None:
        """Not possible: a `CycleTime` does what it is for. Raises TransportError."""
        raise TransportError("a simulated NIC does not run in step; allowed: a common CycleTime")

    def close(self) -> None:
        """End the device; buffers are free when this returns."""
        if not self._open:
            return
        self._open = False
        self.stack.close()
        self._port.close("the device is closed")
        self._card.close("the device is closed")
        self._time._remove(self._card)
        super().close()
        self._channel.close()
        self._wire.close()  # last: its capture may have failed
