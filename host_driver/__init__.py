"""The host driver: verbs, connection manager and transports."""
