"""Ways to reach a device: the interface that the driver uses, and its implementations."""
