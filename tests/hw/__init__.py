"""Tests of the synthesis flow."""
