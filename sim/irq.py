"""Which interrupts a simulated device has."""

import enum


class Irq(enum.IntEnum):
    """Outputs that are levels."""

    RNIC = 0  # `irq`
    NETWORK = 1  # `network_irq` of a NIC; always low without one
