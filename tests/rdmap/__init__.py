"""Tests of `gateware/rdmap`."""
