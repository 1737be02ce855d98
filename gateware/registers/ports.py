"""The AXI4-Lite port to the registers."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class AxiLiteSignature(wiring.Signature):
    """AXI4-Lite seen from the master (the host); the device is its slave."""

    def __init__(self, address_width: int = 12):
        super().__init__(
            {
                "awaddr": Out(address_width),
                "awprot": Out(3),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(32),
                "wstrb": Out(4),
                "wvalid": Out(1),
                "wready": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                "araddr": Out(address_width),
                "arprot": Out(3),
                "arvalid": Out(1),
                "arready": In(1),
                "rdata": In(32),
                "rresp": In(2),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )
