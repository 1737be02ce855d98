"""Numbers of the LLP port, for gateware, driver and models; docs/architecture.md explains them."""

from enum import IntEnum

CLOSE_OCTETS = 92
"""What the device may send past the window with its request to close: a Terminate."""


class LlpEventKind(IntEnum):
    """What an LLP event says of its connection."""

    RX_AVAILABLE = 0  # value: position up to which received bytes can be requested
    TX_WINDOW = 1  # value: position up to which bytes may be sent
    EMSS = 2  # value: new EMSS in bytes
    CLOSED = 3  # no byte follows the last RX_AVAILABLE; what is sent is discarded
