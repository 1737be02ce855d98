"""Tests of the whole device."""

FAST = False
