"""What flows between the blocks of the TCP engine."""

from amaranth.lib import data

from stagecoach.gateware.ethernet.layouts import OCTETS_BITS

KEY = data.StructLayout({"local": 32, "remote": 32, "local_port": 16, "remote_port": 16})
"""The ends of a connection, as numbers: the first octet of an address is its highest."""

SEGMENT = data.StructLayout(
    {
        "raw": 1,
        "octets": OCTETS_BITS,
        "header": 8,
        "payload": OCTETS_BITS,
        "key": KEY,
        "sequence": 32,
        "acknowledgment": 32,
        "flags": 8,
        "window": 16,
        "congestion": 2,
    }
)
"""A received frame that was kept. Numbers are as on the wire, the window is not scaled.

raw: not of TCP; then only `octets` counts. octets: of the frame. header: octets before the payload
of TCP. payload: its octets. flags: of TCP, CWR to FIN. congestion: ECN of IPv4 (RFC 3168, 5).
"""
