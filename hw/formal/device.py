"""Every block of the device, as the device builds it, and the streams of its ports."""

import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from amaranth.hdl import Module, UnusedElaboratable
from amaranth.lib import stream, wiring

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.axi_arbiter import AxiReadArbiter, AxiWriteArbiter
from stagecoach.gateware.dma.axi_crossing import AxiCrossing
from stagecoach.gateware.dma.axi_error_slave import AxiErrorSlave
from stagecoach.gateware.dma.axi_isolator import AxiIsolator
from stagecoach.gateware.dma.axi_router import AxiReadRouter, AxiWriteRouter
from stagecoach.gateware.ethernet.frame_output import FrameOutput
from stagecoach.gateware.ethernet.link_watch import LinkWatch
from stagecoach.gateware.ethernet.mac_streams import MacStreams
from stagecoach.gateware.ethernet.raw_receive import RawReceive
from stagecoach.gateware.ethernet.raw_transmit import RawTransmit
from stagecoach.gateware.hostlink.nic_link import NicLink
from stagecoach.gateware.hostlink.serial_nic import SerialNic
from stagecoach.gateware.hostlink.serial_rnic import SerialRnic
from stagecoach.gateware.ip.request_header import RequestHeader
from stagecoach.gateware.ip.responder import Responder
from stagecoach.gateware.nic import RnicNic
from stagecoach.gateware.rnic import Rnic
from stagecoach.gateware.tcp.builder import Builder
from stagecoach.gateware.tcp.congestion import Congestion
from stagecoach.gateware.tcp.engine import TcpEngine
from stagecoach.gateware.tcp.receive_side import ReceiveSide
from stagecoach.gateware.tcp.ring_reader import RingReader
from stagecoach.gateware.tcp.rto import RetransmissionTimeout
from stagecoach.gateware.tcp.segment_list import SegmentList
from stagecoach.gateware.tcp.segment_store import SegmentStore
from stagecoach.gateware.tcp.timers import Timers
from stagecoach.gateware.tcp.transmit_path import TransmitPath
from stagecoach.gateware.tcp.transmit_processor import TransmitProcessor
from stagecoach.gateware.tcp.transmit_ring import TransmitRing
from stagecoach.gateware.wishbone.window import WishboneWindow
from stagecoach.hw.formal.harness import GATEWARE, is_block, without_reset
from stagecoach.hw.interface.device_memory import DEVICE_MEMORY_BASE

# Only blocks that are asked for are elaborated.
warnings.simplefilter("ignore", UnusedElaboratable)

DEVICES: dict[str, Callable[[], wiring.Component]] = {
    "rnic": lambda: Rnic(RnicConfig()),
    "board": lambda: SerialRnic(RnicConfig(), 100_000_000, 2_000_000),
    "rnic 32": lambda: Rnic(RnicConfig(data_width=32)),
    "rnic 128": lambda: Rnic(RnicConfig(data_width=128)),
    # Of the TCP engine (docs/tcp-engine.md): parts of the NIC, which alone are exported sooner.
    "receive side": ReceiveSide,
    "rto": RetransmissionTimeout,
    "congestion": Congestion,
    "frame output": FrameOutput,
    # Of a NIC that answers requests.
    "request header": RequestHeader,
    "responder": Responder,
    "raw receive": RawReceive,
    "raw transmit": RawTransmit,
    "segment list": SegmentList,
    "segment store": lambda: SegmentStore(RnicConfig()),
    "transmit ring": TransmitRing,
    "timers": Timers,
    "builder": Builder,
    "ring reader": lambda: RingReader(RnicConfig()),
    "transmit processor": TransmitProcessor,
    "transmit path": lambda: TransmitPath(RnicConfig()),
    "tcp engine": TcpEngine,
    # Of boards with Ethernet and memory, which have no device yet.
    "link watch": LinkWatch,
    "mac streams": MacStreams,
    "memory window": WishboneWindow,
    "read router": lambda: AxiReadRouter(DEVICE_MEMORY_BASE),
    "write router": lambda: AxiWriteRouter(DEVICE_MEMORY_BASE),
    "read arbiter": AxiReadArbiter,
    "write arbiter": AxiWriteArbiter,
    "crossing": AxiCrossing,
    "isolator": AxiIsolator,
    "error slave": AxiErrorSlave,
    "nic": lambda: RnicNic(RnicConfig()),
    "nic link": lambda: NicLink(RnicConfig(), 100_000_000, 10_000_000, 29),
    "serial nic": lambda: SerialNic(RnicConfig(), 100_000_000, 2_000_000, 29),
}
"""Devices that together have every block; of all but the first one only other classes count."""


