"""Tests of `gateware/ddp`."""
