"""The life of one machine on its node: prepare, start, run, save, stop."""
