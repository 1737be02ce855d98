"""Tests of the reference model and of the capture tools."""
