"""The extensions of RFC 7306 that an end of a stream supports."""

from dataclasses import dataclass
from typing import Literal

from sim.model import rdmap
from sim.model.atomics import AtomicOperation
from sim.model.rdmap import Opcode

_ATOMIC_OPCODES = frozenset({Opcode.ATOMIC_REQUEST, Opcode.ATOMIC_RESPONSE})
EXTENSION_OPCODES = rdmap.IMMEDIATE_OPCODES | _ATOMIC_OPCODES
_ATOMIC_QUEUES = frozenset({rdmap.QN_ATOMIC_RESPONSE})


@dataclass(frozen=True)
class Extensions:
    """How an end supports Immediate Data and, with ``atomics``, Atomic Operations.

    ``strict_rfc7306`` leaves out Swap, whose AOpCode is of the draft only. ``byte_order`` is that
    of the host memory in which Atomic Operations count (RFC 7306, 5.1.1).
    """

    atomics: bool = True
    strict_rfc7306: bool = False
    byte_order: Literal["little", "big"] = "little"

    @property
    def opcodes(self) -> frozenset[Opcode]:
        """Opcodes that are supported beside those of RFC 5040."""
        return rdmap.IMMEDIATE_OPCODES | (_ATOMIC_OPCODES if self.atomics else frozenset())

    @property
    def queues(self) -> frozenset[int]:
        """Queues that there are beside those of RFC 5040."""
        return _ATOMIC_QUEUES if self.atomics else frozenset()

    @property
    def operations(self) -> frozenset[int]:
        """AOpCodes that are supported."""
        left_out = {AtomicOperation.SWAP} if self.strict_rfc7306 else set()
        return frozenset(AtomicOperation) - left_out
