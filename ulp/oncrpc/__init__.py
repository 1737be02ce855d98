"""ONC RPC version 2 (RFC 5531) over XDR (RFC 4506): messages, programs, client, server, TCP."""
