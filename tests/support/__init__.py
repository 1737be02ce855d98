"""What all tests share: running cocotb under pytest, streams, packing."""
