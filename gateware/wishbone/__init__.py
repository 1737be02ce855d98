"""A Wishbone slave in a clock of its own, and the registers by which the host reaches it."""
