"""RPC-over-RDMA version 1 (RFC 8166, RFC 5666) over the verbs: the transport of ONC RPC."""
