"""Tests of `gateware/queues/fetch`."""
