"""rping of rdmacm-utils on a simulated device, with its messages."""
