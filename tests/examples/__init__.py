"""Tests that the examples work as they are."""
