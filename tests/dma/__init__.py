"""Tests of the host memory access blocks."""
