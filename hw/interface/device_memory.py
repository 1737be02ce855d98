"""Where a board's own memory lies among the addresses of the device."""

DEVICE_MEMORY_BASE = 1 << 48
"""Address of its first byte. Addresses below are those of the host, which has 48 bits at most."""

LEAST_MEMORY, MOST_MEMORY = 1 << 12, 1 << 36
"""Bytes of it, where there is any."""
