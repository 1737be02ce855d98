"""Malformed traffic against the whole device."""

FAST = False
