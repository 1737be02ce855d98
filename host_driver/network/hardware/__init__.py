"""The parts of `HardwarePort`: how the driver speaks to a TCP engine in gateware."""
