"""The host driver: verbs, connection manager and transports, named as in pyverbs."""

# In the root of the repository the folder is in reach under its own name: all classes twice.
if __name__ != "stagecoach.host_driver":
    raise ImportError("host_driver is imported as stagecoach.host_driver", name=__name__)

from stagecoach.host_driver.board_memory.errors import (
    MemoryControllerError,
    MemoryNotLevelled,
    MemoryTestFailed,
    NoBoardMemory,
)
from stagecoach.host_driver.cm import ConnectionListener, ConnectionRequest, connect, listen
from stagecoach.host_driver.cm_async import accept_connection, open_connection
from stagecoach.host_driver.cm_responder import AcceptedRequest
from stagecoach.host_driver.comp_channel import CompChannel
from stagecoach.host_driver.context import OBSERVERS, Context
from stagecoach.host_driver.counters import (
    QPCounters,
    QPStatus,
    query_lost,
    query_qp,
    query_stops,
)
from stagecoach.host_driver.cq import CQ
from stagecoach.host_driver.device_attr import DeviceAttr
from stagecoach.host_driver.device_memory import DeviceMemory
from stagecoach.host_driver.enums import (
    AccessFlags,
    EventType,
    QPState,
    SendFlags,
    WCFlags,
    WCOpcode,
    WCStatus,
    WROpcode,
)
from stagecoach.host_driver.errors import (
    DeviceError,
    DeviceMemoryExhausted,
    NoDeviceMemory,
    QPError,
    QPStateError,
    QuotaExceeded,
    ResourceError,
    StagecoachError,
    WaitTimeout,
)
from stagecoach.host_driver.events import AsyncEvent
from stagecoach.host_driver.extras import MissingExtra
from stagecoach.host_driver.mpa_errors import (
    ConnectionRejected,
    InitiatorInitiatorError,
    InsufficientIRD,
    ListenerClosed,
    MalformedFrame,
    NoMatchingRTR,
    StartupError,
    StartupStep,
    StartupTimeout,
)
from stagecoach.host_driver.mpa_startup import RTR
from stagecoach.host_driver.mpa_terms import Connection
from stagecoach.host_driver.mr import MR, FastMR, inc_rkey
from stagecoach.host_driver.network.errors import (
    ConnectionRefused,
    ConnectionReset,
    ConnectionTimedOut,
    DuplicateAddress,
    NetworkSettingsError,
    NoNeighbour,
    NoRoute,
    PortInUse,
)
from stagecoach.host_driver.pd import PD
from stagecoach.host_driver.qp import QP
from stagecoach.host_driver.qp_attr import QPAttr, QPCap, QPInitAttr
from stagecoach.host_driver.quota import Quota
from stagecoach.host_driver.snapshots.publisher import publish
from stagecoach.host_driver.srq import SRQ, SRQAttr, SRQInitAttr
from stagecoach.host_driver.startup_options import StartupOptions
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.terminate import SegmentHeader, Terminate
from stagecoach.host_driver.transport.base import (
    DeviceClosed,
    StreamClosed,
    TransportError,
    TransportTimeout,
)
from stagecoach.host_driver.wr import SGE, WC, RecvWR, SendWR
from stagecoach.hw.interface.causes import Cause

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
    "Cause",
    "CompChannel",
    "Connection",
    "ConnectionListener",
    "ConnectionRefused",
    "ConnectionRejected",
    "ConnectionRequest",
    "ConnectionReset",
    "ConnectionTimedOut",
    "Context",
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
    "SRQAttr",
    "SRQInitAttr",
    "SegmentHeader",
    "SendFlags",
    "SendWR",
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
]

OBSERVERS.append(publish)
