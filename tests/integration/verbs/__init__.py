"""Every verb with its errors, between two devices: in the compiled simulation and in cocotb."""
