"""Encoding of responses: versions and tables, JSON, YAML, protobuf, errors, warnings."""
