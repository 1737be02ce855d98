"""Tests of stagecoach.sim.soak_tcp."""
