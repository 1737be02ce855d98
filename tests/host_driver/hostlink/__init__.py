"""Tests of the driver's end of the host link, against a board of Python."""
