"""Tests of gateware/wishbone."""
