"""Tests of gateware/rdmap/atomic."""
