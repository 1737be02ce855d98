"""The RDMAP transmitter: work requests and requests of the peer become segments."""
