"""The extensions of RFC 7306 that an end of a stream supports."""

from dataclasses import dataclass
from typing import Literal

from stagecoach.sim.model import rdmap
from stagecoach.sim.model.atomics import AtomicOperation
from stagecoach.sim.model.rdmap import Opcode

EXTENSION_OPCODES = rdmap.IMMEDIATE_OPCODES | {Opcode.ATOMIC_REQUEST, Opcode.ATOMIC_RESPONSE}
EXTENSION_QUEUES = frozenset({rdmap.QN_ATOMIC_RESPONSE})


@dataclass(frozen=True)
class Extensions:
    """How an end supports Atomic Operations and Immediate Data, always both.

    ``strict_rfc7306`` leaves out Swap, whose AOpCode is of the draft only. ``byte_order`` is that
    of the host memory in which Atomic Operations count (RFC 7306, 5.1.1).
    """

    strict_rfc7306: bool = False
    byte_order: Literal["little", "big"] = "little"

    @property
    def operations(self) -> frozenset[int]:
        """AOpCodes that are supported."""
        left_out = {AtomicOperation.SWAP} if self.strict_rfc7306 else set()
        return frozenset(AtomicOperation) - left_out
