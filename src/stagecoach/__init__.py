"""Stagecoach: an open iWARP RNIC, its simulation, and a host driver with the names of pyverbs.

Programs import what they use from here:

* verbs and connections: `Context`, `PD`, `MR`, `CQ`, `QP`, `connect`, `listen` and the others of
  `stagecoach.host_driver`;
* devices: `SimulatedDevice`, `SimulatedNic` with a network of its own, and on a board
  `SerialDevice`, `SerialNic` and `BoardMemory`;
* the gateware: `Rnic`, `RnicNic` with a TCP engine and an Ethernet port, `RnicConfig`;
* tests with cocotb: `run_cocotb`, `RnicPair`, `CocotbDevice`, `start_pair`.

Protocols above the verbs are `stagecoach.rpc` and `stagecoach.nfs`. `stagecoach.pyverbs` has the
signatures of rdma-core's pyverbs, for programs that exist.

A name is imported when it is first used, so a program that only drives a board needs neither
Amaranth nor a simulator. One that needs a package that is not installed raises `MissingExtra`, and
`from stagecoach import *` leaves it out.
"""

from importlib import import_module, metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stagecoach.gateware.config import RnicConfig
    from stagecoach.gateware.nic import RnicNic
    from stagecoach.gateware.rnic import Rnic
    from stagecoach.host_driver import *
    from stagecoach.host_driver.board_memory.memory import BoardMemory
    from stagecoach.host_driver.hostlink.serial_device import SerialDevice
    from stagecoach.host_driver.hostlink.serial_nic import SerialNic
    from stagecoach.host_driver.network.settings import NetworkSettings
    from stagecoach.sim.cosim.device import CocotbDevice, start_pair
    from stagecoach.sim.cosim.pair import RnicPair
    from stagecoach.sim.cosim.runner import run_cocotb
    from stagecoach.sim.network.nic import SimulatedNic
    from stagecoach.sim.network.timeline import CycleTime
    from stagecoach.sim.transport import SimulatedDevice

_VERBS = "host_driver"
_ELSEWHERE = {
    "BoardMemory": "host_driver.board_memory.memory",
    "CocotbDevice": "sim.cosim.device",
    "CycleTime": "sim.network.timeline",
    "NetworkSettings": "host_driver.network.settings",
    "Rnic": "gateware.rnic",
    "RnicConfig": "gateware.config",
    "RnicNic": "gateware.nic",
    "RnicPair": "sim.cosim.pair",
    "SerialDevice": "host_driver.hostlink.serial_device",
    "SerialNic": "host_driver.hostlink.serial_nic",
    "SimulatedDevice": "sim.transport",
    "SimulatedNic": "sim.network.nic",
    "run_cocotb": "sim.cosim.runner",
    "start_pair": "sim.cosim.device",
}
"""Modules of the names that are not in `stagecoach.host_driver`."""

_NEEDS = {
    "CocotbDevice": "cocotb",
    "Rnic": "amaranth",
    "RnicNic": "amaranth",
    "RnicPair": "cocotb",
    "SimulatedNic": "numpy",
    "run_cocotb": "cocotb",
    "start_pair": "cocotb",
}
"""Packages without which a name cannot be imported."""

__version__ = metadata.version(__name__)

__all__ = [
    "CQ",
    "MR",
    "PD",
    "QP",
    "RTR",
    "SGE",
    "SRQ",
    "WC",
    "AcceptedRequest",
    "AccessFlags",
    "AsyncEvent",
    "BoardMemory",
    "Cause",
    "CocotbDevice",
    "CompChannel",
    "Connection",
    "ConnectionListener",
    "ConnectionRefused",
    "ConnectionRejected",
    "ConnectionRequest",
    "ConnectionReset",
    "ConnectionTimedOut",
    "Context",
    "CycleTime",
    "DeviceAttr",
    "DeviceClosed",
    "DeviceError",
    "DeviceMemory",
    "DeviceMemoryExhausted",
    "DuplicateAddress",
    "EventType",
    "FastMR",
    "InitiatorInitiatorError",
    "InsufficientIRD",
    "ListenerClosed",
    "MalformedFrame",
    "MemoryControllerError",
    "MemoryNotLevelled",
    "MemoryTestFailed",
    "MissingExtra",
    "NetworkSettings",
    "NetworkSettingsError",
    "NoBoardMemory",
    "NoDeviceMemory",
    "NoMatchingRTR",
    "NoNeighbour",
    "NoRoute",
    "PortInUse",
    "QPAttr",
    "QPCap",
    "QPCounters",
    "QPError",
    "QPInitAttr",
    "QPState",
    "QPStateError",
    "QPStatus",
    "Quota",
    "QuotaExceeded",
    "RecvWR",
    "ResourceError",
    "Rnic",
    "RnicConfig",
    "RnicNic",
    "RnicPair",
    "SRQAttr",
    "SRQInitAttr",
    "SegmentHeader",
    "SendFlags",
    "SendWR",
    "SerialDevice",
    "SerialNic",
    "SimulatedDevice",
    "SimulatedNic",
    "StagecoachError",
    "StartupError",
    "StartupOptions",
    "StartupStep",
    "StartupTimeout",
    "StreamClosed",
    "StreamEnd",
    "Terminate",
    "TransportError",
    "TransportTimeout",
    "WCFlags",
    "WCOpcode",
    "WCStatus",
    "WROpcode",
    "WaitTimeout",
    "accept_connection",
    "connect",
    "inc_rkey",
    "listen",
    "open_connection",
    "query_lost",
    "query_qp",
    "query_stops",
    "run_cocotb",
    "start_pair",
]


_NAMES = frozenset(__all__)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ImportError:  # a finder that refuses it
        return False


for _name, _package in _NEEDS.items():
    if not _is_installed(_package):
        __all__.remove(_name)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from stagecoach.host_driver.extras import extra_named

    with extra_named():
        value = getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, _VERBS)}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
