"""rping of rdmacm-utils on a simulated device, with its messages; not run against rping yet."""
