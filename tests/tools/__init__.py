"""Tests of the tools of development."""
