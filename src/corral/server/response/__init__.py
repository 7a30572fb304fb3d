"""An answer, written: versions and tables, JSON, YAML, protobuf, errors, warnings."""
