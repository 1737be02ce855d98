"""Tests that the examples work as they are."""

FAST = False  # runs programs that open devices
