"""Tests of host_driver/board_memory."""
