"""Tests of `gateware/queues`."""
