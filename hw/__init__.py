"""Hardware description shared by gateware and driver, boards, and the synthesis flow."""
