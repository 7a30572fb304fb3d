"""A request, read: path, query, body, accepted form, timeout."""
