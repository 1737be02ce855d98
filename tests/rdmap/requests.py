"""Inbound requests as the bits that stand in their queue."""

from typing import Any

from stagecoach.gateware.layouts import Layouts
from stagecoach.sim.cosim.streams import pack, unpack, width_of


def pack_request(layouts: Layouts, request: dict[str, Any]) -> int:
    """The bits of `{"atomic": 0 or 1, "of": fields of the read or of the atomic}`."""
    of = pack(_layout(layouts, request["atomic"]), request["of"])
    return of << 1 | request["atomic"]


def unpack_request(layouts: Layouts, bits: int) -> dict[str, Any]:
    """The inverse of `pack_request`."""
    atomic = bits & 1
    return {"atomic": atomic, "of": unpack(_layout(layouts, atomic), bits >> 1)}


def _layout(layouts: Layouts, atomic: int) -> Any:
    return layouts.inbound_atomic if atomic else layouts.inbound_read


def request_bits(layouts: Layouts) -> int:
    """Bits of any request."""
    return width_of(layouts.inbound_request)
