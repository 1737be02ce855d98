"""Cycle-exact benchmarks of the device at its edges."""
