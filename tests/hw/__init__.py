"""Tests of the synthesis flow."""

FAST = False  # synthesizes whole devices
