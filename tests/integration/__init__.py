"""Tests of the whole device."""
