"""Tests of gateware/ip."""
