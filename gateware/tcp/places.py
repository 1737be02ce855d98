"""Where something of a connection is under way, and pulses that tell when it begins and ends."""

from typing import Any

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data

RECEIVE_PLACES = data.StructLayout(
    dict.fromkeys(
        ("segment", "ack", "write", "note", "request", "release", "merged", "llp_event"), 1
    )
)
"""Of the receiving side: one bit for each.

segment: found by the lookup, until the processor has done it. ack: an event for the sending side.
write: a job with a note, from the processor's offer until memory has answered. note: until all have
taken it. request: of the LLP port, until it is answered. release: of the LLP port, until it is one
of all releases; merged: one of those, until the processor has done it. llp_event: until the device
takes it.
"""

TRANSMIT_PLACES = data.StructLayout(
    dict.fromkeys(("fpdu", "write", "event", "send", "segment", "failure"), 1)
)
"""Of the sending side: one bit for each.

fpdu: whole in the store, until the processor has done it. write: a job of the ring with a note,
until memory has answered. event: at the processor. send: a segment that waits for the reader.
segment: at the reader, until its frame is built, or it has failed. failure: of a ring, until the
processor has done it.
"""


def offered(m: Module, port: Any) -> Value:
    """Return a pulse for each item of a stream: it is there for the first time."""
    waited = Signal(name=f"{port.valid.name}_waited")
    m.d.sync += waited.eq(port.valid & ~port.ready)
    return port.valid & ~waited
