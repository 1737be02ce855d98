"""Tests of gateware/rdmap/transmit."""
