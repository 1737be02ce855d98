"""A device's own memory for peers on the network: a server, and its client."""
