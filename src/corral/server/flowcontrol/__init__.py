"""Bounds between clients: fair queues, memory that answers may hold."""
