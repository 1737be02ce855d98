"""Host memory access: AXI reads and writes, gathering payload, placing received payload."""
