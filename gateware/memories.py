"""What synthesis is told of memories."""

NO_COLLISION = {"no_rw_check": 1}
"""Attributes of a memory of which no word is ever used that was read in the cycle in which it was
written; without them yosys builds logic that keeps the old word."""
