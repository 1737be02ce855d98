"""Tests of what in the benchmarks is not simulation."""
