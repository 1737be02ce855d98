"""Reference model of MPA, DDP and RDMAP, written from the RFCs; shares no code with the gateware."""
