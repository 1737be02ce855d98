"""The host link: gateware, driver, board."""
