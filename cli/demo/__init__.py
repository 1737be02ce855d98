"""The demonstration: a file crosses between two simulated devices in two processes, and back."""
