"""A wire from the MAC of a peer, at its rate."""

from collections import deque
from random import Random
from typing import Any

from cocotb.triggers import RisingEdge

GAP_OCTETS = 24
"""On the wire beside a frame: preamble, FCS and the gap (IEEE 802.3)."""


class Wire:
    """Sends `frames` one after the other, with the octets between them that a wire has.

    ended: the cycle of the last octets of each, and the frame. sends: one is under way.
    """

    def __init__(self, dut: Any, rng: Random) -> None:
        self.dut, self.rng = dut, rng
        self.frames: deque[bytes] = deque()
        self.ended: deque[tuple[int, bytes]] = deque()
        self.sends = False
        self.cycle = 0
        dut.rx__tvalid.value = 0

    async def run(self) -> None:
        dut, rng = self.dut, self.rng
        free = 0  # the octet in which the next frame may begin; there are 8 in a cycle
        rest: list[bytes] = []
        frame = b""
        while True:
            await RisingEdge(dut.clk)
            self.cycle += 1
            now = 8 * self.cycle
            if not rest and self.frames and free <= now:
                frame = self.frames.popleft()
                free = (free if free > now - 8 else now) + len(frame) + GAP_OCTETS
                rest = [frame[at : at + 8] for at in range(0, len(frame), 8)]
            self.sends = bool(rest)
            dut.rx__tvalid.value = self.sends
            if not rest:
                continue
            part = rest.pop(0)
            noise = rng.randbytes(8 - len(part))
            dut.rx__tdata.value = int.from_bytes(part + noise, "little")
            dut.rx__tkeep.value = (1 << len(part)) - 1
            dut.rx__tlast.value, dut.rx__tuser.value = not rest, 0
            if not rest:
                self.ended.append((self.cycle, frame))
