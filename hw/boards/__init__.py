"""Boards: what each one differs in, and the way to its bitstream."""