def submodules(component: wiring.Component) -> dict[str, wiring.Component]:
    """Blocks that a block is built of. Elaborates it, which can be done once."""
    module = component.elaborate(None)
    if not isinstance(module, Module):
        return {}
    found = {}
    for name, (submodule, _) in module._named_submodules.items():
        block, _ = without_reset(submodule)
        if is_block(block):
            found[name] = block
    return found


def _walk(
    component: wiring.Component, path: str, known: Collection[str]
) -> Iterator[tuple[str, wiring.Component]]:
    """A block and all below it, but for those of known classes.

    Each is handed out before it is elaborated itself.
    """
    if class_name(component) in known:
        return
    yield path, component
    for name, submodule in submodules(component).items():
        yield from _walk(submodule, f"{path}/{name}", known)


def class_name(component: wiring.Component) -> str:
    """Module and class, below `gateware`."""
    kind = type(component)
    return f"{kind.__module__.removeprefix(GATEWARE)}.{kind.__name__}"


def _parameters(component: wiring.Component) -> str:
    """What tells instances of one class apart: signature, and what the constructor kept."""
    kept = {
        name: value
        for name, value in vars(component).items()
        if not name.startswith("_MustUse") and name not in component.signature.members
    }
    return f"{component.signature!r} {kept!r}"


@dataclass(frozen=True)
class Place:
    """A block of the device.

    path: where it is, as `device/submodule/submodule`.
    name: module and class, below `gateware`.
    outputs, inputs: its streams.
    """

    path: str
    name: str
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]


@cache
def blocks() -> tuple[Place, ...]:
    """Every block; of those of the same class with the same parameters there is one."""
    found: list[Place] = []
    seen: set[str] = set()
    classes: set[str] = set()
    for device, make in DEVICES.items():
        earlier = set(classes)
        if device.startswith("rnic "):
            earlier.discard("rnic.Rnic")
        for path, component in _walk(make(), device, earlier):
            name = class_name(component)
            classes.add(name)
            key = f"{name} {_parameters(component)}"
            if key not in seen:
                seen.add(key)
                ports = list(streams(component))
                outputs = tuple(port for port, is_output, _ in ports if is_output)
                inputs = tuple(port for port, is_output, _ in ports if not is_output)
                found.append(Place(path, name, outputs, inputs))
    return tuple(found)


def stream_names(device: str) -> list[str]:
    """Every output stream of a device, as the flat netlist names it, without `__valid`."""
    found = []
    for path, component in _walk(DEVICES[device](), "", ()):
        for name, is_output, _ in streams(component):
            if is_output:
                flat = name.replace("[", "__").replace("]", "").replace(".", "__")
                found.append(".".join([*path.split("/")[1:], flat]))
    return found


def block(path: str) -> wiring.Component:
    """The block at a place, not elaborated yet."""
    device, *names = path.split("/")
    component = DEVICES[device]()
    for name in names:
        component = submodules(component)[name]
    return component


def streams(interface: Any, path: str = "") -> Iterator[tuple[str, bool, Any]]:
    """Name, whether it is an output, and the stream, of all streams in the ports of a block."""
    for name, member in interface.signature.members.items():
        if member.is_signature:
            yield from _streams_of(getattr(interface, name), f"{path}{name}")


def _streams_of(value: Any, path: str) -> Iterator[tuple[str, bool, Any]]:
    if isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from _streams_of(each, f"{path}[{index}]")
        return
    signature = value.signature
    flipped = isinstance(signature, wiring.FlippedSignature)
    if isinstance(signature.flip() if flipped else signature, stream.Signature):
        yield path, not flipped, value
    else:
        yield from streams(value, f"{path}.")
