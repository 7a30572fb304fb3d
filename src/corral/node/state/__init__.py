"""The state of a machine as its node knows it: facts, the record on disk, events."""
