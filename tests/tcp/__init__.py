"""Tests of gateware/tcp."""
