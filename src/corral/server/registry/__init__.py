"""The verbs on objects: create, update, patch, apply, delete, list, watch."""
