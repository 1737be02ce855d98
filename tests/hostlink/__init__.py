"""The host link in gateware; bad lines, which the driver's tests use, too."""
