"""The device inside a cocotb test: models of its ports, and a transport for the driver."""
