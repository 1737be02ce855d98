"""Tests of gateware/rdmap/receive."""
