"""Tests of the tools of development."""

FAST = False  # builds whole devices, pages and images
