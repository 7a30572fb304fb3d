"""Parsing of requests: path, query, body, Accept header, timeout."""
