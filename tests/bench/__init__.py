"""Tests of what in the benchmarks is not simulation."""

FAST = False  # measures whole devices
