"""Tests of the reference model."""
