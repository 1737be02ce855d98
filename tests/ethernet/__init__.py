"""Tests of gateware/ethernet."""
