"""The simulated Ethernet wire: addresses, impairments, and the ends that frames come from."""
