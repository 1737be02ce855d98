"""Cores of LiteX on boards: Verilog that is generated when it is needed, and what it has."""
