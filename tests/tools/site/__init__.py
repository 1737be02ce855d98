"""Tests of what Sphinx needs to make the manual."""
