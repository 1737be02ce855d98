"""Tests of simulated network cards."""
