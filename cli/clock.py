"""The clock for which cycles are told as rates."""

GOAL_HZ = 156.25e6
"""Clock at which 64 bits per cycle are 10 Gbit/s."""
