"""An object before it is stored: metadata, managed fields, defaults, validation."""
