"""Tests of stagecoach.sim.soak_tcp."""

FAST = False  # runs whole engines
