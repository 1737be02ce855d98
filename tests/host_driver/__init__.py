"""Tests of the host driver without a device, of the command line and of the README."""
