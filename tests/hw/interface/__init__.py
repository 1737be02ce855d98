"""Tests of the description of the interface, and of what is made from it."""

FAST = True
