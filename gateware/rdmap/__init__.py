"""RDMAP: transmission and reception of RDMA messages (RFC 5040)."""
