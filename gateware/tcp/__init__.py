"""TCP (RFC 9293): blocks of the engine for established connections, docs/tcp-engine.md."""
