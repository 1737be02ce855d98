"""Reference model of MPA, DDP and RDMAP, written from the RFCs; no code of the gateware."""
