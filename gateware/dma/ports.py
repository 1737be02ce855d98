"""The AXI port to host memory."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_WIDTH

RESPONSE_OKAY = 0


RESPONSE_SLVERR = 2
"""RRESP and BRESP (AMBA AXI, A3.4.4)."""


class AxiSignature(wiring.Signature):
    """AXI4 master with 64-bit addresses and one ID, named as AMBA names them.

    Flat members, so that exported names are `m_axi__awaddr` and the like.
    """

    def __init__(self, data_width: int = WORD_WIDTH):
        super().__init__(
            {
                "awaddr": Out(64),
                "awlen": Out(8),
                "awsize": Out(3),
                "awburst": Out(2),
                "awid": Out(1),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(data_width),
                "wstrb": Out(data_width // 8),
                "wlast": Out(1),
                "wvalid": Out(1),
                "wready": In(1),
                "bid": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                "araddr": Out(64),
                "arlen": Out(8),
                "arsize": Out(3),
                "arburst": Out(2),
                "arid": Out(1),
                "arvalid": Out(1),
                "arready": In(1),
                "rid": In(1),
                "rdata": In(data_width),
                "rresp": In(2),
                "rlast": In(1),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )
