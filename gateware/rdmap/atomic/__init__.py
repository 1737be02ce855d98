"""The atomics of RFC 7306, as the responder performs them."""
