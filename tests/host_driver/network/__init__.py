"""Tests of the driver's part of the network: literal frames, and a port in simulated time."""
