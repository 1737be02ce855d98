"""NFS version 3 and MOUNT version 3 (RFC 1813): server and client, over RDMA (RFC 5667) or TCP."""
