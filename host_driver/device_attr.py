"""What a device has."""

from dataclasses import dataclass

from stagecoach.host_driver.enums import ATOMIC_OPERATIONS, WITH_IMMEDIATE, WROpcode


@dataclass(frozen=True)
class DeviceAttr:
    """What a device has: sizes, and which operations beside those of RFC 5040.

    `version` and `interface_digest` are those of its interface (registers VERSION and INTERFACE);
    version 3.0 has no digest. `max_dm_size` is that of the device's own memory (`DeviceMemory`).
    """

    max_qp: int
    max_cq: int
    max_mr: int
    max_qp_rd_atom: int
    max_sge: int
    version: tuple[int, int]
    interface_digest: int | None = None
    atomics: tuple[WROpcode, ...] = ()
    imm_data: bool = False
    counters: bool = False
    max_srq: int = 0
    max_dm_size: int = 0

    @property
    def operations(self) -> tuple[WROpcode, ...]:
        """What may be posted to a send queue."""
        missing = set(ATOMIC_OPERATIONS) - set(self.atomics)
        if not self.imm_data:
            missing.update(WITH_IMMEDIATE)
        return tuple(opcode for opcode in WROpcode if opcode not in missing)
