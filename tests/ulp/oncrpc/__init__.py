"""Tests of ONC RPC."""
