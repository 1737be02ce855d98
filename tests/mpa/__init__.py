"""Tests of `gateware/mpa`."""
