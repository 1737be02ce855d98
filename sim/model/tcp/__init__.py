"""Reference model of TCP over IPv4, written from the RFCs; no code of the gateware."""
