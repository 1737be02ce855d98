"""What is published of a device's own network: addresses, neighbours, connections."""

from contextlib import suppress
from dataclasses import asdict
from typing import Any

from stagecoach.host_driver.network.ethernet import mac_text
from stagecoach.host_driver.network.neighbours import Neighbour
from stagecoach.host_driver.network.network import ConnectionStatus, Network
from stagecoach.host_driver.transport.base import Transport, TransportError
from stagecoach.host_driver.transport.network import FrameHead


def network_snapshot(transport: Transport) -> dict[str, Any] | None:
    """That of the network of a device, `None` if it has none, or has ended."""
    stack = getattr(transport, "stack", None)
    if not isinstance(stack, Network):
        return None
    with suppress(TransportError):
        settings = stack.settings
        return {
            "engine": str(transport.info.get("tcp", "")),
            "address": str(settings.address),
            "mac": mac_text(settings.mac),
            "gateway": "" if settings.gateway is None else str(settings.gateway),
            "mtu": settings.mtu,
            "carrier": str(transport.info.get("carrier", "")),
            "neighbours": [_neighbour(each) for each in stack.neighbours()],
            "connections": [_connection(each) for each in stack.connections()],
            "counters": dict(stack.counters),
            "frames": [_frame(each) for each in stack.frame_heads()],
        }
    return None


def _neighbour(neighbour: Neighbour) -> dict[str, Any]:
    return {
        "address": str(neighbour.address),
        "mac": "" if neighbour.mac is None else mac_text(neighbour.mac),
        "state": neighbour.state.value,
        "age_us": neighbour.age_us,
    }


def _frame(frame: FrameHead) -> dict[str, Any]:
    return {
        "time_us": frame.time_us,
        "sent": frame.sent,
        "octets": frame.octets,
        "head": frame.head.hex(),
    }


def _connection(connection: ConnectionStatus) -> dict[str, Any]:
    (local, local_port), (remote, remote_port) = connection.local, connection.remote
    return {
        "local": f"{local}:{local_port}",
        "remote": f"{remote}:{remote_port}",
        "state": connection.state,
        "qp": connection.qp,
        "soft_error": connection.soft_error,
        "info": None if connection.info is None else asdict(connection.info),
    }
