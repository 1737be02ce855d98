"""RPC-over-RDMA: header, chunk lists, and both ends over simulated devices."""
