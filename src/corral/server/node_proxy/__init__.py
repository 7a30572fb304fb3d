"""Requests that a node answers: logs, exec, consoles; where they are forwarded."""
