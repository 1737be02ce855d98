"""rping of rdmacm-utils on a simulated device: the other side may be any iWARP machine."""
