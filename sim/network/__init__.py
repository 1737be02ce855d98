"""A simulated network card: the compiled device, the reference TCP behind it, and a wire."""
