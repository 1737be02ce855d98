"""Tests of the reference model of TCP."""
