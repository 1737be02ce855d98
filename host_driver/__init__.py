"""The host driver: verbs, connection manager and transports, named as in pyverbs."""

from host_driver.answers import DeviceAttr
from host_driver.cm import ConnectionListener, ConnectionRequest, connect, listen
from host_driver.context import Context
from host_driver.cq import CQ
from host_driver.enums import (
    AccessFlags,
    QPState,
    SendFlags,
    WCFlags,
    WCOpcode,
    WCStatus,
    WROpcode,
)
from host_driver.errors import (
    ConnectionRejected,
    DeviceError,
    InitiatorInitiatorError,
    InsufficientIRD,
    ListenerClosed,
    MalformedFrame,
    NoMatchingRTR,
    QPError,
    QPStateError,
    QuotaExceeded,
    ResourceError,
    StagecoachError,
    StartupError,
    StartupStep,
    StartupTimeout,
    WaitTimeout,
)
from host_driver.events import AsyncEvent
from host_driver.extras import MissingExtra
from host_driver.mpa_startup import RTR
from host_driver.mpa_terms import Connection
from host_driver.mr import MR, PD, FastMR, inc_rkey
from host_driver.qp import QP, QPCap, QPInitAttr
from host_driver.quota import Quota
from host_driver.terminate import SegmentHeader, Terminate
from host_driver.transport.base import DeviceClosed, TransportError
from host_driver.wr import SGE, WC, RecvWR, SendWR
from hw.interface.causes import Cause

__all__ = [
    "CQ",
    "MR",
    "PD",
    "QP",
    "RTR",
    "SGE",
    "WC",
    "AccessFlags",
    "AsyncEvent",
    "Cause",
    "Connection",
    "ConnectionListener",
    "ConnectionRejected",
    "ConnectionRequest",
    "Context",
    "DeviceAttr",
    "DeviceClosed",
    "DeviceError",
    "FastMR",
    "InitiatorInitiatorError",
    "InsufficientIRD",
    "ListenerClosed",
    "MalformedFrame",
    "MissingExtra",
    "NoMatchingRTR",
    "QPCap",
    "QPError",
    "QPInitAttr",
    "QPState",
    "QPStateError",
    "Quota",
    "QuotaExceeded",
    "RecvWR",
    "ResourceError",
    "SegmentHeader",
    "SendFlags",
    "SendWR",
    "StagecoachError",
    "StartupError",
    "StartupStep",
    "StartupTimeout",
    "Terminate",
    "TransportError",
    "WCFlags",
    "WCOpcode",
    "WCStatus",
    "WROpcode",
    "WaitTimeout",
    "connect",
    "inc_rkey",
    "listen",
]
