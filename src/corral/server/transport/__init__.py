"""Connections: HTTP/1.1, listener, timeouts, SPDY, streams that end with a user's rights."""
