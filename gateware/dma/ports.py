"""The AXI port to memory."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_WIDTH

RESPONSE_OKAY = 0
RESPONSE_SLVERR = 2
RESPONSE_DECERR = 3
"""RRESP and BRESP (AMBA AXI, A3.4.4)."""


class AxiSignature(wiring.Signature):
    """AXI4 master with 64-bit addresses, named as AMBA names them.

    Flat members, so that exported names are `m_axi__awaddr` and the like.

    Parameters
    ----------
    data_width, id_width: bits of data and of an ID.
    """

    def __init__(self, data_width: int = WORD_WIDTH, id_width: int = 1):
        super().__init__(
            {
                "awaddr": Out(64),
                "awlen": Out(8),
                "awsize": Out(3),
                "awburst": Out(2),
                "awid": Out(id_width),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(data_width),
                "wstrb": Out(data_width // 8),
                "wlast": Out(1),
                "wvalid": Out(1),
                "wready": In(1),
                "bid": In(id_width),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                "araddr": Out(64),
                "arlen": Out(8),
                "arsize": Out(3),
                "arburst": Out(2),
                "arid": Out(id_width),
                "arvalid": Out(1),
                "arready": In(1),
                "rid": In(id_width),
                "rdata": In(data_width),
                "rresp": In(2),
                "rlast": In(1),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )
